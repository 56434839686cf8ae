"""Trace files: what is written is read back, by us and by others; written whole or not at all; damage is said."""

import errno
import itertools
import json
import math
import os
import random
import signal
import stat
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from damage import accidents, assembled, forgeries, header_length, parts, sealed
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from engine import traceformat, tracereader, tracewriter
from engine.checksum import checksum
from engine.errors import TraceFileError
from engine.text import display
from engine.tracefile import check_target, expect, read, write

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool]
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def bits(tensor):
    """A tensor's dtype, shape and bytes: NaNs are equal to themselves, and −0 is not 0."""
    flat = tensor.contiguous().as_strided((tensor.numel(),), (1,))
    return tensor.dtype, tuple(tensor.shape), flat.view(torch.uint8).numpy().tobytes()


def contents(path):
    header, tensors = read(path)
    return header, {name: bits(tensors[name]) for name in tensors}


def random_bits(dtype, *shape, seed=0):
    """A tensor of any bit patterns: NaNs with payloads, infinities, subnormals."""
    draw = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=draw).bool()
    count = math.prod(shape)
    return torch.randint(0, 256, (count * dtype.itemsize,), generator=draw, dtype=torch.uint8).view(dtype).view(shape)


def refusal(call, *arguments, **options):
    """The one line that a call is refused with."""
    with pytest.raises(TraceFileError) as caught:
        call(*arguments, **options)
    said = str(caught.value)
    assert said == display(said), f"not one printable line: {said!r}"
    assert 20 < len(said) < 600
    return said


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.trace.safetensors"


@pytest.fixture
def small(path):
    """A small file with every dtype, an alias, an empty tensor, one without axes; its bytes and its contents."""
    tensors = {str(dtype): random_bits(dtype, 2, 3, 4) for dtype in DTYPES}
    tensors |= {"again": tensors["torch.float32"], "empty": torch.empty(0, 3), "one": torch.tensor(2.5)}
    write(path, {"prompt": "The disk\nwas \x00 full é 👍", "list": [1, 2.5, None, True, {"a": []}]}, tensors)
    return path.read_bytes(), contents(path)


# --- round trips ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (5,), (2, 3, 4), (1, 1, 1025), (300, 1023)], ids=str)
def test_keeps_every_bit(path, dtype, shape):
    tensor = random_bits(dtype, *shape)
    size = write(path, {}, {"x": tensor})
    assert size == path.stat().st_size
    _, tensors = read(path)
    assert (tensors.shape("x"), tensors.dtype("x")) == (shape, dtype)
    assert bits(tensors["x"]) == bits(tensor)


def test_other_readers_read_the_same(path):
    tensors = {f"{dtype}/é 漢 {n}": random_bits(dtype, n, 3, seed=n) for dtype in DTYPES for n in (0, 1, 7)}
    tensors |= {"": torch.ones(2), 'quote" \\ \n \x00 ../x': torch.zeros(1), "none": torch.tensor(True)}
    write(path, {"prompt": "a"}, tensors)
    with safe_open(path, framework="pt") as file:
        assert set(file.keys()) == set(tensors)
        assert {name: bits(file.get_tensor(name)) for name in tensors} == {n: bits(t) for n, t in tensors.items()}
        assert json.loads(file.metadata()["layerstep"])["header"] == {"prompt": "a"}
    for name in [name for name in tensors if "bfloat16" in name]:
        del tensors[name]
    write(path, {}, tensors, force=True)
    arrays = safetensors.numpy.load_file(path)
    assert {n: (a.shape, a.tobytes()) for n, a in arrays.items()} == {
        n: (tuple(t.shape), t.numpy().tobytes()) for n, t in tensors.items()
    }


def test_views_of_every_kind(path):
    base = torch.randn(6, 8, 10)
    qkv = torch.randn(4, 9)
    tied = torch.randn(3, 3)
    views = {
        "transposed": base.transpose(0, 2), "strided": base[::2, 1::3], "expanded": torch.randn(1, 5).expand(4, 5),
        "offset": base[3:, :, 5], "q": qkv[:, :3], "k": qkv[:, 3:6], "v": qkv[:, 6:], "flipped": base.flip(0),
        "overlapping": torch.arange(9).as_strided((3, 4), (1, 2)), "scalar": base[1, 2, 3], "odd": base.flatten()[1:],
        "half": base.half().flatten()[3:], "one of many": base[0, 0, ::10], "one": qkv[:1, :1],
        "imaginary": torch.randn(3, dtype=torch.cfloat).conj().imag, "graph": torch.randn(3, requires_grad=True) * 2,
        "tied": tied, "tied transposed": tied.t(), "parameter": torch.nn.Parameter(torch.randn(3)),
    }  # fmt: skip
    expected = {name: bits(view.detach().clone().resolve_neg()) for name, view in views.items()}
    write(path, {}, views)
    assert contents(path)[1] == expected


