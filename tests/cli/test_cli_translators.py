"""The commands on an encoder-decoder: two texts, each with its own tokens and its own length."""

import pytest
from calls import Call
from tiny_t5 import SOURCE, TARGET, write_t5

from engine import load_model, plan_trace, trace


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return write_t5(tmp_path_factory.mktemp("models") / "t5")


@pytest.fixture(scope="module")
def recorded(translator):
    return trace(load_model(translator, device="cpu"), SOURCE, target=TARGET)


def test_plan_is_of_a_source_and_a_start_token(call: Call, translator):
    done = call("plan", translator, "-n", 20, "--json")
    assert (done.code, done.err) == (0, "")
    expected = plan_trace(load_model(translator, device="cpu"), 20).to_json()
    assert {key: done.json[key] for key in expected} == expected
    shapes = {site["site"]: site["shape"] for site in done.json["sites"]}
    assert shapes["encoder.blocks.0.resid_pre"] == [1, 20, 24]
    assert shapes["blocks.1.cross_attn.scores"] == [1, 4, 1, 20]


def test_plan_as_text_tells_the_two_stacks_apart(call: Call, translator):
    out = call("plan", translator, "-n", 20).out
    assert "1 × 20 tokens in the encoder and 1 in the decoder" in out
    rows = {line.split()[0]: line.split()[1:3] for line in out.split("\n") if "×" in line}
    assert rows["encoder.blocks.*.resid_pre"] == ["1×20×24", "1"]
    assert rows["blocks.*.resid_pre"] == ["1×1×24", "2"]


@pytest.mark.parametrize(
    ("address", "axes"),
    [
        ("blocks.0.cross_attn.pattern[h=0]", {"query": "tokens", "src_key": "source_tokens"}),
        ("encoder.blocks.0.attn.pattern[h=0]", {"src_query": "source_tokens", "src_key": "source_tokens"}),
        ("encoder.blocks.0.resid_post[p=1:3]", {"src": "source_tokens"}),
    ],
)
def test_axes_over_the_source_have_its_tokens(call: Call, translator, recorded, address, axes):
    args = ("show", SOURCE, "--target", TARGET, "--model", translator, "--at", address)
    told = {axis["name"]: axis for axis in call(*args, "--json").json["axes"]}
    for name, of in axes.items():
        labels = [token.label for token in getattr(recorded, of)[0]]
        start, size = told[name]["start"], told[name]["size"]
        assert told[name]["labels"] == labels[start : start + size]
        assert all(label in call(*args).out for label in told[name]["labels"])


def test_a_cell_names_both_tokens(call: Call, translator):
    at = "blocks.0.cross_attn.pattern[h=0,q=1,k=2]"
    out = call("show", SOURCE, "--target", TARGET, "--model", translator, "--at", at).out
    assert "query 1 die" in out
    assert "src_key 2 sat" in out


def test_trace_says_the_lengths_of_both_texts(call: Call, translator, recorded, tmp_path):
    args = ("trace", SOURCE, "--target", TARGET, "--model", translator, "-o", tmp_path / "a", "--force")
    source, target = len(recorded.source_tokens[0]), len(recorded)
    assert f": {source} source tokens, {target} tokens, " in call(*args).err
    data = call(*args, "--json").json
    assert (data["source_tokens"], data["tokens"]) == (source, target)
    refused = call(*args, "--max-memory", "1K")
    assert refused.code == 1
    assert f"recording 1 × {target} tokens after a source of {source} needs" in refused.err


def test_inspect_says_that_there_are_two_stacks(call: Call, translator):
    first = call("models", "--inspect", translator).out.split("\n")[0]
    assert first.startswith("t5: encoder-decoder of 1 + 2 layers, relative positions, RMSNorm pre, ")
