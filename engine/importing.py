"""Traces of what others recorded: hidden states and attentions of transformers, caches of TransformerLens.

Their names are turned into sites, and the arrays become the kept tensors of a trace without weights. Which site a name
means is decided by the program: transformers' last hidden state is what the head reads, so behind the final norm where
a model has one. Nothing is believed: every shape and dtype is compared with what the config asks for, and where the
weights are at hand the arrays are compared with a run of the model itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from engine.architecture import build_program
from engine.arrayfiles import Arrays, Given, open_arrays
from engine.checkpoints import hub
from engine.checkpoints.lookup import Folder, find
from engine.dtypes import ITEMSIZE
from engine.errors import ArraysError, MemoryLimitError, PromptError
from engine.model import DTYPES, Model, load_model
from engine.ops.base import PassInfo, at_least_float32
from engine.ops.base import counted as noun
from engine.ops.norm import RMSNorm
from engine.ops.residual import Carry
from engine.plan import refuse_if_too_much
from engine.program import Program
from engine.prompts import Prompt, check_length, plain, tokenise
from engine.recording import counted, on_device, trace
from engine.runtime import Watch
from engine.samples import sample_folder
from engine.sites import normalise
from engine.text import Token, display
from engine.tokenizer import Tokenizer
from engine.traces import Pass, Trace, fingerprint

IDS = ("input_ids", "tokens", "token_ids", "ids")
"""What the tokens are called in files."""
ALL_ONES, COUNTED = ("attention_mask",), ("positions", "position_ids", "key_positions", "cache_position")
"""What says that nothing is hidden, and what counts from 0; anything else there is refused."""
SCORES = "attn_scores"
TWO_STACKS = ("encoder_", "decoder_", "cross_")
"""What the outputs of an encoder-decoder begin with."""
LARGEST_GAP = {torch.float64: 1e-4, torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.25}
"""How far from the model's own run, relative to the largest number of a site, still counts as rounding."""
MOST_TOKENS = 2**22
NAMED = 6
"""So many names are told, and of the others how many there are."""

_NUMBERED = re.compile(r"(hidden_states|attentions)_(\d{1,4})", re.ASCII)
_ODD = re.compile(r"[^a-z0-9]+")


