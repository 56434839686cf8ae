"""The trace as the app sees it: the engine's summary, typed and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from engine.sites import SOURCE_AXES, within_block

PARTS = {
    "input": "input",
    "norm": "norm",
    "attention": "attention",
    "cross-attention": "cross-attention",
    "mlp": "MLP",
    "residual": "residual",
    "output": "output",
}


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the prompt. ``label`` is printable; ``hex`` is its bytes."""

    id: int
    label: str
    hex: str = ""
    group: object = None
    special: bool = False
    origin: str = ""


class Pass(NamedTuple):
    """One run of the model: ``length`` new positions after ``start`` earlier ones."""

    start: int
    length: int
    seconds: float = 0.0

    def holds(self, pos: int) -> bool:
        """Whether a position of the text was run in it."""
        return self.start <= pos < self.start + self.length


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the pass: what it writes, from what, and its words for people.

    ``shape`` is over all passes, or in the one that ``Trace.step`` was asked for; then ``origin`` has the place in the
    text of the first index on each axis. ``window`` is how far back its layer looks, ``looks`` what the engine can
    derive here.
    """

    index: int
    site: str
    block: int | None
    part: str
    label: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    origin: tuple[int, ...] = ()
    window: int | None = None
    block_name: str = ""
    on_path: bool = True
    kept: bool = True
    dtype: str = "float32"
    title: str = ""
    formula: str = ""
    numbers: str = ""
    story: str = ""
    reads: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    looks: tuple[str, ...] = ()

    def size(self, axis: str) -> int:
        """How long an axis is; 0 where the step has none of that name."""
        return self.shape[self.axes.index(axis)] if axis in self.axes else 0

    def first(self, axis: str) -> int:
        """What the first index on an axis stands for: a position where it runs over a part of the text."""
        return self.origin[self.axes.index(axis)] if self.origin and axis in self.axes else 0

    @property
    def name(self) -> str:
        """What the step is called inside its block: the engine's label, or the site's name where that says more."""
        if self.site.rsplit(".", 1)[-1] != self.label:
            return self.label
        return self.inner.removeprefix("attn.").removeprefix("cross_attn.").removeprefix("mlp.")

    @property
    def inner(self) -> str:
        """The site's name inside its block."""
        return within_block(self.site)

    @property
    def where(self) -> str:
        """``block 2 · attention · pattern``"""
        return self._placed(PARTS.get(self.part, self.part))

    @property
    def where_short(self) -> str:
        """``block 2 · pattern``, but ``block 2 · cross · pattern``: two attentions must not look alike."""
        return self._placed("cross" if self.part == "cross-attention" else "")

    @property
    def place_inside(self) -> str:
        """``attention · pattern``: without its block"""
        part = PARTS.get(self.part, self.part)
        return f"{part} · {self.name}" if part and part != self.name else self.name

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers: ids, positions."""
        return self.dtype.startswith(("int", "uint"))

    def _placed(self, part: str) -> str:
        place = [self.block_name or f"block {self.block}"] if self.block is not None else []
        return " · ".join([*place, *([part] if part and part != self.name else []), self.name])


@dataclass(frozen=True, eq=False)
class Trace:
    """A recorded prompt: its tokens, its steps in order, and the model's numbers."""

    model: str
    prompt: str = ""
    file: str | None = None
    device: str = ""
    dtype: str = ""
    kernel: str = ""
    notices: tuple[str, ...] = ()
    report: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: tuple[tuple[str, str], ...] = ()
    predicts: str | None = "next token"
    edits: tuple[str, ...] = ()
    tokens: tuple[tuple[Token, ...], ...] = ()
    source_tokens: tuple[tuple[Token, ...], ...] = ()
    target: str = ""
    masked: tuple[tuple[int, ...], ...] = ()
    steps: tuple[Step, ...] = ()
    depth: tuple[str, ...] = ()
    passes: tuple[Pass, ...] = (Pass(0, 0),)
    branch: int = 0
    branches: int = 1
    run: int = 0

    @classmethod
    def read(cls, summary: Mapping[str, Any], run: int = 0) -> Trace:
        """From the engine's summary. What is missing there is left empty, never guessed."""
        return cls(
            model=str(summary.get("model") or ""),
            prompt=str(summary.get("prompt") or ""),
            file=summary.get("file"),
            device=str(summary.get("device") or ""),
            dtype=str(summary.get("dtype") or ""),
            kernel=str(summary.get("kernel") or ""),
            notices=tuple(str(notice) for notice in summary.get("notices") or ()),
            report=tuple(str(line) for line in summary.get("report") or ()),
            config=dict(summary.get("config") or {}),
            facts=tuple((str(name), str(words)) for name, words in summary.get("facts") or ()),
            predicts=summary.get("predicts", "next token"),
            edits=tuple(str(edit) for edit in summary.get("edits") or ()),
            tokens=_tokens(summary.get("tokens")),
            source_tokens=_tokens(summary.get("source_tokens")),
            target=str(summary.get("target") or ""),
            masked=tuple(tuple(map(int, row)) for row in summary.get("masked") or ()),
            steps=tuple(_step(index, entry) for index, entry in enumerate(summary.get("steps") or ())),
            depth=tuple(map(str, summary.get("depth") or ())),
            passes=tuple(
                Pass(int(p["start"]), int(p["length"]), float(p.get("seconds") or 0))
                for p in summary.get("passes") or ()
            )
            or (Pass(0, 0),),
            branch=int(summary.get("branch") or 0),
            branches=int(summary.get("branches") or 1),
            run=run,
        )

    @cached_property
    def by_site(self) -> dict[str, Step]:
        """The steps by the site they write."""
        return {step.site: step for step in self.steps}

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """The blocks that have steps, in order."""
        return tuple(sorted({step.block for step in self.steps if step.block is not None}))

    def blocks_with(self, inner: str) -> tuple[int, ...]:
        """The blocks that have a step of this name inside them."""
        return tuple(step.block for step in self.steps if step.block is not None and step.inner == inner)

    def along_depth(self, look: str, step: Step) -> tuple[str, ...]:
        """The sites that a look shows from the first layer to the last: all of its kind in this step's stack."""
        alike = {one.site for one in self.steps if look in one.looks and one.axes == step.axes}
        return tuple(site for site in self.depth if site in alike) or tuple(
            one.site for one in self.steps if one.site in alike
        )

    def step(self, index: int, at: int | None = None) -> Step:
        """A step as it is over all passes, or in the pass ``at``: with its shape and origin there."""
        step = self.steps[index]
        if at is None or len(self.passes) == 1:
            return step
        if (index, at) not in self._in_pass:
            self._in_pass[index, at] = _in_pass(step, self.passes[at])
        return self._in_pass[index, at]

    @cached_property
    def _in_pass(self) -> dict[tuple[int, int], Step]:
        return {}

    @cached_property
    def usual_at(self) -> int | None:
        """The pass that is looked at first: the only one, or all of them stitched together (None)."""
        return 0 if len(self.passes) == 1 else None

    def pass_of(self, pos: int) -> int:
        """The pass that a position was run in."""
        return next((at for at, one in enumerate(self.passes) if one.holds(pos)), len(self.passes) - 1)

    @property
    def from_file(self) -> bool:
        """Whether it was opened from a file, without the weights of its model."""
        return self.file is not None

    @cached_property
    def heads_per_kv(self) -> int:
        """How many query heads share a key/value head."""
        heads, kv = int(self.config.get("n_heads") or 1), int(self.config.get("n_kv_heads") or 0)
        return max(1, heads // kv) if kv else 1

    def heads(self, step: Step) -> int:
        """How many query heads a step is about, those that share its keys and values included; 0: about none."""
        return step.size("head") or step.size("kv_head") * self.heads_per_kv

    def line(self, batch: int, axis: str = "pos") -> tuple[Token, ...]:
        """The tokens of one row of the batch that an axis runs over: the prompt's, or what the encoder has read."""
        rows = self.source_tokens if axis in SOURCE_AXES.values() else self.tokens
        return rows[batch] if 0 <= batch < len(rows) else ()

    def label(self, batch: int, pos: int, axis: str = "pos") -> str:
        """The label of a token; its position where there is none."""
        row = self.line(batch, axis)
        return row[pos].label if 0 <= pos < len(row) else str(pos)


def _in_pass(step: Step, one: Pass) -> Step:
    """A step in one pass. A causal window of W has let go of all keys but the W − 1 before the pass."""
    held = one.start if step.window is None else min(one.start, step.window - 1)
    along = dict.fromkeys(("pos", "query"), (one.start, one.length))
    along |= dict.fromkeys(("key", "kv_pos"), (one.start - held, held + one.length))
    places = [along.get(axis, (0, size)) for axis, size in zip(step.axes, step.shape, strict=True)]
    return replace(step, shape=tuple(size for _, size in places), origin=tuple(first for first, _ in places))


def _tokens(rows: Any) -> tuple[tuple[Token, ...], ...]:
    known = Token.__dataclass_fields__

    def read(entry: Mapping[str, Any]) -> Token:
        return Token(**{key: value for key, value in entry.items() if key in known})

    return tuple(tuple(map(read, row)) for row in rows or ())


def _step(index: int, entry: Mapping[str, Any]) -> Step:
    known = Step.__dataclass_fields__
    values: dict[str, Any] = {key: value for key, value in entry.items() if key in known and value is not None}
    for key in ("axes", "shape", "reads", "params", "looks"):
        values[key] = tuple(values.get(key) or ())
    return Step(**{"block": None, **values, "index": index})
