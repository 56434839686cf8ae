"""JSON: node and a validator of JSON Schema take it, and its numbers are those of the trace, bit for bit."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
from exported import HOSTILE, KINDS, exported, hostile, of_kind, walked, with_tokens
from jsonschema import Draft202012Validator

from engine import Trace
from engine.export import jsonfile
from engine.export.order import Order
from engine.export.selection import Selection
from engine.pictures import views_of

SOME = Selection(keep=("tokens", "blocks.1.*", "logits"))
NODE = """
const text = require('fs').readFileSync(0, 'utf8'), data = JSON.parse(text), out = [];
const flat = v => Array.isArray(v) ? v.flatMap(flat) : [v];
for (const t of data.tensors) {
  const bits = new Uint32Array(Float32Array.from(flat(t.values), v => typeof v === 'string' ? Number(v) : v).buffer);
  out.push([t.site, ...Array.from(bits)]);
}
console.log(JSON.stringify({prompt: data.prompt, out}));
"""


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(jsonfile.schema())
    return Draft202012Validator(jsonfile.schema())


def strict(data: bytes) -> dict:
    """JSON as RFC 8259 has it: no NaN, no infinity."""
    return json.loads(data, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def array(values: object, like: torch.Tensor) -> np.ndarray:
    """Numbers of a file in the dtype of a tensor."""
    return np.array(values, dtype=object).astype(np.float64).astype(like.numpy().dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_comes_back_as_it_was(kind: str, validator: Draft202012Validator) -> None:
    t = of_kind(kind)
    data = strict(exported(t, "json", selection=SOME))
    validator.validate(data)
    for tensor in data["tensors"]:
        own = t[tensor["site"]]
        wide = own.float() if own.dtype in (torch.bfloat16, torch.float16) else own
        found = array(tensor["values"], wide)
        assert list(found.shape) == tensor["shape"] == list(own.shape), tensor["site"]
        assert tensor["dtype"] == str(own.dtype).removeprefix("torch.")
        same = (found == wide.numpy()) | (np.isnan(found) & np.isnan(wide.numpy()))
        assert same.all(), tensor["site"]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_node_reads_the_same_bits() -> None:
    t = of_kind("nan")
    data = exported(t, "json", selection=Selection(keep=("blocks.1.*", "logits")))
    done = subprocess.run(["node", "-e", NODE], input=data, capture_output=True, check=True)
    read = json.loads(done.stdout)
    assert read["prompt"] == t.prompt
    for name, *bits in read["out"]:
        own = t[name].numpy().reshape(-1)
        found = np.array(bits, dtype=np.uint32).view(np.float32)
        assert np.array_equal(found, own, equal_nan=True), name
        assert np.array_equal(np.signbit(found[own == 0]), np.signbit(own[own == 0])), name


def test_what_is_not_finite_is_one_of_three_words() -> None:
    data = strict(exported(of_kind("nan"), "json", selection=SOME))
    by_site = {tensor["site"]: tensor["values"] for tensor in data["tensors"]}
    assert by_site["blocks.1.attn.masked"][0][0][0][1:] == ["-Infinity", "-Infinity"]
    mixed = by_site["blocks.1.mlp_out"][0][0]
    assert mixed[0] == "NaN"
    assert mixed[1] in ("Infinity", "-Infinity")
    assert all(isinstance(value, float | int) for value in mixed[2:])


@pytest.mark.parametrize(
    "value", [1e-45, -0.0, 0.1, 1 / 3, 3.4028235e38, 1.17549435e-38, 16777217.0, 1e-7, 123456789.0]
)
def test_a_float32_is_the_shortest_text_that_comes_back(value: float) -> None:
    own = torch.tensor([value])
    text = b"".join(jsonfile.nested(own)).decode().strip("[]")
    assert np.float32(json.loads(text)).tobytes() == own.numpy().tobytes()
    digits = re.sub(r"e.*|[-.]", "", text).strip("0")
    assert len(digits) <= len(re.sub(r"e.*|[-.]", "", str(own.numpy()[0])).strip("0"))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3), (1,), (2, 3), (2, 1, 2, 2)])
def test_numbers_are_nested_as_their_axes_are(shape: tuple[int, ...]) -> None:
    values = torch.arange(float(np.prod(shape))).reshape(shape)
    assert json.loads(b"".join(jsonfile.nested(values))) == values.tolist()
    assert (
        json.loads(b"".join(jsonfile.nested(values.transpose(0, -1) if shape else values)))
        == (values.transpose(0, -1) if shape else values).tolist()
    )


@pytest.mark.parametrize("at_once", [1, 2, 5, 7, 100])
def test_numbers_in_pieces_are_the_same_numbers(at_once: int, monkeypatch) -> None:
    monkeypatch.setattr(jsonfile, "AT_ONCE", at_once)
    values = torch.randn(3, 4, 5)
    pieces = list(jsonfile.nested(values))
    assert np.array_equal(np.array(json.loads(b"".join(pieces)), dtype=np.float32), values.numpy())
    assert max(piece.count(b",") for piece in pieces) <= max(at_once, 5)


@pytest.mark.parametrize("t", [walked, hostile])
def test_every_picture_of_every_kind_of_step_fits_the_schema(t, validator: Draft202012Validator) -> None:
    of: Trace = t()
    done = set()
    for site in of.program.sites:
        if "past" in site.axes:
            continue
        for view in views_of(of, site):
            if (view.kind, view.name) in done:
                continue
            done.add((view.kind, view.name))
            at = site.name + ("[h=0,q=0,k=0]" if view.kind == "chain" else "")
            data = strict(exported(of, "json", at=at, view=view.name))
            validator.validate(data)
            assert data["picture"]["view"] == view.name
    assert len(done) >= 15


def test_a_picture_has_the_numbers_of_the_trace() -> None:
    t = walked()
    shown = strict(exported(t, "json", at="blocks.2.attn.pattern[h=3]"))["picture"]
    assert np.array_equal(np.float32(shown["values"]), t["blocks.2.attn.pattern[b=0,h=3]"].numpy())
    assert shown["axes"][1]["labels"] == [token.label for token in t.tokens[0]]
    assert shown["stats"]["masked"] == 15


@pytest.mark.parametrize("spoil", [{"version": 2}, {"tensors": []}, {"format": "other"}, {"more": 1}, {"tokens": "x"}])
def test_the_schema_refuses_what_is_something_else(spoil: dict, validator: Draft202012Validator) -> None:
    data = strict(exported(walked(), "json", selection=Selection(keep=("tokens",))))
    validator.validate(data)
    assert not validator.is_valid(data | spoil)


@pytest.mark.parametrize("values", [["nan"], [None], [[1], 2], [True]])
def test_the_schema_refuses_other_numbers(values: list, validator: Draft202012Validator) -> None:
    data = strict(exported(walked(), "json", selection=Selection(keep=("tokens",))))
    data["tensors"][0]["values"] = values
    assert not validator.is_valid(data)


def test_tokens_from_an_enemy_are_texts() -> None:
    raw = exported(hostile(), "json", selection=Selection(keep=("tokens",)))
    assert raw.isascii()
    data = strict(raw)
    assert data["prompt"] == "".join(HOSTILE)
    assert [bytes.fromhex(token["bytes"]).decode() for token in data["tokens"][0]] == list(HOSTILE)


def test_half_a_surrogate_pair_is_no_crash_and_valid_utf_8() -> None:
    t = with_tokens(walked(), ("hi \ud83d", "\udbc0", "a\x00b"))
    raw = exported(t, "json", selection=Selection(keep=("tokens",)))
    assert strict(raw)["prompt"] == "hi \ufffd\ufffda\x00b"


def test_whoever_watches_can_end_it() -> None:
    def watch(done: int, of: int, what: str) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jsonfile.write(Order(walked(), "json"), io.BytesIO(), watch)
