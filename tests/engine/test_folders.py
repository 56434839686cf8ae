"""Folders from outside: which files are opened, and what is refused in one clear line (L3, L4)."""

import contextlib
import json
import os
import re
import resource
import struct
import sys
import zipfile
from pathlib import Path

import pytest
import tokenizers
import torch
from folders import (
    HALVES,
    HOSTILE,
    INDEX,
    LLAMA,
    LLAMA_JSON,
    NATIVE,
    llama_tensors,
    load,
    load_or_say_why,
    native,
    refusal,
    sharded,
    write,
)
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny import random_ids, random_weights

from engine import trace
from engine.checkpoints import files
from engine.checkpoints.files import MAX_PICKLED, Safetensors
from engine.checkpoints.folder import inside
from engine.errors import CheckpointError
from engine.text import display

TOKENIZER = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, [])).to_str().encode()


# ------------------------------------------------------------------------------------- shards, paths, pickles (L3)


def test_shards(tmp_path):
    ids = random_ids(LLAMA, 5)
    whole = trace(load(write(tmp_path / "whole", LLAMA_JSON, llama_tensors())), ids)["logits"]
    assert torch.equal(trace(load(sharded(tmp_path / "m", HALVES)), ids)["logits"], whole)
    inside = dict.fromkeys(HALVES, "sub/folder/ok.safetensors")
    assert torch.equal(trace(load(sharded(tmp_path / "sub", inside)), ids)["logits"], whole)
    # A tensor in two shards is taken from the one that the index names.
    folder = sharded(tmp_path / "twice", HALVES)
    other = folder / "model-00002-of-00002.safetensors"
    save_file(load_file(other) | {"model.embed_tokens.weight": torch.zeros(37, 20)}, other)
    places = json.loads((folder / INDEX).read_text())["weight_map"]
    assert places["model.embed_tokens.weight"] == "model-00001-of-00002.safetensors"
    assert torch.equal(trace(load(folder), ids)["logits"], whole)


@pytest.mark.parametrize(
    "file", ["../x.safetensors", "/etc/passwd", "a/../../x.safetensors", "..", "sub/../../m2/model.safetensors"]
)
def test_shards_outside_the_folder_are_refused_before_they_are_opened(tmp_path, file, monkeypatch):
    native(tmp_path / "m2", LLAMA)
    (tmp_path / "x.safetensors").write_bytes((tmp_path / "m2" / "model.safetensors").read_bytes())
    folder = sharded(tmp_path / "m", HALVES, {"lm_head.weight": file})
    opened = []
    import safetensors

    original = safetensors.safe_open

    def spy(path, *args, **kwargs):
        opened.append(Path(path).resolve())
        return original(path, *args, **kwargs)

    monkeypatch.setattr(safetensors, "safe_open", spy)
    assert "leads out of the model folder; it is refused" in refusal(folder)
    assert all(path.is_relative_to(folder.resolve()) for path in opened)


