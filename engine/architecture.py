"""Config -> Program: which steps an architecture consists of, and the weights that they need."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import sqrt

from engine.config import ModelConfig
from engine.ops.attention import Append, Attention, Looks, Mask, Scale, Scores, Sinks, SinkSoftmax, SoftCap, Softmax
from engine.ops.base import Op, Shape
from engine.ops.embedding import Embed, LearnedPositions, ScaleEmbedding, SinusoidalPositions, TokenType
from engine.ops.experts import ChooseExperts, ExpertProject, ExpertWeights, MixExperts
from engine.ops.mlp import Activate, ClampedGate, Gate
from engine.ops.norm import HeadNorm, LayerNorm, NormScale, RMSNorm
from engine.ops.pooling import Pool, UnitLength
from engine.ops.position_bias import AddBias, Alibi, RelativeBias
from engine.ops.projection import HeadResult, Project, ProjectFromHeads, ProjectToHeads, Role
from engine.ops.residual import Add, Carry, Clip, Multiply
from engine.ops.rotary import RotaryTable, Rotate
from engine.ops.unembed import Probabilities, Unembed
from engine.program import Program, Step
from engine.sites import ENCODER, SOURCE_AXES, Site, within_block

STREAM = ("batch", "pos", "d_model")
NARROW = ("batch", "pos", "d_embed")
HEADS = ("batch", "pos", "head", "d_head")
KV_HEADS = ("batch", "pos", "kv_head", "d_head")
CACHE = ("batch", "kv_pos", "kv_head", "d_head")
CELLS = ("batch", "head", "query", "key")
INNER = ("batch", "pos", "d_mlp")
VOCABULARY = ("batch", "pos", "d_vocab")
SOURCE_KV = ("batch", "src", "kv_head", "d_head")
CROSS_CELLS = ("batch", "head", "query", "src_key")
HELD = {"past", "kv_pos", "key"}
"""Axes along which a layer with a sliding window holds only what later queries still see."""
IN_ENCODER = {
    "tokens": "source_tokens", "positions": "source_positions", "key_positions": "source_positions",
    "embed.weight": "embed.weight",
}  # fmt: skip
"""Names of a decoder as they are in the encoder beside it; all others get its prefix."""


def is_added(name: str) -> bool:
    """Whether a sub-layer's result has the name of what is added to the stream; ``….out`` goes through more first."""
    return name.endswith("_out")


