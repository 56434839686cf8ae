"""What-ifs in a program, in a model and in a trace.

An edit is a step. The step that wrote ``blocks.2.attn.z`` writes ``blocks.2.attn.z_unedited``, and a step behind it
(`engine.ops.edited`) makes ``blocks.2.attn.z`` of that. All else is as it was: what depends on the site reads what was
changed, and both values can be looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engine.cache import Appending, Held, KVCache
from engine.config import ModelConfig
from engine.dtypes import dtype_name
from engine.edits import UNEDITED, Edit, edits_of
from engine.errors import EditError
from engine.model import Model
from engine.ops.edited import Edited, by_axis, ends
from engine.passes import Pass, Passes, as_run
from engine.program import Program, Step
from engine.runner import run
from engine.runtime import Stopwatch, Watch, as_part
from engine.sites import SOURCE_AXES, TOKEN_AXES, Address, Index, Span

OPEN_AXES = ("batch", *TOKEN_AXES)
"""Axes whose size depends on the text."""
FAR = 2**40
"""Beyond any text."""


def edits_in(program: Program) -> tuple[Edit, ...]:
    """The edits of a program, in the order of its steps."""
    return tuple(edit for step in program.steps if isinstance(step.op, Edited) for edit in step.op.edits)


def edited(program: Program, config: ModelConfig, dtype: torch.dtype, edits: Sequence[Edit | str]) -> Program:
    """The program with further edits, for a model of this dtype; those of one site are done in order.

    Raises EditError for a site that is not computed on the way to the logits, an index that holds nothing, and a
    number beyond the dtype; AddressError for a site or an index that is not there.
    """
    found: dict[str, list[Edit]] = {}
    for edit in edits_of(edits):
        step = _step(program, edit.place)
        found.setdefault(step.site.name, []).append(_settled(edit, step, config, dtype))
    steps: list[Step] = []
    for step in program.steps:
        new, site = tuple(found.get(step.site.name, ())), step.site
        if not new:
            steps.append(step)
        elif isinstance(step.op, Edited):
            steps.append(replace(step, op=replace(step.op, edits=(*step.op.edits, *new))))
        else:
            before = replace(site, name=f"{site.name}{UNEDITED}")
            steps.append(replace(step, site=before))
            steps.append(Step(site, Edited(site, step.op, new), (before.name,)))
    return replace(program, steps=tuple(steps)) if found else program


def edited_model(model: Model, edits: Sequence[Edit | str]) -> Model:
    """The model by a program with these edits; the weights are the same. Raises as `edited` does."""
    return by_program(model, edited(model.program, model.config, model.dtype, edits)) if edits else model


def by_program(model: Model, program: Program) -> Model:
    """A model that runs another program on the same weights."""
    if program is model.program:
        return model
    other = replace(model, program=program)
    object.__setattr__(other, "compiled", model.compiled)
    return other


def as_edited(model: Model, trace: Passes) -> Model:
    """The model by the program that a trace was recorded with, where that one has other edits."""
    return model if edits_in(model.program) == edits_in(trace.program) else by_program(model, trace.program)


def refuse_nowhere(program: Program, batch: int, length: int, source: int = 0) -> None:
    """Raise EditError for an edit whose rows or positions are all beyond a text."""
    for edit in edits_in(program):
        for axis, index in by_axis(edit.place, program.site(edit.place.site)).items():
            size = batch if axis == "batch" else source if axis in SOURCE_AXES.values() else length
            if axis in OPEN_AXES and ends(index)[0] >= size:
                what = "rows" if axis == "batch" else "positions"
                raise EditError(f"{edit}: it changes nothing, as the {what} here are 0…{size - 1}")


def rerun(
    trace: Passes, program: Program, weights: Mapping[str, Tensor], watch: Watch | None = None
) -> tuple[tuple[Pass, ...], KVCache | None]:
    """The passes of a trace by a program that differs from its own by edits, and what a next pass reads.

    Only what depends on them runs again; all else that was kept is the trace's own tensors. Every bit is what a fresh
    run of the same passes gives. Raises what a run raises, and Cancelled where ``watch`` does.
    """
    was = trace.program
    changed = program.reached_from(step.site.name for step in program.steps if _is_new(step, was))
    there = {site.name for site in was.sites}
    own = {name: name if name in there else name.removesuffix(UNEDITED) for name in (s.name for s in program.sites)}
    caches = {past: cache for past, cache in program.caches.items() if cache in changed}
    windows = {past: window for past in caches if (window := program.site(past).window) is not None}
    held = {past: Held.of(trace.site(past, 0)) for past in caches}
    always: dict[str, Tensor] = {}  # of an encoder that reads what was changed
    passes: list[Pass] = []
    for at, p in enumerate(trace.passes):
        kept = [step.site.name for step in program.steps if own[step.site.name] in p.kept]
        later = (*caches.values(), *(() if at else program.handed_on))
        wanted = changed.intersection((*kept, *later))
        appending = Appending(held, trace.passes[-1].stop - p.start, windows)
        info = replace(p.info, ran=set(p.info.ran), choices={}, finite=0, past_finite=False, append=appending)
        given = {**p.given, **appending.past, **always}
        schedule = program.schedule(wanted, {*given, *own.keys() - changed})
        reads = {read for step, _ in schedule for read in step.reads}
        given |= {read: as_run(trace, own[read], at) for read in sorted(reads - changed - given.keys())}
        took = Stopwatch(trace.device)
        made = run(program, weights, given, wanted, info, as_part(watch, at, len(trace.passes)))
        info.append = None
        tensors = {name: made[name] if name in changed else p.kept[own[name]] for name in kept}
        passes.append(Pass(p.start, p.length, info, p.given, tensors, took.stop()))
        always |= {name: made[name] for name in program.handed_on if name in made}
        held = {past: _held_after(program, past, made[cache], appending, p.stop) for past, cache in caches.items()}
    return tuple(passes), None if trace.cache is None else KVCache({**trace.cache.held, **held})


def _is_new(step: Step, was: Program) -> bool:
    """Whether a step changes numbers that another program does not."""
    before = was.step(step.site.name)
    return isinstance(step.op, Edited) and (before is None or before.op != step.op)


def _held_after(program: Program, past: str, rows: Tensor, appending: Appending, stop: int) -> Held:
    """What the next pass reads of what a pass attended to."""
    held = appending.held.get(past) or Held.of(rows, stop - rows.shape[1])
    return held.last(program.site(past).held(stop))


# -- one edit --------------------------------------------------------------------------------------------------


def _step(program: Program, place: Address) -> Step:
    """The step whose result is edited. Raises EditError, with what to edit instead, where an edit would do nothing."""
    name = program.site(place.site).name
    step = program.step(name)
    if step is None:
        raise EditError(f"{name} is given and not computed; {_instead_of_input(program, name)}")
    if name.endswith(UNEDITED):
        raise EditError(f"{name} is what the model had computed before an edit; edit {name.removesuffix(UNEDITED)}")
    if not step.on_path:
        instead = _either(_sources(program, step))
        raise EditError(f"{name} is computed for looking at, and the logits do not come from it; edit {instead}")
    if step.op.int64:
        raise EditError(f"{name} holds whole numbers that name something; edit {_either(_readers(program, name))}")
    if name in program.caches.values():
        raise EditError(f"{name} is filled with {step.reads[1]}; edit that, which is what every later pass reads")
    return step


def _instead_of_input(program: Program, name: str) -> str:
    reader = next((step for step in program.steps if name in step.reads), None)
    if name in program.caches and reader is not None:
        return f"edit {reader.reads[1]}, which fills it"
    return f"give another prompt, or edit {reader.site.name}" if reader is not None else "give another prompt"


def _sources(program: Program, step: Step) -> list[str]:
    """What is on the path and a step off it comes from; in attention, what its heads found as well."""
    found, ahead = dict[str, None](), list(step.reads)
    while ahead:
        before = program.step(ahead.pop(0))
        if before is None:
            continue
        if before.site.name in program.caches.values():
            found[before.reads[1]] = None
        elif before.on_path:
            found[before.site.name] = None
        else:
            ahead += before.reads
    z = f"{step.site.name.rpartition('.')[0]}.z"
    return [*found, *([z] if program.step(z) and z not in found else [])]


def _readers(program: Program, name: str) -> list[str]:
    return [s.site.name for s in program.steps if name in s.reads and s.on_path and not s.op.int64]


def _either(names: Sequence[str]) -> str:
    return " or ".join(names[:4]) or "another site"


def _settled(edit: Edit, step: Step, config: ModelConfig, dtype: torch.dtype) -> Edit:
    """The edit with its index inside the axes of the site. Raises EditError and AddressError."""
    site, kind, place = step.site, step.dtype(dtype), replace(edit.place, site=step.site.name)
    if abs(edit.value) > torch.finfo(kind).max:
        raise EditError(f"{edit}: {edit.number} is beyond {dtype_name(kind)}, in which {site.name} is")
    sizes = config.axis_sizes(FAR, FAR, src=FAR) | dict.fromkeys(OPEN_AXES, FAR)
    index = place.resolve(site.axes, tuple(sizes[axis] for axis in site.axes))
    for axis, written in by_axis(place, site).items():
        if axis in OPEN_AXES and _is_negative(written):
            raise EditError(f"{edit}: {axis} is counted from 0 here, as a text may grow; give its number")
        low, high = ends(index[axis])
        if high is not None and low >= high:
            raise EditError(f"{edit}: {axis} {written} holds nothing")
        if axis in OPEN_AXES:
            index[axis] = written  # an open end stays open
    return replace(edit, place=replace(place, index=tuple(index.items())))


def _is_negative(index: Index) -> bool:
    parts = (index.start, index.stop) if isinstance(index, Span) else (index,)
    return any(part is not None and part < 0 for part in parts)
