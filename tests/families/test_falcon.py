"""Falcon beside transformers."""

from unittest.mock import patch

import pytest
import torch
from against import EXACT, assert_checks_hold, check_family, ids_for, random_reference, run_reference, saved, states
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places, rope_parameters, starts
from safetensors.torch import load_file, save_file
from spellings import assert_refused, read_config, respell
from transformers import AutoModelForCausalLM, FalconConfig
from transformers.models.falcon import modeling_falcon

from engine import load_model, trace

FALCON_7B = {
    "alibi": False, "apply_residual_connection_post_layernorm": False, "architectures": ["FalconForCausalLM"],
    "attention_dropout": 0.0, "bias": False, "bos_token_id": 11, "eos_token_id": 11, "hidden_dropout": 0.0,
    "hidden_size": 4544, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "falcon",
    "multi_query": True, "new_decoder_architecture": False, "num_attention_heads": 71, "num_hidden_layers": 32,
    "parallel_attn": True, "torch_dtype": "bfloat16", "transformers_version": "4.27.4", "use_cache": True,
    "vocab_size": 65024,
}  # fmt: skip
FALCON_40B = FALCON_7B | {
    "hidden_size": 8192, "new_decoder_architecture": True, "num_attention_heads": 128, "num_hidden_layers": 60,
    "num_kv_heads": 8,
}  # fmt: skip
FALCON_11B = FALCON_40B | {
    "activation": "gelu", "ff_factor": 4, "ffn_hidden_size": 16384, "hidden_size": 4096, "num_attention_heads": 32,
    "num_ln_in_parallel_attn": 1, "max_position_embeddings": 8192, "rope_scaling": None, "rope_theta": 5000042.0,
    "tie_word_embeddings": False,
}  # fmt: skip
FALCON_RW_1B = FALCON_7B | {
    "alibi": True, "bias": True, "bos_token_id": 1, "eos_token_id": 2, "hidden_size": 2048, "multi_query": False,
    "num_attention_heads": 32, "num_hidden_layers": 24, "parallel_attn": False, "vocab_size": 50304,
}  # fmt: skip


@st.composite
def falcons(draw: st.DrawFn, *, new: bool) -> FalconConfig:
    kv_heads, group, d_head = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.sampled_from([10, 12, 14]))
    alibi, heads = draw(st.booleans()), kv_heads * group
    if new:
        layout = {"num_kv_heads": kv_heads, "num_ln_in_parallel_attn": draw(st.sampled_from([None, 1, 2]))}
    else:
        layout = {"multi_query": draw(st.booleans()), "parallel_attn": draw(st.booleans())}
    return FalconConfig(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=heads * d_head,
        ffn_hidden_size=draw(st.sampled_from([None, 14, 30])),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=heads,
        new_decoder_architecture=new,
        max_position_embeddings=N_CTX,
        activation=draw(st.sampled_from(["gelu", "gelu_new", "relu"])),
        layer_norm_epsilon=draw(st.sampled_from([1e-5, 1e-6])),
        bias=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
        alibi=alibi,
        rope_parameters=None if alibi else draw(rope_parameters(d_head)),
        **layout,
    )


def alibi_once():
    """transformers' eager Falcon adds the bias twice, to the scores and in the mask; halved, it is right once more."""
    build = modeling_falcon.build_alibi_tensor
    return patch.object(modeling_falcon, "build_alibi_tensor", lambda *a, **k: build(*a, **k) / 2)