def test_links_that_lead_out_are_refused(tmp_path):
    secret = tmp_path / "secret.safetensors"
    save_file(llama_tensors(), secret)
    folder = write(tmp_path / "m", LLAMA_JSON)
    (folder / "model.safetensors").symlink_to(secret)
    assert "leads out" in refusal(folder)
    (folder / "model.safetensors").unlink()
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_JSON))
    write(folder, LLAMA_JSON, llama_tensors())
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(tmp_path / "config.json")
    assert "leads out" in refusal(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        (tmp_path / name).write_bytes(TOKENIZER if name == "tokenizer.json" else b"{}")
        hostile = write(tmp_path / name.removesuffix(".json"), LLAMA_JSON, llama_tensors())
        (hostile / "tokenizer.json").write_bytes(TOKENIZER)
        assert load(hostile).tokenizer
        (hostile / name).unlink(missing_ok=True)
        (hostile / name).symlink_to(tmp_path / name)
        assert f"{name!r} leads out of the model folder; it is refused" in refusal(hostile)
    # A folder that is itself reached by a link is the user's own choice, and so is a link inside.
    good = write(tmp_path / "good", LLAMA_JSON, llama_tensors())
    (good / "model.safetensors").rename(good / "blob")
    (good / "model.safetensors").symlink_to("blob")
    (tmp_path / "link").symlink_to(good)
    assert load(tmp_path / "link").config.d_model == 20


def test_indexes_that_do_not_hold(tmp_path):
    missing = sharded(tmp_path / "m", HALVES, {"lm_head.weight": "model-00003.safetensors"})
    assert "has no model-00003.safetensors; the download is incomplete" in refusal(missing)
    long = sharded(tmp_path / "l", HALVES, {"lm_head.weight": "x" * 5000})
    assert f"has no {'x' * 200}; the download is incomplete" in refusal(long)
    wrong = sharded(tmp_path / "w", HALVES, {"lm_head.weight": "model-00001-of-00002.safetensors"})
    assert "lacks tensor 'lm_head.weight'" in refusal(wrong)
    for index in (
        {},
        {"weight_map": {}},
        {"weight_map": []},
        {"weight_map": {"a": 1}},
        {"weight_map": {"a": None}},
        {"weight_map": None},
    ):
        (wrong / INDEX).write_text(json.dumps(index))
        assert "weight_map must map tensor names to file names" in refusal(wrong)
    for index in ("", "[]", "{", "null", "\x00", '{"weight_map": {"a": "b\\u0000c"}}', '{"weight_map": {"a": ""}}'):
        (wrong / INDEX).write_text(index)
        refusal(wrong)


def test_an_index_that_says_two_things_of_a_tensor_is_refused(tmp_path):
    folder = sharded(tmp_path / "m", HALVES)
    text = (folder / INDEX).read_text()
    entry = '"model.norm.weight": "model-00001-of-00002.safetensors"'
    (folder / INDEX).write_text(text.replace('"weight_map": {', f'"weight_map": {{{entry}, '))
    assert "key 'model.norm.weight' stands there twice" in refusal(folder)


def test_what_an_index_leaves_out_plays_no_part_and_is_said(tmp_path):
    folder = sharded(tmp_path / "m", HALVES)
    other = folder / "model-00002-of-00002.safetensors"
    save_file(load_file(other) | {"extra.a": torch.zeros(2), "extra.b": torch.zeros(2)}, other)
    assert "ignored extra.a (2 tensors), which the index does not list" in load(folder).report


def test_a_whole_file_is_preferred_to_shards(tmp_path):
    # As transformers does.
    folder = sharded(tmp_path / "m", HALVES)
    whole = {name: tensor + 1 for name, tensor in llama_tensors().items()}
    save_file(whole, folder / "model.safetensors")
    assert torch.equal(load(folder).weights["embed.weight"], whole["model.embed_tokens.weight"])


# ------------------------------------------------------------------------------------- Hugging Face's cache layout


def snapshot(cache: Path, tensors: dict[str, torch.Tensor] | None = None) -> Path:
    """A snapshot as huggingface_hub lays it out: links into the repository's blobs."""
    folder = cache / "models--org--tiny" / "snapshots" / ("a" * 40)
    write(folder, LLAMA_JSON, tensors or llama_tensors())
    (folder / "tokenizer.json").write_bytes(TOKENIZER)
    blobs = cache / "models--org--tiny" / "blobs"
    blobs.mkdir()
    for number, file in enumerate(sorted(folder.iterdir())):
        blob = blobs / f"{number:064x}"
        file.rename(blob)
        file.symlink_to(os.path.relpath(blob, folder))
    return folder


def test_a_snapshot_of_the_hub_s_cache_loads_under_its_repository_s_name(tmp_path):
    model = load(snapshot(tmp_path / "hub"))
    assert model.name == "org/tiny"
    assert model.tokenizer is not None
    assert model.config.d_model == 20


def test_a_blob_may_lie_in_the_store_that_repositories_share(tmp_path):
    folder = snapshot(tmp_path / "hub")
    blob = (folder / "model.safetensors").resolve()
    shared = tmp_path / "hub" / "blobs" / "ab" / ("ab" * 32)
    shared.parent.mkdir(parents=True)
    blob.rename(shared)
    blob.symlink_to(shared)
    assert load(folder).name == "org/tiny"
    odd = shared.with_name("secret")
    shared.rename(odd)
    blob.unlink()
    blob.symlink_to(odd)
    assert "leads out of the model folder" in refusal(folder)


@pytest.mark.parametrize("target", ["outside", "other repo", "beside blobs", "beneath blobs", "shard through .."])
def test_links_of_a_snapshot_that_lead_elsewhere_are_refused(tmp_path, target):
    folder = snapshot(tmp_path / "hub")
    file = folder / "model.safetensors"
    blob = file.resolve()
    repo = tmp_path / "hub" / "models--org--tiny"
    to = {
        "outside": tmp_path / "x.safetensors",
        "other repo": tmp_path / "hub" / "models--org--other" / "blobs" / "b",
        "beside blobs": repo / "refs" / "b",
        "beneath blobs": repo / "blobs" / "deep" / "b",
        "shard through ..": blob,
    }[target]
    file.unlink()
    if target == "shard through ..":
        (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(HALVES, f"../../blobs/{blob.name}")}))
    else:
        to.parent.mkdir(parents=True, exist_ok=True)
        blob.rename(to)
        file.symlink_to(to)
    assert "leads out of the model folder; it is refused" in refusal(folder)


