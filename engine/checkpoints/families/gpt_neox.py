"""GPT-NeoX and Pythia as Hugging Face stores them: parallel blocks, partial rotary positions, q, k and v by head."""

from __future__ import annotations

from engine.checkpoints.family import Family, Source, by_table, in_block
from engine.checkpoints.fields import Fields
from engine.checkpoints.fused import QKV, fused_qkv
from engine.checkpoints.traits import activation, rotary
from engine.config import ModelConfig

OUTSIDE = {
    "embed.weight": "gpt_neox.embed_in.weight",
    "ln_final.weight": "gpt_neox.final_layer_norm.weight",
    "ln_final.bias": "gpt_neox.final_layer_norm.bias",
    "unembed.weight": "embed_out.weight",
}
IN_BLOCK = {
    "ln1": "input_layernorm",
    "ln2": "post_attention_layernorm",
    "attn.out": "attention.dense",
    "mlp.up": "mlp.dense_h_to_4h",
    "mlp.down": "mlp.dense_4h_to_h",
}
_plain = by_table(OUTSIDE, "gpt_neox.layers.{}", IN_BLOCK)


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``GPTNeoXForCausalLM`` config.json. A key that it does not know is refused by name."""
    c.only("is_decoder", False, True)  # it decodes either way
    c.ignore("attention_probs_dropout_prob", "custom_pipelines")
    width, heads = c.size("hidden_size"), c.size("num_attention_heads")
    if width % heads:
        raise c.refusal(f"hidden_size {width} is no multiple of num_attention_heads {heads}")
    theta, share = c.positive("rotary_emb_base", 10_000.0), c.positive("rotary_pct", 0.25)
    c.only("rope_theta", theta)  # some files say both in two ways
    c.only("partial_rotary_factor", share)
    biased, longest = c.get("attention_bias", True), c.size("max_position_embeddings", default=2048)
    read = ModelConfig.from_json(
        {
            "name": c.where,
            "d_vocab": c.size("vocab_size"),
            "d_model": width,
            "n_layers": c.size("num_hidden_layers"),
            "n_heads": heads,
            "d_head": width // heads,
            "d_mlp": c.size("intermediate_size"),
            "n_ctx": longest,
            "positions": "rotary",
            "rotary": rotary(c, width // heads, theta=theta, share=share, n_ctx=longest),
            "norm_eps": c.get("layer_norm_eps", 1e-5),
            "parallel": "two norms" if c.only("use_parallel_residual", True, False) else "no",
            "attn_bias": biased,
            "attn_out_bias": biased,
            "activation": activation(c, "hidden_act", "gelu"),
            "mlp_bias": True,
            "tied": c.get("tie_word_embeddings", False),
            **c.token_ids(bos=0, eos=2),
        }
    )
    c.done()
    return read


def source(param: str, config: ModelConfig) -> Source:
    """q, k and v of head 0, then of head 1, … in one tensor; all else by name."""
    found = in_block(param)
    if found is not None and found[1] in QKV:
        layer, stem, kind = found
        name = f"gpt_neox.layers.{layer}.attention.query_key_value.{kind}"
        return fused_qkv(name, stem, config, groups=config.n_heads)
    return _plain(param, config)


def canonical(name: str) -> str:
    """Files of the bare model lack the prefix, and transformers 5 calls the head lm_head."""
    if name.startswith(("gpt_neox.", "embed_out.")):
        return name
    return name.replace("lm_head.", "embed_out.", 1) if name.startswith("lm_head.") else f"gpt_neox.{name}"


FAMILY = Family(
    config,
    source,
    canonical,
    ignored=(
        "gpt_neox.layers.*.attention.bias",
        "gpt_neox.layers.*.attention.masked_bias",
        "gpt_neox.layers.*.attention.rotary_emb.inv_freq",
    ),
)
