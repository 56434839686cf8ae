"""Llama beside transformers."""

import pytest
import torch
from against import check_family, ids_for, random_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places, rope_parameters, starts
from spellings import assert_refused, read_config, respell
from transformers import AutoModel, LlamaConfig

from engine import load_model, trace
from engine.ops.rotary import inverse_frequencies

ACTIVATIONS = ["silu", "gelu", "gelu_pytorch_tanh", "relu"]


@st.composite
def llamas(draw: st.DrawFn) -> LlamaConfig:
    kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    head_dim = draw(st.sampled_from([4, 6, 10]))
    return LlamaConfig(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=kv_heads * group * draw(st.sampled_from([10, 14, 18])),
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        hidden_act=draw(st.sampled_from(ACTIVATIONS)),
        max_position_embeddings=N_CTX,
        rms_norm_eps=draw(st.sampled_from([1e-6, 1e-5])),
        rope_parameters=draw(rope_parameters(head_dim)),
        tie_word_embeddings=draw(st.booleans()),
        attention_bias=draw(st.booleans()),
        mlp_bias=draw(st.booleans()),
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=48)
@given(config=llamas(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_llama(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=places(start))


LLAMA_32_1B = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": False,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0", "use_cache": True, "vocab_size": 128256,
}  # fmt: skip
LLAMA_2_7B = {
    "_name_or_path": "meta-llama/Llama-2-7b-hf", "architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": None, "tie_word_embeddings": False, "torch_dtype": "float16",
    "transformers_version": "4.31.0.dev0", "use_cache": True, "vocab_size": 32000,
}  # fmt: skip
SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 0,
    "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664,
    "intermediate_size": 1536, "is_llama_config": True, "max_position_embeddings": 8192, "model_type": "llama",
    "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "pretraining_tp": 1,
    "rms_norm_eps": 1e-05, "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": True,
    "vocab_size": 49152,
}  # fmt: skip


def llama3_in(spelling):
    """Llama-3.2-1B's config with its rotary scaling as ``rope_type``, ``type`` or transformers 5 writes it."""
    scaling = dict(LLAMA_32_1B["rope_scaling"])
    if spelling == "type":
        scaling["type"] = scaling.pop("rope_type")
    if spelling != "rope_parameters":
        return LLAMA_32_1B | {"rope_scaling": scaling}
    return {key: value for key, value in LLAMA_32_1B.items() if not key.startswith("rope")} | {
        "rope_parameters": scaling | {"rope_theta": 500000.0}
    }


def turns(raw, extent=1):
    config = read_config(raw)
    return inverse_frequencies(config.rotary, config.d_head, extent, torch.device("cpu")).double()


@pytest.mark.parametrize("spelling", ["rope_type", "type", "rope_parameters"])
def test_the_angles_of_llama_3_2_1b(spelling):  # E6
    turn, plain = turns(llama3_in(spelling)), 500_000.0 ** (-torch.arange(32, dtype=torch.float64) / 32)
    ratio = turn / plain
    assert turn[0] == 1
    for pair, angle, share in (
        (14, 3.211446106e-3, 1.0),
        (15, 1.290548011e-3, 0.605573),
        (16, 4.295567051e-4, 0.303742),
        (17, 9.708286e-5, 0.103448),
    ):
        assert turn[pair].item() == pytest.approx(angle, rel=1e-6)
        assert ratio[pair].item() == pytest.approx(share, rel=1e-5)
    assert ratio[:15].sub(1).abs().max() < 1e-6
    assert ratio[18:].mul(32).sub(1).abs().max() < 1e-6
    assert turn[31].item() == pytest.approx(9.418306e-8, rel=1e-6)


def test_the_angles_of_llama_3_1_8b():  # E6
    scaling = LLAMA_32_1B["rope_scaling"] | {"factor": 8.0}
    turn = turns(LLAMA_32_1B | {"hidden_size": 4096, "head_dim": 128, "rope_scaling": scaling})
    ratio = turn * 500_000.0 ** (torch.arange(64, dtype=torch.float64) / 64)
    changed = (ratio - 1).abs() > 1e-5
    assert changed.nonzero()[0].item() == 29
    assert changed[29:].all()
    full = (ratio * 8 - 1).abs() < 1e-5
    assert full.nonzero()[0].item() == 35
    assert full[35:].all()


def test_llama_3_turns_as_transformers_does_beyond_8192():  # E6
    rope = LLAMA_32_1B["rope_scaling"] | {"rope_theta": 500_000.0}
    config = tiny(head_dim=64, rope_parameters=dict(rope), max_position_embeddings=131_072)
    for start in (8188, 8192, 131_000):
        check_family(config, positions=places(start))