def test_the_same_view_is_stored_once(path):
    tensor = torch.randn(100, 100)
    row = torch.randn(1, 7)
    names = {
        "resid_post": tensor, "resid_pre": tensor, "view": tensor[:], "reshaped": tensor.view(100, 100),
        "column": row.t(), "column again": row[:1].t(),  # strides of axes of length 1 are of no meaning
    }  # fmt: skip
    size = write(path, {}, names)
    assert size < 40_000 + 28 + 1500
    _, tensors = read(path)
    assert list(tensors) == ["resid_post", "column", "resid_pre", "view", "reshaped", "column again"]
    assert {tensors[name].data_ptr() for name in ("resid_pre", "resid_post", "view")} == {tensors["view"].data_ptr()}
    assert all(bits(tensors[name]) == bits(names[name]) for name in names)
    with safe_open(path, framework="pt") as file:
        assert set(file.keys()) == {"resid_post", "column"}


def test_the_same_memory_seen_otherwise_is_no_alias(path):
    tensor = torch.randn(8, 8)
    views = {
        "a": tensor, "transposed": tensor.t(), "flat": tensor.view(64), "part": tensor[:4], "shifted": tensor[1:5],
        "other dtype": tensor.view(torch.int32), "empty": tensor[:0], "also empty": tensor[:0, :3],
    }  # fmt: skip
    write(path, {}, views)
    assert contents(path)[1] == {name: bits(view) for name, view in views.items()}
    assert not json.loads(safe_open(path, framework="pt").metadata()["layerstep"])["aliases"]


def test_a_mapping_that_makes_its_tensors_on_demand(path):
    """Two tensors that lie one after the other at one address are not one tensor."""

    class Made(dict):
        def items(self):
            return ((name, torch.full((1000,), float(value))) for name, value in super().items())

    write(path, {}, Made({str(i): i for i in range(50)}))
    _, tensors = read(path)
    assert [tensors[str(i)][0].item() for i in range(50)] == list(range(50))


def test_what_was_opened_can_be_saved_again_in_its_own_place(path, small):
    data, _ = small
    header, tensors = read(path)
    write(path, header, tensors, force=True)
    assert path.read_bytes() == data


def test_every_tensor_begins_where_its_items_may(path):
    write(path, {}, {f"{i}": random_bits(dtype, i) for i, dtype in enumerate(DTYPES * 3)})
    with path.open("rb") as file:
        assert header_length(file.read()) % 64 == 0
    _, tensors = read(path)
    assert all(tensor.data_ptr() % tensor.dtype.itemsize == 0 for tensor in tensors.values() if tensor.numel())


def test_lone_surrogates_and_awkward_text_come_back(path):
    header = {"\ud83d": ["\udc4d\ud83d x", "\udfff", "\x00\x1b\u2028\u202e", '"\\/'], "empty": "", "": {}}
    write(path, header, {"x": torch.ones(1)})
    assert read(path)[0] == header
    assert safe_open(path, framework="pt").keys() == ["x"]


def test_numbers_in_the_header_come_back(path):
    header = {"numbers": [1e-45, 0.1, -0.0, 1e308, 2**53 + 1, -(2**63), 3, True], "n": {"1": None}}
    write(path, header, {})
    found = read(path)[0]
    assert found == header
    assert list(map(repr, found["numbers"])) == list(map(repr, header["numbers"]))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def tensor_maps(draw):
    """Tensors of all dtypes and shapes, as whole tensors and as views of one another."""
    tensors = {}
    for name in draw(st.lists(st.text().filter(lambda name: name != "__metadata__"), max_size=6, unique=True)):
        kind = draw(st.sampled_from(["new", "new", "same", "transposed", "strided", "expanded"]))
        if kind == "new" or not tensors:
            dtype = draw(st.sampled_from(DTYPES))
            shape = draw(st.lists(st.integers(0, 4), max_size=4))
            tensors[name] = random_bits(dtype, *shape, seed=draw(st.integers(0, 9)))
            continue
        base = draw(st.sampled_from(list(tensors.values())))
        if kind == "transposed":
            base = base.permute(tuple(reversed(range(base.ndim))))
        elif kind == "strided" and base.ndim:
            base = base[draw(st.integers(0, 2)) :: draw(st.integers(1, 3))]
        elif kind == "expanded":
            base = base.expand(2, *base.shape)
        tensors[name] = base
    return tensors


