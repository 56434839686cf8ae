"""Model folders from outside: what loads, what is said of it, and what is refused in one clear line."""

import json
import os
import re
import resource
import struct
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny import ARCHITECTURES, CLASSIC, GPT2, MODERN, gap, random_ids, random_model, random_weights, tiny, tiny_config

from engine import Model, ModelConfig, load_model, trace
from engine.checkpoints.llama import tensor_name
from engine.errors import CheckpointError, ConfigError, DeviceError
from engine.text import display

NATIVE = {"model_type": "layerstep", "format_version": 1}
INDEX = "model.safetensors.index.json"
TOKENIZER = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, [])).to_str().encode()


# --------------------------------------------------------------------------------------------------- folders


def write(folder: Path, config: dict, tensors: dict[str, torch.Tensor] | None = None) -> Path:
    """A model folder."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    if tensors is not None:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def native(folder: Path, config: ModelConfig, dtype: torch.dtype = torch.float32) -> Path:
    return write(folder, NATIVE | config.to_json(), random_weights(config, dtype=dtype))


LLAMA = tiny_config(**MODERN)
LLAMA_JSON = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 37, "hidden_size": 20,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
    "intermediate_size": 26, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10_000.0,
    "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": [2, 3],
}  # fmt: skip


def llama_tensors(config: ModelConfig = LLAMA, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    return {tensor_name(name): tensor for name, tensor in random_weights(config, dtype=dtype).items()}


def load(folder: Path, **options: str) -> Model:
    return load_model(folder, **({"device": "cpu"} | options))


def load_or_say_why(folder: Path, **options: str) -> Model | str:
    """The model, or the one clear line with which a folder is refused."""
    try:
        return load(folder, **options)
    except (CheckpointError, ConfigError, DeviceError) as error:
        text = str(error)
    assert text
    assert display(text) == text, repr(text)  # printable as it stands, on one line
    assert len(text) < 600
    return text


def refusal(folder: Path, **options: str) -> str:
    """The line with which a folder is refused, which it must be."""
    said = load_or_say_why(folder, **options)
    assert isinstance(said, str), "it was loaded"
    return said


# ---------------------------------------------------------------------------------------------------- our own


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_our_own_format_gives_back_the_model(tmp_path, name):
    config = tiny_config(**ARCHITECTURES[name])
    model = load(native(tmp_path / "m", config))
    assert model.config == config
    assert model.source == str(tmp_path / "m")
    ids = random_ids(config, 7)
    assert torch.equal(trace(model, ids)["logits"], trace(random_model(config, dtype=torch.float32), ids)["logits"])
    assert "no tokenizer.json: prompts are token ids" in model.report
    assert ("unembedding is the embedding matrix (tied)" in model.report) is config.tied


def test_a_folder_s_name_is_the_model_s_where_it_has_none(tmp_path):
    fields = tiny_config(**CLASSIC).to_json()
    del fields["name"]
    model = load(write(tmp_path / "my model", NATIVE | fields, random_weights(tiny_config(**CLASSIC))))
    assert model.name == "my model"


def test_a_model_that_is_loaded_is_handed_through(tiny):
    model = tiny(**MODERN)
    assert load_model(model) is model
    assert load_model(model, device="cpu", dtype="float64") is model
    for options in ({"dtype": "float32"}, {"dtype": "float63"}, {"device": "mps"}, {"device": "meta"}):
        with pytest.raises(DeviceError) as caught:
            load_model(model, **options)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "reads format_version 1, not 2"),
        ({"format_version": None}, "reads format_version 1, not None"),
        ({"sliding_window": 4}, "unknown field 'sliding_window'"),
        ({"activation": "swish"}, "activation must be one of relu, gelu, gelu_tanh, silu, but is 'swish'"),
        ({"positions": "alibi"}, "but is 'alibi'"),
        ({"norm": ["layer"]}, "norm"),
        ({"d_model": "20"}, "d_model must be int, but is '20'"),
        ({"d_model": 20.0}, "d_model must be int"),
        ({"d_model": True}, "d_model must be int, but is True"),
        ({"d_model": None}, "d_model must be int"),
        ({"causal": 1}, "causal must be bool, but is 1"),
        ({"norm_eps": "1e-5"}, "norm_eps must be float"),
        ({"norm_eps": float("nan")}, "norm_eps is nan"),
        ({"name": 3}, "name must be str"),
        ({"n_kv_heads": 3}, "n_heads 4 is no multiple of n_kv_heads 3"),
        ({"d_head": 5}, "d_head is 5"),
    ],
)
def test_configs_are_refused_by_field(tmp_path, change, message):
    folder = native(tmp_path / "m", tiny_config(**MODERN))
    write(folder, NATIVE | tiny_config(**MODERN).to_json() | change)
    assert message in refusal(folder)


def test_missing_fields_are_named(tmp_path):
    for field in ("d_model", "d_vocab", "n_ctx"):
        fields = tiny_config(**MODERN).to_json()
        del fields[field]
        assert f"field {field!r} is missing" in refusal(write(tmp_path / "m", NATIVE | fields, {}))


# ------------------------------------------------------------------------------------------------------ llama


def test_llama_folder(tmp_path):
    model = load(write(tmp_path / "m", LLAMA_JSON, llama_tensors()))
    assert model.config == replace(LLAMA, name="m", bos_token_id=1, eos_token_id=2)
    ids = random_ids(LLAMA, 7)
    assert torch.equal(trace(model, ids)["logits"], trace(random_model(LLAMA, dtype=torch.float32), ids)["logits"])


@pytest.mark.parametrize(
    "change",
    [
        {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}},
        {"rope_scaling": {"type": "default"}},
        {"rope_scaling": None},
        {"torch_dtype": "float16"},  # the file's own dtype counts
        {"dtype": "bfloat16"},
        {"pretraining_tp": 1},
        {"transformers_version": "4.0", "use_cache": False, "attention_dropout": 0.5, "initializer_range": 0.1},
    ],
)
def test_llama_spellings_of_the_same(tmp_path, change):
    raw = {key: value for key, value in (LLAMA_JSON | change).items() if (key, value) != ("rope_theta", None)}
    model = load(write(tmp_path / "m", raw, llama_tensors()))
    assert model.config == replace(LLAMA, name="m", bos_token_id=1, eos_token_id=2)
    assert model.dtype is torch.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_type 'llama3' is not supported"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type 'linear'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type 'yarn'"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_parameters": [1]}, "rope_parameters must be an object"),
        ({"sliding_window": 4}, "'sliding_window'"),
        ({"hidden_act": "gelu"}, "hidden_act must be 'silu', but is 'gelu'"),
        ({"pretraining_tp": 2}, "only pretraining_tp 1 is supported, but it is 2"),
        ({"num_attention_heads": 3}, "n_heads 3 is no multiple"),
        (
            {"num_attention_heads": None, "head_dim": None},
            "num_attention_heads and hidden_size must be numbers, but are None and 20",
        ),
        ({"num_attention_heads": 0, "head_dim": None}, "but are 0 and 20"),
        ({"hidden_size": "big"}, "'big'"),
        ({"model_type": "mamba"}, "model_type 'mamba' is not supported; supported are layerstep, llama"),
        ({"model_type": None}, "model_type"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"auto_map": {"AutoModel": "evil.Model"}}, "'auto_map'"),
        ({"quantization_config": {"bits": 4}}, "'quantization_config'"),
    ],
)
def test_llama_configs_that_would_change_the_arithmetic_are_refused(tmp_path, change, message):
    assert message in refusal(write(tmp_path / "m", LLAMA_JSON | change, llama_tensors()))


def test_llama_needs_its_sizes(tmp_path):
    for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        raw = {k: v for k, v in LLAMA_JSON.items() if k != key}
        assert f"lacks {key!r}" in refusal(write(tmp_path / "m", raw, llama_tensors()))


@pytest.mark.parametrize(
    ("sizes", "d_head"),
    [  # L5: an explicit head_dim wins, else hidden // heads
        ({"head_dim": 16}, 16),
        ({"head_dim": None}, 5),
        ({}, 5),
    ],
)
def test_head_dim(tmp_path, sizes, d_head):
    raw = {k: v for k, v in LLAMA_JSON.items() if k != "head_dim"} | sizes | {"num_attention_heads": 4}
    if d_head % 2:
        assert "d_head is 5" in refusal(write(tmp_path / "m", raw, {}))  # RoPE turns pairs
        return
    tensors = llama_tensors(replace(LLAMA, d_head=d_head))
    model = load(write(tmp_path / "m", raw, tensors))
    assert model.config.d_head == d_head
    assert model.weights["blocks.0.attn.q.weight"].shape == (4 * d_head, 20)
    wrong = llama_tensors(replace(LLAMA, d_head=20 // 2))
    text = refusal(write(tmp_path / "m", raw, wrong))
    assert f"self_attn.q_proj.weight is [40, 20] in the file, but the config asks for [{4 * d_head}, 20]" in text


def test_llama_3_2_and_qwen_like_sizes_are_read():
    # Published configs whose head_dim is not hidden / heads, or is left out.
    from engine.checkpoints.llama import config

    mistral = LLAMA_JSON | {"hidden_size": 5120, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    assert config(mistral, "m").d_head == 128
    del mistral["head_dim"]
    assert config(mistral, "m").d_head == 160
    assert config(mistral | {"head_dim": None}, "m").d_head == 160
    assert config({k: v for k, v in mistral.items() if k != "num_key_value_heads"}, "m").n_kv_heads == 32


# ----------------------------------------------------------------------------------------- tied and untied (L1)


def test_a_missing_head_is_tied_only_where_the_config_says_so(tmp_path):
    tied = load(write(tmp_path / "tied", LLAMA_JSON, llama_tensors()))
    assert "unembed.weight" not in tied.weights
    assert tied.program.n_params == sum(w.numel() for w in tied.weights.values())  # counted once
    # Untied and not there: refused by name, never a random head.
    raw = LLAMA_JSON | {"tie_word_embeddings": False}
    assert "tensor 'lm_head.weight' [37, 20] is missing" in refusal(write(tmp_path / "a", raw, llama_tensors()))
    raw = {k: v for k, v in LLAMA_JSON.items() if k != "tie_word_embeddings"}  # Llama's default is untied
    assert "lm_head.weight" in refusal(write(tmp_path / "b", raw, llama_tensors()))
    own = tiny_config(**CLASSIC | {"tied": False})
    tensors = random_weights(own)
    del tensors["unembed.weight"]
    assert "'unembed.weight' [37, 20] is missing" in refusal(write(tmp_path / "c", NATIVE | own.to_json(), tensors))


@pytest.mark.parametrize("kind", ["llama", "native"])
def test_a_head_in_the_file_wins_over_the_flag(tmp_path, kind):
    untied = replace(LLAMA, tied=False)
    weights = random_weights(untied, dtype=torch.float32)
    tensors, head, raw = (
        ({tensor_name(n): w for n, w in weights.items()}, "lm_head.weight", LLAMA_JSON)
        if kind == "llama"
        else (dict(weights), "unembed.weight", NATIVE | LLAMA.to_json())
    )
    model = load(write(tmp_path / "other", raw, tensors))
    assert not model.config.tied
    assert torch.equal(model.weights["unembed.weight"], weights["unembed.weight"])
    assert any(head in line and "used" in line for line in model.report)
    expected = trace(Model.from_weights(untied, weights), [1, 2, 3])["logits"]
    assert torch.equal(trace(model, [1, 2, 3])["logits"], expected)
    # The same matrix again is no second head.
    tensors[head] = weights["embed.weight"].clone()
    model = load(write(tmp_path / "same", raw, tensors))
    assert model.config.tied
    assert "unembed.weight" not in model.weights
    assert any(f"ignored {head}" in line for line in model.report)
    # A head of another shape is an error like any other.
    tensors[head] = torch.zeros(36, 20)
    assert f"{head} is [36, 20] in the file" in refusal(write(tmp_path / "odd", raw, tensors))


# ------------------------------------------------------------------------------------------- tensors by name


def test_tensors_that_are_missing_misshapen_or_left_over(tmp_path):
    good = llama_tensors()
    for name in ("model.embed_tokens.weight", "model.layers.1.mlp.down_proj.weight", "model.norm.weight"):
        text = refusal(write(tmp_path / "m", LLAMA_JSON, {k: v for k, v in good.items() if k != name}))
        assert f"tensor {name!r} {list(good[name].shape)} is missing" in text
        text = refusal(write(tmp_path / "m", LLAMA_JSON, good | {name: torch.zeros(3, 5)}))
        assert f"{name} is [3, 5] in the file, but the config asks for {list(good[name].shape)}" in text
    for name in (
        "model.layers.2.mlp.up_proj.weight",
        "h.0.attn.c_attn.weight2",
        "model.layers.0.self_attn.q_proj.bias",
    ):
        text = refusal(write(tmp_path / "m", LLAMA_JSON, good | {name: torch.zeros(2)}))
        assert f"tensor {name!r} is in the file, but the config has no place for it" in text
    # Buffers of old exports are ignored by an explicit list, and listed.
    buffer = "model.layers.0.self_attn.rotary_emb.inv_freq"
    model = load(write(tmp_path / "m", LLAMA_JSON, good | {buffer: torch.zeros(3)}))
    assert f"ignored {buffer}" in model.report
    own = native(tmp_path / "n", LLAMA)
    assert "no place for it" in refusal(
        write(own, NATIVE | LLAMA.to_json(), random_weights(LLAMA) | {buffer: torch.zeros(3)})
    )


def test_from_weights_checks_what_it_is_given():
    config = tiny_config(**MODERN)
    weights = random_weights(config)
    name = "blocks.1.attn.k.weight"
    with pytest.raises(CheckpointError, match=r"'blocks\.1\.attn\.k\.weight' \[12, 20\] is missing"):
        Model.from_weights(config, {k: v for k, v in weights.items() if k != name})
    with pytest.raises(CheckpointError, match=r"k\.weight is \[24, 20\], but the config asks for \[12, 20\]"):
        Model.from_weights(config, weights | {name: torch.zeros(24, 20)})
    with pytest.raises(CheckpointError, match="is float32 on cpu"):
        Model.from_weights(config, weights | {name: weights[name].float()})
    with pytest.raises(CheckpointError, match="floating-point"):
        Model.from_weights(config, {k: v.int() for k, v in weights.items()})


# -------------------------------------------------------------------------------------------------- dtypes (L7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_file_keeps_its_dtype(tmp_path, dtype):
    model = load(write(tmp_path / "m", LLAMA_JSON | {"torch_dtype": "float16"}, llama_tensors(dtype=dtype)))
    assert model.dtype is dtype
    assert {w.dtype for w in model.weights.values()} == {dtype}
    assert not any("cast" in line for line in model.report)
    assert trace(model, [1, 2, 3])["logits"].dtype is dtype


def test_float16_is_widened_on_a_cpu_and_said(tmp_path):
    folder = write(tmp_path / "m", LLAMA_JSON, stored := llama_tensors(dtype=torch.float16))
    model = load(folder)
    assert model.dtype is torch.float32
    assert f"cast {len(stored)} tensors from float16 to float32" in model.report
    assert all(torch.equal(model.weights[n], stored[tensor_name(n)].float()) for n in model.weights)
    assert load(folder, dtype="float16").dtype is torch.float16


def test_widening_bfloat16_keeps_every_bit(tmp_path):
    # L7: the float32 view of a bfloat16 value is its bits and 16 zeros.
    folder = write(tmp_path / "m", LLAMA_JSON, stored := llama_tensors(dtype=torch.bfloat16))
    model = load(folder, dtype="float32")
    assert f"cast {len(stored)} tensors from bfloat16 to float32" in model.report
    for name, weight in model.weights.items():
        bits = stored[tensor_name(name)].view(torch.int16).int() << 16
        assert torch.equal(weight.view(torch.int32), bits)


def test_mixed_dtypes_are_refused_unless_one_is_chosen(tmp_path):
    tensors = llama_tensors()
    tensors["model.norm.weight"] = tensors["model.norm.weight"].bfloat16()
    folder = write(tmp_path / "m", LLAMA_JSON, tensors)
    assert "bfloat16 and float32 are mixed" in refusal(folder)
    model = load(folder, dtype="float32")
    assert "cast 1 tensors from bfloat16 to float32" in model.report


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("asked", ["auto", "float32"])
def test_quantised_weights_are_refused_even_where_a_dtype_is_asked_for(tmp_path, dtype, asked):
    # Their scales are elsewhere; read as numbers they would be another model.
    tensors = {name: tensor.to(dtype) for name, tensor in llama_tensors().items()}
    assert "are not supported" in refusal(write(tmp_path / "m", LLAMA_JSON, tensors), dtype=asked)


def test_dtypes_and_devices_that_are_not_there(tmp_path):
    folder = native(tmp_path / "m", LLAMA)
    assert "dtype 'int8' is not known; known are auto, float32" in refusal(folder, dtype="int8")
    assert "device 'tpu' is not known" in refusal(folder, device="tpu")
    assert "device 'cpu:x' is not known" in refusal(folder, device="cpu:x")
    refusal(folder, device="\x1b[31mcpu")
    if not torch.cuda.is_available():
        assert "no cuda device" in refusal(folder, device="cuda")
        assert load_model(folder).device.type == "cpu"
        assert load_model(folder, device="auto").device.type == "cpu"


def test_weights_are_mapped_and_not_copied(tmp_path):
    # Loading in the file's own dtype takes no memory for the weights until they are used.
    config = tiny_config(**GPT2 | {"tied": False}, d_vocab=60_000, d_model=256, d_head=64)
    weights = {name: torch.zeros(shape) for name, shape in random_model(config).program.params.items()}
    size = sum(w.nbytes for w in weights.values())
    assert size > 100e6
    folder = write(tmp_path / "m", NATIVE | config.to_json(), weights)
    del weights
    before = anonymous_bytes()
    model = load(folder)
    assert anonymous_bytes() - before < 0.3 * size
    assert model.program.n_params * 4 == size


def anonymous_bytes() -> int:
    """Memory of this process that is no mapped file."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    return int(re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


