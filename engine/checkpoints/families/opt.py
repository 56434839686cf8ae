"""OPT as Hugging Face stores it: learned positions counted from row 2, and 350m's post-norm and narrower embedding."""

from __future__ import annotations

from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import activation
from engine.config import ModelConfig

OUTSIDE = {
    "embed.weight": "model.decoder.embed_tokens.weight",
    "embed_in.weight": "model.decoder.project_in.weight",
    "pos_embed.weight": "model.decoder.embed_positions.weight",
    "ln_final.weight": "model.decoder.final_layer_norm.weight",
    "ln_final.bias": "model.decoder.final_layer_norm.bias",
    "embed_out.weight": "model.decoder.project_out.weight",
    "unembed.weight": "lm_head.weight",
}
IN_BLOCK = {
    "ln1": "self_attn_layer_norm",
    "ln2": "final_layer_norm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.out": "self_attn.out_proj",
    "mlp.up": "fc1",
    "mlp.down": "fc2",
}


def config(c: Fields) -> ModelConfig:
    """ModelConfig of an ``OPTForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("learned_embeddings", True)  # Galactica's, like the next
    c.only("scale_embeddings", False)
    c.ignore("activation_dropout", "init_std", "layerdrop", "output_projection")
    width, heads = c.size("hidden_size"), c.size("num_attention_heads")
    if width % heads:
        raise c.refusal(f"hidden_size {width} is no multiple of num_attention_heads {heads}")
    embed = c.get("word_embed_proj_dim", width)
    pre, unnormed = c.only("do_layer_norm_before", True, False), c.only("_remove_final_layer_norm", False, True)
    biased = c.get("enable_bias", True)
    read = ModelConfig.from_json(
        {
            "name": c.where,
            "d_vocab": c.size("vocab_size"),
            "d_model": width,
            "n_layers": c.size("num_hidden_layers"),
            "n_heads": heads,
            "d_head": width // heads,
            "d_mlp": c.size("ffn_dim"),
            "n_ctx": c.size("max_position_embeddings", default=2048),
            "d_embed": None if embed == width else embed,
            "positions": "learned",
            "position_offset": 2,
            "norm_eps": 1e-5,
            "norm_place": "pre" if pre else "post",
            "norm_weight": c.get("layer_norm_elementwise_affine", True),
            "final_norm": pre and not unnormed,
            "attn_bias": biased,
            "attn_out_bias": biased,
            "activation": activation(c, "activation_function", "relu"),
            "mlp_bias": biased,
            "tied": c.get("tie_word_embeddings", True),
            **c.token_ids(bos=2, eos=2, pad=1),
        }
    )
    c.done()
    return read


def canonical(name: str) -> str:
    """Files of the bare model lack the first part of the prefix."""
    return f"model.{name}" if name.startswith("decoder.") else name


FAMILY = Family(config, by_table(OUTSIDE, "model.decoder.layers.{}", IN_BLOCK), canonical)