class _Builder:
    """Collects steps and the weights they need."""

    def __init__(self, config: ModelConfig) -> None:
        self.c = config
        self.steps: list[Step] = []
        self.inputs: list[Site] = []
        self.params: dict[str, Shape] = {}
        self.encoding = False
        self.memory = ""
        self.window: int | None = None  # of the layer that is being built, where it decides which keys are held

    def here(self, name: str) -> str:
        """A name in the stack that is being built: an encoder's names have a prefix beside a decoder."""
        if not self.encoding or name.startswith(ENCODER) or name in IN_ENCODER.values():
            return name
        return IN_ENCODER.get(name, f"{ENCODER}{name}")

    def given(self, name: str, *axes: str, window: int | None = None) -> str:
        self.inputs.append(Site(name, axes, window))
        return name

    def step(
        self,
        name: str,
        axes: tuple[str, ...],
        op: Op,
        *reads: str,
        params: Mapping[str, Shape] | None = None,
        on_path: bool = True,
    ) -> str:
        params = {self.here(param): shape for param, shape in (params or {}).items()}
        self.params.update(params)
        name, reads = self.here(name), tuple(map(self.here, reads))
        if self.encoding:
            axes = tuple(SOURCE_AXES.get(axis, axis) for axis in axes)
        held = self.window if not HELD.isdisjoint(axes) else None
        self.steps.append(Step(Site(name, axes, held), op, reads, tuple(params), on_path))
        return name

    def look(
        self, name: str, axes: tuple[str, ...], op: Op, *reads: str, params: Mapping[str, Shape] | None = None
    ) -> str:
        """A step off the path."""
        return self.step(name, axes, op, *reads, params=params, on_path=False)

    def linear(self, name: str, d_out: int, d_in: int, *, bias: bool) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {f"{name}.weight": (d_out, d_in)}
        return shapes | {f"{name}.bias": (d_out,)} if bias else shapes

    # -- norms -------------------------------------------------------------------------------------------------

    def norm_op(self, *, biased: bool) -> LayerNorm | RMSNorm:
        c = self.c
        if c.norm == "layer":
            return LayerNorm(c.norm_eps, c.norm_weight, biased and c.norm_weight)
        return RMSNorm(c.norm_eps, c.norm_weight, c.norm_plus_one, c.norm_casts_last)

    def norm_weights(self, name: str, width: int, op: LayerNorm | RMSNorm) -> dict[str, Shape]:
        params: dict[str, Shape] = {f"{name}.weight": (width,)} if op.weighted else {}
        if isinstance(op, LayerNorm) and op.biased:
            params[f"{name}.bias"] = (width,)
        return params

    def norm(self, name: str, x: str) -> str:
        c, op = self.c, self.norm_op(biased=self.c.norm_bias)
        self.look(f"{name}.scale", ("batch", "pos", "scale"), NormScale(c.norm_eps, c.norm == "layer"), x)
        return self.step(f"{name}.normalized", STREAM, op, x, params=self.norm_weights(name, c.d_model, op))

    def head_norm(self, name: str, axes: tuple[str, ...], heads: int, x: str) -> str:
        """The norm of queries or keys."""
        c, op = self.c, self.norm_op(biased=self.c.qk_norm_bias)
        if c.qk_norm == "all":
            params = self.norm_weights(name, heads * c.d_head, op)
        elif c.qk_norm == "head":
            params = self.norm_weights(name, c.d_head, op)
        else:
            params = {k: v for h in range(heads) for k, v in self.norm_weights(f"{name}.{h}", c.d_head, op).items()}
        return self.step(name, axes, HeadNorm(op, c.qk_norm == "all"), x, params=params)

    # -- from tokens to the first block ------------------------------------------------------------------------

    def embedding(self) -> str:
        """Everything before the first block; the name of what enters it."""
        c = self.c
        vectors = {"embed.weight": (c.d_vocab, c.d_embed or c.d_model)}
        x = self.step("embed", NARROW if c.d_embed else STREAM, Embed(), "tokens", params=vectors)
        if c.embed_scale != 1:
            placed = c.positions in ("learned", "sinusoidal")
            scale = ScaleEmbedding(c.embed_scale, c.d_model, c.embed_scale_rounded, placed)
            x = self.step("embed_scaled", NARROW if c.d_embed else STREAM, scale, x)
        if c.d_embed:
            weights = self.linear("embed_in", c.d_model, c.d_embed, bias=False)
            x = self.step("embed_in", STREAM, Project("embed_in"), x, params=weights)
        terms = [x, *self.positions()]
        first = "blocks.0.resid_pre"
        if not c.embed_norm:
            return self.step(first, STREAM, Add("embedding") if len(terms) > 1 else Carry(), *terms)
        x = self.step("embed_sum", STREAM, Add("embedding"), *terms) if len(terms) > 1 else x
        return self.step(first, STREAM, Carry(), self.norm("embed_ln", x))

    def positions(self) -> list[str]:
        """What is added to the token embedding; the tables and the bias of the other ways to say where a token is."""
        c = self.c
        added = []
        if c.token_types:
            rows = {"token_type_embed.weight": (c.token_types, c.d_model)}
            added.append(self.step("token_type_embed", STREAM, TokenType(), "tokens", params=rows))
        for rotary, suffix in c.rotaries().items():
            for function in ("cos", "sin"):
                table = RotaryTable(function, rotary, rotary.dims or c.d_head)
                self.step(f"rotary_{function}{suffix}", ("batch", "pos", "d_rot"), table, "positions")
        if c.positions == "alibi":
            self.look("position_bias", CELLS, self.alibi(), "positions", "key_positions")
        if c.positions == "relative":
            rows = {"relative_bias.weight": (c.relative_buckets, c.n_heads)}
            bias = RelativeBias(c.relative_buckets, c.relative_distance, both_ways=not self.causal)
            self.step("position_bias", CELLS, bias, "positions", "key_positions", params=rows)
        if c.positions == "learned":
            rows = {"pos_embed.weight": (c.n_ctx + c.position_offset, c.d_model)}
            learned = LearnedPositions(c.position_offset)
            added.append(self.step("pos_embed", STREAM, learned, "positions", params=rows))
        if c.positions == "sinusoidal":
            added.append(self.step("pos_embed", STREAM, SinusoidalPositions(c.d_model, c.sinusoid_style), "positions"))
        return added

    @property
    def causal(self) -> bool:
        """Whether the stack that is being built looks back only."""
        return self.c.causal and not self.encoding

    def alibi(self) -> Alibi:
        return Alibi(self.c.alibi_slopes, self.c.alibi_scale, self.c.alibi_rounded)

    # -- attention ---------------------------------------------------------------------------------------------

    def cross_attention(self, layer: int, x: str, writes: str) -> str:
        """Attention to what the encoder made of the source: queries from here, keys and values from there."""
        c, at = self.c, f"blocks.{layer}.cross_attn"
        q = self.projected("cross_query", f"{at}.q", HEADS, c.n_heads, x)
        k = self.projected("cross_key", f"{at}.k", SOURCE_KV, c.kv_heads, self.memory)
        v = self.projected("cross_value", f"{at}.v", SOURCE_KV, c.kv_heads, self.memory)
        places, mask = ("positions", "source_positions"), Mask(causal=False, cross=True)
        z = self.mixture(at, CROSS_CELLS, Scale(c.d_head, c.attn_scale), mask, (q, k, v), places)
        return self.from_heads("cross_out", at, z, writes)

    def attention(self, layer: int, x: str, writes: str) -> str:
        c, at, kind = self.c, f"blocks.{layer}.attn", self.c.kind(layer)
        q = self.projected("query", f"{at}.q", HEADS, c.n_heads, x)
        k = self.projected("key", f"{at}.k", KV_HEADS, c.kv_heads, x)
        v = self.projected("value", f"{at}.v", KV_HEADS, c.kv_heads, x)
        if c.qk_norm != "none":
            q = self.head_norm(f"{at}.q_norm", HEADS, c.n_heads, q)
            k = self.head_norm(f"{at}.k_norm", KV_HEADS, c.kv_heads, k)
        if kind.rotary is not None:
            suffix = c.rotaries()[kind.rotary]
            tables = (f"rotary_cos{suffix}", f"rotary_sin{suffix}")
            q = self.step(f"{at}.rot_q", HEADS, Rotate(kind.rotary), q, *tables)
            k = self.step(f"{at}.rot_k", KV_HEADS, Rotate(kind.rotary), k, *tables)
        if self.causal:  # what looks both ways has no cache: new tokens would change what earlier ones saw
            self.window = kind.window
            axes = ("batch", "past", "kv_head", "d_head")
            past_k, past_v = (self.given(f"{at}.past_{x}", *axes, window=kind.window) for x in "kv")
            k = self.step(f"{at}.cache_k", CACHE, Append("keys"), past_k, k)
            v = self.step(f"{at}.cache_v", CACHE, Append("values"), past_v, v)
        factor = 1 / sqrt(c.d_head) if c.attn_scale is None else c.attn_scale
        scale = Scale(c.d_head, factor / (layer + 1) if c.attn_scale_by_layer else c.attn_scale)
        places = ("positions", "key_positions")
        z = self.mixture(at, CELLS, scale, Mask(self.causal, kind.window), (q, k, v), places, biased=True)
        self.window = None
        return self.from_heads("attn_out", at, z, writes)

    def from_heads(self, role: Role, at: str, z: str, writes: str) -> str:
        """What the heads found, mapped back to d_model; and, to look at, each head's share of it."""
        c, shares = self.c, HeadResult(within_block(writes))
        out = self.linear(f"{at}.out", c.d_model, c.n_heads * c.d_head, bias=c.attn_out_bias)
        weight = {name: shape for name, shape in out.items() if name.endswith("weight")}
        self.look(f"{at}.result", ("batch", "pos", "head", "d_model"), shares, z, params=weight)
        op = ProjectFromHeads(role, biased=c.attn_out_bias, added=is_added(writes))
        return self.step(writes, STREAM, op, z, params=out)

    def projected(self, role: Role, name: str, axes: tuple[str, ...], heads: int, x: str) -> str:
        """Queries, keys or values."""
        c = self.c
        weights = self.linear(name, heads * c.d_head, c.d_model, bias=c.attn_bias)
        y = self.step(name, axes, ProjectToHeads(role, c.d_head, biased=c.attn_bias), x, params=weights)
        return y if c.qkv_clip is None else self.step(f"{name}_clipped", axes, Clip(c.qkv_clip), y)

    def mixture(
        self,
        at: str,
        cells: tuple[str, ...],
        scale: Scale,
        mask: Mask,
        qkv: tuple[str, str, str],
        places: tuple[str, str],
        *,
        biased: bool = False,
    ) -> str:
        """Scores to pattern, off the path, and z, on it. ``biased``: where positions are a bias, it is added here."""
        c, (q, k, v) = self.c, qkv
        made = self.alibi() if biased and c.positions == "alibi" else None
        read = ("position_bias",) if biased and c.positions == "relative" else ()
        sinks: tuple[str, ...] = ()
        if c.attn_sinks:
            sinks = (self.step(f"{at}.sinks", ("head",), Sinks(), params={f"{at}.sinks": (c.n_heads,)}),)
        looks: Looks = "at the source" if mask.cross else "back" if mask.causal else "both ways"
        scores = self.look(f"{at}.scores", cells, Scores(looks), q, k)
        scores = self.look(f"{at}.scaled", cells, scale, scores)
        if c.attn_softcap is not None:
            scores = self.look(f"{at}.capped", cells, SoftCap(c.attn_softcap), scores)
        if made is not None or read:
            scores = self.look(f"{at}.biased", cells, AddBias(), scores, "position_bias")
        masked = self.look(f"{at}.masked", cells, mask, scores, *places)
        self.look(f"{at}.pattern", cells, SinkSoftmax() if sinks else Softmax(mask.cross), masked, *sinks)
        op = Attention(scale, mask, made, c.attn_softcap, c.attn_sinks, bool(read))
        return self.step(f"{at}.z", HEADS, op, q, k, v, *places, *sinks, *read)

    # -- FFN ---------------------------------------------------------------------------------------------------

    def mlp(self, layer: int, x: str, writes: str) -> str:
        c, at = self.c, f"blocks.{layer}.mlp"
        if c.is_sparse(layer):
            return self.mixed_experts(at, x, writes)
        up = self.linear(f"{at}.up", c.d_mlp, c.d_model, bias=c.mlp_bias)
        if c.gated:
            gate = self.linear(f"{at}.gate", c.d_mlp, c.d_model, bias=c.mlp_bias)
            pre = self.step(f"{at}.pre", INNER, Project("gate", biased=c.mlp_bias), x, params=gate)
            pre_linear = self.step(f"{at}.pre_linear", INNER, Project("linear_up", biased=c.mlp_bias), x, params=up)
            post = self.step(f"{at}.post", INNER, Gate(c.activation), pre, pre_linear)
        else:
            pre = self.step(f"{at}.pre", INNER, Project("up", biased=c.mlp_bias), x, params=up)
            post = self.step(f"{at}.post", INNER, Activate(c.activation), pre)
        down = self.linear(f"{at}.down", c.d_model, c.d_mlp, bias=c.mlp_bias)
        op = Project("down", biased=c.mlp_bias, added=is_added(writes))
        return self.step(writes, STREAM, op, post, params=down)

    def mixed_experts(self, at: str, x: str, writes: str) -> str:
        """A router and its experts in place of the FFN; every expert is gated."""
        c, e = self.c, self.c.experts
        assert e is not None
        router = self.linear(f"{at}.router", e.n, c.d_model, bias=e.router_bias)
        scores = self.step(
            f"{at}.router", ("batch", "pos", "expert"), Project("router", biased=e.router_bias), x, params=router
        )
        choices = ("batch", "pos", "choice")
        chosen = self.step(f"{at}.expert_indices", choices, ChooseExperts(e.per_token), scores)
        shares = self.step(f"{at}.expert_weights", choices, ExpertWeights(e.routing, e.normalised), scores, chosen)

        def each(name: str, role: Role, width: str, part: str, d_out: int, d_in: int, x: str) -> str:
            all_of = [self.linear(f"{at}.experts.{i}.{part}", d_out, d_in, bias=e.biased) for i in range(e.n)]
            named = [(key, shape) for one in all_of for key, shape in one.items()]
            params = dict(sorted(named, key=lambda pair: pair[0].endswith(".bias")))  # matrices, then biases
            op = ExpertProject(role, e.n, e.biased)
            return self.step(name, (*choices, width), op, x, chosen, params=params)

        pre = each(f"{at}.pre", "gate", "d_expert", "gate", e.d_expert, c.d_model, x)
        pre_linear = each(f"{at}.pre_linear", "linear_up", "d_expert", "up", e.d_expert, c.d_model, x)
        gate = Gate(c.activation) if e.clamp is None else ClampedGate(e.clamp)
        post = self.step(f"{at}.post", (*choices, "d_expert"), gate, pre, pre_linear)
        out = each(f"{at}.expert_out", "expert_out", "d_model", "down", c.d_model, e.d_expert, post)
        return self.step(writes, STREAM, MixExperts(is_added(writes)), out, shares)

    # -- blocks ------------------------------------------------------------------------------------------------

    def added(self, layer: int, sub: str, ln: str, x: str) -> str:
        """A sub-layer, and what is done to its result before it is added to the stream under the name ``…_out``."""
        c, block = self.c, f"blocks.{layer}"
        normed, scaled = c.norm_place in ("sandwich", "output"), c.residual_scale != 1
        final = f"{block}.{sub}_out"
        build = {"attn": self.attention, "cross_attn": self.cross_attention, "mlp": self.mlp}[sub]
        y = build(layer, x, f"{block}.{sub}.out" if normed or scaled else final)
        if normed:
            y = self.norm(f"{block}.{ln}_post", y)
        if scaled:
            return self.step(final, STREAM, Multiply(c.residual_scale, "Scaled before it is added"), y)
        return self.step(final, STREAM, Carry("stream"), y) if normed else y

    def before(self, layer: int, ln: str, x: str) -> str:
        """What a sub-layer reads: the stream, through a norm where one stands before it."""
        missing = ln == "ln1" and layer == 0 and not self.c.first_norm
        return x if missing or self.c.norm_place in ("post", "output") else self.norm(f"blocks.{layer}.{ln}", x)

    def stack(self, n_layers: int) -> list[str]:
        """All blocks; the names of what enters each, and of what leaves the last."""
        x, edges = self.embedding(), []
        for layer in range(n_layers):
            x = self.step(f"blocks.{layer}.resid_pre", STREAM, Carry(), x) if layer else x
            edges.append(x)
            x = self.block(layer, x)
        return [*edges, x]

    def block(self, layer: int, x: str) -> str:
        c, block = self.c, f"blocks.{layer}"
        if c.parallel != "no":
            read = self.before(layer, "ln1", x)
            attn_out = self.added(layer, "attn", "ln1", read)
            read = read if c.parallel == "one norm" else self.before(layer, "ln2", x)
            mlp_out = self.added(layer, "mlp", "ln2", read)
            return self.step(f"{block}.resid_post", STREAM, Add("both"), x, attn_out, mlp_out)
        attn_out = self.added(layer, "attn", "ln1", self.before(layer, "ln1", x))
        x = self.step(f"{block}.resid_mid", STREAM, Add(), x, attn_out)
        x = self.norm(f"{block}.ln1", x) if c.norm_place == "post" else x
        if c.encoder_layers and not self.encoding:
            cross = self.added(layer, "cross_attn", "ln_cross", self.before(layer, "ln_cross", x))
            x = self.step(f"{block}.resid_mid_cross", STREAM, Add(), x, cross)
            x = self.norm(f"{block}.ln_cross", x) if c.norm_place == "post" else x
        mlp_out = self.added(layer, "mlp", "ln2", self.before(layer, "ln2", x))
        x = self.step(f"{block}.resid_post", STREAM, Add(), x, mlp_out)
        return self.norm(f"{block}.ln2", x) if c.norm_place == "post" else x

    # -- from the last block on --------------------------------------------------------------------------------

    def outcome(self, x: str) -> None:
        """Logits, or one vector for the text, or nothing beyond the stream."""
        c = self.c
        if c.final_norm:
            x = self.norm("ln_final", x)
        if c.pooling != "none":
            self.pooled(x)
        if c.head == "none":
            return
        if c.head == "transform":
            dense = self.linear("head", c.d_model, c.d_model, bias=c.head_bias)
            x = self.step("head.pre", STREAM, Project("head", biased=c.head_bias), x, params=dense)
            x = self.step("head.post", STREAM, Activate(c.head_activation or c.activation, "Head"), x)
            x = self.norm("head_ln", x)
        if c.d_embed:
            narrow = self.linear("embed_out", c.d_embed, c.d_model, bias=False)
            x = self.step("embed_out", NARROW, Project("embed_out"), x, params=narrow)
        self.logits(x)

    def logits(self, x: str) -> None:
        c = self.c
        matrix = "embed.weight" if c.tied else "unembed.weight"
        params: dict[str, Shape] = {matrix: (c.d_vocab, c.d_embed or c.d_model)}
        if c.unembed_bias:
            params["unembed.bias"] = (c.d_vocab,)
        chain: list[tuple[str, Op]] = [("logits_raw", Unembed(c.tied, c.predicts == "masked token"))]
        if c.logit_scale != 1:
            width = (c.d_embed or c.d_model) if c.tied else None
            chain.append(("logits_scaled", Multiply(c.logit_scale, "Scaled logits", width)))
        if c.logit_softcap is not None:
            chain.append(("logits_capped", SoftCap(c.logit_softcap, "logits")))
        chain[-1] = ("logits", chain[-1][1])
        for i, (name, op) in enumerate(chain):
            x = self.step(name, VOCABULARY, op, x, params=params if i == 0 else None)
        self.look("probs", VOCABULARY, Probabilities(c.predicts == "masked token"), x)

    def pooled(self, x: str) -> None:
        """One vector for the text."""
        c = self.c
        x = self.step("pooled", ("batch", "d_model"), Pool(c.pooling), x, "positions")
        for i, (d_in, d_out) in enumerate(c.pool_layers):
            weights = self.linear(f"pool.{i}", d_out, d_in, bias=False)
            x = self.step(f"pooled_dense.{i}", ("batch", f"d_pool{i}"), Project("pool"), x, params=weights)
        if c.pool_normalise:
            width = f"d_pool{len(c.pool_layers) - 1}" if c.pool_layers else "d_model"
            self.step("sentence", ("batch", width), UnitLength(), x)


