"""The models that the benchmarks run: random weights in transformers' own classes, and the same weights in ours."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch

from engine import Model, ModelConfig


@dataclass
class Pair:
    """One set of weights in two implementations."""

    name: str
    theirs: torch.nn.Module
    ours: Model


def gpt2(d_model: int, n_layers: int, n_heads: int, d_vocab: int = 50257, n_ctx: int = 4096) -> Pair:
    """GPT-2: learned positions, pre-norm LayerNorm, MHA, GELU, biases, tied."""
    from transformers import GPT2Config, GPT2LMHeadModel

    theirs = _quiet(
        GPT2LMHeadModel,
        GPT2Config(
            vocab_size=d_vocab, n_positions=n_ctx, n_embd=d_model, n_layer=n_layers, n_head=n_heads,
            attn_implementation="sdpa",
        ),
    )  # fmt: skip
    state = theirs.transformer.state_dict()
    weights = {
        "embed.weight": state["wte.weight"],
        "pos_embed.weight": state["wpe.weight"],
        "ln_final.weight": state["ln_f.weight"],
        "ln_final.bias": state["ln_f.bias"],
    }
    for layer in range(n_layers):
        theirs_at, ours_at = f"h.{layer}.", f"blocks.{layer}."
        for norm, name in (("ln_1", "ln1"), ("ln_2", "ln2")):
            for kind in ("weight", "bias"):
                weights[f"{ours_at}{name}.{kind}"] = state[f"{theirs_at}{norm}.{kind}"]
        qkv = state[f"{theirs_at}attn.c_attn.weight"].t().contiguous().chunk(3)  # [3 × d_model, d_model]
        biases = state[f"{theirs_at}attn.c_attn.bias"].chunk(3)
        for part, weight, bias in zip("qkv", qkv, biases, strict=True):
            weights[f"{ours_at}attn.{part}.weight"], weights[f"{ours_at}attn.{part}.bias"] = weight, bias
        for theirs_name, ours_name in (("attn.c_proj", "attn.out"), ("mlp.c_fc", "mlp.up"), ("mlp.c_proj", "mlp.down")):
            weights[f"{ours_at}{ours_name}.weight"] = state[f"{theirs_at}{theirs_name}.weight"].t().contiguous()
            weights[f"{ours_at}{ours_name}.bias"] = state[f"{theirs_at}{theirs_name}.bias"]
    config = ModelConfig(
        name=f"gpt2-{d_model}x{n_layers}", d_vocab=d_vocab, d_model=d_model, n_layers=n_layers, n_heads=n_heads,
        d_head=d_model // n_heads, d_mlp=4 * d_model, n_ctx=n_ctx, positions="learned", norm="layer",
        activation="gelu_tanh", attn_bias=True, attn_out_bias=True, mlp_bias=True,
    )  # fmt: skip
    return Pair(config.name, theirs, Model.from_weights(config, weights))


def llama(
    d_model: int, n_layers: int, n_heads: int, n_kv_heads: int, d_mlp: int, d_vocab: int = 32000, n_ctx: int = 8192
) -> Pair:
    """Llama: RoPE, pre-norm RMSNorm, GQA, SwiGLU, no biases, tied."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from engine.checkpoints.families.llama import FAMILY

    theirs = _quiet(
        LlamaForCausalLM,
        LlamaConfig(
            vocab_size=d_vocab, hidden_size=d_model, intermediate_size=d_mlp, num_hidden_layers=n_layers,
            num_attention_heads=n_heads, num_key_value_heads=n_kv_heads, max_position_embeddings=n_ctx,
            tie_word_embeddings=True, attn_implementation="sdpa",
        ),
    )  # fmt: skip
    config = ModelConfig(
        name=f"llama-{d_model}x{n_layers}", d_vocab=d_vocab, d_model=d_model, n_layers=n_layers, n_heads=n_heads,
        n_kv_heads=n_kv_heads, d_head=d_model // n_heads, d_mlp=d_mlp, n_ctx=n_ctx, positions="rotary", norm="rms",
        norm_eps=1e-6, activation="silu", gated=True,
    )  # fmt: skip
    from engine import build_program

    state = theirs.state_dict()
    weights = {param: state[FAMILY.source(param, config).name] for param in build_program(config).params}
    return Pair(config.name, theirs, Model.from_weights(config, weights))


def _quiet(cls: type, config: object) -> torch.nn.Module:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cls(config).eval()
    model.requires_grad_(False)
    return model