# ------------------------------------------------------------------------------------- shards, paths, pickles (L3)


def sharded(folder: Path, places: dict[str, str], extra: dict[str, str] | None = None) -> Path:
    """The Llama folder in shards: tensor name -> file; ``extra`` entries of the index have no tensor behind them."""
    tensors = llama_tensors()
    write(folder, LLAMA_JSON)
    for file in set(places.values()):
        (folder / file).parent.mkdir(exist_ok=True, parents=True)
        save_file({n: tensors[n] for n in places if places[n] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places | (extra or {})}))
    return folder


HALVES = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(sorted(llama_tensors()))}


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
    wrong = sharded(tmp_path / "w", HALVES, {"lm_head.weight": "model-00001-of-00002.safetensors"})
    assert "lacks tensor 'lm_head.weight'" in refusal(wrong)
    for index in ({}, {"weight_map": []}, {"weight_map": {"a": 1}}, {"weight_map": {"a": None}}, {"weight_map": None}):
        (wrong / INDEX).write_text(json.dumps(index))
        assert "weight_map must map tensor names to file names" in refusal(wrong)
    for index in ("", "[]", "{", "null", "\x00", '{"weight_map": {"a": "b\\u0000c"}}', '{"weight_map": {"a": ""}}'):
        (wrong / INDEX).write_text(index)
        refusal(wrong)


