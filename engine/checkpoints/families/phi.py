"""Phi-1, 1.5 and 2 as Hugging Face stores them: parallel blocks behind one norm, partial rotary positions, biases."""

from __future__ import annotations

from engine.checkpoints.families.llama import BLOCK, IGNORED, canonical
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import activation, d_head, kv_heads, rotary
from engine.config import ModelConfig

OUTSIDE = {
    "embed.weight": "model.embed_tokens.weight",
    "ln_final.weight": "model.final_layernorm.weight",
    "ln_final.bias": "model.final_layernorm.bias",
    "unembed.weight": "lm_head.weight",
    "unembed.bias": "lm_head.bias",
}
IN_BLOCK = {
    "ln1": "input_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.q_norm": "self_attn.q_layernorm",
    "attn.k_norm": "self_attn.k_layernorm",
    "attn.out": "self_attn.dense",
    "mlp.up": "mlp.fc1",
    "mlp.down": "mlp.fc2",
}


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``PhiForCausalLM`` config.json. A key that it does not know is refused by name."""
    head, longest = d_head(c), c.size("max_position_embeddings", default=2048)
    read = ModelConfig.from_json(
        {
            "name": c.where,
            "d_vocab": c.size("vocab_size"),
            "d_model": c.size("hidden_size"),
            "n_layers": c.size("num_hidden_layers"),
            "n_heads": c.size("num_attention_heads"),
            "n_kv_heads": kv_heads(c),
            "d_head": head,
            "d_mlp": c.size("intermediate_size"),
            "n_ctx": longest,
            "positions": "rotary",
            "rotary": rotary(c, head, share=0.5, n_ctx=longest),
            "norm_eps": c.get("layer_norm_eps", 1e-5),
            "parallel": "one norm",
            "attn_bias": True,
            "attn_out_bias": True,
            "qk_norm": "head" if c.only("qk_layernorm", False, True) else "none",
            "qk_norm_bias": True,
            "activation": activation(c, "hidden_act", "gelu_new"),
            "mlp_bias": True,
            "tied": c.get("tie_word_embeddings", False),
            "unembed_bias": True,
            **c.token_ids(bos=1, eos=2),
        }
    )
    c.done()
    return read


FAMILY = Family(config, by_table(OUTSIDE, BLOCK, IN_BLOCK), canonical, IGNORED)
