"""What every family's program has to keep to: its sites, keeping, trace files, plans and kernels.

Beside transformers' numbers, which each family's own test compares: one small folder of every family is opened here.
"""

import json
import re
from dataclasses import replace
from functools import cache

import pytest
import torch
import transformers
from against import ids_for, random_reference
from spellings import read_config
from torch.profiler import ProfilerActivity, profile

from engine import build_program, extend, load_model, open_trace, plan_trace, trace
from engine.checkpoints.families import FAMILIES
from engine.errors import KernelError
from engine.ops.attention import Attention

SIZES = {"vocab_size": 40, "hidden_size": 40, "intermediate_size": 26, "num_hidden_layers": 2, "num_attention_heads": 4,
         "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2}
HEADED = GROUPED | {"head_dim": 6}
NO_IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GPT2 = {"vocab_size": 40, "n_embd": 40, "n_layer": 2, "n_head": 4, "n_positions": 32, **NO_IDS}
BOTH_KINDS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
GEMMA3 = HEADED | BOTH_KINDS | {"query_pre_attn_scalar": 7}
VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
          "image_size": 28, "patch_size": 14, "vision_use_head": False}  # fmt: skip
T5 = {"vocab_size": 40, "d_model": 40, "d_kv": 6, "d_ff": 26, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
      "decoder_start_token_id": 0}  # fmt: skip
FALCON = {"vocab_size": 40, "hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, **NO_IDS}
OPT = FALCON | {"ffn_dim": 26, "max_position_embeddings": 32}
PARTIAL = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.4}}

EXAMPLES = {
    "bert": SIZES,
    "bloom": {"vocab_size": 40, "hidden_size": 42, "n_layer": 2, "n_head": 3, **NO_IDS},
    "camembert": SIZES,
    "cohere": HEADED | {"use_qk_norm": True},
    "cohere2": GROUPED | BOTH_KINDS,
    "distilbert": {"vocab_size": 40, "dim": 40, "hidden_dim": 26, "n_layers": 2, "n_heads": 4,
                   "max_position_embeddings": 32},
    "falcon": FALCON | {"alibi": True, "new_decoder_architecture": False, "multi_query": True, "parallel_attn": False},
    "gemma": HEADED,
    "gemma2": HEADED | BOTH_KINDS | {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
                                     "query_pre_attn_scalar": 7},
    "gemma3": {"text_config": GEMMA3, "vision_config": VISION, "mm_tokens_per_image": 1, "image_token_index": 39,
               "boi_token_index": 38, "eoi_token_index": 37},
    "gemma3_text": GEMMA3,
    "gpt2": GPT2 | {"n_inner": 26, "scale_attn_by_inverse_layer_idx": True},
    "gpt_bigcode": GPT2 | {"n_inner": 26, "multi_query": True},
    "gpt_neox": SIZES | PARTIAL,
    "gpt_oss": HEADED | BOTH_KINDS | {"num_local_experts": 3, "num_experts_per_tok": 2},
    "gptj": GPT2 | {"n_inner": 26, "rotary_dim": 4},
    "granite": HEADED | {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 16.0,
                         "attention_multiplier": 0.1},
    "granitemoe": HEADED | {"num_local_experts": 3, "residual_multiplier": 0.22, "attention_multiplier": 0.1},
    "llama": HEADED | {"attention_bias": True, "mlp_bias": True},
    "marian": {"vocab_size": 40, "d_model": 40, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
               "decoder_attention_heads": 4, "encoder_ffn_dim": 26, "decoder_ffn_dim": 26, "scale_embedding": True,
               "max_position_embeddings": 32, "pad_token_id": 39, "decoder_start_token_id": 39, "eos_token_id": 0,
               "forced_eos_token_id": None},
    "mistral": HEADED | {"sliding_window": 4},
    "mixtral": HEADED | {"num_local_experts": 3, "num_experts_per_tok": 2},
    "modernbert": SIZES | {"layer_types": BOTH_KINDS["layer_types"], "local_attention": 6, "cls_token_id": 1,
                           "sep_token_id": 2},
    "mpt": {"vocab_size": 40, "d_model": 42, "n_layers": 2, "n_heads": 3, "max_seq_len": 32,
            "attn_config": {"clip_qkv": 0.7}},
    "mt5": T5 | {"feed_forward_proj": "gated-gelu"},
    "olmo": GROUPED | {"clip_qkv": 0.7},
    "olmo2": GROUPED,
    "opt": OPT | {"word_embed_proj_dim": 24, "do_layer_norm_before": False},
    "phi": SIZES | PARTIAL,
    "phi3": GROUPED,
    "qwen2": GROUPED,
    "qwen3": HEADED,
    "qwen3_moe": HEADED | {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 10,
                           "mlp_only_layers": [0]},
    "roberta": SIZES | {"pad_token_id": 1},
    "smollm3": GROUPED | {"no_rope_layers": [1, 0]},
    "stablelm": GROUPED | PARTIAL | {"qk_layernorm": True, "use_parallel_residual": True},
    "starcoder2": GROUPED,
    "t5": T5,
    "xlm-roberta": SIZES | {"pad_token_id": 1},
}  # fmt: skip
"""A config of each ``model_type``, with those of its traits that make sites."""