@dataclass(slots=True)
class Imported:
    """A trace of foreign arrays, and what became of each: ``sites`` by the arrays' names, ``left_out`` with why."""

    trace: Trace
    sites: dict[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def import_file(
    path: str | Path, model: str | Path | Model, ids: Prompt | None = None, *, watch: Watch | None = None
) -> Imported:
    """The arrays in an npz or a safetensors file as a trace; ``ids`` (or a text) where it does not hold its tokens.

    Of the model its config and tokenizer are needed, and its weights only if they are at hand. Raises ArraysError for
    a file that is damaged or holds nothing of this model, CheckpointError, and PromptError.
    """
    path = Path(path)
    found = open_arrays(path)
    return _imported(found, _subject(model, watch), ids, display(path.name), watch)


def import_cache(arrays: Mapping[str, Any], model: str | Path | Model, ids: Prompt | None = None) -> Trace:
    """Arrays by name, as a cache of TransformerLens is, as a trace; errors as `import_file` has them."""
    if not callable(getattr(arrays, "items", None)):
        raise ArraysError(f"a cache is arrays by name, and not {display(repr(arrays))[:60]}")
    return _imported(Given(arrays), _subject(model, None), ids, "a cache", None).trace


def import_transformers(outputs: Any, model: str | Path | Model, ids: Prompt) -> Trace:
    """What a model of transformers returned for these ids, with hidden states or attentions, as a trace.

    It is to be called with ``output_hidden_states=True`` or ``output_attentions=True``; attentions need
    ``attn_implementation="eager"``. Errors as `import_file` has them.
    """
    arrays: dict[str, Any] = {}
    for name in ("hidden_states", "attentions"):
        given = getattr(outputs, name, None)
        for i, state in enumerate(given if isinstance(given, tuple | list) else ()):
            if not isinstance(state, Tensor):
                what = 'nothing (load the model with attn_implementation="eager")' if state is None else "no tensor"
                raise ArraysError(f"{name}[{i}] is {what}; give the outputs of one forward pass")
            arrays[f"{name}.{i}"] = state
    for name in ("logits", "last_hidden_state"):
        if isinstance(state := getattr(outputs, name, None), Tensor):
            arrays[name] = state
    if not arrays:
        raise ArraysError("the outputs hold no hidden states and no attentions; ask for output_hidden_states=True")
    return _imported(Given(arrays), _subject(model, None), ids, "transformers' outputs", None).trace


# -- the model -------------------------------------------------------------------------------------------------


def _subject(model: str | Path | Model, watch: Watch | None) -> Model:
    """The model that was recorded; without weights where they are not at hand."""
    if isinstance(model, Model):
        return model
    folder = _folder(model, watch)
    if folder.path.is_file() or hub.has_weights(folder.path, allow_pickle=False):
        with suppress(MemoryLimitError):
            return load_model(folder.path, device="cpu", watch=watch)
    tokenizer = Tokenizer.find(folder.path)
    cpu, dtype = torch.device("cpu"), torch.float32
    return Model(folder.config, build_program(folder.config), {}, tokenizer, cpu, dtype, str(folder.path))


def _folder(model: str | Path, watch: Watch | None) -> Folder:
    """Where the model's config is: of the hub what is in its cache will do, half of it too."""
    elsewhere = sample_folder(str(model)) is None and not Path(model).exists()
    named = hub.parse(str(model)) if elsewhere else None
    half = hub.cached(named) if named else None
    return find(model if half is None else half, watch)


# -- names -> sites --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wanted:
    """An array that is imported: as ``sites``, one of them or, where it is ``stacked``, one for each index."""

    name: str
    sites: tuple[str, ...]
    stacked: bool = False


def canonical(name: str) -> str:
    """A name without what spells it: ``blocks.0.attn.hook_q``, ``blocks/0/attn/q`` and ``blocks_0_attn_q`` are one."""
    return _ODD.sub("_", name.lower()).strip("_").replace("hook_", "")


def site_of(program: Program, name: str) -> str | None:
    """The site that a name of ours or of TransformerLens means, however it is spelled; None where it means none."""
    exact = normalise(name.replace("/", "."))
    if exact.endswith(f".attn.{SCORES}"):  # which are behind scale, bias and mask there
        exact = exact.removesuffix(SCORES) + "masked"
    if program.step(exact) is not None:
        return exact
    plainly = canonical(exact)
    if plainly.endswith(f"_attn_{SCORES}"):
        plainly = plainly.removesuffix(SCORES) + "masked"
    return _spelled(program).get(plainly)


@lru_cache(maxsize=16)
def _spelled(program: Program) -> dict[str, str]:
    """The sites by canonical name; of ….attn.out and ….attn_out, which share one, what is added to the stream."""
    return {canonical(step.site.name): step.site.name for step in program.steps}


def states(program: Program, layers: int) -> tuple[str, ...]:
    """The sites of transformers' ``hidden_states``: what enters each block, and what the head reads."""
    ends = [name for name in program.edges if program.site(name).axes[-1] == "d_model"]
    last = next((name for name in ("embed_out", "ln_final.normalized") if program.step(name)), ends[-1])
    return (*ends[:layers], last)


def _sort(arrays: Arrays, subject: Model) -> tuple[list[_Wanted], dict[str, str]]:
    """Which arrays are which sites, and why the others are left out. Raises ArraysError where none is."""
    program, layers = subject.program, subject.config.n_layers
    if subject.config.encoder_layers is not None:
        raise ArraysError(f"{subject.name} is an encoder-decoder; what is imported has one stack of blocks")
    rows = {"hidden_states": states(program, layers)}
    rows["attentions"] = tuple(f"blocks.{layer}.attn.pattern" for layer in range(layers))
    wanted, left_out = list[_Wanted](), dict[str, str]()
    for name in arrays.names:
        plainly = canonical(name)
        if plainly in IDS + ALL_ONES + COUNTED or name.startswith("__"):
            continue
        if plainly.startswith(TWO_STACKS):
            raise ArraysError(f"{_shown(name)} is of an encoder-decoder; what is imported has one stack of blocks")
        if "@" in name:
            raise ArraysError(f"{_shown(name)} is of a trace that layerstep saved; open that with `layerstep open`")
        numbered = _NUMBERED.fullmatch(plainly)
        sites = rows[numbered[1]] if numbered else rows.get(plainly, ())
        if numbered:
            sites = sites[(at := int(numbered[2])) : at + 1]
        elif plainly == "last_hidden_state":
            sites = rows["hidden_states"][-1:]
        elif plainly not in rows:
            site = site_of(program, name)
            sites = (site,) if site else ()
        if not sites:
            left_out[name] = f"no site of {subject.name}"
        elif _before_weight(program, name, sites[0]):
            left_out[name] = "TransformerLens has it before the norm's weight"
        else:
            wanted.append(_Wanted(name, sites, plainly in rows))
    if not wanted:
        raise ArraysError(
            f"nothing here fits a site of {subject.name}: {told(left_out) or 'there are no arrays'}; names are those "
            "of TransformerLens (blocks.0.attn.hook_z) or transformers (hidden_states.0, attentions.0)"
        )
    return wanted, left_out


def _before_weight(program: Program, name: str, site: str) -> bool:
    """Whether a hook of TransformerLens holds something else than the site: its RMSNorms record before the weight."""
    step = program.step(site)
    return "hook_normalized" in name and step is not None and isinstance(step.op, RMSNorm) and step.op.weighted


def told(names: Iterable[str]) -> str:
    """Names as a notice has them."""
    names = list(names)
    shown = ", ".join(map(_shown, names[:NAMED]))
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def _shown(name: str) -> str:
    text = display(name)
    return text if len(text) <= 80 else f"{text[:79]}…"


# -- arrays -> a trace -----------------------------------------------------------------------------------------


def _imported(arrays: Arrays, subject: Model, ids: Prompt | None, source: str, watch: Watch | None) -> Imported:
    wanted, left_out = _sort(arrays, subject)
    rows, text, said = _tokens(arrays, subject, ids)
    said += check_length(subject.config, len(rows[0]))
    sizes = subject.config.axis_sizes(len(rows), len(rows[0]))
    for one in wanted:
        _check(one, arrays, subject, sizes)
    dtype = _dtype(wanted, arrays, subject.program)
    need = sum(prod(arrays.shape(one.name)) * max(4, dtype.itemsize) for one in wanted)
    refuse_if_too_much(need, f"importing {len(wanted)} arrays", torch.device("cpu"), advice="import fewer of them")
    kept: dict[str, Tensor] = {}
    by: dict[str, str] = {}
    for done, one in enumerate(wanted):
        if watch is not None:
            watch(done, len(wanted), _shown(one.name))
        for site, tensor in _tensors(one, arrays, subject.program, sizes, dtype):
            if site in kept and not torch.equal(kept[site], tensor):
                raise ArraysError(f"{_shown(by[site])} and {_shown(one.name)} are both {site}, and they differ")
            kept.setdefault(site, tensor)
            by.setdefault(site, one.name)
    for step in reversed(subject.program.steps):  # the same tensor by the name that it had before
        if isinstance(step.op, Carry) and step.site.name in kept:
            kept.setdefault(step.reads[0], kept[step.site.name])
    kept = {step.site.name: kept[step.site.name] for step in subject.program.steps if step.site.name in kept}
    notices = [f"imported from {source}: layerstep did not compute the {noun(len(kept), 'tensor')} in it", *said]
    for why in dict.fromkeys(left_out.values()):
        notices.append(f"left out ({why}): {told(name for name in left_out if left_out[name] == why)}")
    made = _trace(subject, rows, text, kept, dtype, notices)
    made.notices = (*notices, *_doubts(made, subject, watch))
    return Imported(made, {one.name: one.sites for one in wanted}, left_out)


def _tokens(arrays: Arrays, subject: Model, ids: Prompt | None) -> tuple[list[list[Token]], str, list[str]]:
    """The rows of tokens, their text, and what there is to say of them. Raises ArraysError and PromptError."""
    by_name = {canonical(name): name for name in arrays.names}
    named = {name: _whole(arrays, by_name[name]) for name in IDS if name in by_name}
    inside = next(iter(named.values()), None)
    if other := next((name for name, ids_there in named.items() if ids_there != inside), None):
        raise ArraysError(f"{next(iter(named))} and {other} are both the tokens, and they differ")
    prompt = inside if ids is None else plain(ids)
    if prompt is None:
        raise ArraysError(f"there are no tokens here ({' or '.join(IDS[:2])}); give them with --ids or --prompt")
    rows, text, said = tokenise(subject, prompt, literal=False, chat=False)
    if len({len(row) for row in rows}) > 1:
        raise ArraysError("the prompts are of different lengths; import each alone, without padding")
    if inside not in (None, [[token.id for token in row] for row in rows]):
        raise ArraysError("the tokens that are given are not those in the file; leave --ids and --prompt out")
    n = len(rows[0])
    for name in (*ALL_ONES, *COUNTED):
        ought = [1] * n if name in ALL_ONES else list(range(n))
        if name in by_name and any(row != ought for row in _whole(arrays, by_name[name])):
            why = "hides tokens" if name in ALL_ONES else "does not count from 0"
            raise ArraysError(f"{name} {why}; import each prompt alone, without padding, from its first token on")
    return rows, text, said


def _whole(arrays: Arrays, name: str) -> list[list[int]]:
    """Rows of whole numbers, [pos] or [batch pos] in the file."""
    shape, dtype = arrays.shape(name), arrays.dtype(name)
    if len(shape) not in (1, 2) or not 0 < prod(shape) <= MOST_TOKENS or not dtype.startswith(("int", "uint", "bool")):
        raise ArraysError(
            f"{_shown(name)} is {_shown(str(list(shape)))} of {_shown(dtype)}, and should be whole numbers [batch, pos]"
        )
    rows: list[list[int]] = arrays.tensor(name).reshape(-1, shape[-1]).tolist()
    return rows


def _check(one: _Wanted, arrays: Arrays, subject: Model, sizes: Mapping[str, int]) -> None:
    """Refuse an array of another shape than the config asks for, or that is no floating-point numbers."""
    shape, dtype = arrays.shape(one.name), arrays.dtype(one.name)
    step = subject.program.step(one.sites[0])
    assert step is not None
    ought = step.site.shape(sizes)
    ought = (len(one.sites), *ought) if one.stacked else ought
    if shape not in (ought, _without_batch(ought, one, sizes)):
        n = sizes["pos"]
        raise ArraysError(
            f"{_shown(one.name)} is {_shown(str(list(shape)))}, and for {noun(n, 'token')} of {subject.name} "
            f"{told(one.sites)} is {list(ought)}"
        )
    if step.op.int64 != (dtype == "int64") or (not step.op.int64 and dtype not in DTYPES):
        kind = "int64" if step.op.int64 else ", ".join(ITEMSIZE)
        raise ArraysError(f"{_shown(one.name)} is {_shown(dtype)}, and should be {kind}")


def _without_batch(ought: Sequence[int], one: _Wanted, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """The shape of one prompt where its axis was dropped."""
    at = int(one.stacked)
    return (*ought[:at], *ought[at + 1 :]) if sizes["batch"] == 1 and ought[at] == 1 else None


def _dtype(wanted: Sequence[_Wanted], arrays: Arrays, program: Program) -> torch.dtype:
    """The widest dtype of what is on the path, where anything is; else of all."""
    on_path = [one for one in wanted if (step := program.step(one.sites[0])) is not None and step.on_path]
    found = [DTYPES[arrays.dtype(one.name)] for one in on_path or wanted if arrays.dtype(one.name) in DTYPES]
    widest = found[0] if found else torch.float32
    for dtype in found:
        widest = torch.promote_types(widest, dtype)
    return widest


def _tensors(
    one: _Wanted, arrays: Arrays, program: Program, sizes: Mapping[str, int], dtype: torch.dtype
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of an array by site, as a trace holds them."""
    whole = arrays.tensor(one.name)
    for site, tensor in zip(one.sites, whole if one.stacked else (whole,), strict=True):
        step = program.step(site)
        assert step is not None
        if step.op.int64 and not bool(((tensor >= 0) & (tensor < sizes["expert"])).all()):
            raise ArraysError(f"{_shown(one.name)} names an expert that is not there")
        own = tensor.to(step.dtype(dtype), copy=True)  # whatever becomes of the arrays
        yield site, own.contiguous().reshape(step.site.shape(sizes))


def _trace(
    subject: Model, rows: list[list[Token]], text: str, kept: dict[str, Tensor], dtype: torch.dtype, said: list[str]
) -> Trace:
    places = counted(rows, 0)
    cpu = Model(subject.config, subject.program, {}, subject.tokenizer, torch.device("cpu"), dtype, subject.source)
    tokens, here = on_device(cpu, rows, places)
    given: dict[str, Int[Tensor, "batch pos"]] = {"tokens": tokens, "positions": here, "key_positions": here}
    n = len(rows[0])
    info = PassInfo(dtype, extents=(n,) * len(rows))
    return Trace(
        subject.config,
        subject.program,
        None,
        (Pass(0, n, info, given, kept),),
        tuple(map(tuple, rows)),
        prompt=text,
        label_of=subject.tokenizer.label if subject.tokenizer else None,
        notices=tuple(said),
        fingerprint=fingerprint(subject.weights) if subject.weights else "",
    )


# -- is it so? -------------------------------------------------------------------------------------------------


def _doubts(made: Trace, subject: Model, watch: Watch | None) -> Iterator[str]:
    """What of the imported tensors is not as it should be: invariants, and the model's own run where it can be had."""
    failed = [check for check in made.iter_checks() if not check.ok]
    if failed:
        do = "does" if len(failed) == 1 else "do"
        yield f"{noun(len(failed), 'check')} {do} not hold, the first in {failed[0].site}: {failed[0].text}"
    if not subject.weights:
        return
    ids = [[token.id for token in row] for row in made.tokens]
    names = [name for name in made.passes[0].kept if made.passes[0].kept[name].is_floating_point()]
    try:
        own = trace(subject, ids, keep=names, watch=watch)
    except (MemoryLimitError, PromptError) as error:
        yield f"{subject.name}'s own run could not be made to compare with: {error}"
        return
    gaps = {name: _gap(made.site(name, 0), own.site(name, 0)) for name in names}
    most = max(LARGEST_GAP[made.dtype], LARGEST_GAP[own.dtype])
    other = [name for name in names if not gaps[name] <= most]
    if not other:
        yield f"{subject.name}'s own run agrees: no tensor is off by more than {max(gaps.values(), default=0):.1g}"
        return
    first, gap = other[0], gaps[other[0]]
    by = f"by {gap:.2g} of its largest number" if gap < float("inf") else "which is finite in other places"
    yield (
        f"{len(other)} of {noun(len(names), 'tensor')} are not those of {subject.name}'s own run, the first {first}, "
        f"{by}: other weights, or a norm folded into them (TransformerLens does, unless loaded with "
        "from_pretrained_no_processing)"
    )


def _gap(x: Tensor, own: Tensor) -> float:
    """max |x − own|, relative to the larger of 1 and max |own|, where both are finite; masked cells are −∞ in both."""
    x, own = at_least_float32(x), at_least_float32(own.cpu())
    if not torch.equal(x.isfinite(), own.isfinite()):
        return float("inf")
    x, own = (t.masked_fill(~t.isfinite(), 0).double() for t in (x, own))
    return float((x - own).abs().max() / own.abs().max().clamp(min=1)) if x.numel() else 0.0
