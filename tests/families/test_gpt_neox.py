"""GPT-NeoX and Pythia beside transformers."""

import pytest
import torch
from against import check_family, ids_for, random_reference, run_reference, saved
from hypothesis import given, settings
from hypothesis import strategies as st
from rotaries import N_CTX, places, rope_parameters, starts
from safetensors.torch import load_file, save_file
from spellings import assert_refused, read_config, respell
from transformers import GPTNeoXConfig

from engine import load_model, trace

PYTHIA = {
    "architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu",
    "hidden_size": 512, "initializer_range": 0.02, "intermediate_size": 2048, "layer_norm_eps": 1e-05,
    "max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 8, "num_hidden_layers": 6,
    "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": False, "torch_dtype": "float16",
    "transformers_version": "4.24.0", "use_cache": True, "use_parallel_residual": True, "vocab_size": 50304,
}  # fmt: skip
NEOX_20B = PYTHIA | {
    "attention_probs_dropout_prob": 0, "custom_pipelines": {"text-generation": {"impl": "pipeline.Ours"}},
    "eos_token_id": 0, "hidden_act": "gelu_fast", "hidden_dropout_prob": 0,
    "hidden_size": 6144, "intermediate_size": 24576, "num_attention_heads": 64, "num_hidden_layers": 44,
    "vocab_size": 50432,
}  # fmt: skip


@st.composite
def neoxes(draw: st.DrawFn) -> GPTNeoXConfig:
    heads, d_head = draw(st.integers(2, 4)), draw(st.sampled_from([6, 8, 10]))
    turning = draw(st.sampled_from([4, 6, d_head]))
    return GPTNeoXConfig(
        vocab_size=draw(st.integers(20, 50)),
        hidden_size=heads * d_head,
        intermediate_size=draw(st.integers(8, 40)),
        num_hidden_layers=draw(st.integers(1, 3)),
        num_attention_heads=heads,
        max_position_embeddings=N_CTX,
        hidden_act=draw(st.sampled_from(["gelu", "gelu_new", "gelu_fast", "relu"])),
        layer_norm_eps=draw(st.sampled_from([1e-5, 1e-6])),
        use_parallel_residual=draw(st.booleans()),
        attention_bias=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
        rope_parameters=draw(rope_parameters(turning)) | {"partial_rotary_factor": turning / d_head},
    )


dtypes = st.sampled_from([torch.float32, torch.float64, torch.bfloat16])


@settings(max_examples=40)
@given(config=neoxes(), seed=st.integers(0, 2**16), dtype=dtypes, start=starts)
def test_gpt_neox(config, seed, dtype, start):
    check_family(config, seed=seed, dtype=dtype, positions=places(start))


def tiny(**more) -> GPTNeoXConfig:
    sizes = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "max_position_embeddings": N_CTX}
    return GPTNeoXConfig(**sizes | {"rotary_pct": 0.25} | more)


def test_queries_keys_and_values_stand_together_head_by_head():  # E14
    reference = random_reference(tiny())
    fused = reference.gpt_neox.layers[0].attention.query_key_value  # [head·3·d_head, d_model]
    with saved(reference) as folder:
        t = trace(load_model(folder, dtype="float64"), list(range(9)))
    qkv = fused(t["blocks.0.ln1.normalized"]).detach()  # [batch, pos, head·3·d_head]
    q = t["blocks.0.attn.q"]
    assert (q - qkv.view(1, 9, 4, 24)[..., :8]).abs().max() < 1e-12
    chunked = qkv.chunk(3, -1)[0].view(1, 9, 4, 8)  # the wrong way is right for head 0
    assert [bool((q - chunked)[:, :, head].abs().max() < 1e-12) for head in range(4)] == [True, False, False, False]


def test_each_part_of_the_fused_matrix_takes_no_more_memory_than_its_rows():
    with saved(random_reference(tiny())) as folder:
        weight = load_model(folder).weights["blocks.0.attn.k.weight"]
    assert weight.shape == (32, 32)
    assert weight.untyped_storage().nbytes() == 32 * 32 * 4


