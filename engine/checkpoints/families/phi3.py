"""Phi-3, 3.5 and 4 as Hugging Face stores them: Llama's block with q, k and v in one matrix, gate and up in another,
LongRoPE for long contexts, and in some a sliding window."""

from __future__ import annotations

from engine.checkpoints.families.llama import BLOCK, IGNORED, IN_BLOCK, OUTSIDE, canonical, stack
from engine.checkpoints.family import Family, Source, by_table, in_block
from engine.checkpoints.fields import Fields
from engine.checkpoints.fused import QKV, fused_gate_up, fused_qkv
from engine.checkpoints.traits import window
from engine.config import ModelConfig

_plain = by_table(OUTSIDE, BLOCK, IN_BLOCK)


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``Phi3ForCausalLM`` config.json. A key that it does not know is refused by name."""
    for key in ("attention_bias", "mlp_bias", "lm_head_bias"):
        c.only(key, False)
    for key in ("full_attn_mod", "interpolate_factor"):  # Phi-4-mini's; 1 is without effect
        c.only(key, 1)
    fields = stack(c, n_ctx=4096, eps=1e-5, share=1.0, original=4096)
    if fields["rotary"].scaling not in ("none", "longrope"):
        raise c.refusal(f"rotary scaling {fields['rotary'].scaling} is not supported, only longrope (or su)")
    read = ModelConfig.from_json(fields | {"window": window(c)} | c.token_ids(bos=1, eos=32_000, pad=32_000))
    c.done()
    return read


def source(param: str, config: ModelConfig) -> Source:
    """Rows of the fused matrices; all else by name."""
    found = in_block(param)
    if found is not None:
        layer, stem, kind = found
        block = BLOCK.format(layer)
        if stem in QKV:
            return fused_qkv(f"{block}.self_attn.qkv_proj.{kind}", stem, config)
        if stem in ("mlp.gate", "mlp.up"):
            return fused_gate_up(f"{block}.mlp.gate_up_proj.{kind}", stem, config)
    return _plain(param, config)


FAMILY = Family(config, source, canonical, IGNORED)
