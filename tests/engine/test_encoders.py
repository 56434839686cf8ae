"""An encoder: no next token, no KV cache, and it says so."""

import pytest
import torch
from tiny_bert import PIECES, PROMPT, write_bert

from engine import LayerstepError, extend, load_model, open_trace, plan_trace, trace
from engine.browse import Session, summary
from engine.errors import AddressError, PromptError

KINDS = {"with a head": {}, "alone": {"head": False}, "for sentences": {"head": False, "sentence": True}}


@pytest.fixture(scope="module", params=KINDS)
def model(request, tmp_path_factory):
    return load_model(write_bert(tmp_path_factory.mktemp("encoders") / "bert", **KINDS[request.param]), device="cpu")


@pytest.fixture(scope="module")
def with_head(tmp_path_factory):
    return load_model(write_bert(tmp_path_factory.mktemp("encoders") / "bert"), device="cpu")


@pytest.fixture(scope="module")
def without_head(tmp_path_factory):
    return load_model(write_bert(tmp_path_factory.mktemp("encoders") / "bert", head=False), device="cpu")


def test_the_tokenizer_s_pieces_and_what_is_added(with_head):
    tokens = trace(with_head, PROMPT).tokens[0]
    assert [token.label for token in tokens] == PIECES
    assert [token.origin for token in tokens][::8] == ["tokenizer", "tokenizer"]


def test_there_is_no_kv_cache(model):
    names = [site.name for site in model.program.sites]
    assert not [name for name in names if "cache_" in name or "past_" in name]
    assert not [row.site.name for row in plan_trace(model, 9).rows if "cache" in row.site.name]
    with pytest.raises(PromptError, match="looks both ways, so new tokens would change what earlier ones saw"):
        extend(model, trace(model, PROMPT), [5])


def test_every_position_sees_every_other(model):
    pattern = trace(model, PROMPT)["blocks.1.attn.pattern"]
    assert (pattern > 0).all()


def test_all_that_is_shown_is_what_was_computed(model):
    t = trace(model, [PROMPT, "rainy"])
    assert all(check.ok for check in t.checks())


def test_a_block_derived_from_its_edge_is_bit_for_bit_the_recorded_one(model):
    whole, edges = trace(model, PROMPT), trace(model, PROMPT, keep="residual")
    for name in model.program.path():
        assert torch.equal(edges[name], whole[name]), name


def test_without_a_head_there_is_nothing_to_predict(without_head):
    t = trace(without_head, PROMPT)
    assert t.config.predicts is None
    assert "logits" not in t
    said = "bert is an encoder without an output head: it has no logits and predicts no token; look at blocks.1.ln2"
    with pytest.raises(AddressError, match=said):
        t.top()


def test_a_sentence_encoder_names_its_vector(tmp_path):
    t = trace(load_model(write_bert(tmp_path / "bert", head=False, sentence=True), device="cpu"), PROMPT)
    with pytest.raises(LayerstepError, match=r"predicts no token; look at sentence, what it comes to"):
        t.top()


def test_with_a_head_the_candidates_are_for_the_very_place(with_head):
    t = trace(with_head, PROMPT)
    assert t.config.predicts == "masked token"
    assert t.masked() == [4]
    best = t.top(3, pos=4)
    logits = t["logits"][0, 4]
    assert [c.id for c in best] == logits.topk(3).indices.tolist()
    assert sum(c.prob for c in t.top(1000, pos=4)) == pytest.approx(1, abs=1e-5)
    assert t.program.step("probs").op.text.title == "Probabilities of the token in this place"
    assert "next" not in t.program.step("logits").op.text.story
    assert [t.program.step(f"head.{name}").op.text.title for name in ("pre", "post")] == ["Head: dense", "Head: GELU"]


def test_masks_are_found_by_what_they_are(with_head):
    assert trace(with_head, "a b").masked() == []
    assert trace(with_head, ["[MASK] a", "b [MASK] [MASK]"]).masked(1) == [2, 3]
    assert trace(with_head, "a [MASK]", literal=True).masked() == []  # text that only looks like it


def test_a_trace_file_says_the_same_without_the_model(with_head, without_head, tmp_path):
    trace(with_head, PROMPT).save(tmp_path / "head.trace.safetensors")
    trace(without_head, PROMPT).save(tmp_path / "bare.trace.safetensors")
    read = open_trace(tmp_path / "head.trace.safetensors")
    assert read.masked() == [4]
    assert [c.label for c in read.top(3, pos=4)] == [c.label for c in trace(with_head, PROMPT).top(3, pos=4)]
    with pytest.raises(AddressError, match="is an encoder without an output head"):
        open_trace(tmp_path / "bare.trace.safetensors").top()


def test_what_an_app_is_told(with_head, without_head):
    told = summary(trace(with_head, PROMPT)), summary(trace(without_head, PROMPT))
    assert [one["predicts"] for one in told] == ["masked token", None]
    parts = {step["site"]: step["part"] for step in told[0]["steps"]}
    assert [parts[name] for name in ("head.pre", "head.post", "logits", "probs")] == ["output"] * 4


def test_an_app_asks_for_candidates(with_head, without_head):
    session = Session()
    session.open({"prompt": PROMPT, "model": with_head.source}, lambda *_: None)
    rows = session.top("logits[b=0,p=4]@0", 3)["rows"]
    assert [row["id"] for row in rows] == [c.id for c in trace(with_head, PROMPT).top(3, pos=4)]
    session.open({"prompt": PROMPT, "model": without_head.source}, lambda *_: None)
    with pytest.raises(AddressError, match="is an encoder without an output head"):
        session.top("logits[b=0,p=4]@0", 3)
