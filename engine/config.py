"""The architecture as data. A config says everything that changes the arithmetic, and nothing else does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.errors import ConfigError
from engine.plaindata import check_types, from_plain

Positions = Literal["none", "learned", "sinusoidal", "rotary", "alibi", "relative"]
SinusoidStyle = Literal["interleaved", "halves"]
RotaryStyle = Literal["half", "interleaved"]
RotaryScaling = Literal["none", "linear", "dynamic", "yarn", "llama3", "longrope"]
NormKind = Literal["layer", "rms"]
NormPlace = Literal["pre", "post", "sandwich", "output"]
QKNorm = Literal["none", "head", "heads", "all"]
Parallel = Literal["no", "one norm", "two norms"]
Activation = Literal["relu", "gelu", "gelu_tanh", "gelu_quick", "silu"]
Routing = Literal["softmax", "softmax of the chosen"]
Head = Literal["unembed", "transform", "none"]
Pooling = Literal["none", "cls", "mean", "max", "last"]

MOST_LAYERS, MOST_KINDS, MOST_EXPERTS, MOST_POOL_LAYERS = 1024, 16, 2**15, 8
"""More than any model has; a config is read before anything is allocated, and must not itself take long or much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """How queries and keys are turned by their positions. (Su et al. 2021)

    The first ``dims`` of a head turn, in pairs (None: all of them); pair i by pos · θ^(−2i/dims), which ``scaling``
    changes for contexts longer than the ``original_n_ctx`` that the model was first trained on:
    ``linear`` divides every angle by ``factor``; ``dynamic`` (NTK) raises θ with the length; ``yarn`` divides the slow
    pairs, with a ramp between ``beta_fast`` and ``beta_slow`` turns; ``llama3`` the same between ``low_freq_factor``
    and ``high_freq_factor``; ``longrope`` divides each pair by its own ``short_factors`` or, beyond
    ``original_n_ctx``, ``long_factors``. Cosine and sine are multiplied by ``attention_factor``.
    """

    theta: float = 10_000.0
    style: RotaryStyle = "half"
    dims: int | None = None
    scaling: RotaryScaling = "none"
    factor: float = 1.0
    original_n_ctx: int | None = None
    attention_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """What may differ from layer to layer: a query sees keys less than ``window`` away, itself included."""

    name: str
    window: int | None = None
    rotary: Rotary | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts in place of the FFN. (Shazeer et al. 2017; Jiang et al. 2024, Mixtral, section 2.1)

    A router scores ``n`` experts of inner width ``d_expert`` for each token; the best ``per_token`` run and are mixed
    with weights that are softmax over all experts (``normalised`` to sum to 1 among the chosen), or softmax over the
    chosen alone. ``dense_layers`` have an ordinary FFN. With ``router_bias`` and ``biased`` the router and the experts
    have biases. ``clamp`` c is gpt-oss's gate: min(g, c) · σ(1.702 min(g, c)) · (1 + clip(u, −c, c)).
    """

    n: int
    per_token: int
    d_expert: int
    routing: Routing = "softmax"
    normalised: bool = True
    router_bias: bool = False
    biased: bool = False
    clamp: float | None = None
    dense_layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder, an encoder, or both, in the field's terms.

    Sizes: ``d_model`` the residual stream, ``n_heads`` query heads and ``n_kv_heads`` key-value heads (equal:
    MHA; one: MQA; between: GQA) of ``d_head`` each, ``d_mlp`` the FFN's inner width, ``d_vocab`` the ids,
    ``n_ctx`` the positions it was trained for, ``d_embed`` the token embedding where it is narrower than d_model.

    Positions: learned vectors for ``n_ctx`` positions counted from ``position_offset``; sinusoidal; ``rotary``; ALiBi
    with one slope a head, its bias times ``alibi_scale`` (``alibi_rounded``: in bfloat16 before that). ``rotary`` and
    ``window`` are those of every layer, unless ``layer_kinds`` names one of ``kinds`` for each. Relative positions are
    T5's: a learned bias for each head and each of ``relative_buckets`` distances up to ``relative_distance``.
    ``token_types`` and ``embed_norm`` are BERT's additions to the embedding.

    With ``encoder_layers`` the model is an encoder-decoder: the prompt goes through an encoder of as many layers, alike
    but for looking both ways, and each block of the decoder attends to its last stream as well. The decoder begins with
    ``decoder_start_token_id``.

    Norms: ``norm_place`` "pre" is x + f(LN(x)), "post" the 2017 paper's LN(x + f(x)), "sandwich" Gemma 2's
    x + LN(f(LN(x))), "output" OLMo 2's x + LN(f(x)). ``norm_plus_one``: the weight is 1 + w. ``norm_casts_last``: a
    16-bit RMSNorm is rounded after its weight, not before. ``first_norm``: whether the first block has an ln1.
    ``parallel``: attention and FFN read the same stream, through one norm or one each. ``qk_norm`` normalises queries
    and keys: each head with one weight (head), with weights of its own (heads), or all heads together (all).
    ``final_norm`` is a norm before the unembedding.

    Attention: scores are multiplied by ``attn_scale`` (None: 1/√d_head; ``attn_scale_by_layer``: and by 1/(layer + 1)),
    capped by ``attn_softcap``, and with ``attn_sinks`` each head may attend to nothing. ``qkv_clip`` bounds q, k and v.

    ``residual_scale`` multiplies what a sub-layer adds; ``logit_scale`` and ``logit_softcap`` the logits.
    ``head`` "transform" is BERT's: a linear map (``head_bias``), ``head_activation`` (None: the FFN's) and a norm
    before the unembedding; "none" leaves the stream as it is. ``pooling`` makes one vector of an encoder's positions,
    and ``pool_normalise`` brings it to length 1; ``pool_layers`` are (in, out) of linear maps between the two.
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
    d_embed: int | None = None
    encoder_layers: int | None = None
    positions: Positions = "none"
    position_offset: int = 0
    rotary: Rotary | None = None
    alibi_slopes: tuple[float, ...] = ()
    alibi_scale: float = 1.0
    alibi_rounded: bool = False
    relative_buckets: int = 0
    relative_distance: int = 0
    sinusoid_style: SinusoidStyle = "interleaved"
    window: int | None = None
    kinds: tuple[LayerKind, ...] = ()
    layer_kinds: tuple[str, ...] = ()
    token_types: int = 0
    embed_norm: bool = False
    embed_scale: float = 1.0
    embed_scale_rounded: bool = True
    norm: NormKind = "layer"
    norm_eps: float = 1e-5
    norm_place: NormPlace = "pre"
    norm_weight: bool = True
    norm_bias: bool = True
    norm_plus_one: bool = False
    norm_casts_last: bool = False
    first_norm: bool = True
    final_norm: bool | None = None
    parallel: Parallel = "no"
    causal: bool = True
    attn_bias: bool = False
    attn_out_bias: bool = False
    qk_norm: QKNorm = "none"
    qk_norm_bias: bool = False
    qkv_clip: float | None = None
    attn_scale: float | None = None
    attn_scale_by_layer: bool = False
    attn_softcap: float | None = None
    attn_sinks: bool = False
    activation: Activation = "gelu"
    gated: bool = False
    mlp_bias: bool = False
    experts: Experts | None = None
    residual_scale: float = 1.0
    head: Head = "unembed"
    head_activation: Activation | None = None
    head_bias: bool = True
    tied: bool = True
    unembed_bias: bool = False
    logit_scale: float = 1.0
    logit_softcap: float | None = None
    pooling: Pooling = "none"
    pool_layers: tuple[tuple[int, ...], ...] = ()
    pool_normalise: bool = False
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None
    decoder_start_token_id: int | None = None

    def __post_init__(self) -> None:
        check_types(self, self.name if isinstance(self.name, str) else "config")
        fill = object.__setattr__
        if self.n_kv_heads is None:
            fill(self, "n_kv_heads", self.n_heads)
        if self.final_norm is None:
            fill(self, "final_norm", self.norm_place != "post")
        if self.positions == "rotary" and self.rotary is None and not self.kinds:
            fill(self, "rotary", Rotary())
        for key in ("d_vocab", "d_model", "n_heads", "n_kv_heads", "d_head", "d_mlp", "n_ctx"):
            self._within(key, getattr(self, key), 1, 2**31)
        self._within("n_layers", self.n_layers, 1, MOST_LAYERS)
        self._within("n_heads", self.n_heads, 1, 2**16)
        self._check_numbers()
        self._check_positions()
        if self.encoder_layers is not None:
            self._check_encoder(self.encoder_layers)
        self._check_combinations()
        if self.n_heads % self.kv_heads:
            raise self._refusal(f"n_heads {self.n_heads} is no multiple of n_kv_heads {self.kv_heads}")
        if self.experts is not None:
            self._check_experts(self.experts)
        self._check_pooling()

    def _check_encoder(self, layers: int) -> None:
        """What an encoder-decoder may be: T5's and Marian's traits, and no others, since no other is known to exist."""
        self._within("encoder_layers", layers, 1, MOST_LAYERS)
        start = -1 if self.decoder_start_token_id is None else self.decoder_start_token_id
        self._within("decoder_start_token_id", start, 0, self.d_vocab - 1)
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        for key in ("parallel", "causal", "head", "kinds", "window", "qk_norm", "qkv_clip", "attn_softcap",
                    "attn_sinks", "attn_scale_by_layer", "experts", "pooling"):  # fmt: skip
            if (value := getattr(self, key)) != usual[key]:
                raise self._refusal(f"{key} {value!r} is not supported in an encoder-decoder")
        if self.positions in ("rotary", "alibi"):
            raise self._refusal(f"{self.positions} positions are not supported in an encoder-decoder")

    def _check_combinations(self) -> None:
        """Refuse what another trait would leave without effect."""
        if self.parallel != "no" and self.norm_place in ("post", "output"):
            raise self._refusal(f"a parallel block has its norms before it, but norm_place is {self.norm_place}")
        if not self.first_norm and self.norm_place in ("post", "output"):
            raise self._refusal(f"first_norm is about a norm before a block, but norm_place is {self.norm_place}")
        for key, needs, kind in (
            ("position_offset", "positions", "learned"),
            ("relative_buckets", "positions", "relative"),
            ("relative_distance", "positions", "relative"),
        ):
            if getattr(self, key) and getattr(self, needs) != kind:
                raise self._refusal(f"{key} is for {kind} {needs}, but they are {getattr(self, needs)}")

    def _check_pooling(self) -> None:
        if self.pooling != "none" and self.head != "none":
            raise self._refusal(f"pooling {self.pooling} makes one vector and needs head none, not {self.head}")
        if (self.pool_layers or self.pool_normalise) and self.pooling == "none":
            raise self._refusal("pool_layers and pool_normalise need pooling")
        width = self.d_model
        if len(self.pool_layers) > MOST_POOL_LAYERS:
            raise self._refusal(f"pool_layers are {len(self.pool_layers)}; at most {MOST_POOL_LAYERS} are supported")
        for ends in self.pool_layers:
            if len(ends) != 2 or ends[0] != width:
                raise self._refusal(f"pool_layers must be pairs of sizes, in and out, the next in being {width}")
            width = ends[1]
            self._within("pool_layers", width, 1, 2**31)

    def _check_numbers(self) -> None:
        tiny, huge = 1e-30, 1e30  # what float32 can work with
        self._within("norm_eps", self.norm_eps, 0.0, huge)
        for key in ("attn_scale", "attn_softcap", "logit_softcap", "qkv_clip"):
            if (value := getattr(self, key)) is not None:
                self._within(key, value, tiny, huge)
                object.__setattr__(self, key, float(value))
        for key in ("embed_scale", "residual_scale", "logit_scale", "alibi_scale"):
            self._within(key, abs(getattr(self, key)), tiny, huge)
        for key in ("norm_eps", "embed_scale", "residual_scale", "logit_scale", "alibi_scale"):
            object.__setattr__(self, key, float(getattr(self, key)))
        self._within("position_offset", self.position_offset, 0, 2**20)
        self._within("token_types", self.token_types, 0, 2**20)
        if self.d_embed is not None:
            self._within("d_embed", self.d_embed, 1, 2**31)

    def _check_positions(self) -> None:
        names = [kind.name for kind in self.kinds]
        if len(names) > MOST_KINDS:
            raise self._refusal(f"kinds are {len(names)}; at most {MOST_KINDS} are supported")
        if len(set(names)) != len(names) or not all(name.isascii() and name.isidentifier() for name in names):
            raise self._refusal("kinds must have names of their own, each a plain word")
        if bool(self.kinds) != bool(self.layer_kinds) or len(self.layer_kinds) not in (0, self.n_layers):
            raise self._refusal(f"layer_kinds must name a kind for each of the {self.n_layers} layers, and kinds them")
        if unknown := [name for name in self.layer_kinds if name not in names]:
            raise self._refusal(f"layer_kinds names {unknown[0][:40]!r}, which is none of kinds")
        if self.kinds and (self.rotary is not None or self.window is not None):
            raise self._refusal("rotary and window belong to kinds where there are kinds")
        for kind in self._all_kinds():
            if kind.window is not None:
                self._within("window", kind.window, 1, 2**31)
        turning = [kind.rotary for kind in self._all_kinds() if kind.rotary is not None]
        if bool(turning) != (self.positions == "rotary"):
            raise self._refusal(f"positions are {self.positions}, but rotary is {'given' if turning else 'missing'}")
        for rotary in turning:
            self._check_rotary(rotary)
        if len({rotary.dims or self.d_head for rotary in turning}) > 1:
            raise self._refusal("all layers must turn the same number of dimensions")
        if self.positions == "relative":
            self._within("relative_buckets", self.relative_buckets, 4, 2**16)
            self._within("relative_distance", self.relative_distance, self.relative_buckets, 2**31)
        if len(self.alibi_slopes) != (self.n_heads if self.positions == "alibi" else 0):
            raise self._refusal(f"alibi_slopes must be one for each of {self.n_heads} heads with alibi, none without")
        for slope in self.alibi_slopes:
            self._within("alibi_slopes", slope, 1e-30, 1e30)
        if self.qk_norm == "heads":  # a weight of its own for each head of each layer
            self._within("n_heads of all layers", self.n_heads * self.n_layers, 1, 2**16)

    def _check_rotary(self, rotary: Rotary) -> None:
        dims = self.d_head if rotary.dims is None else rotary.dims
        if dims % 2 or not 2 <= dims <= self.d_head:
            named = f"d_head is {self.d_head}" + ("" if rotary.dims is None else f" and rotary dims {rotary.dims}")
            raise self._refusal(f"rotary positions turn pairs of dimensions, but {named}")
        for key in ("theta", "factor", "attention_factor", "beta_fast", "beta_slow", "low_freq_factor"):
            self._within(f"rotary_{key}", getattr(rotary, key), 1e-30, 1e30)
        if rotary.scaling in ("dynamic", "yarn", "llama3", "longrope"):
            self._within("rotary original_n_ctx", rotary.original_n_ctx or 0, 1, 2**31)
        if rotary.scaling == "llama3" and not rotary.low_freq_factor < rotary.high_freq_factor <= 1e30:
            raise self._refusal("rotary high_freq_factor must be above low_freq_factor")
        if rotary.scaling == "yarn" and rotary.theta <= 1:
            raise self._refusal("rotary theta must be above 1 with yarn scaling")
        if rotary.scaling == "dynamic" and dims < 4:
            raise self._refusal("dynamic rotary scaling needs at least 4 dimensions that turn")
        for key in ("short_factors", "long_factors"):
            factors = getattr(rotary, key)
            if len(factors) != (dims // 2 if rotary.scaling == "longrope" else 0):
                raise self._refusal(f"rotary {key} must be {dims // 2} numbers with longrope and none without")
            for factor in factors:
                self._within(f"rotary {key}", factor, 1e-30, 1e30)

    def _check_experts(self, experts: Experts) -> None:
        self._within("experts n", experts.n, 1, MOST_EXPERTS)
        self._within("experts of all layers", experts.n * self.n_layers, 1, MOST_EXPERTS)
        self._within("experts dense_layers' number", len(experts.dense_layers), 0, self.n_layers)
        self._within("experts per_token", experts.per_token, 1, experts.n)
        self._within("experts d_expert", experts.d_expert, 1, 2**31)
        if experts.clamp is not None:
            self._within("experts clamp", experts.clamp, 1e-30, 1e30)
        for layer in experts.dense_layers:
            self._within("experts dense_layers", layer, 0, self.n_layers - 1)

    def _within(self, key: str, value: float, least: float, most: float) -> None:
        if not least <= value <= most:
            told = [f"{end:g}" if isinstance(end, float) else str(end) for end in (least, most)]
            ends = " and ".join(told).replace(str(2**31), "2^31")
            raise self._refusal(f"{key} is {str(value)[:40]}; it must be between {ends}")

    def _refusal(self, why: str) -> ConfigError:
        return ConfigError(f"{self.name}: {why}"[:300])

    def _all_kinds(self) -> tuple[LayerKind, ...]:
        return self.kinds or (LayerKind(name="all", window=self.window, rotary=self.rotary),)

    def kind(self, layer: int) -> LayerKind:
        """The kind of a layer."""
        kinds = self._all_kinds()
        return next(kind for kind in kinds if kind.name == self.layer_kinds[layer]) if self.layer_kinds else kinds[0]

    def rotaries(self) -> dict[Rotary, str]:
        """The rotary embeddings in use, each with what its tables' names end in: nothing where there is only one."""
        kinds = [kind for kind in self._all_kinds() if not self.layer_kinds or kind.name in self.layer_kinds]
        used = {kind.rotary: kind.name for kind in kinds if kind.rotary is not None}
        return {rotary: f"_{name}" if len(used) > 1 else "" for rotary, name in used.items()}

    def is_sparse(self, layer: int) -> bool:
        """Whether a layer has experts in place of one FFN."""
        return self.experts is not None and layer not in self.experts.dense_layers

    @property
    def kv_heads(self) -> int:
        """``n_kv_heads`` where it is known to be a number."""
        assert self.n_kv_heads is not None
        return self.n_kv_heads

    @property
    def predicts(self) -> Literal["next token", "masked token"] | None:
        """What the logits at a position are about: the token after it, or, where it sees both ways, its own."""
        return None if self.head == "none" else "next token" if self.causal else "masked token"

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.n_heads // self.kv_heads

    @property
    def summary(self) -> str:
        """The architecture in one line."""
        heads = f"{self.n_heads} heads" + (f", {self.kv_heads} kv" if self.group > 1 else "")
        return f"{self.n_layers} layers · {heads} · d {self.d_model} · vocabulary {self.d_vocab}"

    def axis_sizes(self, batch: int, pos: int, past: int = 0, src: int = 0) -> dict[str, int]:
        """The size of every axis, for a pass of ``pos`` new tokens after ``past`` earlier ones.

        ``src`` is how many tokens the encoder of an encoder-decoder reads.
        """
        sizes = {
            "batch": batch,
            "pos": pos,
            "query": pos,
            "past": past,
            "kv_pos": past + pos,
            "key": past + pos,
            "src": src,
            "src_query": src,
            "src_key": src,
            "head": self.n_heads,
            "kv_head": self.kv_heads,
            "d_model": self.d_model,
            "d_embed": self.d_embed or self.d_model,
            "d_head": self.d_head,
            "d_mlp": self.d_mlp,
            "d_vocab": self.d_vocab,
            "d_rot": next((rotary.dims or self.d_head for rotary in self.rotaries()), self.d_head),
            "scale": 1,
        }
        if self.experts is not None:
            sizes |= {"expert": self.experts.n, "choice": self.experts.per_token, "d_expert": self.experts.d_expert}
        return sizes | {f"d_pool{i}": d_out for i, (_, d_out) in enumerate(self.pool_layers)}

    def to_json(self) -> dict[str, Any]:
        """All fields, JSON-ready."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelConfig:
        """A config from plain data. An unknown key, a missing one or a value of the wrong kind is refused by name."""
        name = data.get("name", "config") if isinstance(data.get("name", ""), str) else "config"
        return from_plain(cls, data, name)
