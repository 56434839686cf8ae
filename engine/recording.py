"""Runs a prompt and records it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from engine.chat import Messages
from engine.config import ModelConfig
from engine.errors import PromptError
from engine.model import Model
from engine.ops.base import PassInfo
from engine.ops.kernels import KERNELS
from engine.ops.mask import PADDING, is_dense
from engine.ops.rotary import regime
from engine.plan import Keep, Plan, plan_pass, prompt_sizes, refuse_if_too_large
from engine.runner import run
from engine.runtime import Watch, available_memory
from engine.text import Token, clean_prompt, display
from engine.told import SCALINGS
from engine.traces import Pass, Trace, fingerprint

NEVER_REFUSED = 32 * 1024 * 1024
"""Bytes that a run may take without asking how much memory is free; asking takes longer than a small pass."""

Prompt = (
    str
    | Messages
    | Sequence[int]
    | Sequence[str]
    | Sequence[Sequence[int]]
    | Sequence[Messages]
    | Int[Tensor, "*batch pos"]
)

Side = Literal["left", "right"]
SOURCE = ("source_tokens", "source_positions")

NO_PROMPT = "a prompt is text, token ids, or a list of either"
NO_TOKENIZER = "{} has no tokenizer; give token ids instead of text (--ids)"


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
    ``{"role": "user", "content": "Hello"}``, go through it anyway. Raises PromptError, MemoryLimitError, KernelError,
    TokenizerError where there is no template, and Cancelled where ``watch`` does.
    """
    rows, text, notices = _tokenise(model, prompt, literal, chat)
    if padding not in get_args(Side):
        raise PromptError(f"padding must be left or right, but is {display(repr(padding))[:80]}")
    source = _padded(rows, _pad(model), padding)
    rows = _padded(_targets(model, target, len(rows)), _pad(model), padding) if _has_encoder(model) else source
    if not _has_encoder(model) and target is not None:
        raise PromptError(f"{model.name} is no encoder-decoder, so it has no target; give one text")
    if _has_encoder(model) and positions is not None:
        raise PromptError("an encoder-decoder counts two texts; positions cannot be given")
    start: list[list[Token]] = [[]] * len(rows)
    return _record(model, rows, source, text, notices, None, start, keep, kernel, positions, max_memory, watch)


def extend(
    model: Model, before: Trace, tokens: str | Sequence[int], *, keep: Keep = "all", watch: Watch | None = None
) -> Trace:
    """A new trace with one more pass: ``tokens`` after the prompt of ``before``, on its cached keys and values.

    ``tokens`` are ids, or a text, which is tokenised by itself and without the special tokens that a prompt gets; with
    an encoder-decoder it is more of what the decoder writes. Raises PromptError for a trace of a batch, of another
    model, or of one that looks both ways.
    """
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
    ids, said = _more_ids(model, tokens)
    if not ids:
        raise PromptError("there are no tokens to extend the trace with; give at least one")
    if model.tokenizer is None:
        whole, text = [*before.tokens[0], *map(_bare_token, ids)], before.prompt
    else:  # a character may have begun in the pass before
        whole = model.tokenizer.extend(before.tokens[0], ids)
        text = model.tokenizer.decode(token.id for token in whole)
    earlier, rows = [whole[: len(before)]], [whole[len(before) :]]
    kernel, source = before.passes[-1].info.kernel, [list(row) for row in before.source_tokens]
    notices = list(dict.fromkeys((*before.notices, *said)))
    return _record(model, rows, source, text, notices, before, earlier, keep, kernel, None, None, watch)


def _more_ids(model: Model, tokens: str | Sequence[int]) -> tuple[list[int], list[str]]:
    """Token ids of what a trace is extended with, and what to tell the user about it."""
    if not isinstance(tokens, str):
        return _ids(model.config, tokens), []
    if model.tokenizer is None:
        raise PromptError(NO_TOKENIZER.format(model.name))
    tokenizer = model.tokenizer.target if _has_encoder(model) else model.tokenizer
    text, said = clean_prompt(tokens)
    return _ids(model.config, [token.id for token in tokenizer.encode(text, add_special=False)]), said


def plan_trace(model: Model, n_tokens: int, *, batch: int = 1, keep: Keep = "all") -> Plan:
    """Bytes and FLOPs of recording ``n_tokens`` new tokens, before anything runs.

    An encoder-decoder's encoder reads them, and the decoder only its start token.
    """
    return plan_pass(model.program, prompt_sizes(model.config, n_tokens, batch), model.dtype.itemsize, keep)


