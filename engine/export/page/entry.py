"""One trace in a page: what the app is told of it, its tensors, and what only the engine can derive of them.

| key | |
| --- | --- |
| ``summary``, ``step_words`` | as the app has it; what is said of a step is ``step_words[step["words"]]`` |
| ``words`` | prompt, model, file, target, notices as they are shown |
| ``views``, ``view_lists`` | the pictures of a site are ``view_lists[views[site]]`` (`engine.export.page.offered`) |
| ``tensors`` | by site: axes, shape, dtype, block; index: the heads that are here; masks: −∞ is a masked cell; |
| | weights: 0 may be one, where the bits of hidden (high bit first, [batch, 1, query, key]) are set |
| ``looks`` | by name, one for each stack of blocks and row of the batch, with the ``sites`` that have it |
| ``told`` | looks at the places where a tour stops |
| ``candidates``, ``vocab`` | blocks of ids, probabilities and logits [batch, pos, k]; labels by id |
| ``checks``, ``cache`` | |
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePath

import torch

from engine import views
from engine.analysis import kvcache, looks, residual
from engine.checks import Check, worst
from engine.errors import AddressError, LayerstepError, NotKeptError
from engine.export.page.blocks import Blocks
from engine.export.page.offered import Held, offered
from engine.export.selection import Part, tensor
from engine.hidden import hidden, mask_of
from engine.jsontext import Json
from engine.ops.base import at_least_float32
from engine.runtime import Watch
from engine.summary import summary
from engine.text import display
from engine.traces import Trace

CANDIDATES = 20
"""How many next tokens are told of each position."""
POSITIONS_AT_ONCE = 64
"""So many rows of logits are in memory at once."""
STEP_WORDS = ("title", "formula", "latex", "story")
"""What is said of a step."""


def entry(trace: Trace, chosen: Sequence[Part], told: list[Json], blocks: Blocks, watch: Watch | None) -> Json:
    """One trace of the page's document; ``told`` are looks at single places of it."""
    about = summary(trace)
    there = {part.site.name: part for part in chosen}
    tensors = {}
    for i, part in enumerate(chosen):
        if watch is not None:
            watch(i, len(chosen), part.site.name)
        tensors[part.site.name] = _tensor(trace, part, blocks)
    grids = _grids(trace, about, blocks, watch)
    file = about["file"] and PurePath(about["file"]).name  # in which folder is nobody's business
    known: dict[tuple[str, ...], int] = {}
    steps = [_shortened(row, known) for row in about["steps"]]
    candidates, likely = _candidates(trace, blocks)
    along = {look: {site for one in every for site in one["sites"]} for look, every in grids.items()}
    every = any("d_vocab" in part.site.axes for part in chosen)
    return {
        "summary": about | {"steps": steps, "file": file},
        "step_words": [dict(zip(STEP_WORDS, said, strict=True)) for said in known],
        "words": {
            "prompt": display(trace.prompt),
            "model": display(trace.config.name),
            "file": display(file or ""),
            "target": display(about["target"]),
            "notices": [display(notice) for notice in trace.notices],
        },
        **offered(trace, about, Held(there, along, {(one["site"], one["view"]) for one in told})),
        "tensors": tensors,
        "looks": grids,
        "told": told,
        "candidates": candidates,
        "vocab": _labels(trace, every, likely),
        "checks": [check.to_json() for check in worst(_checks(trace, there, watch))],
        "cache": _cache(trace),
    }


def _shortened(row: Json, known: dict[tuple[str, ...], int]) -> Json:
    """A step with the number of what is said of it, which is the same of all layers."""
    said = tuple(row[name] for name in STEP_WORDS)
    rest = {name: value for name, value in row.items() if name not in STEP_WORDS}
    return rest | {"words": known.setdefault(said, len(known))}


def _checks(trace: Trace, sites: Collection[str], watch: Watch | None) -> Iterator[Check]:
    """Those of some sites in every pass."""
    steps = [step for step in trace.program.steps if step.site.name in sites]
    for at in range(len(trace.passes)):
        for i, step in enumerate(steps):
            if watch is not None:
                watch(at * len(steps) + i, len(trace.passes) * len(steps), step.site.name)
            yield from trace.iter_checks(step.site.name, at)


