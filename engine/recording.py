"""Runs a prompt and records it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from numbers import Integral
from typing import get_args

import torch
from jaxtyping import Int
from torch import Tensor

from engine.cache import Held, KVCache
from engine.editing import edited_model, edits_in, refuse_nowhere
from engine.edits import Edit, said
from engine.errors import PromptError
from engine.model import Model
from engine.ops.base import PassInfo
from engine.ops.kernels import KERNELS
from engine.ops.mask import PADDING, is_dense
from engine.plan import Keep, Plan, check_limit, kept_sites, plan_pass, prompt_sizes, refuse_if_too_much
from engine.prompts import (
    Prompt,
    Side,
    check_length,
    has_encoder,
    has_padding,
    pad_of,
    padded,
    plain,
    targets_of,
    tokenise,
)
from engine.runner import run
from engine.runtime import Stopwatch, Watch
from engine.text import Token, display
from engine.traces import Pass, Trace

SOURCE = ("source_tokens", "source_positions")


def trace(
    model: Model,
    prompt: Prompt,
    *,
    keep: Keep = "all",
    kernel: str = "auto",
    positions: Sequence[int] | None = None,
    max_memory: int | None = None,
    literal: bool = False,
    chat: bool = False,
    padding: Side = "left",
    target: Prompt | None = None,
    goes_on: bool = False,
    edits: Sequence[Edit | str] = (),
    watch: Watch | None = None,
) -> Trace:
    """Run a prompt and record it.

    ``prompt`` is text, token ids, or a list of either; the prompts of a list are padded to one length, on the
    left or on the right (``padding``), and the padding is masked.
    ``keep``: "all", "residual", or site patterns. ``kernel``: auto, flash, efficient, cudnn, math. ``positions``
    gives every token its own position in place of 0, 1, 2 … ``max_memory`` is in bytes, by default what is free.
    An encoder-decoder's encoder reads the prompt; ``target`` is what the decoder has written so far, after its start
    token (one for each prompt of a list). ``literal`` reads special-token text in the prompt as ordinary text.
    ``chat`` puts a text through the model's chat template as one message of the user; messages, as
    ``{"role": "user", "content": "Hello"}``, go through it anyway. ``goes_on``: beside what is kept the trace holds the
    cache and the logits, which a next pass needs and would else have to run the prompt again for. ``edits`` are
    what-ifs, as ``"blocks.2.attn.z[h=3] = 0"``. Raises PromptError, EditError, AddressError, MemoryLimitError,
    KernelError, TokenizerError where there is no template, and Cancelled where ``watch`` does.
    """
    c, model = model.config, edited_model(model, edits)
    rows, text, notices = tokenise(model, prompt, literal, chat)
    if padding not in get_args(Side):
        raise PromptError(f"padding must be left or right, but is {display(repr(padding))[:80]}")
    if goes_on and len(rows) > 1:
        raise PromptError("a batch cannot be gone on with; take each prompt alone")
    source = padded(rows, pad_of(model), padding)
    rows = padded(targets_of(model, target, len(rows)), pad_of(model), padding) if has_encoder(model) else source
    if not has_encoder(model) and target is not None:
        raise PromptError(f"{model.name} is no encoder-decoder, so it has no target; give one text")
    if has_encoder(model) and positions is not None:
        raise PromptError("an encoder-decoder counts two texts; positions cannot be given")
    if edits and not goes_on:  # what follows may reach further
        refuse_nowhere(model.program, len(rows), len(rows[0]), len(source[0]))
    notices = [*notices, *map(said, edits_in(model.program))]
    return first_pass(
        model, rows, source, text, notices, keep, kernel, positions, max_memory, watch, goes_on=goes_on and c.causal
    )


def plan_trace(model: Model, n_tokens: int, *, batch: int = 1, keep: Keep = "all") -> Plan:
    """Bytes and FLOPs of recording ``n_tokens`` new tokens, before anything runs.

    An encoder-decoder's encoder reads them, and the decoder only its start token.
    """
    return plan_pass(model.program, prompt_sizes(model.config, n_tokens, batch), model.dtype.itemsize, keep)


def first_pass(
    model: Model,
    rows: list[list[Token]],
    source: list[list[Token]],
    text: str = "",
    notices: Sequence[str] = (),
    keep: Keep = "all",
    kernel: str = "auto",
    positions: Sequence[int] | None = None,
    max_memory: int | None = None,
    watch: Watch | None = None,
    *,
    goes_on: bool = False,
) -> Trace:
    """A trace of these rows of tokens, the options as `trace` has them."""
    c, program = model.config, model.program
    if kernel not in KERNELS:
        raise PromptError(f"kernel {display(str(kernel))!r} is not known; known are {', '.join(KERNELS)}")
    check_limit(max_memory)
    src = len(source[0]) if has_encoder(model) else 0
    notices = list(dict.fromkeys((*notices, *check_length(c, max(len(rows[0]), src)))))
    read_later = [name for name in ("logits", *program.handed_on) if program.step(name)] if goes_on else []
    more = [*program.caches.values(), *read_later] if goes_on else []
    kept = kept_sites(program, keep)
    held = [*kept, *more] if more else keep
    wanted = _affordable(model, len(rows), len(rows[0]), src, held, max_memory).wanted
    places = _places(model, rows, positions)
    tokens, here = on_device(model, rows, places)
    given = {"tokens": tokens, "positions": here, "key_positions": here, **_nothing_before(model, len(rows))}
    if has_encoder(model):
        given |= dict(zip(SOURCE, on_device(model, source, counted(source, 0)), strict=True))
    dense = is_dense(places, 0) and not (has_encoder(model) and any(map(has_padding, source)))
    info = PassInfo(model.dtype, dense, kernel, extents=tuple(1 + max(row) for row in places))
    took = Stopwatch(model.device)
    made = run(program, model.weights, given, wanted, info, watch)
    took.stop()
    recorded = {name: made[name] for name in kept} if more else made
    inputs = {name: tensor for name, tensor in given.items() if name not in program.caches}
    begun = trace_of(
        model,
        [Pass(0, len(rows[0]), info, inputs, recorded, took)],
        tuple(map(tuple, rows)),
        text,
        tuple(notices),
        tuple(map(tuple, source)) if has_encoder(model) else (),
        held_after(model, made, {}, len(rows[0])) if goes_on else None,
    )
    for name in read_later:
        begun.remember(name, 0, made[name])
    return begun


def trace_of(
    model: Model,
    passes: Sequence[Pass],
    tokens: tuple[tuple[Token, ...], ...],
    text: str,
    notices: tuple[str, ...],
    source_tokens: tuple[tuple[Token, ...], ...],
    cache: KVCache | None,
) -> Trace:
    """The trace of passes of a model; ``text`` is what its tokens say."""
    return Trace(
        model.config,
        model.program,
        model.weights,
        tuple(passes),
        tokens,
        prompt=text,
        label_of=model.tokenizer.label if model.tokenizer else None,
        notices=notices,
        source=model.source,
        source_tokens=source_tokens,
        cache=cache,
    )


def held_after(model: Model, made: dict[str, Tensor], appended: dict[str, Held], length: int) -> KVCache:
    """What the next pass needs of what a pass attended to, of ``length`` positions in all."""
    held = {}
    for past, cache in model.program.caches.items():
        rows = appended[past] if past in appended else Held.of(made[cache], length - made[cache].shape[1])
        held[past] = rows.last(model.program.site(past).held(length))
    return KVCache(held)


def _affordable(model: Model, batch: int, length: int, src: int, keep: Keep, max_memory: int | None) -> Plan:
    """The plan of the first pass. Raises MemoryLimitError where it is over the limit."""
    sizes = model.config.axis_sizes(batch, length, 0, src)
    plan = plan_pass(model.program, sizes, model.dtype.itemsize, keep)
    what = f"recording {batch} × {length} tokens" + (f" after a source of {src}" if src else "")
    refuse_if_too_much(
        plan.peak, what, model.device, max_memory,
        residual=lambda: plan_pass(model.program, sizes, model.dtype.itemsize, "residual").peak,
    )  # fmt: skip
    return plan


def _nothing_before(model: Model, batch: int) -> dict[str, Tensor]:
    """The keys and values of earlier passes where there are none. [batch 0 kv_head d_head] each"""
    c = model.config
    none = torch.empty(batch, 0, c.kv_heads, c.d_head, device=model.device, dtype=model.dtype)
    return dict.fromkeys(model.program.caches, none)


def _places(model: Model, rows: list[list[Token]], positions: Sequence[int] | None) -> list[list[int]]:
    """Where each token stands; padding has position −1."""
    if positions is None:
        return counted(rows, 0)
    length, most = len(rows[0]), last_position(model)
    positions = plain(positions)
    fit = all(isinstance(p, Integral) and not isinstance(p, bool) and 0 <= int(p) <= most for p in positions)
    if len(rows) != 1 or len(positions) != length or not fit:
        raise PromptError(f"positions must be {length} numbers in 0…{most}, one for each token of one prompt")
    return [list(positions)]


def last_position(model: Model) -> int:
    """The largest position that a token may have."""
    return model.config.n_ctx - 1 if model.config.positions == "learned" else 2**31


def counted(rows: Sequence[Collection[Token]], start: int) -> list[list[int]]:
    """Positions counted up from ``start`` in each row, padding left out."""
    places = []
    for row in rows:
        count = iter(range(start, start + len(row)))
        places.append([PADDING if token.origin == "padding" else next(count) for token in row])
    return places


def on_device(
    model: Model, rows: Sequence[Sequence[Token]], places: list[list[int]]
) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"]]:
    """Ids and positions as tensors."""
    return numbers(model, [[token.id for token in row] for row in rows]), numbers(model, places)


def numbers(model: Model, rows: list[list[int]]) -> Int[Tensor, "batch pos"]:
    """Whole numbers on the model's device."""
    tensor = torch.tensor(rows, dtype=torch.int64)
    # On CUDA the host goes on at once: a plain copy would wait for the device.
    return tensor if model.device.type == "cpu" else tensor.to(model.device, non_blocking=model.device.type == "cuda")
