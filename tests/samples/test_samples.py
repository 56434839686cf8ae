"""The sample models still do what their cards say: the figures of the issue, measured anew through the engine.

Patterns and logits come from the engine, sentences from the generator, word pairs that training never saw. Heads are
picked on one half of the sentences and reported on the other.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine import Model, load_model, trace
from samples.training import probes
from samples.training.measure import HELD_OUT, Prompt, read_prompts

FOLDER = Path(__file__).parents[2] / "samples" / "models"
NAMES = ("classic", "modern")
MODELS = pytest.mark.parametrize("name", NAMES)


@cache
def model(name: str) -> Model:
    return load_model(name)


def patterns(of: Model, ids: list[int]) -> Tensor:
    """All attention patterns of a prompt. [layer head query key]"""
    t = trace(of, ids)
    return torch.stack([t[f"blocks.{layer}.attn.pattern"][0] for layer in range(of.config.n_layers)])


def test_all_sample_files_together_stay_small():
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) <= 16 * 2**20


@pytest.mark.parametrize(("name", "prompt"), [(n, p) for n in NAMES for p in read_prompts(n)], ids=str)
def test_every_sample_prompt_goes_on_as_expected(name: str, prompt: Prompt):
    t = trace(model(name), prompt.text)
    best = t.top(1)[0]
    assert model(name).tokenizer.decode([best.id]) == prompt.expect
    assert all(check.ok for check in t.checks())


@MODELS
def test_a_head_looks_at_the_token_before(name: str):
    total, count = torch.zeros(()), 0
    for line in HELD_OUT.read_text(encoding="utf-8").splitlines()[:40]:
        found = patterns(model(name), model(name).tokenizer.ids(line))
        total = total + found.diagonal(-1, -2, -1).sum(-1)  # [layer head]
        count += found.shape[-1] - 1
    assert float((total / count).max()) >= 0.8


@MODELS
@pytest.mark.parametrize("period", [16, 40])
def test_a_head_finds_what_came_after_the_same_token_before(name: str, period: int):
    of = model(name)
    generator = torch.Generator().manual_seed(17)
    weights, first, second = torch.zeros(()), 0.0, 0.0
    for _ in range(12):
        once = torch.randint(3, of.config.d_vocab, (period,), generator=generator).tolist()
        ids = [of.config.bos_token_id, *once, *once]
        found = patterns(of, ids)
        again = torch.arange(period - 1)
        weights = weights + found[:, :, 1 + period + again, 2 + again].mean(-1)  # [layer head]
        surprise = -trace(of, ids)["logits"][0, :-1].log_softmax(-1)[range(2 * period), ids[1:]]  # [pos]
        first, second = first + float(surprise[:period].mean()), second + float(surprise[period + 1 :].mean())
    assert float((weights / 12).max()) >= 0.7
    assert second < first / 10


def reported(of: Model, cases: list[probes.Case]) -> dict[str, tuple[float, float]]:
    """By kind of sentence: mean weight on the right word and on the other, of the head that the first half picks."""
    located = [(case.kind, probes.locate(of.tokenizer._inner, case)) for case in cases]
    rows = []
    for kind, at in located:
        row = patterns(of, list(at.ids))[:, :, at.query]  # [layer head key]
        rows.append((kind, row[:, :, at.target], row[:, :, at.foil] if at.foil is not None else None))
    half = len(rows) // 2
    picked = torch.stack([right for _, right, _ in rows[:half]]).mean(0)
    layer, head = divmod(int(picked.argmax()), picked.shape[1])
    found = {}
    for kind in {kind for kind, _, _ in rows}:
        of_kind = [(r[layer, head], f[layer, head]) for k, r, f in rows[half:] if k == kind and f is not None]
        found[kind] = tuple(torch.tensor(of_kind).mean(0).tolist())
    return found


def test_it_finds_its_noun_in_both_clause_orders():
    found = reported(model("modern"), probes.it_cases(200, seed=31))
    assert len(found) == 2
    for right, other in found.values():
        assert right >= 0.6
        assert other <= 0.2


def test_a_verb_finds_its_subject_across_another_noun():
    for right, _ in reported(model("modern"), probes.verb_cases(200, seed=32)).values():
        assert right >= 0.5


def test_he_and_she_find_the_right_name():
    for right, other in reported(model("modern"), probes.name_cases(200, seed=33)).values():
        assert right - other >= 0.3


@MODELS
def test_the_card_s_figures_reach_the_bars(name: str):
    f = json.loads((FOLDER / name / "figures.json").read_text(encoding="utf-8"))
    assert f["possession_again"]["on_top"] * 60 >= 50 * f["possession_again"]["of"]
    assert all(prompt["ok"] for prompt in f["prompts"])
    for found in f["induction"]:
        assert found["weight"] >= 0.7
        assert found["loss_second_copy"] < found["loss_first_copy"] / 10


@MODELS
def test_rounding_to_float16_loses_nothing_that_is_shown(name: str):
    assert {w.dtype for w in model(name).weights.values()} == {torch.float32}
    assert any("float16 to float32" in line for line in model(name).report)
