"""BERT as Hugging Face stores it: post-norm, learned positions, two segments, GELU, and a head for masked tokens."""

from __future__ import annotations

from typing import Any

from engine.checkpoints.family import Family, Source, by_table
from engine.checkpoints.fields import Fields
from engine.checkpoints.traits import activation
from engine.config import Head, ModelConfig

OUTSIDE = {
    "embed.weight": "embeddings.word_embeddings.weight",
    "pos_embed.weight": "embeddings.position_embeddings.weight",
    "token_type_embed.weight": "embeddings.token_type_embeddings.weight",
    "embed_ln.weight": "embeddings.LayerNorm.weight",
    "embed_ln.bias": "embeddings.LayerNorm.bias",
}
BLOCK = "encoder.layer.{}"
IN_BLOCK = {
    "attn.q": "attention.self.query",
    "attn.k": "attention.self.key",
    "attn.v": "attention.self.value",
    "attn.out": "attention.output.dense",
    "ln1": "attention.output.LayerNorm",
    "mlp.up": "intermediate.dense",
    "mlp.down": "output.dense",
    "ln2": "output.LayerNorm",
}
HEAD = {
    "head.weight": "cls.predictions.transform.dense.weight",
    "head.bias": "cls.predictions.transform.dense.bias",
    "head_ln.weight": "cls.predictions.transform.LayerNorm.weight",
    "head_ln.bias": "cls.predictions.transform.LayerNorm.bias",
    "unembed.weight": "cls.predictions.decoder.weight",
}
BIAS = Source("cls.predictions.decoder.bias", or_else=Source("cls.predictions.bias"))
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
OTHER_HEADS = ("pooler.dense.*", "classifier.*", "qa_outputs.*")
"""Heads for whole texts and spans; none of them is on the way to the stream or to a token's logits."""

UNUSED = (
    "_num_labels", "cls_token_id", "cross_attention_hidden_size", "mask_token_id", "num_labels", "output_past",
    "sbert_ce_default_activation_function", "sentence_transformers", "tie_encoder_decoder",
)  # fmt: skip
"""Keys of encoders that matter to other heads, to tokenizers or to training."""


def predicts(c: Fields, *classes: str) -> Head:
    """The head: a config without one of these classes as its architecture is opened as the stack alone."""
    return "transform" if c.architecture in classes else "none"


def even_heads(c: Fields, d_model: int, n_heads: int) -> int:
    """d_head, of a family whose heads share d_model evenly."""
    if d_model % n_heads:
        raise c.refusal(f"hidden size {d_model} is no multiple of its {n_heads} attention heads")
    return d_model // n_heads


def refuse_other_stacks(c: Fields) -> None:
    """What would make of an encoder something else: a decoder, half of a pair, a model that lacks some heads."""
    for key in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        c.only(key, False)
    c.only("pruned_heads", {})


def post_norm(c: Fields, n_positions: int, offset: int = 0) -> dict[str, Any]:
    """ModelConfig's fields of BERT and RoBERTa; the head aside, they differ in where positions are counted from."""
    refuse_other_stacks(c)
    c.only("position_embedding_type", "absolute")
    c.ignore(
        *UNUSED, "attention_probs_dropout_prob", "directionality", "language", "name", "pooler_fc_size",
        "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
    )  # fmt: skip
    d_model, heads = c.size("hidden_size"), c.size("num_attention_heads")
    return {
        "name": c.where,
        "d_vocab": c.size("vocab_size"),
        "d_model": d_model,
        "n_layers": c.size("num_hidden_layers"),
        "n_heads": heads,
        "d_head": even_heads(c, d_model, heads),
        "d_mlp": c.size("intermediate_size"),
        "n_ctx": n_positions,
        "positions": "learned",
        "position_offset": offset,
        "token_types": c.get("type_vocab_size", 2),
        "embed_norm": True,
        "norm_eps": c.get("layer_norm_eps", 1e-12),
        "norm_place": "post",
        "causal": False,
        "attn_bias": True,
        "attn_out_bias": True,
        "activation": activation(c, "hidden_act", "gelu"),
        "mlp_bias": True,
        "tied": c.get("tie_word_embeddings", True),
        **c.token_ids(),
    }


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``BertForMaskedLM``, a ``BertModel``, or another of BERT's classes as the stack that it is."""
    head = predicts(c, "BertForMaskedLM", "BertForPreTraining", "BertLMHeadModel")
    fields = post_norm(c, c.get("max_position_embeddings", 512))
    read = ModelConfig.from_json(fields | {"head": head, "unembed_bias": head != "none"})
    c.done()
    return read


def canonical(name: str) -> str:
    """The name in a bare ``BertModel`` of today: the first files say gamma and beta, and some have a prefix."""
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(f"LayerNorm{old}"):
            name = name.removesuffix(old) + new
    return name.removeprefix("bert.")


_named = by_table(OUTSIDE | HEAD, BLOCK, IN_BLOCK)


def source(param: str, config: ModelConfig) -> Source:
    """By the table; the last bias stands in the files once or twice, and beside its matrix it is the one in use."""
    return BIAS if param == "unembed.bias" else _named(param, config)


FAMILY = Family(
    config,
    source,
    canonical,
    ignored=(*BUFFERS, *OTHER_HEADS, *HEAD.values(), "cls.predictions.decoder.bias", "cls.predictions.bias",
             "cls.seq_relationship.*"),
)  # fmt: skip
