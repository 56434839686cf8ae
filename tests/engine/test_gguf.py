"""GGUF files: read safely, the same models as the folders that they were made of, exact when dequantised."""

import resource
import struct
import sys
from dataclasses import replace
from pathlib import Path

import gguf
import gguf_models
import numpy as np
import pytest
import torch
import transformers
from damage_gguf import damaged, sound
from folders import load, load_or_say_why, refusal
from gguf_files import Type, converted, random_blocks, write
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import gap

from engine import Model, trace
from engine.checkpoints.families import FAMILIES
from engine.checkpoints.gguf import config_of
from engine.checkpoints.gguf.architectures import ARCHITECTURES
from engine.checkpoints.gguf.header import PLAIN, TYPES, read_header
from engine.checkpoints.gguf.tensors import GgufTensors
from engine.errors import CheckpointError

GGUF_KINDS = {number: Type(number).name for number in TYPES}
ENCODERS = ("bert", "modern-bert", "gemma-embedding")
LLAMA = gguf_models.llama()


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def random_model(config: transformers.PretrainedConfig, arch: str = "") -> transformers.PreTrainedModel:
    """transformers' model, its numbers such as bfloat16 holds; weights so large that attention is far from uniform."""
    torch.manual_seed(1)
    auto = transformers.AutoModel if arch in ENCODERS else transformers.AutoModelForCausalLM
    model = auto.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_((torch.randn(weight.shape) * 1.5 / weight.shape[-1] ** 0.5).bfloat16())
    model.tie_weights()
    return model


def llama_file(folder: Path, kind: Type = Type.F32, name: str = "model.gguf", **metadata: object) -> Path:
    arch, config, keys, more = LLAMA
    folder.mkdir(exist_ok=True, parents=True)
    return write(folder / name, arch, keys | metadata, converted(random_model(config), arch) | more, kind)