def test_no_pickle_is_opened_and_no_code_is_run(tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "pwned"),)

    folder = write(tmp_path / "m", LLAMA_JSON)
    torch.save({"model.norm.weight": Payload()}, folder / "pytorch_model.bin")
    (folder / "modeling_evil.py").write_text(f"import os; os.mkdir({str(tmp_path / 'pwned')!r})")
    assert "model.safetensors" in refusal(folder)
    write(folder, LLAMA_JSON | {"auto_map": {"AutoModelForCausalLM": "modeling_evil.Model"}}, llama_tensors())
    assert "auto_map" in refusal(folder)
    assert not (tmp_path / "pwned").exists()


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


def test_a_header_of_exactly_100_000_bytes_is_read(tmp_path):
    folder = write(tmp_path / "m", LLAMA_JSON, llama_tensors())
    file = folder / "model.safetensors"
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    file.write_bytes(struct.pack("<Q", 100_000) + data[8 : 8 + length].ljust(100_000) + data[8 + length :])
    assert load(folder).config.d_model == 20


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


HOSTILE = "\x1b]0;PWNED\x07\x1b[5;5H\x9b31m\r\n\u202e\x00\ud83d"


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


# ----------------------------------------------------------------------------------------------- any config at all

JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-10, 70), st.integers(), st.floats(), st.text(max_size=8),
        st.sampled_from([HOSTILE, 10**400, 2**63, 1e308, -0.0, "llama", "layerstep", "rotary", 1e-320]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=4), inner, max_size=2)),
    max_leaves=4,
)  # fmt: skip
FOLDERS = {
    "llama": (LLAMA_JSON, llama_tensors()),
    "native": (NATIVE | LLAMA.to_json(), random_weights(LLAMA, dtype=torch.float32)),
}


