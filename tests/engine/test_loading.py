"""Loading: what becomes of a folder's config and tensors, and what is said of it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from folders import (
    HOSTILE,
    LLAMA,
    LLAMA_JSON,
    NATIVE,
    llama_tensors,
    load,
    load_or_say_why,
    native,
    refusal,
    tensor_name,
    write,
)  # fmt: skip
from hypothesis import given
from hypothesis import strategies as st
from tiny import ARCHITECTURES, CLASSIC, GPT2, MODERN, gap, random_ids, random_model, random_weights, tiny, tiny_config

from engine import Model, ModelConfig, load_model, trace
from engine.checkpoints.families.llama import FAMILY
from engine.checkpoints.fields import Fields
from engine.errors import CheckpointError, DeviceError

# ---------------------------------------------------------------------------------------------------- our own


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_our_own_format_gives_back_the_model(tmp_path, name):
    config = tiny_config(**ARCHITECTURES[name])
    model = load(native(tmp_path / "m", config))
    assert model.config == config
    assert model.source == str(tmp_path / "m")
    ids = random_ids(config, 7)
    assert torch.equal(trace(model, ids)["logits"], trace(random_model(config, dtype=torch.float32), ids)["logits"])
    assert "no tokenizer: prompts are token ids" in model.report
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
        ({"activation": "swish"}, "activation must be one of relu, "),
        ({"positions": "xpos"}, "but is 'xpos'"),
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
        ({"rope_scaling": {"rope_type": "xpos", "factor": 8.0}}, "'xpos', which is not supported"),
        ({"rope_parameters": [1]}, "rope_parameters must be an object"),
        ({"hidden_act": "xelu"}, "'xelu'"),
        ({"pretraining_tp": 2}, "pretraining_tp 2 is not supported, only 1"),
        ({"num_attention_heads": 3}, "n_heads 3 is no multiple"),
        ({"num_attention_heads": None, "head_dim": None}, "lacks 'num_attention_heads'"),
        ({"num_attention_heads": 0, "head_dim": None}, "num_attention_heads must be a number between 1 and"),
        ({"hidden_size": "big"}, "'big'"),
        ({"model_type": "mamba"}, "model_type 'mamba' is not supported; supported are "),
        (
            {"model_type": "mamba", "auto_map": {"AutoModel": "m.M"}},
            "brings its own code (auto_map), and such code is ne",
        ),
        ({"model_type": None}, "model_type"),
        ({"model_type": ["llama"]}, "model_type"),
        (
            {"quantization_config": {"bits": 4, "quant_method": "gptq"}},
            "m: was quantised with gptq (quantization_config in config.json); take the model that was not quantised",
        ),
        ({"quantization_config": {"bits": 4}}, "m: was quantised (quantization_config in config.json)"),
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
    def config(raw: dict) -> ModelConfig:
        return FAMILY.config(Fields(raw, "m"))

    mistral = LLAMA_JSON | {"hidden_size": 5120, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    assert config(mistral).d_head == 128
    del mistral["head_dim"]
    assert config(mistral).d_head == 160
    assert config(mistral | {"head_dim": None}).d_head == 160
    assert config({k: v for k, v in mistral.items() if k != "num_key_value_heads"}).n_kv_heads == 32


# ----------------------------------------------------------------------------------------- tied and untied (L1)


def test_a_missing_head_is_the_embedding_and_where_that_was_not_promised_it_is_said(tmp_path):
    tied = load(write(tmp_path / "tied", LLAMA_JSON, llama_tensors()))
    assert "unembed.weight" not in tied.weights
    assert tied.program.n_params == sum(w.numel() for w in tied.weights.values())  # counted once
    assert tied.report.warnings == ()
    # Untied by the config, or by Llama's default, and not there: never a random head.
    own = tiny_config(**MODERN | {"tied": False})
    for raw, head in (
        (LLAMA_JSON | {"tie_word_embeddings": False}, "lm_head.weight"),
        ({k: v for k, v in LLAMA_JSON.items() if k != "tie_word_embeddings"}, "lm_head.weight"),
        (NATIVE | own.to_json(), "unembed.weight"),
    ):
        tensors = llama_tensors() if head == "lm_head.weight" else random_weights(LLAMA, dtype=torch.float32)
        model = load(write(tmp_path / "m", raw, tensors))
        assert model.config.tied
        assert "unembed.weight" not in model.weights
        assert [head in line and "missing" in line for line in model.report.warnings] == [True]
        assert torch.equal(trace(model, [1, 2, 3])["logits"], trace(tied, [1, 2, 3])["logits"])


def test_of_two_tied_matrices_one_is_enough_whichever_it_is(tmp_path):
    tensors = llama_tensors()
    expected = trace(load(write(tmp_path / "a", LLAMA_JSON, tensors)), [1, 2, 3])["logits"]
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")
    model = load(write(tmp_path / "b", LLAMA_JSON, tensors))
    assert torch.equal(trace(model, [1, 2, 3])["logits"], expected)
    assert "the embedding matrix is lm_head.weight, to which the config ties it" in model.report
    # Untied, the embedding is nowhere.
    text = refusal(write(tmp_path / "c", LLAMA_JSON | {"tie_word_embeddings": False}, tensors))
    assert "tensor 'model.embed_tokens.weight' [37, 20] is missing" in text


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
    assert "ignored model.layers.*.self_attn.rotary_emb.inv_freq" in model.report
    more = {buffer: torch.zeros(3), buffer.replace("0", "1"): torch.zeros(3)}
    model = load(write(tmp_path / "m", LLAMA_JSON, good | more))
    assert "ignored model.layers.*.self_attn.rotary_emb.inv_freq (2 tensors)" in model.report
    assert model.report.to_json()["ignored"] == [
        {"names": "model.layers.*.self_attn.rotary_emb.inv_freq", "tensors": 2}
    ]
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


@pytest.mark.parametrize(
    "named", [{}, {"dtype": "bfloat16"}, {"dtype": "float16"}, {"torch_dtype": "float32"}], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_file_keeps_its_dtype(tmp_path, dtype, named):
    model = load(write(tmp_path / "m", LLAMA_JSON | named, llama_tensors(dtype=dtype)))
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


@pytest.mark.parametrize(
    ("named", "becomes"),
    [
        ({}, "bfloat16"),  # of most bytes
        ({"dtype": "float32"}, "float32"),
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "torch.float32"}, "float32"),
        ({"dtype": "float64"}, "bfloat16"),  # which no tensor has
        ({"dtype": 3}, "bfloat16"),
    ],
)
def test_of_several_dtypes_in_a_file_the_config_s_counts_or_that_of_most_bytes(tmp_path, named, becomes):
    # L7; a mixture of experts has its router in float32, say.
    tensors = llama_tensors(dtype=torch.bfloat16)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].float() + 1e-5
    folder = write(tmp_path / "m", LLAMA_JSON | named, tensors)
    model = load(folder)
    assert {w.dtype for w in model.weights.values()} == {model.dtype} == {getattr(torch, becomes)}
    count = {"bfloat16": 1, "float32": len(tensors) - 1}[becomes]
    other = {"bfloat16": "float32", "float32": "bfloat16"}[becomes]
    assert f"cast {count} tensors from {other} to {becomes}" in model.report
    assert model.report.to_json()["casts"] == [{"from": other, "to": becomes, "tensors": count}]
    assert torch.equal(model.weights["ln_final.weight"], tensors["model.norm.weight"].to(model.dtype))
    assert load(folder, dtype="float64").dtype is torch.float64


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("asked", ["auto", "float32"])
def test_quantised_weights_are_refused_even_where_a_dtype_is_asked_for(tmp_path, dtype, asked):
    # Their scales are elsewhere; read as numbers they would be another model.
    tensors = {name: tensor.to(dtype) for name, tensor in llama_tensors().items()}
    text = refusal(write(tmp_path / "m", LLAMA_JSON, tensors), dtype=asked)
    assert f"is {str(dtype).removeprefix('torch.')}; weights of that dtype are not supported" in text
    # One such tensor among others is enough, and is named.
    name = "model.layers.1.mlp.up_proj.weight"
    text = refusal(write(tmp_path / "m", LLAMA_JSON, llama_tensors() | {name: tensors[name]}), dtype=asked)
    assert f"{name} is " in text


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
