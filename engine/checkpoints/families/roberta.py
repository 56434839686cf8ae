"""RoBERTa, XLM-RoBERTa, CamemBERT: BERT with positions counted from behind the padding's, and a head of its own."""

from __future__ import annotations

from engine.checkpoints.families import bert
from engine.checkpoints.family import Family, Source, by_table
from engine.checkpoints.fields import Fields
from engine.config import ModelConfig

HEAD = {
    "head.weight": "lm_head.dense.weight",
    "head.bias": "lm_head.dense.bias",
    "head_ln.weight": "lm_head.layer_norm.weight",
    "head_ln.bias": "lm_head.layer_norm.bias",
    "unembed.weight": "lm_head.decoder.weight",
}
BIAS = Source("lm_head.decoder.bias", or_else=Source("lm_head.bias"))
CLASSES = tuple(
    f"{name}For{task}" for name in ("Roberta", "XLMRoberta", "Camembert") for task in ("MaskedLM", "CausalLM")
)


def config(c: Fields) -> ModelConfig:
    """ModelConfig of a ``RobertaForMaskedLM``, whose head has GELU whatever the FFN has, or of the stack alone."""
    offset = c.get("pad_token_id", 1)
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise c.refusal(f"pad_token_id must be a token id, since positions are counted from it, but is {offset!r}")
    longest = c.size("max_position_embeddings") - offset - 1
    if longest < 1:
        raise c.refusal(f"max_position_embeddings leaves no position behind the padding's, which is {offset}")
    head = bert.predicts(c, *CLASSES)
    fields = bert.post_norm(c, longest, offset + 1) | {"pad_token_id": offset}
    fields |= {"head": head, "head_activation": "gelu", "unembed_bias": head != "none"}
    read = ModelConfig.from_json(fields)
    c.done()
    return read


_named = by_table(bert.OUTSIDE | HEAD, bert.BLOCK, bert.IN_BLOCK)


def source(param: str, config: ModelConfig) -> Source:
    """By the table; the last bias as in BERT."""
    return BIAS if param == "unembed.bias" else _named(param, config)


FAMILY = Family(
    config,
    source,
    canonical=lambda name: name.removeprefix("roberta."),
    ignored=(*bert.BUFFERS, *bert.OTHER_HEADS, *HEAD.values(), "lm_head.decoder.bias", "lm_head.bias"),
)
