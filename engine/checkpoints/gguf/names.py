"""Where each of our weights lies in a GGUF file. The names are the same for every architecture."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from torch import Tensor

from engine.checkpoints.family import Source, in_block
from engine.config import ModelConfig

OUTSIDE = {
    "embed": "token_embd",
    "embed_ln": "token_embd_norm",
    "token_type_embed": "token_types",
    "pos_embed": "position_embd",
    "ln_final": "output_norm",
    "unembed": "output",
    "pool.0": "dense_2",
    "pool.1": "dense_3",
}
IN_BLOCK = {
    "ln1": "attn_norm",
    "ln2": "ffn_norm",
    "ln1_post": "post_attention_norm",
    "ln2_post": "post_ffw_norm",
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.out": "attn_output",
    "attn.q_norm": "attn_q_norm",
    "attn.k_norm": "attn_k_norm",
    "mlp.up": "ffn_up",
    "mlp.gate": "ffn_gate",
    "mlp.down": "ffn_down",
    "mlp.router": "ffn_gate_inp",
}
OTHERWISE = {
    "gpt-oss": {"ln2": "post_attention_norm"},
    "falcon": {"ln1": "attn_norm_2", "ln2": "attn_norm"},  # where there are two
}
"""Norms that an architecture calls by another's name."""
AFTER = {"ln1": "attn_output_norm", "ln2": "layer_output_norm"}
"""Norms that stand after the residual sum."""


def source(param: str, config: ModelConfig, *, arch: str, held: Collection[str], interleaved: bool) -> Source:
    """Where ``param`` lies among the tensors ``held`` by a file of architecture ``arch``."""
    found = in_block(param)
    if found is None:
        stem, _, kind = param.rpartition(".")
        return _norm(Source(f"{OUTSIDE.get(stem, stem)}.{kind}"), stem, config)
    layer, stem, kind = found
    block = f"blk.{layer}"
    if stem == "attn" and kind == "sinks":
        return Source(f"{block}.attn_sinks.weight")
    if stem.startswith("mlp.experts."):
        expert, _, part = stem.removeprefix("mlp.experts.").partition(".")
        apart = f"{block}.ffn_{part}.{expert}.{kind}"  # as files were before the experts were stacked
        return Source(apart if apart in held else f"{block}.ffn_{part}_exps.{kind}[{expert}]")
    if stem.startswith(("attn.q_norm.", "attn.k_norm.")):  # of every head its own, stacked
        one, _, head = stem.rpartition(".")
        return Source(f"{block}.{IN_BLOCK[one]}.{kind}", partial(_row, at=int(head)))
    if config.norm_place == "post" and stem in AFTER:
        return Source(f"{block}.{AFTER[stem]}.{kind}")
    table = IN_BLOCK | OTHERWISE.get(arch, {})
    name = f"{block}.{table[stem]}.{kind}"
    if stem in ("ln1", "ln2") and name not in held and arch in OTHERWISE:
        name = f"{block}.{IN_BLOCK[stem]}.{kind}"
    if name in held and stem in ("attn.q", "attn.k") and interleaved:
        heads = config.n_heads if stem == "attn.q" else config.kv_heads
        return Source(name, partial(halves_apart, heads=heads))
    if stem in ("attn.q", "attn.k", "attn.v") and name not in held and not interleaved:
        return _fused_qkv(f"{block}.attn_qkv.{kind}", stem, config)
    if stem in ("mlp.gate", "mlp.up") and config.gated and f"{block}.ffn_gate.{kind}" not in held:
        first = 0 if stem == "mlp.gate" else config.d_mlp
        return Source(f"{block}.ffn_up.{kind}", partial(_rows, start=first, size=config.d_mlp))
    return _norm(Source(name), stem, config)


def halves_apart(weight: Tensor, heads: int) -> Tensor:
    """A head's rows 0 1 2 3 4 5 as 0 2 4 1 3 5: the two of a turning pair, neighbours in the file, half a head apart.

    The inverse of llama.cpp's ``LlamaModel.permute``. Shape [head · d_head, ...] before and after.
    """
    pairs: Tensor = weight.unflatten(0, (heads, -1, 2))
    return pairs.transpose(1, 2).flatten(0, 2)


def _fused_qkv(name: str, stem: str, config: ModelConfig) -> Source:
    """Rows of one matrix: all queries, then all keys, then all values."""
    q, k = config.n_heads * config.d_head, config.kv_heads * config.d_head
    start, size = {"attn.q": (0, q), "attn.k": (q, k), "attn.v": (q + k, k)}[stem]
    return Source(name, partial(_rows, start=start, size=size))


def _norm(source: Source, stem: str, config: ModelConfig) -> Source:
    """A norm's weight is 1 + w in the file; where the config has it so too, it is w that the program wants."""
    is_norm = stem.rpartition(".")[2].startswith(("ln", "q_norm", "k_norm"))
    if config.norm_plus_one and is_norm and source.name.endswith(".weight"):
        return Source(source.name, _minus_one)
    return source


def _minus_one(weight: Tensor) -> Tensor:
    """Exact: the file's number is a float32 that was made by adding 1, and 1 + (x − 1) is x again."""
    return weight.float() - 1


def _rows(weight: Tensor, start: int, size: int) -> Tensor:
    return weight.narrow(0, start, size)


def _row(weight: Tensor, at: int) -> Tensor:
    return weight[at]