def tiny(**more):
    sizes = {"vocab_size": 30, "hidden_size": 20, "intermediate_size": 16, "num_hidden_layers": 2}
    return LlamaConfig(**sizes | {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8} | more)


def test_published_configs_are_read():
    small, old, smol = map(read_config, (LLAMA_32_1B, LLAMA_2_7B, SMOLLM2))
    assert (small.d_head, small.kv_heads, small.tied, small.eos_token_id) == (64, 8, True, 128001)
    assert (old.d_head, old.kv_heads, old.tied, old.rotary.scaling) == (128, 32, False, "none")
    assert (smol.d_head, smol.kv_heads, smol.rotary.theta) == (64, 3, 100_000)


def test_absent_keys_have_the_familys_defaults():
    needed = (
        "hidden_size",
        "intermediate_size",
        "model_type",
        "num_attention_heads",
        "num_hidden_layers",
        "vocab_size",
    )
    ours, theirs = read_config({key: LLAMA_2_7B[key] for key in needed}), LlamaConfig()
    assert (ours.n_ctx, ours.norm_eps, ours.tied) == (2048, 1e-6, False)
    assert (ours.n_ctx, ours.norm_eps, ours.tied) == (
        theirs.max_position_embeddings, theirs.rms_norm_eps, theirs.tie_word_embeddings,
    )  # fmt: skip
    assert (ours.bos_token_id, ours.eos_token_id, ours.kv_heads) == (1, 2, 32)


@pytest.mark.parametrize("head_dim", ["absent", None])
def test_a_head_without_a_width_of_its_own_has_its_share(head_dim):  # L5
    raw = {key: value for key, value in LLAMA_32_1B.items() if key != "head_dim"} | {"hidden_size": 1024}
    assert read_config(raw if head_dim == "absent" else raw | {"head_dim": None}).d_head == 32


def test_files_of_old_with_tables_and_files_of_the_bare_model_are_the_same():
    def older(raw):
        raw["rope_theta"] = raw.pop("rope_parameters")["rope_theta"]
        raw["torch_dtype"] = raw.pop("dtype")

    def add_tables(folder):
        from safetensors.torch import load_file, save_file

        held = load_file(folder / "model.safetensors")
        tables = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(4) for i in range(2)}
        save_file(held | tables, folder / "model.safetensors", {"format": "pt"})

    reference, ids = random_reference(tiny(tie_word_embeddings=True)), ids_for(tiny(), 7)
    with saved(reference) as folder:
        plain = trace(load_model(folder), ids)["logits"]
        add_tables(folder)
        respell(folder, change=older)
        model = load_model(folder)
        assert torch.equal(trace(model, ids)["logits"], plain)
        assert model.report.ignored == {"model.layers.*.self_attn.rotary_emb.inv_freq": 2}
        respell(folder, lambda name: name.removeprefix("model."))
        assert torch.equal(trace(load_model(folder), ids)["logits"], plain)


def test_a_bare_model_that_transformers_saved_opens():
    reference, ids = random_reference(tiny(tie_word_embeddings=True), AutoModel), ids_for(tiny(), 7)
    with saved(reference) as folder:
        t = trace(load_model(folder, dtype="float64"), ids)
    theirs = reference(torch.tensor([ids])).last_hidden_state.detach()
    assert (t["ln_final.normalized"] - theirs).abs().max() < 2e-6


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_act": "mish"}, ["hidden_act", "mish"]),
        ({"pretraining_tp": 2}, ["pretraining_tp 2", "only 1"]),
        ({"rope_interleaved": True}, ["rope_interleaved"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor 0.5", "only 1"]),
        ({"rope_scaling": {"type": "ntk-by-parts", "factor": 2}}, ["ntk-by-parts", "dynamic", "yarn"]),
        ({"is_encoder_decoder": True}, ["is_encoder_decoder"]),
        ({"num_key_value_heads": 5}, ["n_heads 32", "n_kv_heads 5"]),
        ({"num_key_value_heads": "8"}, ["num_key_value_heads", "'8'"]),
        ({"head_dim": -1}, ["head_dim"]),
        ({"head_dim": 7}, ["pairs", "7"]),
        ({"hidden_size": 1e9}, ["hidden_size"]),
        ({"num_hidden_layers": 2**31}, ["num_hidden_layers", "4096"]),
        ({"attention_bias": "no"}, ["attn_bias"]),
        ({"rms_norm_eps": "small"}, ["norm_eps"]),
        ({"residual_multiplier": 2.0}, ["residual_multiplier", "llama"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(LLAMA_32_1B | change, *named)