@lru_cache(maxsize=16)
def build_program(config: ModelConfig) -> Program:
    """The forward pass of an architecture, from token ids to logits, or to an encoder's last stream.

    Inputs are ``tokens`` and ``positions`` (batch, pos), ``key_positions`` (batch, kv_pos), and per layer of a causal
    model the keys and values of earlier passes, ``past_k`` and ``past_v`` (batch, past, kv_head, d_head). An
    encoder-decoder is given ``source_tokens`` and ``source_positions`` (batch, src) as well.
    """
    b = _Builder(config)
    b.given("tokens", "batch", "pos")
    b.given("positions", "batch", "pos")
    b.given("key_positions", "batch", "kv_pos")
    edges: list[str] = []
    if config.encoder_layers:
        b.given("source_tokens", "batch", "src")
        b.given("source_positions", "batch", "src")
        b.encoding = True
        edges += b.stack(config.encoder_layers)
        b.memory = b.norm("ln_final", edges[-1]) if config.final_norm else edges[-1]
        b.encoding = False
        edges.append(b.memory)
    edges += b.stack(config.n_layers)
    b.outcome(edges[-1])
    ends = [step.site.name for step in b.steps if step.site.name == "logits"]
    return Program(tuple(b.inputs), tuple(b.steps), b.params, (*dict.fromkeys(edges), *ends))