MASKED = ("bert", "camembert", "distilbert", "modernbert", "roberta", "xlm-roberta")
AUTO = dict.fromkeys(MASKED, "AutoModelForMaskedLM") | {"gemma3": "AutoModelForImageTextToText"}
AUTO |= dict.fromkeys(("t5", "mt5", "marian"), "AutoModelForSeq2SeqLM")

STREAM, CELLS, INNER = "batch pos d_model", "batch head query key", "batch pos d_mlp"
Q, KV, CACHED, PAST = (f"batch {x} d_head" for x in ("pos head", "pos kv_head", "kv_pos kv_head", "past kv_head"))
CHOSEN = "batch pos choice"
NORM = {"scale": "batch pos scale", "normalized": STREAM}
OUTSIDE = {
    "tokens": "batch pos", "positions": "batch pos", "key_positions": "batch kv_pos",
    "source_tokens": "batch src", "source_positions": "batch src",
    "embed": STREAM, "embed_in": STREAM, "embed_scaled": STREAM, "embed_sum": STREAM, "token_type_embed": STREAM,
    "pos_embed": STREAM, "position_bias": CELLS, "rotary_cos": "batch pos d_rot", "rotary_sin": "batch pos d_rot",
    **{f"{norm}.{part}": axes for norm in ("embed_ln", "ln_final", "head_ln") for part, axes in NORM.items()},
    "head.pre": STREAM, "head.post": STREAM, "embed_out": "batch pos d_embed",
    "logits_raw": "batch pos d_vocab", "logits": "batch pos d_vocab",
    "probs": "batch pos d_vocab",
    "pooled": "batch d_model", "pooled_dense.0": "batch d_pool0", "sentence": "batch d_pool0",
}  # fmt: skip
IN_BLOCK = {
    "resid_pre": STREAM, "resid_mid": STREAM, "resid_mid_cross": STREAM, "resid_post": STREAM,
    **{f"{norm}.{part}": axes for norm in ("ln1", "ln2", "ln1_post", "ln2_post", "ln_cross")
       for part, axes in NORM.items()},
    **{f"attn.{name}": Q for name in ("q", "q_clipped", "q_norm", "rot_q", "z")},
    **{f"attn.{name}": KV for name in ("k", "v", "k_clipped", "v_clipped", "k_norm", "rot_k")},
    **{f"attn.{name}": CELLS for name in ("scores", "scaled", "capped", "biased", "masked", "pattern")},
    "attn.past_k": PAST, "attn.past_v": PAST, "attn.cache_k": CACHED, "attn.cache_v": CACHED, "attn.sinks": "head",
    "attn.result": "batch pos head d_model", "attn.out": STREAM, "attn_out": STREAM,
    "cross_attn.q": Q, "cross_attn.k": "batch src kv_head d_head", "cross_attn.v": "batch src kv_head d_head",
    **{f"cross_attn.{name}": "batch head query src_key" for name in ("scores", "scaled", "masked", "pattern")},
    "cross_attn.z": Q, "cross_attn.result": "batch pos head d_model", "cross_attn_out": STREAM,
    "mlp.pre": INNER, "mlp.pre_linear": INNER, "mlp.post": INNER, "mlp.out": STREAM, "mlp_out": STREAM,
    "mlp.router": "batch pos expert", "mlp.expert_indices": CHOSEN, "mlp.expert_weights": CHOSEN,
    "mlp.expert_out": f"{CHOSEN} d_model",
}  # fmt: skip
SITES = OUTSIDE | {f"blocks.{name}": axes for name, axes in IN_BLOCK.items()}
OTHER_WIDTHS = {"embed": "batch pos d_embed"} | dict.fromkeys(
    ("blocks.mlp.pre", "blocks.mlp.pre_linear", "blocks.mlp.post"), f"{CHOSEN} d_expert"
)
"""The same sites, where the embedding is narrow or the FFN a mixture."""
EXPLICIT = {"gemma2": "a soft cap", "gpt_oss": "a sink"}
"""Families with arithmetic that no fused kernel has."""

