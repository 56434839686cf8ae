"""StableLM: Llama with LayerNorms, partial rotary positions, and perhaps one norm for each head of q and k."""

from __future__ import annotations

from engine.checkpoints.families.llama import BLOCK, IGNORED, IN_BLOCK, OUTSIDE, canonical, stack
from engine.checkpoints.family import Family, Source, by_table, in_block
from engine.checkpoints.fields import Fields
from engine.config import ModelConfig

NAMED = by_table(OUTSIDE | {"ln_final.bias": "model.norm.bias"}, BLOCK, IN_BLOCK)


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``StableLmForCausalLM`` config.json. A key that it does not know is refused by name."""
    width, heads = c.size("hidden_size"), c.size("num_attention_heads")
    if width % heads:
        raise c.refusal(f"hidden_size {width} is no multiple of num_attention_heads {heads}")
    c.only("head_dim", width // heads)
    parallel = c.only("use_parallel_residual", False, True)
    head_norms = c.only("qk_layernorm", False, True)
    read = ModelConfig.from_json(
        stack(c, n_ctx=4096, kv=32, share=0.25)
        | {
            "norm": "layer",
            "norm_eps": c.get("layer_norm_eps", 1e-5),
            "parallel": "one norm" if parallel else "no",
            "attn_bias": c.get("use_qkv_bias", False),
            "qk_norm": "heads" if head_norms else "none",
        }
        | c.token_ids(bos=0, eos=0)
    )
    c.done()
    return read


def source(param: str, config: ModelConfig) -> Source:
    """The same names as Llama's, and a norm's weight for each head."""
    found = in_block(param)
    if found is None or not found[1].startswith(("attn.q_norm.", "attn.k_norm.")):
        return NAMED(param, config)
    layer, stem, kind = found
    role, head = stem.removeprefix("attn.").split(".")
    return Source(f"{BLOCK.format(layer)}.self_attn.{role[0]}_layernorm.norms.{head}.{kind}")


FAMILY = Family(config, source, canonical, IGNORED)
