"""DistilBERT: BERT with half the layers and without segments. (Sanh et al. 2019)"""

from __future__ import annotations

from engine.checkpoints.families.bert import UNUSED, even_heads, predicts, refuse_other_stacks
from engine.checkpoints.family import Family, by_table
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import activation
from engine.config import ModelConfig

OUTSIDE = {
    "embed.weight": "embeddings.word_embeddings.weight",
    "pos_embed.weight": "embeddings.position_embeddings.weight",
    "embed_ln.weight": "embeddings.LayerNorm.weight",
    "embed_ln.bias": "embeddings.LayerNorm.bias",
}
HEAD = {
    "head.weight": "vocab_transform.weight",
    "head.bias": "vocab_transform.bias",
    "head_ln.weight": "vocab_layer_norm.weight",
    "head_ln.bias": "vocab_layer_norm.bias",
    "unembed.weight": "vocab_projector.weight",
    "unembed.bias": "vocab_projector.bias",
}
IN_BLOCK = {
    "attn.q": "attention.q_lin",
    "attn.k": "attention.k_lin",
    "attn.v": "attention.v_lin",
    "attn.out": "attention.out_lin",
    "ln1": "sa_layer_norm",
    "mlp.up": "ffn.lin1",
    "mlp.down": "ffn.lin2",
    "ln2": "output_layer_norm",
}


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``DistilBertForMaskedLM``, or of the stack alone.

    Positions are a table in the file, sinusoidal or learned: the file's numbers count, not how they were made.
    """
    refuse_other_stacks(c)
    c.ignore(*UNUSED, "qa_dropout", "seq_classif_dropout", "sinusoidal_pos_embds", "tie_weights_")
    d_model, heads = c.size("dim", "hidden_size"), c.size("n_heads", "num_attention_heads")
    head = predicts(c, "DistilBertForMaskedLM")
    read = ModelConfig.from_json(
        {
            "name": c.where,
            "d_vocab": c.size("vocab_size"),
            "d_model": d_model,
            "n_layers": c.size("n_layers", "num_hidden_layers"),
            "n_heads": heads,
            "d_head": even_heads(c, d_model, heads),
            "d_mlp": c.size("hidden_dim"),
            "n_ctx": c.get("max_position_embeddings", 512),
            "positions": "learned",
            "embed_norm": True,
            "norm_eps": 1e-12,
            "norm_place": "post",
            "causal": False,
            "attn_bias": True,
            "attn_out_bias": True,
            "activation": activation(c, "activation", "gelu"),
            "mlp_bias": True,
            "head": head,
            "tied": c.get("tie_word_embeddings", True),
            "unembed_bias": head != "none",
            **c.token_ids(),
        }
    )
    c.done()
    return read


FAMILY = Family(
    config,
    by_table(OUTSIDE | HEAD, "transformer.layer.{}", IN_BLOCK),
    canonical=lambda name: name.removeprefix("distilbert."),
    ignored=("embeddings.position_ids", "pre_classifier.*", "classifier.*", "qa_outputs.*", *HEAD.values()),
)
