"""The commands on an encoder: masked tokens in place of a next one, and plain words where there is neither."""

import pytest
from calls import Call
from tiny_bert import PIECES, PROMPT, write_bert

from engine import load_model, trace


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("models") / "stack", head=False)


@pytest.fixture(scope="module")
def sentence(tmp_path_factory):
    return write_bert(tmp_path_factory.mktemp("models") / "sentence", head=False, sentence=True)


def table_under(out: str, heading: str) -> list[list[str]]:
    """The lines of a table, split, up to the next empty one."""
    rows = out.split("\n")
    start = next(i for i, row in enumerate(rows) if heading in row) + 1
    stop = next((i for i in range(start, len(rows)) if not rows[i].strip()), len(rows))
    return [row.split() for row in rows[start:stop]]


def test_show_says_what_fits_in_the_mask(call: Call, bert):
    done = call("show", PROMPT, "--model", bert)
    assert (done.code, done.err) == (0, "")
    best = trace(load_model(bert, device="cpu"), PROMPT).top(5, pos=4)
    assert [row[:2] for row in table_under(done.out, "token at 4")] == [[str(c.id), c.label] for c in best]
    assert "next token" not in done.out


def test_show_has_a_table_for_every_mask(call: Call, bert):
    out = call("show", "[MASK] is a [MASK]", "--model", bert).out
    assert len(table_under(out, "token at 1")) == len(table_under(out, "token at 4")) == 5


def test_show_without_a_mask_says_that_there_is_no_next_token(call: Call, bert):
    done = call("show", "Paris is the capital", "--model", bert)
    assert done.code == 0
    assert "an encoder has no next token; put its mask token ([MASK], <mask>) into the prompt" in done.out


@pytest.mark.parametrize(("kind", "site"), [("stack", "blocks.1.ln2.normalized"), ("sentence", "sentence")])
def test_show_without_a_head_says_what_to_look_at(call: Call, kind, site, request):
    done = call("show", PROMPT, "--model", request.getfixturevalue(kind))
    said = f"no next token: {kind} is an encoder without an output head: it has no logits and predicts no token; "
    assert done.code == 0
    assert f"{said}look at {site}, what it comes to" in done.out


def test_the_overview_as_json(call: Call, bert, stack):
    data = call("show", PROMPT, "--model", bert, "--json").json
    assert (data["predicts"], data["top"]) == ("masked token", [[]])
    (mask,) = data["masked"][0]
    assert mask["pos"] == 4
    assert [c["id"] for c in mask["top"]] == [c.id for c in trace(load_model(bert, device="cpu"), PROMPT).top(5, pos=4)]
    data = call("show", PROMPT, "--model", stack, "--json").json
    assert (data["predicts"], data["top"], data["masked"]) == (None, [[]], [[]])


@pytest.mark.parametrize("kind", ["bert", "stack", "sentence"])
def test_every_site_can_be_shown(call: Call, kind, request):
    folder = request.getfixturevalue(kind)
    for name in ("embed_ln.normalized", "token_type_embed", "blocks.1.attn.pattern[h=1]", "blocks.0.ln1.scale"):
        done = call("show", PROMPT, "--model", folder, "--at", name)
        assert (done.code, done.err) == (0, ""), name
    assert call("show", PROMPT, "--model", folder, "--checks").code == 0


def test_a_site_of_a_decoder_is_refused_by_name(call: Call, stack):
    done = call("show", PROMPT, "--model", stack, "--at", "blocks.0.attn.cache_k")
    assert done.code == 1
    assert "there is no site 'blocks.0.attn.cache_k' in this program" in done.err


@pytest.mark.parametrize("address", ["logits", "probs[p=-1]"])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_logits_of_a_model_without_a_head_are_refused_with_what_it_has(call: Call, stack, sentence, address, form):
    for folder, site in ((stack, "blocks.1.ln2.normalized"), (sentence, "sentence")):
        done = call("show", PROMPT, "--model", folder, "--at", address, *form)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert (
            f"is an encoder without an output head: it has no logits and predicts no token; look at {site}" in done.err
        )


@pytest.mark.parametrize("kind", ["bert", "stack", "sentence"])
def test_trace_and_show_of_its_file(call: Call, kind, request, tmp_path):
    file = tmp_path / "x.trace.safetensors"
    assert call("trace", PROMPT, "--model", request.getfixturevalue(kind), "-o", file).code == 0
    done = call("show", file)
    assert done.code == 0
    assert all(piece in done.out for piece in PIECES)


@pytest.mark.parametrize("kind", ["bert", "stack", "sentence"])
def test_plan_has_no_cache(call: Call, kind, request):
    done = call("plan", request.getfixturevalue(kind), "--tokens", 9)
    assert done.code == 0
    assert "cache" not in done.out


def test_inspect_says_what_kind_of_model_it_is(call: Call, bert, stack, sentence):
    first = {kind: call("models", "--inspect", folder).out.split("\n")[0]
             for kind, folder in (("bert", bert), ("stack", stack), ("sentence", sentence))}  # fmt: skip
    plain = "learned positions, LayerNorm post, MHA, gelu FFN, sees both ways"
    assert first["bert"] == f"bert: {plain}"
    assert first["stack"] == f"stack: {plain}, no output head"
    assert first["sentence"] == f"sentence: {plain}, mean pooling"
