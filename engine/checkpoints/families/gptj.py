"""GPT-J as Hugging Face stores it: parallel blocks behind one norm, interleaved rotary positions, biases in the FFN."""

from __future__ import annotations

from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import activation
from engine.config import ModelConfig

OUTSIDE = {
    "embed.weight": "transformer.wte.weight",
    "ln_final.weight": "transformer.ln_f.weight",
    "ln_final.bias": "transformer.ln_f.bias",
    "unembed.weight": "lm_head.weight",
    "unembed.bias": "lm_head.bias",
}
IN_BLOCK = {
    "ln1": "ln_1",
    "attn.q": "attn.q_proj",
    "attn.k": "attn.k_proj",
    "attn.v": "attn.v_proj",
    "attn.out": "attn.out_proj",
    "mlp.up": "mlp.fc_in",
    "mlp.down": "mlp.fc_out",
}


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``GPTJForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("rotary", True)
    c.only("scale_attn_weights", True)
    c.ignore("n_ctx", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type")
    c.ignore("summary_use_proj")
    width, heads = c.size("n_embd"), c.size("n_head")
    if width % heads:
        raise c.refusal(f"n_embd {width} is no multiple of n_head {heads}")
    read = ModelConfig.from_json(
        {
            "name": c.where,
            "d_vocab": c.size("vocab_size"),
            "d_model": width,
            "n_layers": c.size("n_layer"),
            "n_heads": heads,
            "d_head": width // heads,
            "d_mlp": c.size("n_inner", default=4 * width),
            "n_ctx": c.size("n_positions", default=2048),
            "positions": "rotary",
            "rotary": {"style": "interleaved", "dims": c.get("rotary_dim", None if "rotary_dim" in c.raw else 64)},
            "norm_eps": c.get("layer_norm_epsilon", 1e-5),
            "parallel": "one norm",
            "activation": activation(c, "activation_function", "gelu_new"),
            "mlp_bias": True,
            "tied": c.get("tie_word_embeddings", False),
            "unembed_bias": True,
            **c.token_ids(bos=50256, eos=50256),
        }
    )
    c.done()
    return read


def canonical(name: str) -> str:
    """Files of the bare model lack the prefix."""
    return name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"


FAMILY = Family(
    config,
    by_table(OUTSIDE, "transformer.h.{}", IN_BLOCK),
    canonical,
    ignored=("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"),
)
