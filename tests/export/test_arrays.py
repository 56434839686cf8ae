"""Arrays: what safetensors and numpy read back is what the trace has, bit for bit."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from exported import HOSTILE, KINDS, exported, hostile, of_kind, walked
from safetensors import safe_open

from engine import Trace
from engine.errors import ExportError
from engine.export import arrays, contents
from engine.export.order import Order
from engine.export.selection import Part, Selection, parts
from engine.sites import Site

ATTENTION = Selection(keep=("blocks.*.attn.*",))


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def names(t: Trace) -> list[str]:
    return [part.site.name for part in parts(t, Selection())]


@pytest.mark.parametrize("kind", KINDS)
def test_safetensors_has_every_tensor_with_its_bits_and_its_dtype(kind: str) -> None:
    t = of_kind(kind)
    read = safetensors.torch.load(exported(t, "safetensors"))
    assert sorted(read) == sorted(names(t))
    for name, tensor in read.items():
        assert (tensor.dtype, tensor.shape) == (t[name].dtype, t[name].shape), name
        assert bits(tensor) == bits(t[name]), name


def test_the_passes_are_one_tensor_and_the_metadata_says_of_what(tmp_path) -> None:
    t, path = walked(), tmp_path / "walk.safetensors"
    path.write_bytes(exported(t, "safetensors"))
    with safe_open(path, "pt") as file:
        told = json.loads(file.metadata()["layerstep_tensors"])
        assert file.get_slice("blocks.1.attn.pattern").get_shape() == [1, 8, 6, 6]
    assert told["prompt"] == t.prompt
    assert told["model"] == "modern"
    assert [token["label"] for token in told["tokens"][0]] == [token.label for token in t.tokens[0]]
    assert [(one["start"], one["length"]) for one in told["passes"]] == [(0, 5), (5, 1)]
    pattern = told["tensors"]["blocks.1.attn.pattern"]
    assert pattern["axes"] == ["batch", "head", "query", "key"]
    assert pattern["shape"] == [1, 8, 6, 6]
    assert told["selection"] == {"keep": ["all"], "layers": None, "heads": None}


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_reads_an_npz_without_pickle(kind: str) -> None:
    t = of_kind(kind)
    with np.load(io.BytesIO(exported(t, "npz")), allow_pickle=False) as read:
        told = json.loads(str(read["__meta__"]))
        assert sorted(read.files) == sorted(["__meta__", *names(t)])
        for name in names(t):
            tensor, array = t[name], read[name]
            wide = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
            assert array.dtype == wide.numpy().dtype, name
            assert array.tobytes() == bits(wide), name
            assert told["tensors"][name]["recorded"] == str(tensor.dtype).removeprefix("torch.")
            assert told["tensors"][name]["dtype"] == str(array.dtype)


@pytest.mark.parametrize("to", ["safetensors", "npz"])
def test_some_layers_and_heads_are_what_indexing_gives(to: str) -> None:
    t, chosen = walked(), Selection(keep=("blocks.*.attn.*",), layers=(1, 3), heads=(1, 6))
    data = exported(t, to, selection=chosen)
    if to == "npz":
        read = {name: torch.from_numpy(array) for name, array in np.load(io.BytesIO(data)).items() if name[0] != "_"}
    else:
        read = safetensors.torch.load(data)
    assert {name.split(".")[1] for name in read} == {"1", "3"}
    assert torch.equal(read["blocks.3.attn.pattern"], t["blocks.3.attn.pattern"][:, [1, 6]])
    assert torch.equal(read["blocks.1.attn.q"], t["blocks.1.attn.q"][:, :, [1, 6]])
    assert torch.equal(read["blocks.1.attn.k"], t["blocks.1.attn.k"][:, :, [0, 3]])  # 2 query heads share one


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_dtype_rounds_what_is_no_whole_number(dtype: str) -> None:
    t = walked()
    read = safetensors.torch.load(exported(t, "safetensors", dtype=dtype, selection=ATTENTION))
    assert {tensor.dtype for tensor in read.values()} == {getattr(torch, dtype)}
    for name, tensor in read.items():
        assert torch.equal(tensor, t[name].to(getattr(torch, dtype)))
    whole = safetensors.torch.load(exported(t, "safetensors", dtype=dtype, selection=Selection(keep=("tokens",))))
    assert whole["tokens"].dtype == torch.int64


@pytest.mark.parametrize("to", ["safetensors", "npz"])
def test_tokens_and_names_from_an_enemy_are_data(to: str) -> None:
    data = exported(hostile(), to, selection=Selection(keep=("tokens",)))
    if to == "npz":
        told = json.loads(str(np.load(io.BytesIO(data), allow_pickle=False)["__meta__"]))
    else:
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        told = json.loads(header["__metadata__"]["layerstep_tensors"])
    assert [bytes.fromhex(token["bytes"]).decode() for token in told["tokens"][0]] == list(HOSTILE)
    assert told["prompt"] == "".join(HOSTILE)


@pytest.mark.parametrize("to", ["safetensors", "npz"])
def test_tensors_of_any_layout_and_name_are_written(to: str, monkeypatch) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    tensors = {
        "turned/ü": base.T, "a part": base[1:3, ::2], "shared": base, "twice": base, "0-d": torch.tensor(-0.0),
        "none": torch.empty(0, 3), "one": base[:1, :1].expand(3, 1), "half": base.T.to(torch.bfloat16),
    }  # fmt: skip
    made = tuple(Part(Site(name, ()), tuple(t.shape), {}, t.dtype, True) for name, t in tensors.items())
    monkeypatch.setattr(arrays, "parts", lambda *_: made)
    monkeypatch.setattr(arrays, "tensor", lambda _, part, watch: tensors[part.site.name])
    monkeypatch.setattr(contents, "tensors", lambda *_: {})
    data = exported(walked(), to)
    if to == "npz":
        found = np.load(io.BytesIO(data), allow_pickle=False)
        read = {name: torch.from_numpy(found[name]) for name in tensors}
    else:
        read = safetensors.torch.load(data)
    for name, tensor in tensors.items():
        own = tensor.float() if to == "npz" else tensor
        assert (read[name].dtype, read[name].shape) == (own.dtype, own.shape), name
        assert bits(read[name]) == bits(own), name


def test_the_size_is_known_to_the_byte_before_anything_is_written() -> None:
    order = Order(walked(), "safetensors")
    assert arrays.size(order) == len(exported(walked(), "safetensors"))


def test_a_header_that_no_reader_opens_is_refused_before_anything_is_written(monkeypatch) -> None:
    monkeypatch.setattr(arrays, "MAX_HEADER_BYTES", 2000)
    file = io.BytesIO()
    with pytest.raises(ExportError, match=r"hold at most 2,000; choose fewer with --keep or --layers"):
        arrays.write(Order(walked(), "safetensors"), file)
    assert file.tell() == 0


def test_tensors_are_made_one_at_a_time(monkeypatch) -> None:
    t, most = walked(), 0

    class Counting(io.RawIOBase):
        def write(self, data) -> int:
            nonlocal most
            most = max(most, len(memoryview(data).cast("B")))
            return len(memoryview(data).cast("B"))

    monkeypatch.setattr(arrays, "PIECE", 4096)
    arrays.write(Order(t, "safetensors"), Counting())
    header = len(arrays._header(Order(t, "safetensors"), parts(t, Selection()), None))
    assert most == max(4096, header)


@pytest.mark.parametrize("to", ["safetensors", "npz"])
def test_whoever_watches_hears_of_every_tensor_and_can_end_it(to: str) -> None:
    heard: list[tuple[int, int, str]] = []

    def watch(done: int, of: int, what: str) -> None:
        heard.append((done, of, what))
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        arrays.write(Order(walked(), to), io.BytesIO(), watch)
    count = len(names(walked()))
    assert heard == [(i, count, name) for i, name in enumerate(names(walked())[:4])]


def test_equal_traces_are_equal_files() -> None:
    assert exported(walked(), "npz") == exported(walked(), "npz")


def test_numpy_reads_what_safetensors_holds_too() -> None:
    read = safetensors.numpy.load(exported(walked(), "safetensors", selection=ATTENTION))
    assert np.array_equal(read["blocks.0.attn.z"], walked()["blocks.0.attn.z"].numpy())
