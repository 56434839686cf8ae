"""A config in words: the architecture in a line, and the fields that say more than a default."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from engine.config import Experts, LayerKind, ModelConfig, Rotary

SIZES = ("d_vocab", "d_model", "n_layers", "n_heads", "n_kv_heads", "d_head", "d_mlp", "n_ctx")
SCALINGS = {
    "none": "",
    "linear": "linear scaling",
    "dynamic": "dynamic NTK scaling",
    "yarn": "YaRN scaling",
    "llama3": "Llama 3 scaling",
    "longrope": "LongRoPE scaling",
}


def traits(c: ModelConfig) -> str:
    """The architecture in a line."""
    return ", ".join(_traits(c))


def _traits(c: ModelConfig) -> Iterator[str]:
    if c.encoder_layers:
        yield f"encoder-decoder of {c.encoder_layers} + {c.n_layers} layers"
    scalings = dict.fromkeys(_scaled(rotary) for rotary in c.rotaries() if rotary.scaling != "none")
    yield f"{c.positions} positions" + (f" with {' and '.join(scalings)}" if scalings else "")
    yield f"{'LayerNorm' if c.norm == 'layer' else 'RMSNorm'} {c.norm_place}"
    if c.parallel != "no":
        yield "parallel blocks"
    yield "MHA" if c.kv_heads == c.n_heads else "MQA" if c.kv_heads == 1 else f"GQA {c.n_heads}/{c.kv_heads}"
    if c.qk_norm != "none":
        yield "q/k norm"
    windows = [c.kind(layer).window for layer in range(c.n_layers)]
    if near := [window for window in windows if window is not None]:
        where = "" if len(near) == len(windows) else f" in {len(near)} of {len(windows)} layers"
        yield f"window {' or '.join(map(str, sorted(set(near))))}{where}"
    if capped := [name for name in ("attn", "logit") if getattr(c, f"{name}_softcap") is not None]:
        yield "soft caps on " + " and ".join("scores" if name == "attn" else "logits" for name in capped)
    if c.attn_sinks:
        yield "attention sinks"
    inner = {"silu": "SwiGLU", "gelu": "GEGLU", "gelu_tanh": "GEGLU", "relu": "ReGLU"} if c.gated else {}
    ffn = f"{inner.get(c.activation, c.activation)} FFN"
    if c.experts is None:
        yield ffn
    else:
        dense = len(set(c.experts.dense_layers))
        yield f"{c.experts.n} experts, {c.experts.per_token} per token"
        if dense:
            yield f"{ffn} in {dense} of {c.n_layers} layers"
    if not c.causal:
        yield "sees both ways"
    if c.predicts is None:
        yield "no output head" if c.pooling == "none" else f"{c.pooling} pooling"


def fields(c: ModelConfig) -> list[tuple[str, str]]:
    """The sizes, and every other field that is not at its default, each with its value in words."""
    usual = {field.name: field.default for field in dataclasses.fields(c)} | {
        "final_norm": c.norm_place != "post",
        "rotary": None,
        "layer_kinds": c.layer_kinds,  # each kind says which layers are of it
    }
    return [
        (key, _words(c, key, value))
        for key, value in ((field.name, getattr(c, field.name)) for field in dataclasses.fields(c))
        if key != "name" and (key in SIZES or value != usual[key])
    ]


def _words(c: ModelConfig, key: str, value: object) -> str:
    if isinstance(value, Rotary):
        return rotary_words(value)
    if isinstance(value, Experts):
        return _experts(value)
    if key == "kinds":
        return "; ".join(_kind(kind, [i for i, name in enumerate(c.layer_kinds) if name == kind.name])
                         for kind in c.kinds)  # fmt: skip
    if key == "alibi_slopes":
        return f"{len(c.alibi_slopes)} numbers, {c.alibi_slopes[0]:g} … {c.alibi_slopes[-1]:g}"
    if key == "pool_layers":
        return ", ".join(" → ".join(map(str, ends)) for ends in c.pool_layers)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def rotary_words(rotary: Rotary) -> str:
    """A rotary embedding: its θ, what of a head turns, and how it is scaled."""
    return ", ".join(_rotary(rotary))


def _rotary(rotary: Rotary) -> Iterator[str]:
    yield f"θ = {rotary.theta:g}"
    if rotary.style != "half":
        yield rotary.style
    if rotary.dims is not None:
        yield f"{rotary.dims} dimensions of a head"
    if rotary.scaling != "none":
        yield _scaled(rotary) + ("" if rotary.original_n_ctx is None else f" from {rotary.original_n_ctx} positions")
    if rotary.attention_factor != 1:
        yield f"attention factor {rotary.attention_factor:.6g}"


def _scaled(rotary: Rotary) -> str:
    return SCALINGS[rotary.scaling] + ("" if rotary.scaling == "longrope" else f" by {rotary.factor:g}")


def _experts(e: Experts) -> str:
    words = [f"{e.n} experts of {e.d_expert}, {e.per_token} per token", e.routing]
    words += ["brought to sum 1"] if e.routing == "softmax" and e.normalised else []
    words += ["router bias"] if e.router_bias else []
    words += ["biases"] if e.biased else []
    words += [f"clamp {e.clamp:g}"] if e.clamp is not None else []
    words += [f"an ordinary FFN in {_layers(sorted(set(e.dense_layers)))}"] if e.dense_layers else []
    return ", ".join(words)


def _kind(kind: LayerKind, layers: Sequence[int]) -> str:
    words = [_layers(layers)]
    words += ["no window" if kind.window is None else f"window {kind.window}"]
    words += ["no rotation" if kind.rotary is None else rotary_words(kind.rotary)]
    return f"{kind.name}: {', '.join(words)}"


def _layers(numbers: Sequence[int]) -> str:
    """Layers in order, neighbours as one range: layers 0…4 6."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    named = " ".join(str(a) if a == b else f"{a}…{b}" for a, b in runs)
    return f"layer{'s' if len(numbers) > 1 else ''} {named}" if numbers else "no layer"
