"""Runs a prompt and records it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from engine.config import ModelConfig
from engine.errors import PromptError
from engine.model import Model
from engine.ops.base import PassInfo
from engine.ops.kernels import KERNELS
from engine.ops.mask import PADDING, is_dense
from engine.plan import Keep, Plan, plan_pass, refuse_if_too_large
from engine.runner import Watch, run
from engine.runtime import available_memory
from engine.text import Token, clean_prompt, display
from engine.traces import Pass, Trace, fingerprint

NEVER_REFUSED = 32 * 1024 * 1024
"""Bytes that a run may take without asking how much memory is free; asking takes longer than a small pass."""

Prompt = str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]] | Int[Tensor, "*batch pos"]

NO_PROMPT = "a prompt is text, token ids, or a list of either"


def trace(
    model: Model,
    prompt: Prompt,
    *,
    keep: Keep = "all",
    kernel: str = "auto",
    positions: Sequence[int] | None = None,
    max_memory: int | None = None,
    literal: bool = False,
    watch: Watch | None = None,
) -> Trace:
    """Run a prompt and record it.

    ``prompt`` is text, token ids, or a list of either; a list is padded on the left and the padding masked.
    ``keep``: "all", "residual", or site patterns. ``kernel``: auto, flash, efficient, cudnn, math. ``positions``
    gives every token its own position in place of 0, 1, 2 … ``max_memory`` is in bytes, by default what is free.
    ``literal`` reads special-token text in the prompt as ordinary text. Raises PromptError, MemoryLimitError,
    KernelError, and Cancelled where ``watch`` does.
    """
    rows, text, notices = _tokenise(model, prompt, literal)
    return _record(model, rows, text, notices, None, [[]] * len(rows), keep, kernel, positions, max_memory, watch)


def extend(
    model: Model, before: Trace, tokens: Sequence[int], *, keep: Keep = "all", watch: Watch | None = None
) -> Trace:
    """A new trace with one more pass: ``tokens`` after the prompt of ``before``, on its cached keys and values."""
    if len(before.tokens) != 1:
        raise PromptError("a trace of a batch cannot be extended; trace each prompt alone")
    if not model.config.causal:
        raise PromptError(f"{model.name} looks both ways, so new tokens would change what earlier ones saw; trace anew")
    same = before.weights is model.weights or (  # mostly the very ones, and then nothing has to be read
        replace(before.config, name=model.name) == model.config and before.fingerprint == fingerprint(model.weights)
    )
    if not same or before.dtype is not model.dtype:
        raise PromptError(f"the trace is of another model, {display(before.config.name)}; extend it with its own")
    if before.device != model.device:
        raise PromptError(f"the trace is on {before.device} and {model.name} on {model.device}; load it there")
    ids = _ids(model.config, tokens)
    if not ids:
        raise PromptError("there are no tokens to extend the trace with; give at least one")
    if model.tokenizer is None:
        whole, text = [*before.tokens[0], *map(_bare_token, ids)], before.prompt
    else:  # a character may have begun in the pass before
        whole = model.tokenizer.extend(before.tokens[0], ids)
        text = model.tokenizer.decode(token.id for token in whole)
    earlier, rows = [whole[: len(before)]], [whole[len(before) :]]
    kernel = before.passes[-1].info.kernel
    return _record(model, rows, text, list(before.notices), before, earlier, keep, kernel, None, None, watch)


def plan_trace(model: Model, n_tokens: int, *, batch: int = 1, keep: Keep = "all") -> Plan:
    """Bytes and FLOPs of recording ``n_tokens`` new tokens, before anything runs."""
    return plan_pass(model.program, model.config.axis_sizes(batch, n_tokens), model.dtype.itemsize, keep)


def _record(
    model: Model,
    rows: list[list[Token]],
    text: str,
    notices: list[str],
    before: Trace | None,
    earlier: list[list[Token]],
    keep: Keep,
    kernel: str,
    positions: Sequence[int] | None,
    max_memory: int | None,
    watch: Watch | None,
) -> Trace:
    if kernel not in KERNELS:
        raise PromptError(f"kernel {display(str(kernel))!r} is not known; known are {', '.join(KERNELS)}")
    if max_memory is not None and not (isinstance(max_memory, int | float) and max_memory >= 0):
        raise PromptError(f"max_memory must be a number of bytes, but is {display(repr(max_memory))[:80]}")
    start, length = before.length if before else 0, max(map(len, rows))
    if start <= model.config.n_ctx:  # else it was said before
        notices += _check_length(model.config, start + length)
    sizes = model.config.axis_sizes(len(rows), length, start)
    plan = plan_pass(model.program, sizes, model.dtype.itemsize, keep)
    if max_memory is not None or plan.peak > NEVER_REFUSED:
        limit = available_memory(model.device) if max_memory is None else max_memory
        cheaper = plan_pass(model.program, sizes, model.dtype.itemsize, "residual") if keep != "residual" else None
        refuse_if_too_large(plan, cheaper, f"recording {len(rows)} × {length} tokens", limit)
    places = _places(model, rows, before, positions)
    given = _inputs(model, rows, places, before)
    dense = is_dense(places, start) and (before is None or before.passes[-1].info.dense)
    info = PassInfo(model.dtype, dense, kernel)
    old = before.passes if before else ()
    tokens = tuple(
        (*old_row, *([_pad(model)] * (length - len(row))), *row) for old_row, row in zip(earlier, rows, strict=True)
    )
    began = time.perf_counter()
    kept = run(model.program, model.weights, given | _past(model, before, len(rows)), plan.wanted, info, watch)
    new = Pass(start, length, info, given, kept, time.perf_counter() - began)
    return Trace(
        model.config,
        model.program,
        model.weights,
        (*old, new),
        tokens,
        prompt=text,
        label_of=model.tokenizer.label if model.tokenizer else None,
        notices=tuple(notices),
        source=model.source,
    )


def _past(model: Model, before: Trace | None, batch: int) -> dict[str, Tensor]:
    """The keys and values of earlier passes, for every layer. [batch past kv_head d_head]"""
    names = [site.name for site in model.program.inputs if "past" in site.axes]
    if before is None:
        c = model.config
        return dict.fromkeys(names, torch.empty(batch, 0, c.kv_heads, c.d_head, device=model.device, dtype=model.dtype))
    return {name: before.site(name.replace(".past_", ".cache_"), len(before.passes) - 1) for name in names}


def _places(
    model: Model, rows: list[list[Token]], before: Trace | None, positions: Sequence[int] | None
) -> list[list[int]]:
    """Where each token stands; padding, on the left, has position −1."""
    start, length = before.length if before else 0, max(map(len, rows))
    most = model.config.n_ctx - 1 if model.config.positions == "learned" else 2**31
    if positions is not None:
        positions = _plain(positions)
        fit = all(isinstance(p, Integral) and not isinstance(p, bool) and 0 <= int(p) <= most for p in positions)
        if len(rows) != 1 or len(positions) != length or not fit:
            raise PromptError(f"positions must be {length} numbers in 0…{most}, one for each token of one prompt")
        return [list(positions)]
    if before is not None and not before.passes[-1].info.dense:  # positions were given: go on from the last
        start = int(before.passes[-1].given["key_positions"].max()) + 1
        if start + length - 1 > most:
            raise PromptError(f"the next positions, {start} and on, are beyond the {most + 1} of {model.name}")
    return [[PADDING] * (length - len(row)) + list(range(start, start + len(row))) for row in rows]


def _inputs(
    model: Model, rows: list[list[Token]], places: list[list[int]], before: Trace | None
) -> dict[str, Int[Tensor, "batch pos"]]:
    """tokens, positions and key_positions of a pass."""
    pad, length = _pad(model).id, max(map(len, rows))
    ids = [[pad] * (length - len(row)) + [t.id for t in row] for row in rows]
    ahead = model.device.type == "cuda"  # the host goes on at once: a plain copy would wait for the device
    tokens, here = (torch.tensor(x, dtype=torch.int64).to(model.device, non_blocking=ahead) for x in (ids, places))
    keys = here if before is None else torch.cat((before.passes[-1].given["key_positions"], here), dim=1)
    return {"tokens": tokens, "positions": here, "key_positions": keys}


def _tokenise(model: Model, prompt: Prompt, literal: bool) -> tuple[list[list[Token]], str, list[str]]:
    """Rows of tokens, the prompt as text, and what to tell the user about it."""
    prompt = _plain(prompt)
    one_prompt = isinstance(prompt, str) or not prompt or isinstance(prompt[0], Integral)
    batch: list[Any] = [prompt] if one_prompt else list(prompt)
    rows: list[list[Token]] = []
    texts: list[str] = []
    notices: list[str] = []
    for one in batch:
        if isinstance(one, str):
            text, said = clean_prompt(one)
            rows.append(_tokens_of_text(model, text, literal))
            texts.append(text)
            notices += said
        else:
            rows.append(_tokens_of_ids(model, one))
            texts.append(model.tokenizer.decode([t.id for t in rows[-1]]) if model.tokenizer else "")
        if not rows[-1]:
            raise PromptError(
                "the prompt is empty and this model's tokenizer adds nothing to it; give at least one token"
            )
    return rows, "\n".join(texts), notices


def _tokens_of_text(model: Model, text: str, literal: bool) -> list[Token]:
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer; give token ids instead of text")
    tokens = model.tokenizer.encode(text, literal=literal)
    _ids(model.config, [token.id for token in tokens])
    return tokens


def _tokens_of_ids(model: Model, prompt: object) -> list[Token]:
    ids = _ids(model.config, prompt)
    return model.tokenizer.extend([], ids) if model.tokenizer else [_bare_token(i) for i in ids]


def _bare_token(i: int) -> Token:
    """A token of a model without a tokenizer."""
    return Token(i, b"", f"‹id {i}›", 0, 0)


def _plain(prompt: object) -> Any:
    """A tensor or an array as lists. Raises PromptError for what is no prompt at all."""
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray):
        raise PromptError(NO_PROMPT)
    return prompt


def _ids(config: ModelConfig, prompt: object) -> list[int]:
    """Token ids as plain numbers, each within the vocabulary."""
    ids = _plain(prompt)
    if isinstance(ids, str) or not all(isinstance(i, Integral) and not isinstance(i, bool) for i in ids):
        raise PromptError(NO_PROMPT)
    for i in ids:
        if not 0 <= i < config.d_vocab:
            raise PromptError(f"token id {i} is outside 0…{config.d_vocab - 1}, the vocabulary of {config.name}")
    return [int(i) for i in ids]


def _check_length(config: ModelConfig, length: int) -> list[str]:
    """Refuse, or say, that a prompt is longer than the model was trained for."""
    if length <= config.n_ctx:
        return []
    if config.positions == "learned":
        raise PromptError(
            f"the prompt has {length} tokens, but {config.name} has only {config.n_ctx} positions; shorten it"
        )
    return [
        f"{length} tokens are more than the {config.n_ctx} that {config.name} was trained on: expect nonsense beyond"
    ]


def _pad(model: Model) -> Token:
    pad = model.config.pad_token_id
    known = pad is not None and 0 <= pad < model.config.d_vocab
    return Token(pad if known and pad is not None else 0, b"", "‹pad›", 0, 0, special=True, origin="tokenizer")
