# layerstep from a fresh clone: `make run`, `make test`. Needs make, pip and Python 3.11 or newer; all else goes into .venv.

VENV := .venv
BIN := $(VENV)/bin
FOUND := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
PYTHON ?= $(FOUND)
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install --constraint constraints.txt

# Read by the shell from the environment and not expanded by make, so that a prompt may hold quotes, $ and spaces.
override PROMPT := $(value PROMPT)
export PROMPT MODEL CORPUS

.PHONY: help run test check lint bench bench-app snapshots soak train clean
.DELETE_ON_ERROR:

help:
	@echo 'make run [PROMPT="..."] [MODEL=...]   open the app'
	@echo 'make test                             lint, types, import contract and all tests but the slow ones'
	@echo 'make check                            the tests alone'
	@echo 'make lint                             ruff, mypy, import contract'
	@echo 'make bench                            the figures, each against a reference in the same run'
	@echo 'make bench-app                        the figures of the app alone'
	@echo 'make snapshots                        the pictures of the app anew: look at what changed'
	@echo 'make soak                             20,000 random keys for the app, fewer on the real engine'
	@echo 'make train CORPUS=FOLDER              the sample models anew (samples/training/README.md)'
	@echo 'make clean                            remove .venv and everything generated'

run: $(VENV)/.installed
	@set --; \
	if [ -n "$$MODEL" ]; then set -- --model "$$MODEL"; fi; \
	if [ -n "$$PROMPT" ]; then set -- "$$@" -- "$$PROMPT"; fi; \
	exec $(BIN)/layerstep "$$@"

test: lint check

check: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(VENV)/.installed-test
	@for file in tests/bench/bench_*.py; do \
		name=$${file##*/}; $(BIN)/python -m "tests.bench.$${name%.py}" || exit 1; done

bench-app: $(VENV)/.installed-test
	$(BIN)/python -m tests.bench.bench_app

snapshots: $(VENV)/.installed-test
	rm -f tests/tui/pictures/*.svg
	LAYERSTEP_SNAPSHOTS=renew $(BIN)/python -m pytest tests/tui/test_app_snapshots.py -n 2

soak: $(VENV)/.installed-test
	$(BIN)/python -m tests.soak.soak_app
	$(BIN)/python -m tests.soak.soak_app --engine hostile --keys 5000
	$(BIN)/python -m tests.soak.soak_app --engine real --keys 3000

train: $(VENV)/.installed-test
	@if [ -z "$$CORPUS" ]; then \
		echo 'make train needs CORPUS=FOLDER with the texts that samples/training/NOTICE names' >&2; exit 2; fi
	$(BIN)/python -m samples.training all --corpus "$$CORPUS"

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo 'layerstep needs Python 3.11 or newer, and none was found; install one, or name it: make PYTHON=/path/to/python3' >&2; \
		exit 1; fi
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'Installing layerstep into $(VENV); torch is large, so the first time takes a while'
	@$(PIP) --editable .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'Installing layerstep and its test tools into $(VENV); torch is large, so the first time takes a while'
	@$(PIP) --editable '.[test]'
	@touch $@ $(VENV)/.installed