def _record(
    model: Model,
    rows: list[list[Token]],
    source: list[list[Token]],
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
    start, length = before.length if before else 0, len(rows[0])
    if start <= model.config.n_ctx:  # else it was said before
        said = check_length(model.config, max(start + length, len(source[0]) if source else 0))
        notices += [notice for notice in said if notice not in notices]
    sizes = model.config.axis_sizes(len(rows), length, start, len(source[0]) if _has_encoder(model) else 0)
    plan = plan_pass(model.program, sizes, model.dtype.itemsize, keep)
    if max_memory is not None or plan.peak > NEVER_REFUSED:
        limit = available_memory(model.device) if max_memory is None else max_memory
        cheaper = plan_pass(model.program, sizes, model.dtype.itemsize, "residual") if keep != "residual" else None
        what = f"recording {len(rows)} × {length} tokens"
        if _has_encoder(model):
            what += f" after a source of {len(source[0])}"
        refuse_if_too_large(plan, cheaper, what, limit)
    places = _places(model, rows, before, positions)
    given = _inputs(model, rows, places, before)
    dense = is_dense(places, start) and (before is None or before.passes[-1].info.dense)
    if _has_encoder(model):
        read = {name: before.passes[0].given[name] for name in SOURCE} if before else _source_inputs(model, source)
        given, dense = given | read, dense and not any(map(_has_padding, source))
    earlier_extents = before.passes[-1].info.extents if before else (0,) * len(rows)
    extents = tuple(max(1 + max(row), extent) for row, extent in zip(places, earlier_extents, strict=True))
    info = PassInfo(model.dtype, dense, kernel, extents=extents)
    if before is not None:
        notices += [said for said in _check_angles(model.config, before, extents) if said not in notices]
    old = before.passes if before else ()
    tokens = tuple((*old_row, *row) for old_row, row in zip(earlier, rows, strict=True))
    began = time.perf_counter()
    once = model.program.once
    wanted = [name for name in plan.wanted if name not in once] if before is not None and once else plan.wanted
    past = _past(model, before, len(rows))
    kept = run(model.program, model.weights, given | past, wanted, info, watch)
    new = Pass(start, length, info, given, kept, time.perf_counter() - began)
    recorded = Trace(
        model.config,
        model.program,
        model.weights,
        (*old, new),
        tokens,
        prompt=text,
        label_of=model.tokenizer.label if model.tokenizer else None,
        notices=tuple(notices),
        source=model.source,
        source_tokens=tuple(map(tuple, source)) if _has_encoder(model) else (),
    )
    for name in past.keys() & model.program.handed_on:  # else the next token would have the encoder run again
        recorded.remember(name, 0, past[name])
    return recorded


def _has_encoder(model: Model) -> bool:
    return model.config.encoder_layers is not None


def _has_padding(row: Sequence[Token]) -> bool:
    return any(token.origin == "padding" for token in row)


def _targets(model: Model, target: Prompt | None, batch: int) -> list[list[Token]]:
    """What the decoder has written so far, for each prompt: its start token, then the target."""
    first = model.config.decoder_start_token_id
    assert first is not None
    begin = replace(model.tokenizer.token(first) if model.tokenizer else _bare_token(first), origin="tokenizer")
    if target is None:
        return [[begin]] * batch
    target = _plain(target)
    one = isinstance(target, str) or not target or isinstance(target[0], Integral)
    texts: list[Any] = [target] if one else list(target)
    if len(texts) != batch:
        raise PromptError(f"there are {batch} prompts and {len(texts)} targets; give one for each")
    rows = []
    for text in texts:
        if isinstance(text, str) and model.tokenizer is None:
            raise PromptError(NO_TOKENIZER.format(model.name))
        if isinstance(text, str):
            assert model.tokenizer is not None
            tokens = model.tokenizer.target.encode(clean_prompt(text)[0], add_special=False)
            _ids(model.config, [token.id for token in tokens])
        else:
            tokens = _tokens_of_ids(model, text)
        rows.append([begin, *tokens])
    return rows


def _source_inputs(model: Model, source: list[list[Token]]) -> dict[str, Int[Tensor, "batch src"]]:
    """What the encoder of an encoder-decoder is given."""
    return dict(zip(SOURCE, _on_device(model, source, _counted(source, 0)), strict=True))


def _past(model: Model, before: Trace | None, batch: int) -> dict[str, Tensor]:
    """The keys and values of earlier passes, by layer [batch past kv_head d_head]; and what is done only once."""
    names = [site.name for site in model.program.inputs if "past" in site.axes]
    if before is None:
        c = model.config
        return dict.fromkeys(names, torch.empty(batch, 0, c.kv_heads, c.d_head, device=model.device, dtype=model.dtype))
    return {
        **{name: before.site(name.replace(".past_", ".cache_"), len(before.passes) - 1) for name in names},
        **{name: before.site(name, 0) for name in model.program.handed_on},
    }


def _places(
    model: Model, rows: list[list[Token]], before: Trace | None, positions: Sequence[int] | None
) -> list[list[int]]:
    """Where each token stands; padding has position −1."""
    start, length = before.length if before else 0, len(rows[0])
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
    return _counted(rows, start)


def _counted(rows: list[list[Token]], start: int) -> list[list[int]]:
    """Positions counted up from ``start`` in each row, padding left out."""
    places = []
    for row in rows:
        count = iter(range(start, start + len(row)))
        places.append([PADDING if token.origin == "padding" else next(count) for token in row])
    return places


def _inputs(
    model: Model, rows: list[list[Token]], places: list[list[int]], before: Trace | None
) -> dict[str, Int[Tensor, "batch pos"]]:
    """tokens, positions and key_positions of a pass."""
    tokens, here = _on_device(model, rows, places)
    keys = here if before is None else torch.cat((before.passes[-1].given["key_positions"], here), dim=1)
    return {"tokens": tokens, "positions": here, "key_positions": keys}


def _on_device(model: Model, rows: list[list[Token]], places: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids and positions as tensors. [batch pos] each"""
    ids = torch.tensor([[token.id for token in row] for row in rows], dtype=torch.int64)
    ahead = model.device.type == "cuda"  # the host goes on at once: a plain copy would wait for the device
    return (
        ids.to(model.device, non_blocking=ahead),
        torch.tensor(places, dtype=torch.int64).to(model.device, non_blocking=ahead),
    )


def _tokenise(model: Model, prompt: Prompt, literal: bool, chat: bool) -> tuple[list[list[Token]], str, list[str]]:
    """Rows of tokens, the prompt as text, and what to tell the user about it."""
    prompt = _plain(prompt)
    one_prompt = isinstance(prompt, str) or not prompt or isinstance(prompt[0], Integral | Mapping)
    batch: list[Any] = [prompt] if one_prompt else list(prompt)
    rows: list[list[Token]] = []
    texts: list[str] = []
    notices: list[str] = []
    for one in batch:
        if chat or _is_chat(one):
            row, text, said = _tokens_of_chat(model, one, literal)
            rows.append(row)
            texts.append(text)
            notices += said
        elif isinstance(one, str):
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


def _is_chat(prompt: object) -> bool:
    """Whether a prompt is messages."""
    return isinstance(prompt, Sequence) and bool(prompt) and isinstance(prompt[0], Mapping)


def _tokens_of_chat(model: Model, prompt: Any, literal: bool) -> tuple[list[Token], str, Sequence[str]]:
    """A chat's tokens, its text, and what to tell the user about it."""
    if not isinstance(prompt, str) and not _is_chat(prompt):
        raise PromptError("token ids are no chat; give a text, or messages with role and content")
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer, and so no chat template; give token ids")
    chat = model.tokenizer.render(prompt)
    tokens = model.tokenizer.chat(chat, literal=literal)
    _ids(model.config, [token.id for token in tokens])
    return tokens, chat.text, chat.notices


def _tokens_of_text(model: Model, text: str, literal: bool) -> list[Token]:
    if model.tokenizer is None:
        raise PromptError(NO_TOKENIZER.format(model.name))
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


def check_length(config: ModelConfig, length: int) -> list[str]:
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


def _check_angles(config: ModelConfig, before: Trace, extents: Sequence[int]) -> list[str]:
    """Say that keys in the cache were turned by other angles than a pass as long as this would turn them by."""
    earlier = before.passes[-1].info.extents
    return [
        f"{config.name} turns by other angles beyond {rotary.original_n_ctx} positions ({SCALINGS[rotary.scaling]}), "
        "and the keys in the cache were turned before: one full pass would differ"
        for rotary in config.rotaries()
        if any(regime(rotary, a) != regime(rotary, b) for a, b in zip(earlier, extents, strict=True))
    ]


def _pad(model: Model) -> Token:
    pad = model.config.pad_token_id
    known = pad is not None and 0 <= pad < model.config.d_vocab
    return Token(pad if known and pad is not None else 0, b"", "‹pad›", 0, 0, special=True, origin="padding")


def _padded(rows: list[list[Token]], pad: Token, side: Side) -> list[list[Token]]:
    """Rows of one length."""
    length = max(map(len, rows))
    pads = [[pad] * (length - len(row)) for row in rows]
    return [(p + row if side == "left" else row + p) for p, row in zip(pads, rows, strict=True)]
