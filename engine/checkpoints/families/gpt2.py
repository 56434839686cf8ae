"""GPT-2 as Hugging Face stores it: pre-norm, learned positions, matrices as [in, out]. (Radford et al. 2019)"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from engine.checkpoints.family import Family, Source, in_block
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import activation
from engine.config import ModelConfig

OUTSIDE = {
    "embed.weight": "wte.weight",
    "pos_embed.weight": "wpe.weight",
    "ln_final.weight": "ln_f.weight",
    "ln_final.bias": "ln_f.bias",
    "unembed.weight": "lm_head.weight",
}
NORMS = {"ln1": "ln_1", "ln2": "ln_2"}
FUSED = {"attn.q": 0, "attn.k": 1, "attn.v": 2}
"""Ours -> which third of c_attn's columns it is."""
LINEAR = {"attn.out": "attn.c_proj", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"}


def stack(c: Fields, usual: str) -> dict[str, Any]:
    """ModelConfig's fields of GPT-2 and of its descendant; ``usual`` is the family's default activation."""
    d_model, heads = c.size("n_embd"), c.size("n_head")
    if d_model % heads:
        raise c.refusal(f"n_embd {d_model} is no multiple of n_head {heads}")
    return {
        "name": c.where,
        "d_vocab": c.size("vocab_size"),
        "d_model": d_model,
        "n_layers": c.size("n_layer", most=4096),
        "n_heads": heads,
        "d_head": d_model // heads,
        "d_mlp": c.size("n_inner", default=4 * d_model),
        "n_ctx": c.size("n_positions", default=1024),
        "positions": "learned",
        "norm_eps": c.get("layer_norm_epsilon", 1e-5),
        "attn_bias": True,
        "attn_out_bias": True,
        "attn_scale": None if c.only("scale_attn_weights", True, False) else 1.0,
        "activation": activation(c, "activation_function", usual),
        "mlp_bias": True,
        "tied": c.get("tie_word_embeddings", True),
        **c.token_ids(bos=50256, eos=50256),
    }


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``GPT2LMHeadModel`` config.json. A key that it does not know is refused by name."""
    c.only("add_cross_attention", False)
    c.only("is_encoder_decoder", False)
    c.only("pruned_heads", {})
    c.ignore(
        "is_decoder", "n_ctx", "num_labels", "_num_labels", "output_past", "predict_special_tokens",
        "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
        "summary_type", "summary_use_proj",
    )  # fmt: skip
    read = ModelConfig.from_json(
        stack(c, "gelu_new") | {"attn_scale_by_layer": c.get("scale_attn_by_inverse_layer_idx", False)}
    )
    c.done()
    return read


def source(param: str, config: ModelConfig) -> Source:
    """Matrices are transposed, and queries, keys and values are columns of one; all parts are views."""
    if param in OUTSIDE:
        return Source(OUTSIDE[param])
    found = in_block(param)
    assert found is not None, param
    layer, stem, kind = found
    if stem in NORMS:
        return Source(f"h.{layer}.{NORMS[stem]}.{kind}")
    if stem in FUSED:
        d = config.d_model
        third = slice(FUSED[stem] * d, (FUSED[stem] + 1) * d)
        whole = (3 * d,) if kind == "bias" else (d, 3 * d)
        return Source(f"h.{layer}.attn.c_attn.{kind}", lambda x: x[..., third].t(), whole)
    return Source(f"h.{layer}.{LINEAR[stem]}.{kind}", None if kind == "bias" else Tensor.t)


FAMILY = Family(
    config,
    source,
    canonical=lambda name: name.removeprefix("transformer."),
    ignored=("h.*.attn.bias", "h.*.attn.masked_bias"),
)