@settings(max_examples=150)
@given(header=st.dictionaries(st.text(), json_values, max_size=4), tensors=tensor_maps())
def test_any_header_and_any_tensors_come_back(tmp_path_factory, header, tensors):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.unlink(missing_ok=True)
    size = write(path, header, tensors)
    assert size == path.stat().st_size
    expected = {name: bits(tensor) for name, tensor in tensors.items()}
    assert contents(path) == (header, expected)
    with safe_open(path, framework="pt") as file:
        assert {name: bits(file.get_tensor(name)) for name in file.keys()}.items() <= expected.items()  # noqa: SIM118
    read(path)[1].verify()


@pytest.mark.gpu
def test_tensors_on_a_gpu(path):
    tensor = torch.randn(5, 7, device="cuda")
    write(path, {}, {"x": tensor, "same": tensor, "y": tensor.t().bfloat16()})
    _, tensors = read(path)
    assert torch.equal(tensors["x"], tensor.cpu())
    assert torch.equal(tensors["y"], tensor.t().bfloat16().cpu())
    assert tensors["same"].data_ptr() == tensors["x"].data_ptr()


# --- reading on demand ------------------------------------------------------------------------------------


def test_a_read_tensor_is_no_copy_and_writing_to_it_changes_no_file(path, small):
    data, _ = small
    _, tensors = read(path)
    assert tensors["one"].data_ptr() == tensors["one"].data_ptr()
    tensors["torch.float32"].zero_()
    assert path.read_bytes() == data


def test_tensors_outlive_the_file_and_its_opening(path, small):
    _, (_, expected) = small
    _, tensors = read(path)
    kept = tensors["torch.float64"]
    path.unlink()
    del tensors
    assert bits(kept) == expected["torch.float64"]


def test_it_is_a_mapping_that_reads_nothing_unasked(path, small):
    _, tensors = read(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracereader, "checksum", None)  # reading would fail
        assert len(tensors) == len(list(tensors)) == len(DTYPES) + 3
        assert "one" in tensors
        assert "again" in tensors
        assert "two" not in tensors
        assert tensors.get("two") is None
        assert tensors == tensors
        assert tensors != read(path)[1]
        assert hash(tensors)
        assert "a.trace.safetensors" in repr(tensors)
        assert (tensors.shape("again"), tensors.dtype("again")) == ((2, 3, 4), torch.float32)
    for ask in (tensors.shape, tensors.dtype, tensors.__getitem__):
        with pytest.raises(KeyError):
            ask("two")


def test_a_tensor_is_verified_once(path, monkeypatch):
    write(path, {}, {"a": torch.ones(3), "b": torch.ones(3)})
    taken = []
    monkeypatch.setattr(tracereader, "checksum", lambda data: taken.append(len(data)) or checksum(data))
    _, tensors = read(path)
    assert torch.equal(tensors["a"], tensors["a"])
    assert len(taken) == 1
    tensors.verify()
    assert len(taken) == 2


RSS = """
import sys
from pathlib import Path
import numpy, torch
from engine import tracefile
rss = lambda: int(open("/proc/self/statm").read().split()[1]) * {page}
small, large = map(Path, sys.argv[1:])
tracefile.read(small)[1]["x"]
before = rss()
header, tensors = tracefile.read(large)
shapes = [tensors.shape(name) for name in tensors]
print(rss() - before)
"""


