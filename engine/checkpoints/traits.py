"""Traits that many families spell alike: activations, rotary scaling, kinds of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log, sqrt
from typing import Any

from engine.checkpoints.fields import Fields, short
from engine.config import Activation, LayerKind, Rotary, RotaryScaling, RotaryStyle

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "gelu_quick",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""transformers' names; some of its spellings are one function."""

SCALINGS: dict[str, RotaryScaling] = {
    "default": "none",
    "linear": "linear",
    "dynamic": "dynamic",
    "yarn": "yarn",
    "llama3": "llama3",
    "longrope": "longrope",
    "su": "longrope",
}
"""transformers' names of rotary scaling; "su" is what the first Phi-3 files call LongRoPE."""

_KEYS: dict[RotaryScaling, tuple[str, ...]] = {
    "none": (),
    "linear": ("factor",),
    "dynamic": ("factor", "original_max_position_embeddings"),
    "yarn": (
        "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
        "mscale_all_dim", "truncate", "finetuned",
    ),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
    "longrope": ("factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor"),
}  # fmt: skip
"""What each scaling has, beside its name, θ and the share of dimensions. (``finetuned`` changes no arithmetic.)"""


def activation(c: Fields, key: str, default: str) -> Activation:
    """The activation under a key. One that layerstep does not have is refused by name."""
    name = c.get(key, default)
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise c.refusal(f"{key} {short(name)} is not supported; supported are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def d_head(c: Fields, default: int | None = None) -> int:
    """``head_dim`` where it is given, else hidden_size / num_attention_heads, or, absent, the family's default."""
    share = c.size("hidden_size") // c.size("num_attention_heads")
    return c.size("head_dim", default=share if "head_dim" in c.raw else default or share)


def kv_heads(c: Fields, default: int | None = None) -> int:
    """``num_key_value_heads``; where it is null as many as there are heads, where it is absent the family's default."""
    heads = c.size("num_attention_heads")
    return c.size("num_key_value_heads", default=heads if "num_key_value_heads" in c.raw else default or heads)


def window(c: Fields, default: int | None = None) -> int | None:
    """``sliding_window``: how many keys a query sees, itself included. Null or 0 is no window, absent the default."""
    width = c.get("sliding_window", default if "sliding_window" not in c.raw else None)
    off = width is None or (width == 0 and not isinstance(width, bool))
    return None if off else c.size("sliding_window", default=default)


def rotary(
    c: Fields,
    d_head: int,
    *,
    theta: float = 10_000.0,
    style: RotaryStyle = "half",
    share: float | None = None,
    layer_type: str | None = None,
    n_ctx: int | None = None,
    original: int | None = None,
) -> Rotary:
    """The rotary embedding, in every spelling: ``rope_theta`` and ``rope_scaling`` or transformers 5's
    ``rope_parameters``, there plain or one for each ``layer_type``, the scaling named ``rope_type`` or ``type``.

    ``theta`` and ``share`` (of a head's dimensions that turn) are the family's defaults; a family without a ``share``
    turns whole heads and refuses another. ``n_ctx`` is what ``max_position_embeddings`` comes to, and ``original`` what
    ``original_max_position_embeddings`` does in a family that has it beside the parameters.
    A scaling that is not known, and a key that it does not have, are refused by name.
    """
    given, where = _parameters(c, layer_type)
    name = next((given[key] for key in ("rope_type", "type") if given.get(key) is not None), "default")
    if not isinstance(name, str) or name not in SCALINGS:
        raise c.refusal(f"{where} asks for {short(name)}, which is not supported; supported are {', '.join(SCALINGS)}")
    scaling = SCALINGS[name]
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor", *_KEYS[scaling]}
    if unknown := sorted(str(key) for key in given if key not in known):
        raise c.refusal(f"{where} has {short(unknown[0])}, which layerstep does not know for {name}; refused")
    beside = c.get("original_max_position_embeddings", original)
    fields: dict[str, Any] = {
        "theta": _number(c, given, "rope_theta", c.get("rope_theta", theta)),
        "style": style,
        "dims": _turning(c, given, d_head, share),
        "scaling": scaling,
    }
    if scaling == "none":
        return Rotary(**fields)
    longest = n_ctx if isinstance(n_ctx, int) else c.size("max_position_embeddings")
    original = given.get("original_max_position_embeddings") if beside is None or "[" in where else beside
    original = longest if original is None or scaling == "dynamic" else original
    if not isinstance(original, int) or isinstance(original, bool) or not 2 <= original <= 2**31:
        raise c.refusal(
            f"original_max_position_embeddings must be a number between 2 and 2^31, but is {short(original)}"
        )
    factor = _number(c, given, "factor", None if scaling in ("yarn", "longrope") else _missing)
    fields |= {"factor": longest / original if factor is None else factor}
    fields |= {} if scaling == "linear" else {"original_n_ctx": original}
    if scaling == "llama3":
        fields |= {key: _number(c, given, key, _missing) for key in ("low_freq_factor", "high_freq_factor")}
    if scaling == "yarn":
        fields |= _yarn(c, given, fields["factor"])
    if scaling == "longrope":
        fields |= _longrope(c, given, fields["factor"], original)
    return Rotary(**fields)


def layer_kinds(c: Fields, names: Sequence[str], kinds: Mapping[str, LayerKind]) -> dict[str, Any]:
    """``kinds`` and ``layer_kinds`` of a config whose layers are of these kinds by name; a single one is all layers'.

    ``names`` has one entry for each layer. A name that is none of ``kinds`` is refused.
    """
    if unknown := [name for name in names if name not in kinds]:
        raise c.refusal(
            f"layer_types has {short(unknown[0])}, which is not supported; supported are {', '.join(kinds)}"
        )
    used = list(dict.fromkeys(names))
    if len(used) == 1:
        only = kinds[used[0]]
        return {"window": only.window, "rotary": only.rotary}
    return {"kinds": tuple(kinds[name] for name in used), "layer_kinds": tuple(kinds[name].name for name in names)}


def layer_types(c: Fields, n_layers: int, default: Sequence[str]) -> list[str]:
    """``layer_types``: a list in the config wins over what the family would make of its other keys."""
    given = c.get("layer_types")
    if given is None:
        return list(default)
    if not isinstance(given, list) or len(given) != n_layers or not all(isinstance(name, str) for name in given):
        raise c.refusal(f"layer_types must name a kind for each of {n_layers} layers, but is {short(given)}")
    return given


_missing = object()


def _parameters(c: Fields, layer_type: str | None) -> tuple[Mapping[str, Any], str]:
    """The rope parameters of all layers, or of one type of layer, and the key that holds them.

    The older key wins where a file has both, as it does in transformers.
    """
    both = {key: c.get(key) for key in ("rope_scaling", "rope_parameters")}
    key = next((key for key, given in both.items() if given), "rope_parameters")
    given = _object(c, key, both[key] or {})
    if layer_type is not None and layer_type in given:
        key, given = f"{key}[{layer_type}]", _object(c, f"{key}[{layer_type}]", given[layer_type])
    return given, key


def _object(c: Fields, key: str, given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise c.refusal(f"{key} must be an object, but is {short(given)}")
    return given


def _turning(c: Fields, given: Mapping[str, Any], d_head: int, share: float | None) -> int | None:
    """How many dimensions of a head turn; None for all of them."""
    part = _number(c, given, "partial_rotary_factor", c.get("partial_rotary_factor", share or 1.0))
    if not 0 < part <= 1 or (share is None and part != 1):
        only = "1" if share is None else "a number above 0 and up to 1"
        raise c.refusal(f"partial_rotary_factor {short(part)} is not supported, only {only}")
    return None if part == 1 else int(d_head * part)


def _number(c: Fields, given: Mapping[str, Any], key: str, default: Any) -> Any:
    """A number that arithmetic may be done with; None where the default is."""
    value = given.get(key)
    value = default if value is None else value
    if value is _missing:
        raise c.refusal(f"rope parameters lack {key!r}")
    if value is not None and not _is_number(value):
        raise c.refusal(f"{key} must be a number, but is {short(value)}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e30 <= value <= 1e30


def _yarn(c: Fields, given: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """(Peng et al. 2023, section 3.4, for the attention factor)"""

    def mscale(weight: float) -> float:
        return 0.1 * weight * log(factor) + 1.0 if factor > 1 else 1.0

    attention = _number(c, given, "attention_factor", None)
    one, all_dim = (_number(c, given, key, None) for key in ("mscale", "mscale_all_dim"))
    if attention is None:
        attention = mscale(one) / (mscale(all_dim) or 1.0) if one and all_dim else mscale(1.0)
    truncate = given.get("truncate")
    if not isinstance(truncate, bool | None):
        raise c.refusal(f"truncate must be true or false, but is {short(truncate)}")
    return {
        "attention_factor": attention,
        "beta_fast": _number(c, given, "beta_fast", None) or 32,
        "beta_slow": _number(c, given, "beta_slow", None) or 1,
        "truncate": truncate is not False,
    }


def _longrope(c: Fields, given: Mapping[str, Any], factor: float, original: int) -> dict[str, Any]:
    """(Ding et al. 2024, section 3.2, for the attention factor)"""
    attention = _number(c, given, "attention_factor", None)
    if attention is None:
        attention = sqrt(1 + log(factor) / log(original)) if factor > 1 else 1.0
    fields = {"attention_factor": attention, "factor": 1.0}
    for ours, theirs in (("short_factors", "short_factor"), ("long_factors", "long_factor")):
        factors = given.get(theirs)
        if not isinstance(factors, list) or not all(map(_is_number, factors)):
            raise c.refusal(f"longrope needs {theirs} as a list of numbers, but it is {short(factors)}")
        fields[ours] = tuple(map(float, factors))
    return fields
