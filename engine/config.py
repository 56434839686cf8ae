"""The architecture as data. A config says everything that changes the arithmetic, and nothing else does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from engine.errors import ConfigError

Positions = Literal["none", "learned", "sinusoidal", "rotary"]
RotaryStyle = Literal["half", "interleaved"]
NormKind = Literal["layer", "rms"]
NormPlace = Literal["pre", "post"]
Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
EmbedScale = Literal["none", "sqrt_d_model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One decoder or encoder stack, in the field's terms.

    Sizes: ``d_model`` the residual stream, ``n_heads`` query heads and ``n_kv_heads`` key-value heads (equal:
    MHA; one: MQA; between: GQA) of ``d_head`` each, ``d_mlp`` the FFN's inner width, ``d_vocab`` the ids,
    ``n_ctx`` the positions it was trained for. ``norm_place="post"`` is the 2017 paper's
    LN(x + sublayer(x)), "pre" is x + sublayer(LN(x)). ``final_norm`` is a norm before the unembedding.
    """

    name: str
    d_vocab: int
    d_model: int
    n_layers: int
    n_heads: int
    d_head: int
    d_mlp: int
    n_ctx: int
    n_kv_heads: int | None = None
    positions: Positions = "none"
    rotary_theta: float = 10_000.0
    rotary_style: RotaryStyle = "half"
    norm: NormKind = "layer"
    norm_eps: float = 1e-5
    norm_place: NormPlace = "pre"
    norm_bias: bool = True
    final_norm: bool | None = None
    causal: bool = True
    attn_bias: bool = False
    attn_out_bias: bool = False
    activation: Activation = "gelu"
    gated: bool = False
    mlp_bias: bool = False
    embed_scale: EmbedScale = "none"
    tied: bool = True
    unembed_bias: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            _check(self.name, f.name, getattr(self, f.name), str(f.type))
        fill = object.__setattr__
        if self.n_kv_heads is None:
            fill(self, "n_kv_heads", self.n_heads)
        if self.final_norm is None:
            fill(self, "final_norm", self.norm_place == "pre")
        for key in ("d_vocab", "d_model", "n_heads", "n_kv_heads", "d_head", "d_mlp", "n_ctx"):
            if not 1 <= getattr(self, key) <= 2**31:
                size = str(getattr(self, key))[:40]
                raise ConfigError(f"{self.name}: {key} is {size}; it must be between 1 and 2^31")
        if not 1 <= self.n_layers <= 4096:
            raise ConfigError(f"{self.name}: n_layers is {str(self.n_layers)[:40]}; it must be between 1 and 4096")
        if self.n_heads % self.kv_heads:
            raise ConfigError(f"{self.name}: n_heads {self.n_heads} is no multiple of n_kv_heads {self.kv_heads}")
        if self.positions == "rotary" and self.d_head % 2:
            raise ConfigError(f"{self.name}: rotary positions turn pairs of dimensions, but d_head is {self.d_head}")
        for key, least in (("norm_eps", 0.0), ("rotary_theta", 1e-30)):
            if not least <= (value := getattr(self, key)) <= 1e30:  # what float32 can work with
                raise ConfigError(f"{self.name}: {key} is {str(value)[:40]}; it must be between {least:g} and 1e30")
            fill(self, key, float(value))

    @property
    def kv_heads(self) -> int:
        """``n_kv_heads`` where it is known to be a number."""
        assert self.n_kv_heads is not None
        return self.n_kv_heads

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.n_heads // self.kv_heads

    @property
    def summary(self) -> str:
        """The architecture in one line."""
        heads = f"{self.n_heads} heads" + (f", {self.kv_heads} kv" if self.group > 1 else "")
        return f"{self.n_layers} layers · {heads} · d {self.d_model} · vocabulary {self.d_vocab}"

    def axis_sizes(self, batch: int, pos: int, past: int = 0) -> dict[str, int]:
        """The size of every axis, for a pass of ``pos`` new tokens after ``past`` earlier ones."""
        return {
            "batch": batch,
            "pos": pos,
            "query": pos,
            "past": past,
            "kv_pos": past + pos,
            "key": past + pos,
            "head": self.n_heads,
            "kv_head": self.kv_heads,
            "d_model": self.d_model,
            "d_head": self.d_head,
            "d_mlp": self.d_mlp,
            "d_vocab": self.d_vocab,
            "d_rot": self.d_head,
            "scale": 1,
        }

    def to_json(self) -> dict[str, Any]:
        """All fields, JSON-ready."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelConfig:
        """A config from plain data. An unknown key, a missing one or a value of the wrong kind is refused by name."""
        fields = {f.name: f for f in dataclasses.fields(cls)}
        name = data.get("name", "config") if isinstance(data.get("name", ""), str) else "config"
        if unknown := sorted(set(data) - set(fields)):
            raise ConfigError(f"{name}: unknown field {unknown[0][:80]!r}; layerstep refuses what it does not know")
        missing = [key for key, f in fields.items() if f.default is dataclasses.MISSING and key not in data]
        if missing:
            raise ConfigError(f"{name}: field {missing[0]!r} is missing")
        return cls(**data)


def _check(name: str, key: str, value: object, kind: str) -> None:
    """Refuse a value that is not of its field's declared kind."""
    choices = {
        "Positions": Positions,
        "RotaryStyle": RotaryStyle,
        "NormKind": NormKind,
        "NormPlace": NormPlace,
        "Activation": Activation,
        "EmbedScale": EmbedScale,
    }
    optional = kind.endswith(" | None")
    kind = kind.removesuffix(" | None")
    if optional and value is None:
        return
    if kind in choices:
        if value not in (known := get_args(choices[kind])):
            raise ConfigError(f"{name}: {key} must be one of {', '.join(known)}, but is {value!r}"[:300])
        return
    types: dict[str, tuple[type, ...]] = {
        "int": (int,),
        "float": (int, float),
        "bool": (bool,),
        "str": (str,),
    }
    if not isinstance(value, types[kind]) or (kind != "bool" and isinstance(value, bool)):
        raise ConfigError(f"{name}: {key} must be {kind}, but is {value!r}"[:300])