@linux
def test_opening_takes_no_memory(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    write(small, {}, {"x": torch.ones(2)})
    write(large, {}, {f"blocks.{i}.attn.q@0": torch.zeros(256, 1024) for i in range(50)})
    script = RSS.format(page=os.sysconf("SC_PAGE_SIZE"))
    done = subprocess.run([sys.executable, "-c", script, small, large], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1024 * 1024


@linux
def test_a_trace_larger_than_memory_opens(path):
    size = 2**40
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if memory >= size:
        pytest.skip("this machine has a TiB of memory")
    row = {"dtype": "F32", "shape": [4], "data_offsets": [size - 16, size]}
    ours = {
        "version": traceformat.VERSION,
        "checksum": "0" * 8,
        "sums": "ecbb4b55",
        "data": size,
        "aliases": {},
        "header": {},
    }
    path.write_bytes(assembled({"x": row}, ours))
    try:
        os.truncate(path, path.stat().st_size + size)
    except OSError as error:
        pytest.skip(f"no sparse file of a TiB here: {error.strerror}")
    assert torch.equal(read(path)[1]["x"], torch.zeros(4))


def test_importing_needs_neither_torch_nor_numpy(path, small):
    script = """
import sys
from pathlib import Path
from engine import tracefile
header, tensors = tracefile.read(Path(sys.argv[1]))
assert tensors.shape("one") == (), tensors.shape("one")
print(*{"torch", "numpy", "safetensors"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


# --- checksums --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 8, 8183, 8184, 16367, 16368, 16369, 70_001, 2**20, 2**20 + 1, 2**21 + 9])
def test_a_checksum_sees_every_changed_byte(size):
    draw = np.random.default_rng(size)
    data = draw.integers(0, 256, size, dtype=np.uint8)
    before = checksum(data.data)
    for at in {0, size - 1, *draw.integers(0, size, 60).tolist()}:
        for change in (1, 0x80, 0xFF):
            data[at] ^= change
            assert checksum(data.data) != before
            data[at] ^= change
    assert checksum(data.data) == before


@pytest.mark.parametrize("unit", [8, 512, 4096, 65536, 2**20])
def test_a_checksum_sees_blocks_that_changed_places(unit):
    draw = np.random.default_rng(unit)
    data = draw.integers(0, 256, 4 * 2**20, dtype=np.uint8)
    before = checksum(data.data)
    count = len(data) // unit
    pairs = itertools.islice(itertools.combinations(range(count), 2), 100) if count < 20 else [
        draw.choice(count, 2, replace=False) for _ in range(100)
    ]  # fmt: skip
    for a, b in pairs:
        a, b = slice(a * unit, (a + 1) * unit), slice(b * unit, (b + 1) * unit)
        data[a], data[b] = data[b].copy(), data[a].copy()
        assert checksum(data.data) != before
        data[a], data[b] = data[b].copy(), data[a].copy()


def test_a_checksum_does_not_depend_on_where_the_bytes_lie():
    data = np.random.default_rng(0).integers(0, 256, 3_000_000, dtype=np.uint8)
    expected = checksum(data.data)
    for offset in range(1, 9):
        moved = np.zeros(len(data) + 16, dtype=np.uint8)
        moved[offset : offset + len(data)] = data
        assert checksum(moved[offset : offset + len(data)].data) == expected


def test_a_file_of_many_pieces(path):
    """Larger than a piece, and larger than what is given to the disk at once."""
    tensors = {"a": random_bits(torch.float32, 3, 1024, 1024), "b": random_bits(torch.bool, 999), "c": torch.ones(3)}
    size = write(path, {}, tensors)
    assert size == path.stat().st_size
    assert contents(path)[1] == {name: bits(tensor) for name, tensor in tensors.items()}


# --- damaged files ----------------------------------------------------------------------------------------


def outcome(path, damaged, expected):
    """Either the contents that were saved, or one line."""
    path.unlink(missing_ok=True)
    path.write_bytes(damaged)
    try:
        found = contents(path)
    except TraceFileError as error:
        said = str(error)
        assert said == display(said)
        assert 20 < len(said) < 600
        return
    assert expected is None or found == expected


def test_cut_anywhere(path, small):
    data, _ = small
    for length in range(len(data)):
        path.unlink()
        path.write_bytes(data[:length])
        with pytest.raises(TraceFileError):
            read(path)


def test_any_byte_changed(path, small):
    data, _ = small
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 + at % 255
        path.unlink()
        path.write_bytes(damaged)
        with pytest.raises(TraceFileError):
            read(path)[1].verify()


def test_accidents(path, small):
    data, expected = small
    for what, damaged in itertools.islice(accidents(data, random.Random(1)), 3000):
        try:
            outcome(path, damaged, expected)
        except Exception as error:
            raise AssertionError(what) from error


def test_forgeries(path, small):
    """Checksums that are right say nothing of what a header claims: every value is checked before it is used."""
    data, _ = small
    for what, damaged in itertools.islice(forgeries(data, random.Random(1)), 3000):
        try:
            outcome(path, damaged, None)
        except Exception as error:
            raise AssertionError(what) from error


def said_of(path, data):
    path.unlink(missing_ok=True)
    path.write_bytes(data)

    def all_of_it():
        _, tensors = read(path)
        return [tensors[name] for name in tensors]

    return refusal(all_of_it)


def test_what_is_no_trace(path, tmp_path):
    torch_file = safetensors.torch.save({"x": torch.ones(3)})
    assert "is a safetensors file but no layerstep trace" in said_of(path, torch_file)
    torch_file = safetensors.torch.save({"x": torch.ones(3)}, metadata={"format": "pt"})
    assert "is a safetensors file but no layerstep trace" in said_of(path, torch_file)
    torch_file = safetensors.torch.save({str(i) * 300: torch.ones(1) for i in range(5000)})
    assert "is a safetensors file but no layerstep trace" in said_of(path, torch_file)
    assert "is empty" in said_of(path, b"")
    assert "was cut after 2 bytes" in said_of(path, b"ab")
    assert "was cut after 8 bytes" in said_of(path, bytes(8))
    for junk in (b"PK\x03\x04" + bytes(200), b"\x80\x02}q\x00." * 30, b"{}" * 100, b"\xff" * 200, bytes(300)):
        assert "is no trace file, or is damaged" in said_of(path, junk)
    nested = b"[" * 100_000
    assert "is no trace file, or is damaged" in said_of(path, len(nested).to_bytes(8, "little") + nested)
    assert "no such file" in refusal(read, tmp_path / "missing.safetensors")
    assert "is a folder" in refusal(read, tmp_path)
    assert "Not a directory" in refusal(read, path / "inside")
    assert "no file name can have" in refusal(read, Path("a\x00b"))
    assert "no file name can have" in refusal(read, Path("a\ud83d"))
    assert "File name too long" in refusal(read, tmp_path / ("x" * 300))
    assert "␛" in refusal(read, tmp_path / "\x1b[31m\nred")


@linux
def test_pipes_and_devices_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "no ordinary file" in refusal(read, tmp_path / "pipe")
    assert "no ordinary file" in refusal(write, tmp_path / "pipe", {}, {}, force=True)
    assert "no ordinary file" in refusal(read, Path("/dev/null"))
    assert "no ordinary file" in refusal(write, Path("/dev/null"), {}, {}, force=True)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_another_version(path, small):
    data, _ = small
    ours, theirs = traceformat.VERSION, traceformat.EDITED + 1
    newer = data.replace(b'\\"version\\":%d,' % ours, b'\\"version\\":%d,' % theirs)
    said = said_of(path, newer)
    assert f"is a trace file of version {theirs}, and this layerstep reads version {ours}, and" in said


def change(file, changes):
    """The file with other entries, its checksum right."""
    table, ours, body = parts(file)
    table |= changes.get("tensors", {})
    return assembled(table, ours | {key: value for key, value in changes.items() if key != "tensors"}, body)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"tensors": {"one": {"dtype": "Q4_0", "shape": [], "data_offsets": [0, 4]}}}, "the unknown dtype Q4_0"),
        ({"tensors": {"one": {"dtype": ["F32"], "shape": [], "data_offsets": [0, 4]}}}, "unknown dtype"),
        ({"tensors": {"one": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}}, "impossible shape"),
        ({"tensors": {"one": {"dtype": "F32", "shape": [0, 2**40, 2**40], "data_offsets": [0, 0]}}}, "impossible"),
        ({"tensors": {"one": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}}, "impossible shape"),
        ({"tensors": {"one": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}}, "impossible shape"),
        ({"tensors": {"one": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}}, "impossible shape"),
        ({"tensors": {"one": {"dtype": "F32", "shape": [1] * 65, "data_offsets": [0, 4]}}}, "impossible shape"),
        ({"tensors": {"one": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}}, "does not lie where"),
        ({"tensors": {"one": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}}, "does not lie where"),
        ({"tensors": {"one": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}}, "does not lie where"),
        ({"tensors": {"one": {"dtype": "F32", "shape": [1], "data_offsets": [2, 6]}}}, "does not lie where"),
        ({"tensors": {"one": {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 2**62]}}}, "does not lie where"),
        ({"tensors": {"one": {"dtype": "F32", "shape": [1], "data_offsets": [4]}}}, "has no place"),
        ({"tensors": {"one": {"dtype": "F32", "shape": [1], "data_offsets": [0, "4"]}}}, "has no place"),
        ({"tensors": {"one": None}}, "is not described"),
        ({"tensors": {"extra": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}}, "checksums do not fit"),
        ({"aliases": {"also": "nowhere"}}, "tensor also is another name for nowhere, which is not stored"),
        ({"aliases": {"a": "b", "b": "a"}}, "tensor a is another name for b, which is not stored"),
        ({"aliases": {"a": "again", "again": "one"}}, "tensor a is another name for again, which is not stored"),
        ({"aliases": {"one": "one"}}, "is another name for"),
        ({"aliases": {"a": ["one"]}}, "is another name for"),
        ({"aliases": []}, "aliases is a list, not an object"),
        ({"header": [1]}, "header is a list, not an object"),
        ({"header": None}, "header is missing, not an object"),
        ({"sums": 3}, "sums is a whole number, not text"),
        ({"sums": "zz"}, "checksums do not fit"),
        ({"sums": "é" * 72}, "checksums do not fit"),
        ({"data": True}, "data is true or false, not a whole number"),
        ({"data": 10}, "it should have"),
        ({"data": -(10**30)}, "it should have"),
    ],
    ids=str,
)  # fmt: skip
def test_forged_headers(path, small, changes, line):
    data, _ = small
    said = said_of(path, change(data, changes))
    assert line in said
    assert str(path) in said


def test_forged_json(path, small):
    data, _ = small
    whole = header_length(data)
    opening = traceformat.OPENING + b"00000000" + rb"\","
    for text, line in (
        (opening, "its header is no JSON"),
        (opening + rb'}"', "its header is no JSON"),
        (opening + rb'NaN}"}}', "its header is no JSON"),
        (opening + rb'\"data\":NaN}"}}', "NaN is no JSON"),
        (opening + rb'\"data\":1e9999}"}}', "data is a number, not a whole number"),
        (opening + rb'\"header\":{}}"}}', "data is missing"),
        (opening + rb"\"a\":" + b"[" * 100_000 + b'}"}}', "its header is no JSON"),
        (opening + rb"\"data\":" + b"9" * 5000 + b'}"}}', "its header is no JSON"),
        (opening + b'\xff}"}}', "its header is no JSON"),
        (opening + rb'\"a\":1}"},"__metadata__":3}', "__metadata__ is a whole number, not an object"),
        (opening + rb'\"a\":1}","layerstep":3}}', "layerstep is a whole number, not text"),
        (opening + rb'\"a\":1}","layerstep":"[]"}}', "layerstep is a list, not an object"),
    ):
        assert line in said_of(path, sealed(len(text).to_bytes(8, "little") + text))
    assert "was changed or cut" in said_of(path, (40).to_bytes(8, "little") + data[8:whole])


def test_a_bool_is_0_or_1(path):
    """torch takes any byte for a bool, and counts it wrongly."""
    write(path, {}, {"x": torch.tensor([2, 1, 0], dtype=torch.uint8).view(torch.bool)})
    assert "the data of tensor x were changed" in refusal(read(path)[1].__getitem__, "x")


def test_damaged_data_are_seen_when_the_tensor_is_read(path):
    write(path, {}, {"a": torch.ones(3), "same": torch.ones(1), "b": torch.ones(4)})
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    _, tensors = read(path)
    assert torch.equal(tensors["b"], torch.ones(4))
    said = refusal(tensors.__getitem__, "same")
    assert said.startswith(f"{path} is damaged: the data of tensor same were changed; ")
    assert said == refusal(tensors.verify)


def test_a_huge_length_costs_no_memory(path, small):
    data, _ = small
    for length in (2**63, 2**64 - 1, 100_000_001, 100_000_000, 90_000_000, 3_000_000, len(data), len(data) - 8, 0, 1):
        path.unlink(missing_ok=True)
        path.write_bytes(length.to_bytes(8, "little") + data[8:])
        os.truncate(path, 120_000_000)
        tracemalloc.start()
        refusal(read, path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * 1024 * 1024


def test_foreign_text_in_messages_is_made_visible(path):
    write(path, {}, {"\x1b[2J\n\u202ename" * 9: torch.ones(1)})
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    assert "␛[2J⏎‹U+202E›name" in said_of(path, bytes(data))


# --- written whole or not at all --------------------------------------------------------------------------


def listing(folder):
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


@pytest.fixture(params=["new", "replaced"])
def target(request, path):
    """A path to write to, and what is in its folder before."""
    if request.param == "replaced":
        write(path, {"old": True}, {"x": torch.ones(3)})
    return path, listing(path.parent)


LARGE = {f"t{i}": torch.zeros(3 * 2**20) for i in range(3)}  # 12 MiB each: room is asked for, several pieces


def fails(monkeypatch, name, error, *, after=0):
    """Let a function of `os` raise from its call number ``after`` on."""
    real = getattr(os, name)
    calls = itertools.count()

    def fake(*arguments, **options):
        if next(calls) >= after:
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(os, name, fake)


@pytest.mark.parametrize("tensors", [{"x": torch.ones(9)}, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    ("name", "after"), [("open", 0), ("write", 0), ("write", 1), ("fsync", 0), ("close", 0), ("replace", 0)], ids=str
)  # fmt: skip
def test_a_full_disk_leaves_all_as_it_was(target, monkeypatch, tensors, name, after):
    path, before = target
    with monkeypatch.context() as patch:
        fails(patch, name, OSError(errno.ENOSPC, "No space left on device"), after=after)
        said = refusal(write, path, {}, tensors, force=True)
    assert said.startswith(f"{path} cannot be written: the disk is full (")
    assert listing(path.parent) == before


@linux
def test_no_room_is_known_before_anything_is_written(target, monkeypatch):
    path, before = target
    monkeypatch.setattr(os, "write", None)
    fails(monkeypatch, "posix_fallocate", OSError(errno.ENOSPC, "No space left on device"))
    assert "the disk is full (37,7" in refusal(write, path, {}, LARGE, force=True)
    assert listing(path.parent) == before


@linux
def test_a_file_system_that_cannot_set_room_aside_will_do(path, monkeypatch):
    fails(monkeypatch, "posix_fallocate", OSError(errno.EOPNOTSUPP, "Operation not supported"))
    monkeypatch.setattr(tracewriter, "_writeback", lambda: None)
    assert write(path, {}, LARGE) == path.stat().st_size
    read(path)[1].verify()


@linux
def test_the_device_that_is_always_full(target, monkeypatch):
    path, before = target
    real = os.open
    monkeypatch.setattr(os, "open", lambda name, flags, mode: real("/dev/full", os.O_WRONLY))
    assert "the disk is full" in refusal(write, path, {}, {"x": torch.ones(9)}, force=True)
    assert listing(path.parent) == before


@linux
def test_a_limit_on_file_sizes(path):
    """A real refusal of the system in the middle of the data."""
    script = f"""
import resource, sys
from pathlib import Path
import torch
from engine import tracefile
from engine.errors import TraceFileError
resource.setrlimit(resource.RLIMIT_FSIZE, ({2**20}, {2**20}))
for count in (300, 3000):
    try:
        tracefile.write(Path(sys.argv[1]), {{}}, {{"x": torch.zeros(count, 1024)}})
    except TraceFileError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{path} cannot be written: File too large; choose another place"] * 2
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError, RuntimeError("CUDA error")], ids=str)
@pytest.mark.parametrize("name", ["checksum", "_bytes_of"])
def test_whatever_happens_leaves_all_as_it_was(target, monkeypatch, raised, name):
    path, before = target
    real, calls = getattr(tracewriter, name), itertools.count()

    def fake(*arguments):
        if next(calls) == 2:
            raise raised
        return real(*arguments)

    monkeypatch.setattr(tracewriter, name, fake)
    with pytest.raises(raised if isinstance(raised, type) else type(raised)):
        write(path, {}, LARGE, force=True)
    assert listing(path.parent) == before