both_dtypes = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])


@pytest.fixture(scope="module", params=sorted(EXAMPLES))
def folder(request, tmp_path_factory):
    """A folder that transformers wrote."""
    path = tmp_path_factory.mktemp(request.param)
    random_reference(example(request.param), auto_class(request.param)).float().save_pretrained(path)
    return path


def example(family):
    """transformers' config of a family's example."""
    return transformers.AutoConfig.for_model(family, **EXAMPLES[family])


def auto_class(family):
    return getattr(transformers, AUTO.get(family, "AutoModelForCausalLM"))


def prompt_for(model, n=7, seed=0):
    return ids_for(type("sizes", (), {"vocab_size": model.config.d_vocab}), n, seed)


def recorded(model, keep):
    """A prompt and, where the model goes on from there, two more tokens."""
    extra = {"target": prompt_for(model, 3, 1)} if model.config.encoder_layers else {}
    t = trace(model, prompt_for(model), keep=keep, **extra)
    return extend(model, t, prompt_for(model, 2, 2), keep=keep) if model.config.causal else t


def every_site(t):
    return [(site.name, at) for at in range(len(t.passes)) for site in t.program.sites]


def assert_same_bits(a, b, names):
    for name, at in names:
        one, other = a.site(name, at), b.site(name, at)
        assert one.dtype is other.dtype, name
        assert torch.equal(one, other), f"{name}@{at}"


def test_there_is_an_example_of_every_family():
    assert set(EXAMPLES) == set(FAMILIES) - {"layerstep"}


@both_dtypes
def test_deriving_gives_the_bits_that_keeping_has(folder, dtype):
    model = load_model(folder, dtype=dtype)
    everything = recorded(model, ["*"])
    for keep in ("all", "residual"):
        assert_same_bits(recorded(model, keep), everything, every_site(everything))
    for name, at in every_site(everything):
        step = model.program.step(name)
        assert step is None or everything.site(name, at).dtype is step.dtype(model.dtype), name


@both_dtypes
def test_a_trace_file_gives_back_what_was_kept_and_with_its_model_all(folder, dtype, tmp_path):
    model = load_model(folder, dtype=dtype)
    for keep in ("all", "residual"):
        t, file = recorded(model, keep), tmp_path / f"{keep}.trace.safetensors"
        t.save(file)
        alone, opened = open_trace(file), open_trace(file, model=folder)
        kept = [(name, at) for at, p in enumerate(t.passes) for name in (*p.given, *p.kept)]
        assert_same_bits(alone, t, kept)
        assert_same_bits(opened, t, every_site(t))
        assert alone.kernels == t.kernels
        assert [set(p.kept) for p in opened.passes] == [set(p.kept) for p in t.passes]


def test_a_part_of_what_is_derived_is_that_part_of_the_whole(folder):
    model = load_model(folder, dtype="float64")
    t = recorded(model, "residual")
    whole, at, last = recorded(model, ["*"]), len(t.passes) - 1, f"blocks.{model.config.n_layers - 1}."
    for step in model.program.steps:
        name, axes = step.site.name, step.site.axes
        if (at and name in model.program.once) or ("blocks." in name and last not in name):
            continue
        for axis in set(step.op.along).intersection(axes):
            for i in (0, t.sizes(at)[axis] - 1):
                part = t.part(name, at, {axis: (i, i + 1)})
                expected = whole.site(name, at).narrow(axes.index(axis), i, 1)
                same = (part == expected) | ((part - expected).abs() <= 1e-12 * expected.abs().clamp(min=1))
                assert bool(same.all()), f"{name}, {axis} {i}"  # −∞ equals −∞


