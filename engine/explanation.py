"""What the app's explanation says of a place, for scripts and notebooks: words, formula with numbers, the value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from xml.etree.ElementTree import Element

from engine import htmltext as html
from engine import windows
from engine.analysis.chain import Stage, chain, stages_of
from engine.errors import LayerstepError
from engine.jsontext import Json
from engine.ops.base import Shape, Text, times
from engine.place import Place, exact, figures
from engine.sites import LETTERS, TOKEN_AXES, Address
from engine.summary import INPUTS, numbers
from engine.traces import Trace


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor that a step reads."""

    site: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Index:
    """Where along an axis: the index, of how many, and the token there ('' where the axis has none)."""

    axis: str
    index: int
    of: int
    label: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a place is and how it comes about.

    ``value`` is the number where the address names one cell, ``exact`` the same with as many digits as it has; else
    ``stats`` has the figures of what it names. ``stages`` is the way of a cell of attention from its score to its
    weight. ``trouble`` says why there are no numbers, where that is so.
    """

    address: str
    title: str
    formula: str
    latex: str
    numbers: str
    story: str
    axes: tuple[str, ...]
    shape: Shape
    dtype: str
    on_path: bool
    reads: tuple[Input, ...]
    params: tuple[str, ...]
    where: tuple[Index, ...] = ()
    value: float | int | None = None
    exact: str = ""
    stats: dict[str, Any] = field(default_factory=dict)
    stages: tuple[Stage, ...] = ()
    trouble: str = ""

    def to_json(self) -> Json:
        """Everything in it; floats may be NaN or infinite."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield from filter(None, (f"{self.address} · {self.title}", self.formula, self.numbers, "", self.story))
        yield ""
        yield from (f"in   {read.site} {times(*read.shape)}" for read in self.reads)
        yield from (f"w    {name}" for name in self.params)
        yield f"out  {self._out}"
        for place in self.where:
            yield f"{place.axis} {place.index} of {place.of}" + (f"  {place.label}" if place.label else "")
        if self.exact:
            yield f"value {self.exact}"
        elif self.stats:
            yield figures(self.stats)
        for stage in self.stages:
            yield f"{stage.label:>8} {stage.number:>10}  {stage.words}".rstrip()
        if self.trouble:
            yield self.trouble

    @property
    def _out(self) -> str:
        sizes = " × ".join(f"{axis} {size}" for axis, size in zip(self.axes, self.shape, strict=True))
        return f"{Address.parse(self.address).site} {sizes} · {self.dtype}"

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        return html.page(*self._html())

    def _html(self) -> Iterator[Element]:
        yield html.title(self.title, self.address)
        yield html.line(html.el("code", self.formula, style="background:none;color:inherit"))
        if self.numbers:
            yield html.line(self.numbers, faint=True)
        yield html.line(self.story)
        if self.exact:
            yield html.line("value ", html.el("strong", self.exact, style="font-size:1.2em"))
        places = ([p.axis, f"{p.index}", f"of {p.of}", p.label] for p in self.where)
        yield html.table(("", "", "", ""), places, left=(0, 2, 3))
        if self.stages:
            rows = ([stage.label, stage.number, stage.words] for stage in self.stages)
            yield html.table(["stage", "value", "what it did"], rows, left=(0, 2))
        if self.stats and not self.exact:
            yield html.line(figures(self.stats), faint=True)
        flow = [["in", read.site, times(*read.shape)] for read in self.reads]
        flow += [["w", name, ""] for name in self.params]
        yield html.table(("", "", ""), [*flow, ["out", self._out, ""]], left=(0, 1, 2))
        if self.trouble:
            yield html.line(self.trouble)


def explain(trace: Trace, address: str | Address) -> Explanation:
    """What the app's explanation says of an address. Raises AddressError for one that is not there.

    Where no number can be had, for want of weights, ``trouble`` says so and the words stay.
    """
    place = address if isinstance(address, Address) else Address.parse(address)
    site = trace.program.site(place.site)
    shape = trace.shape(site.name, place.at)
    index = place.resolve(site.axes, shape)
    step = trace.program.step(site.name)
    text = _given(site.name) if step is None else step.op.text
    full = Address(site.name, tuple((LETTERS[a], index[a]) for a in site.axes if a in index), place.at)
    base = Explanation(
        address=str(full),
        title=text.title,
        formula=text.formula,
        latex=text.latex,
        numbers=numbers(trace, site, place.at),
        story=text.story,
        axes=site.axes,
        shape=shape,
        dtype="",
        on_path=step is None or step.on_path,
        reads=tuple(Input(name, trace.shape(name, place.at)) for name in (step.reads if step else ())),
        params=step.params if step else (),
    )
    try:
        found = Place.of(windows.find(trace, str(full)))
        stages = _stages(trace, full)
    except LayerstepError as error:
        return replace(base, trouble=str(error))
    where = tuple(
        Index(axis, i, shape[site.axes.index(axis)], _label(found, axis)) for axis, i in sorted(
            found.fixed.items(), key=lambda pair: site.axes.index(pair[0])
        )
    )  # fmt: skip
    if found.axes:
        return replace(base, dtype=found.dtype, where=where, stats=found.stats())
    cell = found.tensor
    value = float(cell) if cell.is_floating_point() else int(cell)
    return replace(
        base, dtype=found.dtype, where=where, value=value, exact=_said(found), stats=found.stats(),
        stages=stages,
    )  # fmt: skip


def _given(name: str) -> Text:
    """How people are told of an input of the program."""
    title, formula, story = INPUTS.get(name, (name, "", "What earlier passes have left for this one."))
    return Text(title, formula, "", story)


def _label(place: Place, axis: str) -> str:
    return place.fixed_label(axis) if axis in (*TOKEN_AXES, "d_vocab") else ""


def _said(place: Place) -> str:
    """A cell's number, and whether it is masked."""
    return f"{exact(place.tensor)} (masked)" if place.stats()["masked"] else exact(place.tensor)


def _stages(trace: Trace, place: Address) -> tuple[Stage, ...]:
    """The way of a cell of attention; none where the address names no such cell."""
    site = trace.program.site(place.site)
    named = {axis for axis, i in place.resolve(site.axes, trace.shape(site.name, place.at)).items() if
             isinstance(i, int)}  # fmt: skip
    if not stages_of(trace.program, site.name) or not named.issuperset(site.axes[1:]):
        return ()
    return tuple(chain(trace, place))
