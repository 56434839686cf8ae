"""A model folder, damaged: it loads, or is refused in one line; a small part of `tests/fuzz/fuzz_folder.py`."""

import random

import pytest
from damage_folder import damaged, tokenizer, written
from folders import HALVES, LLAMA, load, load_or_say_why, native, sharded

from engine import Model
from engine.text import display

MODELS = {"native": lambda folder: native(folder, LLAMA), "llama in shards": lambda folder: sharded(folder, HALVES)}


@pytest.mark.parametrize("model", MODELS)
def test_a_damaged_folder_loads_or_says_why(tmp_path, model):
    folder = MODELS[model](tmp_path / "m")
    (folder / "tokenizer.json").write_bytes(tokenizer())
    files = now = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
    load(folder)
    draw = random.Random(3)
    refused = 0
    for number in range(150):
        what, bad = damaged(files, draw)
        written(folder, bad, now)
        now = bad
        try:
            refused += not isinstance(load_or_say_why(folder), Model)
        except BaseException as error:
            raise AssertionError(f"case {number}: {display(what)}") from error
    assert 75 < refused < 150