def test_a_folder_that_only_looks_like_a_snapshot_follows_no_links(tmp_path):
    folder = snapshot(tmp_path / "hub")
    (tmp_path / "hub" / "models--org--tiny").rename(tmp_path / "hub" / "tiny")
    assert "leads out" in refusal(tmp_path / "hub" / "tiny" / "snapshots" / folder.name)


# ------------------------------------------------------------------------------------------- pickles, foreign code


class Payload:
    """Runs ``os.mkdir`` when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


def test_a_pickle_is_not_opened_unless_it_is_allowed(tmp_path):
    folder = write(tmp_path / "m", LLAMA_JSON)
    torch.save(llama_tensors(), folder / "pytorch_model.bin")
    text = refusal(folder)
    assert "has its weights only in pytorch_model.bin, a pickle, which is read only where you allow it" in text
    assert "--allow-pickle" in text
    expected = trace(load(write(tmp_path / "s", LLAMA_JSON, llama_tensors())), [1, 2, 3])["logits"]
    assert torch.equal(trace(load(folder, allow_pickle=True), [1, 2, 3])["logits"], expected)
    # As torch saved before 1.6, and as transformers shards them.
    torch.save(llama_tensors(), folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert torch.equal(trace(load(folder, allow_pickle=True), [1, 2, 3])["logits"], expected)
    (folder / "pytorch_model.bin").unlink()
    places = {
        name: file.replace("model-", "pytorch_model-").replace("safetensors", "bin") for name, file in HALVES.items()
    }
    for file in set(places.values()):
        torch.save({n: t for n, t in llama_tensors().items() if places[n] == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    assert "pytorch_model.bin.index.json, a pickle" in refusal(folder)
    assert torch.equal(trace(load(folder, allow_pickle=True), [1, 2, 3])["logits"], expected)
    # safetensors are preferred.
    save_file(llama_tensors(), folder / "model.safetensors")
    (folder / "pytorch_model-00001-of-00002.bin").write_bytes(b"")
    load(folder, allow_pickle=True)


@pytest.mark.parametrize("old", [False, True])
def test_no_code_is_run(tmp_path, old):
    pwned = tmp_path / "pwned"
    folder = write(tmp_path / "m", LLAMA_JSON)
    tensors = llama_tensors() | {"model.norm.weight": Payload(pwned)}
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=not old)
    (folder / "modeling_evil.py").write_text(f"import os; os.mkdir({str(pwned)!r})")
    assert "a pickle" in refusal(folder)
    assert "is damaged, or holds more than tensors" in refusal(folder, allow_pickle=True)
    # The payload does what it says where a pickle is trusted, so it is the refusal that kept it from it.
    assert not pwned.exists()
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert pwned.exists()


def test_code_that_comes_with_a_model_of_ours_is_never_imported_and_that_is_said(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "modeling_evil.py").write_text(f"import os; os.mkdir({str(tmp_path / 'pwned')!r})")
    raw = LLAMA_JSON | {"auto_map": {"AutoModelForCausalLM": "modeling_evil.Model"}}
    model = load(write(tmp_path / "m", raw, llama_tensors()))
    assert any("auto_map" in line and "never run" in line for line in model.report)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"PK", b"\x80\x02.", b"\x80\x04\x95" + b"\xff" * 8, b"PK\x03\x04" + bytes(400), b"x" * 1000],
    ids=lambda content: repr(content[:4]),
)
def test_damaged_pickles(tmp_path, content):
    folder = write(tmp_path / "m", LLAMA_JSON)
    (folder / "pytorch_model.bin").write_bytes(content)
    assert "is damaged, or holds more than tensors" in refusal(folder, allow_pickle=True)
    torch.save([torch.zeros(2)], folder / "pytorch_model.bin")
    assert "must hold tensors by name" in refusal(folder, allow_pickle=True)


def pickled(folder: Path, tensors: object, **options: bool) -> str:
    """The line with which a folder with this pytorch_model.bin is refused where pickles are allowed."""
    write(folder, LLAMA_JSON)
    torch.save(tensors, folder / "pytorch_model.bin", **options)
    return refusal(folder, allow_pickle=True)


def test_what_is_said_of_a_pickle_is_no_advice_to_run_it(tmp_path):
    for old in (False, True):
        name = f"{os.mkdir.__module__}.mkdir"
        text = pickled(tmp_path / "m", {"a": Payload(tmp_path)}, _use_new_zipfile_serialization=not old)
        assert text.endswith(f"or holds more than tensors: it asks for {name}, and no code of a file is run")
    (tmp_path / "m" / "pytorch_model.bin").write_bytes(b"\x80\x04X\x07\x00\x00\x00\x1b]0;P\x07\n.")
    assert refusal(tmp_path / "m", allow_pickle=True).endswith("more than tensors: torch cannot read it as such")


@pytest.mark.parametrize(
    ("tensor", "kind"),
    [(torch.empty(37, 20, device="meta"), "without numbers"), (torch.eye(37, 20).to_sparse(), "sparse")],
    ids=["meta", "sparse"],
)
def test_tensors_of_a_pickle_that_are_no_plain_ones_are_named(tmp_path, tensor, kind):
    text = pickled(tmp_path / "m", llama_tensors() | {"model.embed_tokens.weight": tensor})
    assert text.endswith(f"pytorch_model.bin: tensor 'model.embed_tokens.weight' is {kind}, which is not supported")


def test_a_pickle_that_would_fill_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "load", lambda *args, **options: pytest.fail("it was read"))
    text = pickled(tmp_path / "m", {"a": torch.zeros(2), "b": [[]] * 2_000_000})
    assert re.search(r"pytorch_model.bin holds \d{7} bytes beside its tensors; more than \d{7} are no model's", text)
    (tmp_path / "m" / "pytorch_model.bin").write_bytes(b"\x80\x02" + b"]" * 1000 + b"a" * 999 + b".")
    assert "torch cannot read it as such" in refusal(tmp_path / "m", allow_pickle=True)


def test_a_pickle_of_many_tensors_is_read(tmp_path):
    folder = write(tmp_path / "m", LLAMA_JSON)
    many = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.zeros(1) for i in range(9000)}
    torch.save(llama_tensors() | many, folder / "pytorch_model.bin")
    with zipfile.ZipFile(folder / "pytorch_model.bin") as archive:
        assert archive.getinfo("pytorch_model/data.pkl").file_size > MAX_PICKLED
    assert load(folder, allow_pickle=True).config.d_model == 20


# ------------------------------------------------------------------------------------------- damaged files (L4)


def safetensors_file(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: str = "F32", shape: object = (2, 2), offsets: object = (0, 16)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


SIXTEEN = bytes(16)
DAMAGED = {
    "empty": b"",
    "2 bytes": b"\x10\x00",
    "length 2^63": struct.pack("<Q", 2**63) + b"{}",
    "length beyond the file": struct.pack("<Q", 1000) + b"{}",
    "length 100,000,001": struct.pack("<Q", 100_000_001) + b"{}",
    "not JSON": safetensors_file(b"not json"),
    "bad UTF-8": safetensors_file(b'{"\xff\xfe": 1}'),
    "a list": safetensors_file([1, 2]),
    "a name twice": safetensors_file(
        b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"a":{"dtype":"F32","shape":[4],"data_offsets":[16,32]}}',
        bytes(32),
    ),
    "overlap": safetensors_file({"a": entry(), "b": entry(offsets=(8, 24))}, bytes(24)),
    "hole": safetensors_file({"a": entry(), "b": entry(offsets=(20, 36))}, bytes(36)),
    "end beyond the file": safetensors_file({"a": entry(offsets=(0, 16))}, bytes(8)),
    "trailing bytes": safetensors_file({"a": entry()}, bytes(20)),
    "end before start": safetensors_file({"a": entry(offsets=(4, 0))}, SIXTEEN),
    "shape and span differ": safetensors_file({"a": entry(shape=(2, 3))}, SIXTEEN),
    "2^40 x 2^40": safetensors_file({"a": entry(shape=(2**40, 2**40))}, SIXTEEN),
    "negative shape": safetensors_file({"a": entry(shape=(-1,))}, SIXTEEN),
    "unknown dtype": safetensors_file({"a": entry(dtype="Q4_0")}, SIXTEEN),
    "metadata is no text": safetensors_file({"__metadata__": {"a": 1}, "a": entry()}, SIXTEEN),
    "shape is text": safetensors_file({"a": entry(shape="2")}, SIXTEEN),
    "deep": safetensors_file(b"[" * 50_000 + b"]" * 50_000),
    "a header of 90 MB": safetensors_file(b"{" + b" " * 90_000_000 + b"}"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused(tmp_path, name):
    folder = write(tmp_path / "m", LLAMA_JSON)
    (folder / "model.safetensors").write_bytes(DAMAGED[name])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = refusal(folder)
    assert "model.safetensors is damaged: " in text
    assert len(text) - text.index("is damaged: ") > 20  # with the reason
    unit = 1 if sys.platform == "darwin" else 1024
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < 100e6


VALID = {
    "0-d": {"a": torch.tensor(1.0)},
    "empty shape": {"a": torch.zeros(0, 3)},
    "no tensors": {},
    "bfloat16": {"a": torch.zeros(2, dtype=torch.bfloat16)},
    "float8": {"a": torch.zeros(2).to(torch.float8_e4m3fn)},
    "a name with NUL and ../": {"../\x00../etc/passwd": torch.zeros(2)},
    "a name with escapes": {"\x1b]0;PWNED\x07\u202e": torch.zeros(2)},
}


@pytest.mark.parametrize("name", VALID)
def test_odd_but_valid_tensors_are_named_and_not_used(tmp_path, name):
    # The file is sound; its tensor has no place in the model, and its name is no path.
    folder = write(tmp_path / "m", LLAMA_JSON, llama_tensors() | VALID[name])
    if VALID[name]:
        assert "is in the file, but the config has no place for it" in refusal(folder)
    else:
        load(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("name", VALID)
def test_odd_but_valid_tensors_come_out_as_they_went_in(tmp_path, name):
    tensors = VALID[name] | {"last": torch.arange(5.0)}
    save_file(tensors, tmp_path / "a.safetensors")
    read = Safetensors(tmp_path / "a.safetensors")
    assert set(read.names) == set(tensors)
    for key, tensor in tensors.items():
        assert read.shape(key) == tuple(tensor.shape)
        assert read.dtype(key) == str(tensor.dtype).removeprefix("torch.")
        assert read.tensor(key).dtype is tensor.dtype
        assert torch.equal(read.tensor(key).reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))
        read.release(key)
        assert torch.equal(read.tensor(key).float(), tensor.float())


def test_a_header_of_exactly_100_000_bytes_is_read(tmp_path):
    folder = write(tmp_path / "m", LLAMA_JSON, llama_tensors())
    file = folder / "model.safetensors"
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    file.write_bytes(struct.pack("<Q", 100_000) + data[8 : 8 + length].ljust(100_000) + data[8 + length :])
    assert load(folder).config.d_model == 20


@pytest.mark.parametrize("file", ["config.json", INDEX, "model.safetensors"])
def test_json_that_would_fill_memory_is_refused_before_it_is_read(tmp_path, file):
    folder = sharded(tmp_path / "m", HALVES) if file == INDEX else write(tmp_path / "m", LLAMA_JSON, llama_tensors())
    many = b'{"__metadata__": {' + b",".join(b'"%x":""' % i for i in range(600_000)) + b"}}"
    dense = b'{"a": [' + b"[]," * 2_000_000 + b"0]}"
    (folder / file).write_bytes(safetensors_file(many) if file.endswith("s") else dense)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert re.search(r"holds some \d+ values; more than 400000 are no model's", refusal(folder))
    unit = 1 if sys.platform == "darwin" else 1024
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < 100e6


@given(cut=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 2**31))
def test_a_file_cut_or_changed_anywhere_loads_or_says_why(tmp_path_factory, cut, seed):
    folder = write(tmp_path_factory.mktemp("m"), LLAMA_JSON, llama_tensors())
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    file.write_bytes(data[: int(cut * len(data))])
    refusal(folder)
    data[seed % 4000] ^= 1 + seed % 255  # in the header, most often
    file.write_bytes(data)
    load_or_say_why(folder)  # a changed number is a changed number


# ------------------------------------------------------------------------------------------------ missing things


def test_folders_that_are_none(tmp_path):
    assert "there is no sample model and no folder" in refusal(tmp_path / "nowhere")
    assert "`layerstep models` lists the samples" in refusal(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    assert "no folder" in refusal(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert "has no config.json; it is no model folder" in refusal(tmp_path / "empty")
    assert "has no model.safetensors; the download is incomplete" in refusal(write(tmp_path / "m", LLAMA_JSON))
    for name in ("", "a\x00b", "\x1b[31m", "x" * 5000, "."):
        assert len(refusal(name)) < 200  # type: ignore[arg-type]


def test_downloads_that_broke_off_are_named(tmp_path):
    folder = write(tmp_path / "m", LLAMA_JSON)
    (folder / "model.safetensors.part").touch()
    assert "(model.safetensors.part is left of it); download it again" in refusal(folder)
    (folder / "model.safetensors.part").unlink()
    left = folder / ".cache" / "huggingface" / "download"
    left.mkdir(parents=True)
    (left / "abc.incomplete").touch()
    assert "(abc.incomplete is left of it)" in refusal(folder)
    cached = snapshot(tmp_path / "hub")
    blob = (cached / "model.safetensors").resolve()
    blob.rename(blob.with_name("abc.incomplete"))
    assert "has no model.safetensors; the download is incomplete (abc.incomplete is left of it)" in refusal(cached)


@pytest.mark.parametrize("kind", ["pipe", "folder"])
@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin", "model-00001-of-00002.safetensors"])
def test_weights_that_are_no_file_are_not_waited_for(tmp_path, kind, file):
    folder = sharded(tmp_path / "m", HALVES) if "-of-" in file else write(tmp_path / "m", LLAMA_JSON)
    (folder / file).unlink(missing_ok=True)
    if kind == "folder":
        (folder / file).mkdir()
    elif hasattr(os, "mkfifo"):
        os.mkfifo(folder / file)
    else:
        pytest.skip("needs pipes")
    assert refusal(folder, allow_pickle=True).endswith(f"{file} is no ordinary file")


def test_a_link_to_itself_is_one_line(tmp_path):
    folder = write(tmp_path / "m", LLAMA_JSON)
    (folder / "model.safetensors").symlink_to("model.safetensors")
    assert "'model.safetensors' in " in (text := refusal(folder))
    assert text.endswith("is a link that leads to itself")


def test_the_weights_of_other_libraries_are_named(tmp_path):
    folder = write(tmp_path / "m", LLAMA_JSON)
    (folder / "flax_model.msgpack").touch()
    assert refusal(folder).endswith(
        "has no model.safetensors; its weights are Flax's, in flax_model.msgpack, which layerstep does not read"
    )


def test_an_index_of_more_files_than_any_model_s_is_refused_before_one_is_looked_for(tmp_path, monkeypatch):
    folder = write(tmp_path / "m", LLAMA_JSON)
    (folder / INDEX).write_text(json.dumps({"weight_map": {f"t{i}": f"{i}.safetensors" for i in range(4097)}}))
    looked: list[str] = []
    monkeypatch.setattr(files, "inside", lambda folder, name: looked.append(name) or inside(folder, name))
    assert refusal(folder).endswith(f"{INDEX} names 4097 files; more than 4096 are no model's")
    assert len(looked) < 5


def test_too_many_open_files_are_no_damage(tmp_path):
    folder = sharded(tmp_path / "m", {name: f"{i}.safetensors" for i, name in enumerate(llama_tensors())})
    resource_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    said: list[str] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource_limit[1]))
        for free in range(1, 6):  # whichever call it is that cannot open another file
            with contextlib.suppress(OSError):
                while True:
                    held.append(os.open(os.devnull, os.O_RDONLY))
            for _ in range(free):
                os.close(held.pop())
            try:
                Safetensors(folder / "0.safetensors")
            except CheckpointError as error:
                said.append(str(error).lower())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, resource_limit)
        for descriptor in held:
            os.close(descriptor)
    assert 1 <= len(said) < 5  # so many files it does not need
    assert all(text.endswith(("too many open files", "too many files are open at once")) for text in said)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 548105171\n"


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "model-00001-of-00002.safetensors"])
def test_a_git_lfs_pointer_is_told_from_the_file_it_stands_for(tmp_path, file):
    folder = sharded(tmp_path / "m", HALVES) if "-of-" in file else write(tmp_path / "m", LLAMA_JSON, llama_tensors())
    (folder / file).write_bytes(POINTER)
    assert f"{file} is a git-lfs pointer and not the file itself; run `git lfs pull`" in refusal(folder)


def test_a_folder_of_gguf_files_says_how_to_open_one(tmp_path):
    folder = write(tmp_path / "m", LLAMA_JSON)
    (folder / "tiny.Q8_0.gguf").touch()
    assert "tiny.Q8_0.gguf; give that file's path" in refusal(folder)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"3", b'"x"', b"\xff\xfe{", b"{} x", b"[" * 100_000, b'{"a": NaN', b"\x00" * 10,
     b'{"model_type": "llama", "vocab_size": ' + b"9" * 5000 + b"}"],
    ids=lambda content: repr(content[:12]),
)  # fmt: skip
def test_a_config_that_is_no_json_object(tmp_path, content):
    folder = write(tmp_path / "m", {}, llama_tensors())
    (folder / "config.json").write_bytes(content)
    refusal(folder)


def test_a_config_that_is_a_folder_or_huge(tmp_path):
    folder = write(tmp_path / "m", LLAMA_JSON, llama_tensors())
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    assert refusal(folder).endswith("config.json is no ordinary file")
    (folder / "config.json").rmdir()
    with (folder / "config.json").open("wb") as file:
        file.truncate(2**33)  # a sparse file of 8 GiB
    text = refusal(folder)
    assert "config.json is 8589934592 bytes; more than" in text
    assert "not JSON" not in text


@pytest.mark.parametrize("key", ["model_type", "hidden_act", HOSTILE, "rope_scaling", "name"])
def test_hostile_text_is_never_shown_as_it_is(tmp_path, key):
    for value in (HOSTILE, {HOSTILE: HOSTILE}, [HOSTILE], HOSTILE * 500):
        refusal(write(tmp_path / "m", LLAMA_JSON | {key: value}, llama_tensors()))
    own = NATIVE | LLAMA.to_json()
    for field in ("activation", HOSTILE, "format_version", "d_model"):
        refusal(write(tmp_path / "n", own | {field: HOSTILE}, random_weights(LLAMA)))
    refusal(write(tmp_path / "n", own | {"name": HOSTILE, "d_model": -1}, random_weights(LLAMA)))


def test_a_hostile_name_is_printable_wherever_it_goes(tmp_path):
    model = load(write(tmp_path / "m", NATIVE | LLAMA.to_json() | {"name": HOSTILE}, random_weights(LLAMA)))
    assert display(model.name) == model.name
    assert "PWNED" in model.name
    assert display(repr(trace(model, [1]))) == repr(trace(model, [1]))
    folder = tmp_path / "\x1b[31mred\u202e"
    model = load(write(folder, LLAMA_JSON, llama_tensors()))
    assert display(model.name) == model.name
    assert all(display(line) == line for line in model.report)
    (folder / "model.safetensors").unlink()
    refusal(folder)