@given(data=st.data(), kind=st.sampled_from(sorted(FOLDERS)))
def test_any_config_loads_or_says_why(tmp_path_factory, data, kind):
    raw, tensors = FOLDERS[kind]
    keys = st.sampled_from([*raw, *LLAMA.to_json(), "rope_parameters", "rope_scaling", "pretraining_tp"])
    changes = data.draw(st.dictionaries(st.one_of(keys, keys, st.text(max_size=6)), JSON, min_size=1, max_size=3))
    gone = data.draw(st.sets(st.sampled_from(sorted(raw)), max_size=1))
    folder = write(tmp_path_factory.mktemp("m"), {k: v for k, v in (raw | changes).items() if k not in gone}, tensors)
    model = load_or_say_why(folder)
    if isinstance(model, str):
        return
    # What was accepted is a model that runs: nothing of what was changed reaches the arithmetic as something odd.
    t = trace(model, [1, 2, 3])
    assert t["logits"].shape == (1, 3, model.config.d_vocab)
    assert t["logits"].isfinite().all()


def test_samples_load_by_name(monkeypatch, tmp_path):
    native(tmp_path / "samples" / "one", LLAMA)
    monkeypatch.setattr("engine.samples.ROOTS", (tmp_path / "samples",))
    assert load_model("one", device="cpu").config.d_model == 20
    # A folder of the same name in the working directory does not hide a sample.
    monkeypatch.chdir(tmp_path)
    native(tmp_path / "one", tiny_config(**CLASSIC))
    assert load_model("one", device="cpu").config.positions == "rotary"
    assert load_model("./one", device="cpu").config.positions == "sinusoidal"


def test_what_is_loaded_computes_in_its_dtype(tmp_path):
    folder = write(tmp_path / "m", LLAMA_JSON, llama_tensors())
    ids = random_ids(LLAMA, 9)
    exact = trace(tiny(**MODERN), ids)["logits"]
    assert gap(trace(load(folder, dtype="float64"), ids)["logits"], exact) < 1e-5  # stored as float32
    assert gap(trace(load(folder), ids)["logits"], exact) < 1e-4
    assert gap(trace(load(folder, dtype="bfloat16"), ids)["logits"], exact) < 0.2