def _tensor(trace: Trace, part: Part, blocks: Blocks) -> Json:
    block, dtype = blocks.add(tensor(trace, part), part.site.name)
    step = trace.program.step(part.site.name)
    weights = mask_of(trace.program, part.site.name) is not None
    told = {
        "axes": list(part.site.axes),
        "shape": list(part.shape),
        "index": {axis: list(chosen) for axis, chosen in part.index.items()},
        "dtype": dtype,
        "block": block,
        "masks": weights or (step is not None and step.op.hides),
        "weights": weights,
        "hidden": None,
    }
    if weights:
        query, key = part.site.axes[-2:]
        sizes = dict(zip(part.site.axes, part.shape, strict=True))
        found = hidden(trace, part.site.name, None, (0, sizes[query]), (0, sizes[key]))
        told["hidden"] = None if found is None else blocks.mask(found)
    return told


def _grids(trace: Trace, about: Json, blocks: Blocks, watch: Watch | None) -> dict[str, list[Json]]:
    """The looks along depth, for each stack of blocks and each row of the batch; what cannot be had is left out."""
    found: dict[str, list[Json]] = {}
    for look in (look for look, kind in views.LOOKS.items() if kind == "grid"):
        having = [row["site"] for row in about["steps"] if look in row["looks"]]
        for stream in residual.streams(trace.program):
            sites = [site for site in having if site in (stream.added if look == "added" else stream.sites)]
            for batch in range(len(trace.tokens) if sites else 0):
                try:
                    told, values = looks.look(trace, look, f"{sites[0]}[b={batch}]", watch=watch)
                except (NotKeptError, AddressError):
                    break
                told |= {"batch": batch, "sites": sites, "values": values}
                found.setdefault(look, []).append(_embedded(told, blocks))
    return found


def _embedded(told: Json, blocks: Blocks) -> Json:
    """What is told of a look, with its numbers as a block where it has many."""
    values = told.get("values")
    block = None if values is None else blocks.add(values)[0]
    return {key: value for key, value in told.items() if key != "values"} | {"block": block}


def _candidates(trace: Trace, blocks: Blocks) -> tuple[Json | None, set[int]]:
    """The likeliest tokens at every position, as `Trace.top` has them, and which they are; −1 where logits hold NaN or
    +∞. None of a model without a head, and where there are no logits."""
    if trace.config.predicts is None or not trace.can_have("logits", len(trace.passes) - 1):
        return None, set()
    k, found = min(CANDIDATES, trace.config.d_vocab), []
    for batch, row in enumerate(trace.tokens):
        for start in range(0, len(row), POSITIONS_AT_ONCE):
            some = trace[f"logits[b={batch},p={start}:{start + POSITIONS_AT_ONCE}]"]
            logits = at_least_float32(some)  # [pos d_vocab]
            best = logits.softmax(-1).topk(k)
            bad = best.values.isnan().any(-1, keepdim=True)
            ids = best.indices.masked_fill(bad, -1)
            found.append((ids.cpu(), best.values.cpu(), logits.gather(-1, best.indices).cpu()))
    ids, probs, scores = (torch.cat(parts) for parts in zip(*found, strict=True))
    told = {"shape": [len(trace.tokens), trace.length, k], "ids": blocks.add(ids)[0]}
    told |= {"probs": blocks.add(probs.float())[0], "logits": blocks.add(scores.float())[0]}
    return told, set(ids.unique().tolist()) - {-1}


def _labels(trace: Trace, every: bool, shown: set[int]) -> list[str] | dict[str, str]:
    """The labels of the vocabulary: of all of it where a tensor over it is in the page, else of what is shown."""
    if every:
        return [trace.label(i) for i in range(trace.config.d_vocab)]
    return {str(i): trace.label(i) for i in sorted(shown)}


def _cache(trace: Trace) -> Json | None:
    """What the KV cache holds; None where the model has none. How much memory is free here says nothing elsewhere."""
    try:
        report = kvcache.cache_report(trace).to_json()
    except LayerstepError:
        return None
    return {key: value for key, value in report.items() if key != "fits"}
