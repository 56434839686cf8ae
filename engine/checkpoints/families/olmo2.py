"""OLMo 2 as Hugging Face stores it: Llama with norms after the sub-layers, and of q and k over all heads together."""

from __future__ import annotations

from engine.checkpoints.families.llama import BLOCK, IGNORED, IN_BLOCK, OUTSIDE, canonical, stack
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.config import ModelConfig

NORMS = {
    "ln1_post": "post_attention_layernorm",
    "ln2_post": "post_feedforward_layernorm",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
}


def config(c: Fields) -> ModelConfig:
    """ModelConfig of an ``Olmo2ForCausalLM`` config.json. A key that it does not know is refused by name."""
    biased = c.get("attention_bias", False)
    read = ModelConfig.from_json(
        stack(c, n_ctx=2048, eps=1e-5)
        | {
            "norm_place": "output",
            "norm_casts_last": True,
            "qk_norm": "all",
            "attn_bias": biased,
            "attn_out_bias": biased,
        }
        | c.token_ids(eos=50279, pad=1)
    )
    c.done()
    return read


FAMILY = Family(config, by_table(OUTSIDE, BLOCK, IN_BLOCK | NORMS), canonical, IGNORED)
