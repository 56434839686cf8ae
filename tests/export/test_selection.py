"""Which tensors an export holds: those that are named and can be had, of sites with heads perhaps only some."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from engine import Trace, extend, load_model, open_trace, trace
from engine.errors import AddressError, ExportError, NotKeptError
from engine.export.selection import Selection, left_out, parts, tensor


@pytest.fixture(scope="module")
def walked() -> Trace:
    model = load_model("modern", device="cpu")
    return extend(model, trace(model, "dog bites man"), " again")


def names(t: Trace, **how: object) -> list[str]:
    return [part.site.name for part in parts(t, Selection(**how))]  # type: ignore[arg-type]


def test_all_is_every_site_that_can_be_had_each_as_the_trace_has_it(walked: Trace) -> None:
    found = parts(walked, Selection())
    assert [part.site.name for part in found] == [s.name for s in walked.program.sites if "past" not in s.axes]
    for part in found:
        numbers = tensor(walked, part)
        assert (numbers.shape, numbers.dtype) == (torch.Size(part.shape), part.dtype)
        assert torch.equal(numbers, walked[part.site.name].cpu())
        assert numbers.is_contiguous()
        assert part.nbytes() == numbers.nbytes


def test_the_path_and_the_residual_stream_are_those_of_the_program(walked: Trace) -> None:
    given = ["tokens", "positions", "key_positions"]
    assert names(walked, keep=("path",)) == [*given, *walked.program.path()]
    assert names(walked, keep=("residual",)) == [*given, *walked.program.edges]
    assert names(walked, keep=("blocks.*.attn.hook_q", "logits")) == [
        *(f"blocks.{i}.attn.q" for i in range(walked.config.n_layers)), "logits",
    ]  # fmt: skip


def test_some_layers_and_heads_come_with_the_keys_that_they_use(walked: Trace) -> None:
    heads, groups = walked.config.n_heads, walked.config.n_kv_heads or 0
    assert heads == 2 * groups
    found = {p.site.name: p for p in parts(walked, Selection(layers=(1,), heads=(3, 0)))}
    assert {p.site.block for p in found.values()} == {None, 1}
    assert found["blocks.1.attn.q"].index == {"head": (3, 0)}
    assert found["blocks.1.attn.k"].index == {"kv_head": (1, 0)}
    assert not found["blocks.1.mlp.post"].index
    for name in ("blocks.1.attn.q", "blocks.1.attn.pattern"):
        whole, axis = walked[name], walked.program.site(name).axes.index("head")
        chosen = tensor(walked, found[name])
        assert torch.equal(chosen, torch.stack([whole.select(axis, 3), whole.select(axis, 0)], axis))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"layers": (9,)}, "there is no layer 9; modern has layers 0…"),
        ({"heads": (0, 8)}, "there is no head 8; modern has heads 0…7"),
        ({"layers": ()}, "no layer is named"),
        ({"keep": ("blocks.*.nothing",)}, "there is no site 'blocks.*.nothing'"),
    ],
)
def test_what_there_is_not_is_one_line(walked: Trace, how: dict[str, object], said: str) -> None:
    with pytest.raises((ExportError, AddressError)) as refused:
        names(walked, **how)
    assert said in str(refused.value)


def test_a_file_without_its_model_has_what_follows_from_what_was_kept(walked: Trace, tmp_path: Path) -> None:
    path = tmp_path / "x.trace.safetensors"
    walked.save(path)
    opened = open_trace(path)
    missing = left_out(opened)
    assert missing == tuple(f"blocks.{i}.attn.result" for i in range(walked.config.n_layers))
    assert names(opened) == [name for name in names(walked) if name not in missing]
    with pytest.raises(NotKeptError, match="open this trace with its model"):
        names(opened, keep=("blocks.*.attn.result",))
    assert os.listdir(tmp_path) == ["x.trace.safetensors"]