def test_the_tail_of_a_head_is_not_turned():  # E14
    with saved(random_reference(tiny())) as folder:
        t = trace(load_model(folder), list(range(9)))
    for name in "qk":
        before, after = t[f"blocks.0.attn.{name}"], t[f"blocks.0.attn.rot_{name}"]
        assert torch.equal(before[..., 2:], after[..., 2:])
        assert not torch.equal(before[:, 1:, :, :2], after[:, 1:, :, :2])


def test_parallel_and_sequential_blocks_of_the_same_weights_differ_and_are_drawn_as_they_are():  # E14
    traces = []
    for parallel in (True, False):
        with saved(random_reference(tiny(use_parallel_residual=parallel))) as folder:
            traces.append(trace(load_model(folder, dtype="float64"), list(range(9))))
    assert ["blocks.0.resid_mid" in {step.site.name for step in t.program.steps} for t in traces] == [False, True]
    assert (traces[0]["logits"] - traces[1]["logits"]).abs().max() > 0.1


def test_a_file_of_transformers_4_is_the_same_and_its_buffers_are_passed_over_by_name():  # E14
    def older(raw):
        given = raw.pop("rope_parameters")
        assert given == {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}
        raw |= {"rotary_pct": 0.5, "partial_rotary_factor": 0.5, "rotary_emb_base": 500, "rope_theta": 500}
        raw["torch_dtype"] = raw.pop("dtype")

    config = tiny(rope_parameters={"rope_theta": 500.0, "partial_rotary_factor": 0.5})
    reference, ids = random_reference(config), ids_for(config, 9)
    with saved(reference) as folder:
        file, at = folder / "model.safetensors", "gpt_neox.layers.1.attention"
        buffers = {"bias": torch.ones(1, 1, 64, 64).bool(), "masked_bias": torch.tensor(-1e9)}
        buffers["rotary_emb.inv_freq"] = torch.ones(2)
        save_file(load_file(file) | {f"{at}.{name}": buffer for name, buffer in buffers.items()}, file)
        respell(folder, change=older)
        model = load_model(folder, dtype="float64")
    assert sorted(model.report.ignored) == [f"gpt_neox.layers.*.attention.{name}" for name in sorted(buffers)]
    assert (trace(model, ids)["logits"] - run_reference(reference, ids).logits).abs().max() < 2e-6


@pytest.mark.parametrize(
    "rename", [lambda n: n.removeprefix("gpt_neox."), lambda n: n.replace("embed_out.", "lm_head.")], ids=["bare", "5"]
)
def test_other_spellings_of_the_names_open_alike(rename):
    with saved(random_reference(tiny())) as folder:
        before = load_model(folder)
        respell(folder, rename)
        after = load_model(folder)
    assert all(torch.equal(before.weights[name], after.weights[name]) for name in before.weights)


def test_published_configs_are_read():
    small, large = read_config(PYTHIA), read_config(NEOX_20B)
    assert (small.d_head, small.rotary.dims, small.parallel, small.activation) == (64, 16, "two norms", "gelu")
    assert (large.d_head, large.rotary.dims, large.activation, large.attn_bias) == (96, 24, "gelu_tanh", True)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_act": "mish"}, ["hidden_act", "mish"]),
        ({"hidden_size": 500}, ["hidden_size 500", "num_attention_heads 8"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor 0.5", "only 0.25"]),
        ({"rope_theta": 500}, ["rope_theta 500", "only 10000"]),
        ({"rotary_pct": "a quarter"}, ["rotary_pct", "a quarter"]),
        ({"rotary_pct": 3.0}, ["partial_rotary_factor 3.0"]),
        ({"rotary_pct": 1e-9}, ["rotary dims 0"]),
        ({"rotary_emb_base": [1]}, ["rotary_emb_base", "[1]"]),
        ({"use_parallel_residual": "yes"}, ["use_parallel_residual 'yes'"]),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, ["factor is 0"]),
        ({"num_attention_heads": None}, ["num_attention_heads"]),
        ({"layer_norm_eps": "small"}, ["norm_eps"]),
        ({"sliding_window": 8}, ["sliding_window", "gpt_neox"]),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, named):
    assert_refused(PYTHIA | change, *named)
