"""Config -> Program: the forward pass as an ordered tuple of named steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from math import prod, sqrt
from typing import NamedTuple

import torch

from engine.config import ModelConfig
from engine.errors import AddressError
from engine.ops.attention import Append, Attention, Mask, Scale, Scores, Softmax
from engine.ops.base import Op, Shape
from engine.ops.embedding import Embed, LearnedPositions, ScaleEmbedding, SinusoidalPositions
from engine.ops.mlp import Activate, Gate
from engine.ops.norm import LayerNorm, NormScale, RMSNorm
from engine.ops.projection import HeadResult, Project, ProjectFromHeads, ProjectToHeads, Role
from engine.ops.residual import Add, Carry
from engine.ops.rotary import RotaryTable, Rotate
from engine.ops.unembed import Probabilities, Unembed
from engine.sites import Site, matches, normalise

STREAM = ("batch", "pos", "d_model")
HEADS = ("batch", "pos", "head", "d_head")
KV_HEADS = ("batch", "pos", "kv_head", "d_head")
CELLS = ("batch", "head", "query", "key")


@dataclass(frozen=True, slots=True)
class Step:
    """One step: ``op`` reads sites, uses weights, and writes ``site``; off the path it runs only when asked for."""

    site: Site
    op: Op
    reads: tuple[str, ...]
    params: tuple[str, ...] = ()
    on_path: bool = True

    def dtype(self, model: torch.dtype) -> torch.dtype:
        """What it writes in a model of this dtype: off the path float32 at least."""
        if self.op.float32:
            return torch.float32
        return model if self.on_path else torch.promote_types(model, torch.float32)

    def itemsize(self, model: int) -> int:
        """The same in bytes a number."""
        return 4 if self.op.float32 else model if self.on_path else max(model, 4)


class Planned(NamedTuple):
    """A step in a schedule, and the sites that nothing needs after it."""

    step: Step
    drops: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The forward pass: ``inputs`` that are given, ``steps`` in order, ``params`` with their shapes.

    ``edges`` are the sites from which every other can be had by running one block again: the residual stream
    between the blocks, and the logits. A step reads only inputs and sites written before it, and no
    site is written twice.
    """

    inputs: tuple[Site, ...]
    steps: tuple[Step, ...]
    params: Mapping[str, Shape]
    edges: tuple[str, ...] = ()
    n_params: int = field(init=False)
    _by_site: dict[str, Step] = field(init=False, repr=False)
    _schedules: dict[object, tuple[Planned, ...]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        known = {site.name for site in self.inputs}
        by_site: dict[str, Step] = {}
        for step in self.steps:
            if step.site.name in known:
                raise ValueError(f"{step.site.name} is written twice")
            if unknown := [read for read in step.reads if read not in known]:
                raise ValueError(f"{step.site.name} reads {unknown[0]}, which nothing has written before")
            known.add(step.site.name)
            by_site[step.site.name] = step
        object.__setattr__(self, "_by_site", by_site)
        object.__setattr__(self, "n_params", sum(prod(shape) for shape in self.params.values()))

    @property
    def sites(self) -> tuple[Site, ...]:
        """All sites: the inputs, then what the steps write."""
        return (*self.inputs, *(step.site for step in self.steps))

    def site(self, name: str) -> Site:
        """The site of this name (``hook_`` is dropped). Raises AddressError, with what is near, where there is none."""
        name = normalise(name)
        if step := self._by_site.get(name):
            return step.site
        for site in self.inputs:
            if site.name == name:
                return site
        names = [site.name for site in self.sites]
        tail = name.rsplit(".", 1)[-1]
        near = get_close_matches(name, names, 3) or [site for site in names if site.endswith(tail)] or names
        raise AddressError(f"there is no site {name!r} in this program; there is, for example, {', '.join(near[:3])}")

    def step(self, name: str) -> Step | None:
        """The step that writes a site; None for an input."""
        return self._by_site.get(name)

    def path(self) -> tuple[str, ...]:
        """The sites on the path to the logits, in order."""
        return tuple(step.site.name for step in self.steps if step.on_path)

    def matching(self, patterns: Sequence[str]) -> tuple[str, ...]:
        """The sites, on the path or off it, that match one of the patterns, in order."""
        return tuple(step.site.name for step in self.steps if matches(step.site.name, patterns))

    def schedule(self, wanted: Collection[str], given: Collection[str]) -> tuple[Planned, ...]:
        """The steps that compute ``wanted`` from ``given``, in order, each with what can be let go after it."""
        key = (frozenset(wanted), frozenset(given))
        if key not in self._schedules:
            if len(self._schedules) > 256:
                self._schedules.clear()
            self._schedules[key] = self._schedule(*key)
        return self._schedules[key]

    def _schedule(self, wanted: frozenset[str], given: frozenset[str]) -> tuple[Planned, ...]:
        needed = set(wanted - given)
        steps: list[Step] = []
        for step in reversed(self.steps):
            if step.site.name in needed:
                steps.append(step)
                needed.update(read for read in step.reads if read not in given)
        planned: list[Planned] = []
        seen = set(wanted)  # going backwards: the first reader met is the last one to run
        for step in steps:
            drops = tuple(dict.fromkeys(name for name in (*step.reads, step.site.name) if name not in seen))
            seen.update(drops)
            planned.append(Planned(step, drops))
        return tuple(reversed(planned))

    def derivable(self, known: Collection[str]) -> set[str]:
        """The sites that follow from the ``known`` ones without any weight."""
        derivable = set(known)
        for step in self.steps:
            if not step.params and derivable.issuperset(step.reads):
                derivable.add(step.site.name)
        return derivable

    def shape(self, site: Site, sizes: Mapping[str, int]) -> Shape:
        """The shape of a site for given axis sizes (``ModelConfig.axis_sizes``)."""
        return tuple(sizes[axis] for axis in site.axes)

    def flops(self, sizes: Mapping[str, int]) -> int:
        """Floating-point operations of the steps on the path."""
        shapes = {site.name: self.shape(site, sizes) for site in self.sites}
        return sum(
            s.op.flops([shapes[r] for r in s.reads], [self.params[p] for p in s.params], shapes[s.site.name])
            for s in self.steps
            if s.on_path
        )


class _Builder:
    """Collects steps and the weights they need."""

    def __init__(self, config: ModelConfig) -> None:
        self.c = config
        self.steps: list[Step] = []
        self.inputs: list[Site] = []
        self.params: dict[str, Shape] = {}

    def given(self, name: str, *axes: str) -> str:
        self.inputs.append(Site(name, axes))
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
        params = params or {}
        self.params.update(params)
        self.steps.append(Step(Site(name, axes), op, reads, tuple(params), on_path))
        return name

    def look(
        self, name: str, axes: tuple[str, ...], op: Op, *reads: str, params: Mapping[str, Shape] | None = None
    ) -> str:
        """A step off the path."""
        return self.step(name, axes, op, *reads, params=params, on_path=False)

    def linear(self, name: str, d_out: int, d_in: int, *, bias: bool) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {f"{name}.weight": (d_out, d_in)}
        return shapes | {f"{name}.bias": (d_out,)} if bias else shapes

    def norm(self, name: str, x: str) -> str:
        c = self.c
        self.look(f"{name}.scale", ("batch", "pos", "scale"), NormScale(c.norm_eps, c.norm == "layer"), x)
        params: dict[str, Shape] = {f"{name}.weight": (c.d_model,)}
        if c.norm == "layer" and c.norm_bias:
            params[f"{name}.bias"] = (c.d_model,)
        op = LayerNorm(c.norm_eps) if c.norm == "layer" else RMSNorm(c.norm_eps)
        return self.step(f"{name}.normalized", STREAM, op, x, params=params)

    def embedding(self) -> str:
        c = self.c
        vectors = {"embed.weight": (c.d_vocab, c.d_model)}
        x = self.step("embed", STREAM, Embed(), "tokens", params=vectors)
        if c.embed_scale == "sqrt_d_model":
            x = self.step("embed_scaled", STREAM, ScaleEmbedding(sqrt(c.d_model)), x)
        if c.positions == "rotary":
            for function in ("cos", "sin"):
                table = RotaryTable(function, c.rotary_style, c.d_head, c.rotary_theta)
                self.step(f"rotary_{function}", ("batch", "pos", "d_rot"), table, "positions")
        if c.positions == "learned":
            rows = {"pos_embed.weight": (c.n_ctx, c.d_model)}
            self.step("pos_embed", STREAM, LearnedPositions(), "positions", params=rows)
        if c.positions == "sinusoidal":
            self.step("pos_embed", STREAM, SinusoidalPositions(c.d_model), "positions")
        return x

    def attention(self, block: str, x: str) -> str:
        c, at = self.c, f"{block}.attn"
        kv = c.kv_heads * c.d_head

        def project(role: Role, name: str, axes: tuple[str, ...], d_out: int) -> str:
            weights = self.linear(f"{at}.{name}", d_out, c.d_model, bias=c.attn_bias)
            op = ProjectToHeads(role, c.d_head, biased=c.attn_bias)
            return self.step(f"{at}.{name}", axes, op, x, params=weights)

        q = project("query", "q", HEADS, c.n_heads * c.d_head)
        k = project("key", "k", KV_HEADS, kv)
        v = project("value", "v", KV_HEADS, kv)
        if c.positions == "rotary":
            turn = Rotate(c.rotary_style)
            q = self.step(f"{at}.rot_q", HEADS, turn, q, "rotary_cos", "rotary_sin")
            k = self.step(f"{at}.rot_k", KV_HEADS, turn, k, "rotary_cos", "rotary_sin")
        cached = ("batch", "kv_pos", "kv_head", "d_head")
        past_k, past_v = (self.given(f"{at}.past_{x}", "batch", "past", "kv_head", "d_head") for x in "kv")
        k = self.step(f"{at}.cache_k", cached, Append("keys"), past_k, k)
        v = self.step(f"{at}.cache_v", cached, Append("values"), past_v, v)
        scores = self.look(f"{at}.scores", CELLS, Scores(), q, k)
        scaled = self.look(f"{at}.scaled", CELLS, Scale(c.d_head), scores)
        masked = self.look(f"{at}.masked", CELLS, Mask(c.causal), scaled, "positions", "key_positions")
        self.look(f"{at}.pattern", CELLS, Softmax(), masked)
        z = self.step(f"{at}.z", HEADS, Attention(c.d_head, c.causal), q, k, v, "positions", "key_positions")
        out = self.linear(f"{at}.out", c.d_model, c.n_heads * c.d_head, bias=c.attn_out_bias)
        weight = {name: shape for name, shape in out.items() if name.endswith("weight")}
        self.look(f"{at}.result", ("batch", "pos", "head", "d_model"), HeadResult(), z, params=weight)
        op = ProjectFromHeads("attn_out", biased=c.attn_out_bias)
        return self.step(f"{block}.attn_out", STREAM, op, z, params=out)

    def mlp(self, block: str, x: str) -> str:
        c, at = self.c, f"{block}.mlp"
        inner = ("batch", "pos", "d_mlp")
        up = self.linear(f"{at}.up", c.d_mlp, c.d_model, bias=c.mlp_bias)
        if c.gated:
            gate = self.linear(f"{at}.gate", c.d_mlp, c.d_model, bias=c.mlp_bias)
            pre = self.step(f"{at}.pre", inner, Project("gate", biased=c.mlp_bias), x, params=gate)
            pre_linear = self.step(f"{at}.pre_linear", inner, Project("linear_up", biased=c.mlp_bias), x, params=up)
            post = self.step(f"{at}.post", inner, Gate(c.activation), pre, pre_linear)
        else:
            pre = self.step(f"{at}.pre", inner, Project("up", biased=c.mlp_bias), x, params=up)
            post = self.step(f"{at}.post", inner, Activate(c.activation), pre)
        down = self.linear(f"{at}.down", c.d_model, c.d_mlp, bias=c.mlp_bias)
        return self.step(f"{block}.mlp_out", STREAM, Project("down", biased=c.mlp_bias), post, params=down)

    def pre_norm_block(self, block: str, x: str) -> str:
        attn_out = self.attention(block, self.norm(f"{block}.ln1", x))
        x = self.step(f"{block}.resid_mid", STREAM, Add(), x, attn_out)
        mlp_out = self.mlp(block, self.norm(f"{block}.ln2", x))
        return self.step(f"{block}.resid_post", STREAM, Add(), x, mlp_out)

    def post_norm_block(self, block: str, x: str) -> str:
        x = self.step(f"{block}.resid_mid", STREAM, Add(), x, self.attention(block, x))
        x = self.norm(f"{block}.ln1", x)
        x = self.step(f"{block}.resid_post", STREAM, Add(), x, self.mlp(block, x))
        return self.norm(f"{block}.ln2", x)

    def unembed(self, x: str) -> None:
        c = self.c
        if c.final_norm:
            x = self.norm("ln_final", x)
        params: dict[str, Shape] = {"embed.weight" if c.tied else "unembed.weight": (c.d_vocab, c.d_model)}
        if c.unembed_bias:
            params["unembed.bias"] = (c.d_vocab,)
        vocabulary = ("batch", "pos", "d_vocab")
        logits = self.step("logits", vocabulary, Unembed(c.tied), x, params=params)
        self.look("probs", vocabulary, Probabilities(), logits)


@lru_cache(maxsize=16)
def build_program(config: ModelConfig) -> Program:
    """The forward pass of an architecture, from token ids to logits.

    Inputs are ``tokens`` and ``positions`` (batch, pos), ``key_positions`` (batch, kv_pos), and per layer the keys
    and values of earlier passes, ``past_k`` and ``past_v`` (batch, past, kv_head, d_head).
    """
    b = _Builder(config)
    b.given("tokens", "batch", "pos")
    b.given("positions", "batch", "pos")
    b.given("key_positions", "batch", "kv_pos")
    x = b.embedding()
    block_of = b.pre_norm_block if config.norm_place == "pre" else b.post_norm_block
    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        if layer == 0 and config.positions in ("learned", "sinusoidal"):
            x = b.step(f"{block}.resid_pre", STREAM, Add(), x, "pos_embed")
        else:
            x = b.step(f"{block}.resid_pre", STREAM, Carry(), x)
        x = block_of(block, x)
    b.unembed(x)
    edges = (*(f"blocks.{layer}.resid_pre" for layer in range(config.n_layers)), x, "logits")
    return Program(tuple(b.inputs), tuple(b.steps), b.params, edges)