def check_falcon(config, seed, dtype, start):
    """Exact, for its softmax is of the model's dtype; but ALiBi is float32, and transformers' ignores positions."""
    if not config.alibi:
        check_family(config, seed=seed, dtype=dtype, positions=places(start), tolerance=EXACT)
        return
    with alibi_once():
        check_family(config, seed=seed, dtype=dtype)


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=24)
@given(config=falcons(new=False), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_falcon_of_the_first_architecture(config, seed, dtype, start):
    check_falcon(config, seed, dtype, start)


@settings(max_examples=24)
@given(config=falcons(new=True), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_falcon_of_the_new_architecture(config, seed, dtype, start):
    check_falcon(config, seed, dtype, start)


def tiny(**more) -> FalconConfig:
    sizes = {"vocab_size": 40, "hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
    return FalconConfig(**sizes | {"max_position_embeddings": 64} | more)


def test_alibi_is_what_transformers_default_attention_adds():
    config = tiny(alibi=True, multi_query=False, parallel_attn=False, bias=True)
    reference, ids = random_reference(config), ids_for(config, 12)
    with saved(reference) as folder:
        t = trace(load_model(folder, dtype="float64"), ids)
        fused = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float64)
    with torch.no_grad():
        out = fused(torch.tensor([ids]), output_hidden_states=True)
    assert (t["logits"] - out.logits).abs().max() < 2e-6
    assert all((ours - theirs).abs().max() < 2e-6 for ours, theirs in zip(states(t), out.hidden_states, strict=True))
    assert (run_reference(reference, ids).logits - out.logits).abs().max() > 1e-3  # its eager one adds it twice


@pytest.mark.parametrize("heads", [1, 2, 3, 7, 12, 32, 71, 128])
def test_alibi_is_rounded_as_it_was_trained(heads):
    config = tiny(alibi=True, hidden_size=4 * heads, num_attention_heads=heads, num_hidden_layers=1)
    with saved(random_reference(config)) as folder:
        t = trace(load_model(folder, dtype="float64"), [i % 40 for i in range(600)])
    theirs = modeling_falcon.build_alibi_tensor(torch.ones(1, 600).long(), heads, torch.float64)  # [head 1 key]
    ours = t["position_bias[b=0,q=3]"]  # [head key]
    assert torch.equal(ours.double(), theirs[:, 0] / 2)  # √d_head = 2
    assert theirs[0, 0, 257] == theirs[0, 0, 256]  # bfloat16 holds no 257
    assert t.program.step("position_bias").op.text.formula == "bias = slope_h · key · scale"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_pattern_is_what_the_kernel_used_far_from_the_first_position(dtype):
    with saved(random_reference(tiny(alibi=True))) as folder:
        t = trace(load_model(folder, device="cpu", dtype=dtype), list(range(9)), positions=places(2000))
    assert_checks_hold(t)


def test_one_key_and_one_value_stand_after_all_queries():
    reference = random_reference(tiny())
    with saved(reference) as folder:
        weights = load_model(folder, device="cpu", dtype="float32").weights
        q, k, v = (weights[f"blocks.1.attn.{name}.weight"] for name in "qkv")
        fused = reference.transformer.h[1].self_attention.query_key_value.weight
        assert torch.equal(torch.cat((q, k, v)).double(), fused)
        assert k.data_ptr() == q.data_ptr() + 40 * 40 * 4  # a view of the file


def test_a_key_and_a_value_stand_after_the_queries_that_share_them():
    reference = random_reference(tiny(new_decoder_architecture=True, num_kv_heads=2))
    groups = reference.transformer.h[1].self_attention.query_key_value.weight.view(2, 4, 10, 40)
    with saved(reference) as folder:
        weights = load_model(folder).weights
    for name, part in {"q": groups[:, :2], "k": groups[:, 2], "v": groups[:, 3]}.items():
        assert torch.equal(weights[f"blocks.1.attn.{name}.weight"].double(), part.reshape(-1, 40))


def test_files_of_the_bare_model_with_tables_and_a_config_of_transformers_4_open_alike():
    def older(raw):
        raw["rope_theta"] = raw.pop("rope_parameters")["rope_theta"]
        raw["torch_dtype"] = raw.pop("dtype")
        raw["apply_residual_connection_post_layernorm"] = False

    with saved(random_reference(tiny())) as folder:
        before, file = load_model(folder), folder / "model.safetensors"
        table = {"transformer.h.0.self_attention.maybe_rotary.inv_freq": torch.ones(5)}
        save_file(load_file(file) | table, file)
        respell(folder, lambda name: name.removeprefix("transformer."), older)
        after = load_model(folder)
    assert before.config == after.config
    assert sum(after.report.ignored.values()) == 1
    assert all(torch.equal(before.weights[name], after.weights[name]) for name in before.weights)


def test_published_configs_are_read():
    small, large, late, refined = map(read_config, (FALCON_7B, FALCON_40B, FALCON_11B, FALCON_RW_1B))
    assert (small.kv_heads, small.d_head, small.d_mlp, small.parallel) == (1, 64, 18176, "one norm")
    assert (large.kv_heads, large.d_head, large.parallel, large.tied) == (8, 64, "two norms", True)
    assert (late.kv_heads, late.parallel, late.rotary.theta, late.tied) == (8, "one norm", 5000042.0, False)
    assert (refined.kv_heads, refined.parallel, refined.positions, refined.attn_bias) == (32, "no", "alibi", True)


def test_absent_keys_have_the_familys_defaults():
    needed = ("hidden_size", "model_type", "num_attention_heads", "num_hidden_layers", "vocab_size")
    ours, theirs = read_config({key: FALCON_7B[key] for key in needed}), FalconConfig()
    assert (ours.n_ctx, ours.norm_eps, ours.tied) == (theirs.max_position_embeddings, 1e-5, theirs.tie_word_embeddings)
    assert (ours.kv_heads, ours.parallel, ours.positions, ours.mlp_bias) == (1, "one norm", "rotary", False)
    assert (ours.bos_token_id, ours.eos_token_id, ours.activation) == (11, 11, "gelu")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": 4545}, ["hidden_size 4545", "num_attention_heads 71"]),
        ({"new_decoder_architecture": True, "parallel_attn": False}, ["new_decoder_architecture", "parallel_attn"]),
        ({"num_ln_in_parallel_attn": 2}, ["num_ln_in_parallel_attn 2", "only 1"]),
        ({"new_decoder_architecture": True, "num_kv_heads": 8}, ["n_heads 71", "n_kv_heads 8"]),
        ({"apply_residual_connection_post_layernorm": True}, ["apply_residual_connection_post_layernorm True"]),
        ({"alibi": "yes"}, ["alibi 'yes'"]),
        ({"multi_query": 1}, ["multi_query 1"]),
        ({"bias": "no"}, ["bias", "no"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor 0.5"]),
        ({"num_attention_heads": 10**9, "hidden_size": 10**9}, ["num_attention_heads", "4096"]),
        ({"activation": "mish"}, ["activation", "mish"]),
        ({"n_embed": 8}, ["n_embed", "falcon"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(FALCON_7B | change, *named)