def test_ctrl_c_leaves_all_as_it_was(target, monkeypatch):
    path, before = target

    def fake(*arguments):
        signal.raise_signal(signal.SIGINT)
        return checksum(*arguments)

    monkeypatch.setattr(tracewriter, "checksum", fake)
    with pytest.raises(KeyboardInterrupt):
        write(path, {}, LARGE, force=True)
    assert listing(path.parent) == before


def test_short_writes_are_carried_on(path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[: max(1, len(data) // 3)]))
    tensors = {"x": torch.randn(1000)}
    write(path, {}, tensors)
    assert contents(path)[1] == {"x": bits(tensors["x"])}


def test_data_are_on_the_disk_before_the_name_is_taken(path, monkeypatch):
    done = []
    for name in ("write", "fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, name=name: done.append(name) or real(*a))
    write(path, {}, {"x": torch.ones(3)})
    assert done == ["write", "write", "fsync", "replace"]


def test_an_existing_file_is_replaced_only_with_force(path):
    write(path, {"n": 1}, {})
    before = path.read_bytes()
    assert refusal(write, path, {"n": 2}, {}) == (
        f"{path} exists already; choose another name, or replace it with force (--force)"
    )
    assert path.read_bytes() == before
    write(path, {"n": 2}, {}, force=True)
    assert read(path)[0] == {"n": 2}
    assert "is a folder" in refusal(write, path.parent, {}, {}, force=True)


def test_a_file_that_appears_meanwhile_is_not_replaced(path, monkeypatch):
    real = os.fsync

    def fake(fd):
        path.write_text("somebody else's")
        real(fd)

    monkeypatch.setattr(os, "fsync", fake)
    assert "exists already" in refusal(write, path, {}, {"x": torch.ones(3)})
    assert listing(path.parent) == {path.name: b"somebody else's"}


def test_where_nothing_can_be_written(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("a file")
    missing = tmp_path / "missing" / "x.safetensors"
    assert refusal(write, missing, {}, {}) == (
        f"{missing} cannot be written: there is no folder {tmp_path}/missing; create it or choose another"
    )
    assert "Not a directory" in refusal(write, file / "x.safetensors", {}, {})
    assert "File name too long" in refusal(write, tmp_path / ("x" * 300), {}, {})
    assert "no file name can have" in refusal(write, Path("a\x00b"), {}, {})
    assert "no file name can have" in refusal(write, Path("a\ud83d"), {}, {})
    for number in (errno.EACCES, errno.EPERM, errno.EROFS):
        with monkeypatch.context() as patch:
            fails(patch, "open", OSError(number, "no"))
            assert "no permission to write in the folder" in refusal(write, tmp_path / "x.safetensors", {}, {})
    assert listing(tmp_path) == {"file": b"a file"}


def test_a_place_is_refused_beforehand_in_the_same_words(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("a file")
    places = [tmp_path / "missing" / "x", file / "x", tmp_path / ("x" * 300), Path("a\x00b"), tmp_path, file]
    for place in places:
        assert refusal(check_target, place) == refusal(write, place, {}, {})
    check_target(file, force=True)
    check_target(tmp_path / "x")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "no permission to write in the folder" in refusal(check_target, tmp_path / "x")
    assert listing(tmp_path) == {"file": b"a file"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    assert "no permission to write in the folder" in refusal(write, folder / "x.safetensors", {}, {})


@linux
def test_a_link_stays_a_link_and_permissions_stay(tmp_path):
    real, link = tmp_path / "real.safetensors", tmp_path / "link.safetensors"
    write(real, {"n": 1}, {})
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(real.stat().st_mode) == 0o666 & ~mask
    real.chmod(0o640)
    link.symlink_to(real)
    assert "exists already" in refusal(write, link, {}, {})
    write(link, {"n": 2}, {}, force=True)
    assert link.is_symlink()
    assert read(real)[0] == {"n": 2}
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


# --- what cannot be stored --------------------------------------------------------------------------------


def test_a_header_that_no_reader_opens_is_refused_beforehand(path, monkeypatch):
    monkeypatch.setattr(tracewriter, "MAX_HEADER_BYTES", 2000)
    tensors = {f"blocks.{i}.attn.q@0": torch.ones(1) for i in range(30)}
    said = refusal(write, path, {}, tensors)
    assert "its header would be 2,552 bytes" in said
    assert "at most 2,000; keep fewer tensors" in said
    assert not path.exists()
    write(path, {}, dict(list(tensors.items())[:10]))


def test_a_header_of_the_largest_size_opens_everywhere(path):
    """As many tensors as a long generation has."""
    one = torch.ones(1)
    tensors = {f"blocks.{i}.attn.q@{at}": one.clone() for at in range(200) for i in range(50)}
    write(path, {"text": "x" * 5_000_000}, tensors)
    header, found = read(path)
    assert len(header["text"]) == 5_000_000
    assert len(found) == 10_000
    with safe_open(path, framework="pt") as file:
        assert len(file.keys()) == 10_000


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_lacks_are_refused(path, number):
    assert "its header is no JSON" in refusal(write, path, {"a": [number]}, {})
    assert not path.exists()


def test_tensors_that_cannot_be_stored_are_refused_by_name(path):
    for name, tensor, line in (
        ("sparse", torch.eye(3).to_sparse(), "tensor sparse is sparse; make it dense"),
        ("meta", torch.empty(3, device="meta"), "tensor meta is without data"),
        ("complex", torch.ones(3, dtype=torch.cfloat), "tensor complex is complex64; cast it to one of float64, "),
        ("axes", torch.ones([1] * 65), "tensor axes has 65 axes"),
        ("__metadata__", torch.ones(1), "has a name that safetensors cannot hold"),
        ("\ud83d\n", torch.ones(1), "tensor ‹U+D83D›⏎ has a name that safetensors cannot hold"),
    ):
        assert line in refusal(write, path, {}, {name: tensor})
    assert not path.exists()


# --- expect -----------------------------------------------------------------------------------------------


def test_expect():
    assert expect(3, int, "n") == 3
    assert expect(False, bool, "n") is False
    assert expect("", str, "n") == ""
    assert expect([], list, "n") == []
    assert expect({}, dict, "n") == {}
    for number in (2, 0.5, -3, 10**300):
        found = expect(number, float, "n")
        assert type(found) is float
        assert found == float(number)
    for value, kind, line in (
        (True, int, "n is true or false, not a whole number; the file is damaged"),
        (1.0, int, "n is a number, not a whole number"),
        (True, float, "n is true or false, not a number"),
        (float("inf"), float, "n is out of range, not a number"),
        (float("nan"), float, "n is out of range, not a number"),
        (10**400, float, "n is out of range, not a number"),
        (None, str, "n is missing, not text"),
        ([], dict, "n is a list, not an object"),
        ({}, list, "n is an object, not a list"),
    ):
        assert line in refusal(expect, value, kind, "n")