def test_the_plan_is_what_a_run_keeps(folder):
    model = load_model(folder, dtype="bfloat16")  # so that what is float32 or int64 all the same counts as such
    for keep in ("all", "residual", ["*"], ["blocks.*.attn.*"]):
        kept = trace(model, [prompt_for(model), prompt_for(model, 4, 1)], keep=keep).passes[0].kept
        plan = plan_trace(model, 7, batch=2, keep=keep)
        storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in kept.values()}
        assert plan.kept == sum(storages.values())
        shapes = {name: tuple(tensor.shape) for name, tensor in kept.items()}
        assert {row.site.name: row.shape for row in plan.rows if row.kept} == shapes
        for row in plan.rows:
            assert not row.kept or row.bytes in (0, kept[row.site.name].nbytes)  # 0: another name for one that is there


@cache
def sites_of(family):
    """Name and axes of every site of a family's program, layers left out, as the tables write them.

    An encoder's beside a decoder are the same under a prefix and over the source's axes.
    """
    config = example(family)
    head = auto_class(family)._model_mapping[type(config)].__name__
    read = read_config(json.loads(config.to_json_string()) | {"architectures": [head]})
    if family == "bert":
        sentence = {"head": "none", "pooling": "mean", "pool_layers": ((40, 9),), "pool_normalise": True}
        return [*named(build_program(read)), *named(build_program(replace(read, unembed_bias=False, **sentence)))]
    return named(build_program(read))


def named(program):
    decoder = {"src": "pos", "src_query": "query", "src_key": "key"}
    sites = []
    for site in program.sites:
        encoding = site.name.startswith("encoder.")
        axes = " ".join(decoder.get(axis, axis) if encoding else axis for axis in site.axes)
        name = site.name.removeprefix("encoder.")
        sites.append((re.sub(r"^(rotary_(cos|sin))_\w+$", r"\1", re.sub(r"^blocks\.\d+\.", "blocks.", name)), axes))
    return sites


@pytest.mark.parametrize("family", sorted(EXAMPLES))
def test_sites_have_the_names_and_axes_that_are_known(family):
    for name, axes in sites_of(family):
        assert name in SITES, f"{name} is no known site; if it is a new one, add it to the table"
        assert axes in (SITES[name], OTHER_WIDTHS.get(name)), f"{name} is over {axes}"


def test_every_known_site_is_written_by_some_family():
    written = {site for family in EXAMPLES for site in sites_of(family)}
    assert written == set(SITES.items()) | set(OTHER_WIDTHS.items())


CALLED = {
    "_scaled_dot_product_flash_attention_for_cpu": "flash",
    "_scaled_dot_product_attention_math": "math",
}
"""What torch calls the kernels that a CPU has."""


def test_the_kernel_that_ran_is_reported_and_one_that_cannot_says_why(folder, request):
    model = load_model(folder)
    family = json.loads((folder / "config.json").read_text())["model_type"]
    ids = prompt_for(model)
    trace(model, ids)  # a kernel is tried once before it is chosen
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        t = trace(model, ids)
    called = {CALLED.get(event.key.removeprefix("aten::")) for event in prof.key_averages()} - {None}
    why = EXPLICIT.get(family, "")
    assert t.kernels == (("explicit",) if why else tuple(called))
    assert bool(called) != bool(why)
    ops = [step.op for step in model.program.steps if isinstance(step.op, Attention)]
    assert {op.explicit for op in ops} == {why}
    for kernel in ("flash", "efficient", "cudnn"):
        if why:
            reason = f"no fused kernel has {why}"
        elif kernel != "flash":
            reason = "runs on CUDA only and this model is on the cpu"
        else:
            assert trace(model, ids, kernel=kernel).kernels == ("flash",)
            continue
        with pytest.raises(KernelError, match=f"kernel '{kernel}'.*{reason}"):
            trace(model, ids, kernel=kernel)
    assert trace(model, ids, kernel="math").kernels == ("explicit" if why else "math",)
