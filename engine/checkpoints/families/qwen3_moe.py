"""Qwen3-MoE as Hugging Face stores it: Qwen3 with experts in place of the FFN of most layers."""

from __future__ import annotations

from engine.checkpoints.families.llama import BLOCK, IGNORED, OUTSIDE, canonical, stack
from engine.checkpoints.families.mixtral import with_experts
from engine.checkpoints.families.qwen3 import NORMED
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields, short
from engine.checkpoints.traits import window
from engine.config import Experts, ModelConfig


def dense_layers(c: Fields, n_layers: int) -> tuple[int, ...]:
    """The layers with an ordinary FFN: those listed, and those between every ``decoder_sparse_step``-th."""
    step, listed = c.size("decoder_sparse_step", default=1), c.get("mlp_only_layers", [])
    if not isinstance(listed, list) or not all(isinstance(layer, int) for layer in listed):
        raise c.refusal(f"mlp_only_layers must be a list of layers, but is {short(listed)}")
    return tuple(layer for layer in range(n_layers) if layer in listed or (layer + 1) % step)


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``Qwen3MoeForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.ignore("output_router_logits", "router_aux_loss_coef", "max_window_layers")
    c.only("use_qk_norm", True)
    c.only("qkv_bias", False)
    c.only("shared_expert_intermediate_size", 0)
    fields = stack(c, n_ctx=32_768, kv=4)
    biased = c.get("attention_bias", False)
    width = window(c, 4096)
    experts = Experts(
        n=c.size("num_experts", "num_local_experts", default=128),
        per_token=c.size("num_experts_per_tok", default=8),
        d_expert=c.size("moe_intermediate_size", default=768),
        normalised=c.get("norm_topk_prob", False),
        dense_layers=dense_layers(c, fields["n_layers"]),
    )
    read = ModelConfig.from_json(
        fields
        | {"attn_bias": biased, "attn_out_bias": biased, "qk_norm": "head", "experts": experts}
        | {"window": width if c.only("use_sliding_window", False, True) else None}
        | c.token_ids()
    )
    c.done()
    return read


FAMILY = Family(
    config,
    with_experts(
        by_table(OUTSIDE, BLOCK, NORMED | {"mlp.router": "mlp.gate"}),
        {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"},
    ),
    canonical,
    IGNORED,
)