def reference(path: Path) -> transformers.PreTrainedModel:
    """transformers' own reading of a GGUF file, in float64."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = transformers.AutoConfig.for_model(**load_gguf_checkpoint(str(path))["config"])
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    assert not model.load_state_dict(tensors, strict=False).unexpected_keys
    return model.double()


# -------------------------------------------------------------------------------------------- the same model


@pytest.mark.parametrize("name", gguf_models.MODELS)
def test_a_file_is_the_model_of_the_folder_that_it_was_made_of(tmp_path, name):
    arch, config, keys, more = gguf_models.MODELS[name]()
    model = random_model(config, arch)
    model.save_pretrained(tmp_path / "folder")
    file = write(tmp_path / f"{name}.gguf", arch, keys, converted(model, arch) | more)
    raw, _ = config_of(read_header(file))
    if raw["model_type"] not in FAMILIES:
        pytest.skip(f"layerstep has no family {raw['model_type']} yet")
    ours, theirs = load(file), load(tmp_path / "folder")
    assert replace(ours.config, name="", pooling="none", pool_layers=()) == replace(theirs.config, name="")
    assert ours.weights.keys() - {"pool.0.weight", "pool.1.weight"} == theirs.weights.keys()
    for param, weight in theirs.weights.items():
        # A norm that is stored as 1 + w has lost the bits of w that 1 + w has no place for.
        one = 1 if theirs.config.norm_plus_one and weight.dim() == 1 else 0
        assert torch.equal(ours.weights[param] + one, weight + one), param


def test_every_architecture_has_a_model_here():
    made = {gguf_models.MODELS[name]()[0] for name in gguf_models.MODELS}
    assert set(ARCHITECTURES) == made


@pytest.mark.parametrize("kind", [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0], ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_logits_are_those_of_transformers_reading_of_the_file(tmp_path, kind, name):
    changes = {"hidden_size": 64, "intermediate_size": 96}
    arch, config, keys, _ = (
        gguf_models.llama(**changes, head_dim=16) if name == "llama" else gguf_models.qwen2(**changes)
    )
    keys["vocab_size"] = 40  # transformers would count the tokens, of which there are none here
    file = write(tmp_path / "m.gguf", arch, keys, converted(random_model(config), arch), kind)
    ids = [3, 1, 4, 15, 9, 2, 6, 5, 35]
    logits = trace(load(file, dtype="float64"), ids)["logits"]
    with torch.no_grad():
        assert gap(logits, reference(file)(torch.tensor([ids])).logits) < 2e-6  # transformers' float32 norms and tables


def test_older_layouts_are_the_same_model(tmp_path):
    """Queries, keys and values in one matrix, and every expert in a tensor of its own."""
    arch, config, keys, _ = gguf_models.phi2()
    tensors = converted(random_model(config), arch)
    fused = {name: tensor for name, tensor in tensors.items() if not any(f"attn_{x}." in name for x in "qkv")}
    for layer in range(config.num_hidden_layers):
        for kind in ("weight", "bias"):
            parts = [tensors[f"blk.{layer}.attn_{x}.{kind}"] for x in "qkv"]
            fused[f"blk.{layer}.attn_qkv.{kind}"] = torch.cat(parts)
    assert_same(
        load(write(tmp_path / "a.gguf", arch, keys, fused)), load(write(tmp_path / "b.gguf", arch, keys, tensors))
    )
    arch, config, keys, _ = gguf_models.mixtral()
    tensors = converted(random_model(config), arch)
    apart = {name: tensor for name, tensor in tensors.items() if "_exps" not in name}
    for name in tensors.keys() - apart.keys():
        for expert, tensor in enumerate(tensors[name]):
            apart[name.replace("_exps", f".{expert}")] = tensor
    assert_same(
        load(write(tmp_path / "a.gguf", arch, keys, apart)), load(write(tmp_path / "b.gguf", arch, keys, tensors))
    )


def assert_same(ours: Model, theirs: Model) -> None:
    assert ours.weights.keys() == theirs.weights.keys()
    assert all(torch.equal(ours.weights[name], weight) for name, weight in theirs.weights.items())


def test_an_encoder_s_pooling_is_the_file_s(tmp_path):
    arch, config, keys, _ = gguf_models.bert()
    tensors = converted(random_model(config, arch), arch)
    for number, kind in ((0, "none"), (1, "mean"), (2, "cls"), (3, "last")):
        model = load(write(tmp_path / "m.gguf", arch, keys | {"pooling_type": number}, tensors), dtype="float64")
        assert model.config.pooling == kind
    t = trace(load(write(tmp_path / "m.gguf", arch, keys, tensors), dtype="float64"), [1, 5, 7])
    assert gap(t["pooled"], t[t.program.edges[model.config.n_layers]].mean(1)) < 1e-12
    for odd, said in ((4, "4"), ([1, 2], "array"), ("mean", "mean")):
        file = write(tmp_path / "m.gguf", arch, keys | {"pooling_type": odd}, tensors)
        assert f"pooling_type {said}" in refusal(file)


# ------------------------------------------------------------------------------------------------ numbers


def test_block_sizes_are_those_of_the_gguf_package():
    for number, (name, block, size) in TYPES.items():
        kind = gguf.GGMLQuantizationType[name]
        assert kind == number
        assert gguf.GGML_QUANT_SIZES[kind] == (block, size)


@pytest.mark.parametrize(
    "kind", [Type[name] for name in GGUF_KINDS.values() if name not in PLAIN], ids=lambda k: k.name
)
def test_every_quantised_type_is_dequantised_as_the_gguf_package_does(tmp_path, kind):
    blocks = random_blocks(3, 512, kind)
    file = write(tmp_path / "m.gguf", "llama", {}, {"x": blocks}, kind)
    stored = GgufTensors(read_header(file))
    assert (list(stored.names), stored.shape("x"), stored.dtype("x"), stored.mapped("x")) == (
        ["x"],
        (3, 512),
        "float32",
        False,
    )
    ours = stored.tensor("x")
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(ours.numpy(), gguf.dequantize(blocks, kind))
    assert stored.notes == (f"dequantised 1 tensors from {kind.name} to float32",)


@pytest.mark.parametrize(
    "kind", [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q4_K, Type.Q5_K, Type.Q6_K], ids=lambda k: k.name
)
def test_dequantised_numbers_are_those_of_transformers_own_code(tmp_path, kind):
    theirs = pytest.importorskip("transformers.integrations.gguf.dequant", reason="an older transformers")
    blocks = random_blocks(4, 256, kind)
    ours = GgufTensors(read_header(write(tmp_path / "m.gguf", "llama", {}, {"x": blocks}, kind))).tensor("x")
    expected = theirs.dequantize(torch.from_numpy(blocks), int(kind)).reshape(4, 256)
    torch.testing.assert_close(ours, expected, rtol=1e-6, atol=0, equal_nan=True)


def test_plain_numbers_are_mapped_and_not_copied(tmp_path):
    for kind in (Type.F32, Type.F16, Type.BF16):
        numbers = torch.randn(5, 7).bfloat16().float()
        stored = GgufTensors(read_header(write(tmp_path / "m.gguf", "llama", {}, {"x": numbers}, kind)))
        one, other = stored.tensor("x"), stored.tensor("x")
        assert stored.mapped("x")
        assert str(one.dtype) == f"torch.{stored.dtype('x')}"
        assert one.data_ptr() == other.data_ptr()
        assert torch.equal(one.float(), numbers if kind is not Type.F16 else numbers.half().float())
        stored.release("x")
        assert torch.equal(one, stored.tensor("x"))


def test_each_expert_of_a_stack_is_dequantised_alone(tmp_path):
    stack = torch.randn(3, 4, 64)
    file = write(tmp_path / "m.gguf", "llama", {}, {"blk.0.ffn_up_exps.weight": stack, "x": torch.ones(2)}, Type.Q8_0)
    stored = GgufTensors(read_header(file))
    names = [f"blk.0.ffn_up_exps.weight[{expert}]" for expert in range(3)]
    assert list(stored.names) == [*names, "x"]
    whole = gguf.dequantize(gguf.quantize(stack.numpy(), Type.Q8_0), Type.Q8_0)
    for name, expected in zip(names, whole, strict=True):
        np.testing.assert_array_equal(stored.tensor(name).numpy(), expected)
    assert stored.notes == ("dequantised 1 tensors from Q8_0 to float32",)


@pytest.mark.parametrize(
    ("kind", "dtype", "said"),
    [
        (Type.F32, "float32", None),
        (Type.F16, "float32", "from float16 to float32"),  # a CPU has no float16 arithmetic worth having
        (Type.BF16, "bfloat16", "from float32 to bfloat16"),  # norms
        (Type.Q8_0, "float32", "dequantised 16 tensors from Q8_0 to float32"),
    ],
)
def test_the_dtype_is_the_file_s_and_casts_are_said(tmp_path, kind, dtype, said):
    arch, config, keys, _ = gguf_models.llama(hidden_size=64, intermediate_size=96, head_dim=16)
    model = load(write(tmp_path / "m.gguf", arch, keys, converted(random_model(config), arch), kind))
    assert str(model.dtype) == f"torch.{dtype}"
    assert said is None or any(said in line for line in model.report), list(model.report)
    assert str(load(tmp_path / "m.gguf", dtype="bfloat16").dtype) == "torch.bfloat16"


def test_a_tensor_that_begins_at_an_odd_byte_is_read(tmp_path):
    file = llama_file(tmp_path, **{"general.alignment": 1})
    data = file.read_bytes()
    header = read_header(file)
    first = min(entry.start for entry in header.tensors.values())
    shifted = data[:first] + b"\x00" + data[first:]
    key = b"general.alignment"
    assert data.count(key) == 1
    odd = tmp_path / "odd.gguf"  # the same file, every tensor one byte further on
    body = bytearray(shifted)
    for name, entry in header.tensors.items():
        at = body.index(struct.pack("<Q", len(name)) + name.encode()) + 8 + len(name)
        place = at + 4 + 8 * len(entry.shape) + 4
        body[place : place + 8] = struct.pack("<Q", entry.start - first + 1)
    odd.write_bytes(body)
    ours, theirs = load(odd), load(file)
    assert all(torch.equal(ours.weights[name], weight) for name, weight in theirs.weights.items())


def test_no_more_memory_than_the_weights_and_one_tensor(tmp_path):
    arch, config, keys, _ = gguf_models.llama(hidden_size=512, intermediate_size=2048, head_dim=128, vocab_size=4000)
    file = write(
        tmp_path / "m.gguf", arch, keys | {"vocab_size": 4000}, converted(random_model(config), arch), Type.Q8_0
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = load(file)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
    sizes = [weight.numel() * 4 for weight in model.weights.values()]
    assert grown < sum(sizes) + 3 * max(sizes)


# ------------------------------------------------------------------------------------------------ metadata


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention.key_length_mla": 4}, "'llama.attention.key_length_mla', which layerstep does not know for llama;"),
        ({"rope.scaling.type": "dynamic"}, "llama.rope.scaling.type 'dynamic' is not supported; none, linear, yarn"),
        ({"rope.scaling.type": "yarn", "rope.scaling.yarn_ext_factor": 0.5}, "yarn_ext_factor 0.5 is not supported"),
        ({"attention.head_count_kv": [1, 2]}, "attention.head_count_kv differs from layer to layer"),
        ({"attention.value_length": 10}, "attention.value_length 10 is not supported, only 12"),
        ({"rope.dimension_count": 6}, "rope.dimension_count 6 is not supported, only 12"),
        ({"block_count": 0}, "block_count must be a number between 1 and 2^31, but is 0"),
        ({"embedding_length": "big"}, "embedding_length must be a number between 1 and 2^31, but is big"),
        ({"attention.layer_norm_rms_epsilon": float("nan")}, "layer_norm_rms_epsilon must be a number, but is nan"),
        ({"block_count": 3}, "'blk.2.attn_norm.weight' [32] is missing"),
        ({"block_count": 1}, "'blk.1.attn_k.weight' is in the file, but the config has no place for it"),
        ({"embedding_length": 64}, "is [40, 32] in the file, but the config asks for [40, 64]"),
        ({"general.type": "adapter"}, "is no model but of type 'adapter'"),
        ({"split.count": 3}, "is one of 3 parts, which are not read together; join them with"),
    ],
)  # fmt: skip
def test_metadata_that_would_change_the_arithmetic_is_refused_by_name(tmp_path, change, message):
    assert message in refusal(llama_file(tmp_path, **change))


def test_other_architectures_are_refused_by_name(tmp_path):
    file = write(tmp_path / "m.gguf", "mamba", {}, {"x": torch.ones(2)})
    assert "GGUF architecture 'mamba' is not supported; supported are llama, qwen2," in refusal(file)


def test_one_number_for_each_layer_is_read_where_all_are_the_same(tmp_path):
    config = load(llama_file(tmp_path, **{"attention.head_count_kv": [2, 2], "feed_forward_length": [48, 48]})).config
    assert (config.kv_heads, config.d_mlp) == (2, 48)


def test_float32_settings_are_the_decimals_that_were_written(tmp_path):
    config = load(llama_file(tmp_path)).config
    assert config.norm_eps == 1e-5  # not 9.99999974e-06


def test_rotary_factors_that_are_not_llama_3_s_are_used_as_they_are(tmp_path):
    arch, config, keys, _ = LLAMA
    factors = torch.tensor([1.0, 1.5, 2.0, 3.0, 5.0, 7.0])
    tensors = converted(random_model(config), arch) | {"rope_freqs.weight": factors}
    model = load(write(tmp_path / "m.gguf", arch, keys, tensors), dtype="float64")
    cos = trace(model, [1, 2, 3])["rotary_cos"][0, 2]
    expected = torch.cos(2 * 5e5 ** (-torch.arange(0, 12, 2) / 12) / factors)
    assert gap(cos[:6], expected) < 1e-6


# ------------------------------------------------------------------------------------------- which file is meant


def test_a_folder_with_one_gguf_file_and_no_config_is_that_file(tmp_path):
    file = llama_file(tmp_path / "m")
    assert load(tmp_path / "m").source == load(file).source == str(file)
    assert load(file).name == "model"
    llama_file(tmp_path / "m", name="other.GGUF")
    assert "holds 2 GGUF files (model.gguf, other.GGUF); give the path of one" in refusal(tmp_path / "m")


def test_files_that_are_not_there_or_are_none(tmp_path):
    assert "no GGUF file" in refusal(_file(tmp_path, b"x" * 100))
    assert "is empty; the download is incomplete" in refusal(_file(tmp_path, b""))
    assert "No such file" in refusal(tmp_path / "nowhere.gguf")
    for name in ("a\x00b.gguf", "x" * 5000 + ".gguf", "\x1b[31m.gguf"):
        assert "cannot be read" in refusal(name)
    (tmp_path / "folder").mkdir()
    (tmp_path / "m.gguf").unlink()
    (tmp_path / "m.gguf").symlink_to("/dev/zero")
    assert "is no ordinary file" in refusal(tmp_path / "m.gguf")
    (tmp_path / "folder" / "m.gguf").symlink_to(tmp_path / "outside.gguf")
    assert "leads out of the model folder" in refusal(tmp_path / "folder")


def _file(folder: Path, data: bytes) -> Path:
    (folder / "m.gguf").write_bytes(data)
    return folder / "m.gguf"


# -------------------------------------------------------------------------------------------------- hostile files


def string(text: str | bytes, length: int | None = None) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data) if length is None else length) + data


def tensor(
    name: str = "x", dims: tuple[int, ...] = (4,), kind: int = 0, offset: int = 0, n: int | None = None
) -> bytes:
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims) if n is None else n, *dims, kind, offset)


def key(name: str, kind: int, value: bytes) -> bytes:
    return string(name) + struct.pack("<I", kind) + value


def values(name: str, kind: int, count: int) -> bytes:
    """A list that claims so many values, with none in it."""
    return key(name, 9, struct.pack("<IQ", kind, count))


def file(
    *parts: bytes, tensors: int = 0, keys: int = 0, version: int = 3, magic: bytes = b"GGUF", data: int = 64
) -> bytes:
    body = magic + struct.pack("<IQQ", version, tensors, keys) + b"".join(parts)
    return body + bytes(-len(body) % 32 + data)


ARCH = key("general.architecture", 8, string("llama"))
HOSTILE = {
    "other magic": (file(magic=b"GGML"), "is no GGUF file"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "version 1": (file(version=1), "version 1; versions 2 and 3 are read"),
    "cut in the counts": (b"GGUF" + struct.pack("<IQ", 3, 0), "needs 8 bytes at byte 16, but 0 are left"),
    "2^63 tensors": (file(tensors=2**63), "claims 9223372036854775808 tensors"),
    "2^40 keys": (file(keys=2**40), "claims 1099511627776 metadata keys"),
    "key of 2^63 bytes": (file(string("a", 2**63), keys=1), "a metadata key is 9223372036854775808 bytes long"),
    "text of 2^63 bytes": (file(key("a", 8, string("b", 2**63)), keys=1), "is 9223372036854775808 bytes long"),
    "key that is not UTF-8": (file(key("a", 8, string("b")), string(b"\xff\xfe"), keys=2), "is not UTF-8"),
    "unknown type of value": (file(key("a", 13, b""), keys=1), "is of type 13, which there is not"),
    "list of lists": (file(values("a", 9, 1), keys=1), "is a list of type 9, which is not read"),
    "list of 2^62 numbers": (file(values("a", 12, 2**62), keys=1), "needs 36893488147419103232 bytes"),
    "list of 2^62 texts": (file(values("a", 8, 2**62), keys=1), "strings; more than 1048576 are not"),
    "list of texts that is cut": (file(values("a", 8, 1000), keys=1), "the file ends before"),
    "key twice": (file(key("a", 0, b"1"), key("a", 0, b"1"), keys=2), "metadata 'a' is there twice"),
    "alignment 0": (file(key("general.alignment", 4, bytes(4)), keys=1), "no power of two"),
    "alignment 3": (file(key("general.alignment", 4, struct.pack("<I", 3)), keys=1), "no power of two"),
    "alignment a text": (file(key("general.alignment", 8, string("32")), keys=1), "no power of two"),
    "no dimensions": (file(tensor(dims=()), tensors=1), "has 0 dimensions; 1 to 4"),
    "2^32 - 1 dimensions": (file(tensor(n=2**32 - 1), tensors=1), "has 4294967295 dimensions"),
    "a dimension of 0": (file(tensor(dims=(0, 4)), tensors=1), "[4, 0] is empty"),
    "2^40 x 2^40 numbers": (file(tensor(dims=(2**40, 2**40)), tensors=1), "the download is incomplete"),
    "offset 2^63": (file(tensor(offset=2**63), tensors=1), "the download is incomplete"),
    "offset not aligned": (file(tensor(offset=4), tensors=1), "no multiple of the alignment 32"),
    "end beyond the file": (file(tensor(dims=(17,)), tensors=1), "the download is incomplete"),
    "tensor twice": (file(tensor(), tensor(offset=32), tensors=2), "tensor 'x' is there twice"),
    "overlap": (file(tensor("x", (16,)), tensor("y", offset=32), tensors=2), "tensors 'x' and 'y' overlap"),
    "unknown type of tensor": (file(tensor(kind=4), tensors=1), "is of type 4; known are F32, F16"),
    "part of a block": (file(tensor(kind=8, dims=(33,)), tensors=1), "rows of 33 numbers, but Q8_0 has blocks of 32"),
    "no architecture": (file(), "does not name its general.architecture"),
    "architecture a number": (file(key("general.architecture", 4, bytes(4)), keys=1), "does not name its general.arch"),
    "escapes": (file(key("general.architecture", 8, string("\x1b[31m\u202e")), keys=1), "is not supported"),
    "nothing but a name": (file(ARCH, keys=1), "embedding_length must be a number"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_damaged_headers_are_refused_in_one_line_and_without_memory(tmp_path, name):
    data, message = HOSTILE[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert message in refusal(_file(tmp_path, data))
    unit = 1 if sys.platform == "darwin" else 1024
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit < 100e6


@pytest.fixture(scope="module")
def a_sound_file(tmp_path_factory) -> bytes:
    folder = tmp_path_factory.mktemp("sound")
    data = sound(folder)
    model = load(_file(folder, data))
    assert model.tokenizer.encode("a")
    assert trace(model, "a b c")["logits"].isfinite().all()
    return data


@settings(max_examples=200)
@given(draw=st.randoms(use_true_random=False))
def test_a_file_changed_anywhere_loads_or_says_why(tmp_path_factory, a_sound_file, draw):
    load_or_say_why(_file(tmp_path_factory.mktemp("m"), damaged(a_sound_file, draw)))


def test_headers_change_nothing_when_only_unknown_general_keys_are_added(tmp_path):
    plain = load(llama_file(tmp_path))
    more = {"general.name": "\x1b[31m", "general.tags": ["a", "b"], "quantize.imatrix.file": "x"}
    assert load(
        llama_file(tmp_path, name="n.gguf", **{k: v for k, v in more.items() if k.startswith("general")})
    ).config == replace(plain.config, name="n")


def test_a_missing_gguf_package_is_said(tmp_path, monkeypatch):
    path = write(tmp_path / "m.gguf", "llama", {}, {"x": torch.ones(1, 32)}, Type.Q8_0)
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(CheckpointError, match="pip install gguf"):
        GgufTensors(read_header(path)).tensor("x")
