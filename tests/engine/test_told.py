"""A config in words: what its line and its table must say, and that the table leaves nothing out."""

import dataclasses
import re
import subprocess
import sys

import pytest
from tiny import ARCHITECTURES, EXPERTS, GEMMA, LONGER, MULTIPLIED, SENTENCE, TRANSLATOR, tiny_config

from engine.config import Experts, Rotary
from engine.told import fields, traits

ALL = ARCHITECTURES | {"longer": LONGER, "sentence": SENTENCE, "translator": TRANSLATOR}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (GEMMA, ["linear scaling by 8", "q/k norm", "window 3 in 1 of 2 layers", "soft caps on scores and logits"]),
        (EXPERTS, ["window 4,", "attention sinks", "4 experts, 2 per token", "SwiGLU FFN in 1 of 2 layers"]),
        (LONGER, ["rotary positions with dynamic NTK scaling by 2 and LongRoPE scaling"]),
        (MULTIPLIED, ["parallel blocks", "GQA 4/2"]),
        (TRANSLATOR, ["encoder-decoder of 2 + 2 layers", "relative positions"]),
        (SENTENCE, ["sees both ways", "mean pooling"]),
    ],
)
def test_the_line_names_what_is_special(config, words):
    line = traits(tiny_config(**config))
    for word in words:
        assert word in line


def test_what_a_model_has_not_is_not_named():
    line = traits(tiny_config())
    for word in ("expert", "window", "cap", "sink", "parallel", "q/k", "encoder", "scaling", "both ways"):
        assert word not in line


@pytest.mark.parametrize("name", ALL)
def test_the_table_has_the_sizes_and_every_choice_in_words(name):
    config = tiny_config(**ALL[name])
    table = dict(fields(config))
    plain = tiny_config()
    differing = {field.name for field in dataclasses.fields(config)
                 if getattr(config, field.name) != getattr(plain, field.name)}  # fmt: skip
    filled = {"final_norm", "layer_kinds"}  # follows from norm_place; told with its kinds
    assert differing - filled <= table.keys()
    assert {"d_model", "n_layers", "n_heads", "d_head", "d_mlp", "d_vocab", "n_ctx"} <= table.keys()
    for words in table.values():
        assert not re.search(r"[{}\[\]()\'=]", words.replace("θ = ", "")), words
        assert not re.search(r"\b(None|True|False)\b", words)


def test_nested_parts_are_words():
    rotary = Rotary(dims=4, style="interleaved", scaling="yarn", factor=4.0, original_n_ctx=8)
    table = dict(fields(tiny_config(positions="rotary", rotary=rotary)))
    assert table["rotary"] == "θ = 10000, interleaved, 4 dimensions of a head, YaRN scaling by 4 from 8 positions"
    kinds = dict(fields(tiny_config(**GEMMA, n_layers=5)))["kinds"]
    assert kinds == "near: layers 0 2 4, window 3, θ = 100; far: layers 1 3, no window, θ = 10000, linear scaling by 8"
    experts = Experts(n=8, per_token=2, d_expert=10, dense_layers=(0, 1, 2))
    said = dict(fields(tiny_config(n_layers=4, experts=experts)))["experts"]
    assert said == "8 experts of 10, 2 per token, softmax, brought to sum 1, an ordinary FFN in layers 0…2"


def test_an_unusual_final_norm_is_said():
    assert "final_norm" not in dict(fields(tiny_config(norm_place="post")))
    assert dict(fields(tiny_config(norm_place="post", final_norm=True)))["final_norm"] == "yes"


def test_words_need_no_torch():
    program = "import sys, engine.told; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
