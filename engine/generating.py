"""Token by token: each chosen from the logits before it, and each run as a pass of its own that is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from threading import Lock
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from engine.cache import Held
from engine.compiled import Compile, check, decoder
from engine.decoding import Decoder, check_goes_on
from engine.editing import as_edited
from engine.edits import Edit
from engine.errors import PromptError, SamplingError
from engine.model import Model
from engine.plan import Keep, bytes_of_more, check_limit, refuse_if_too_much
from engine.prompts import Prompt, bare_token, has_encoder, ids_of
from engine.recording import trace
from engine.runtime import Watch
from engine.sampling import Sampling
from engine.text import Token, display
from engine.traces import Trace

Stopped = Literal["", "end token", "stop string", "length", "context"]
"""Why no more tokens follow; "" while they do."""
MAX_NEW = 1_000_000
MOST_ROOM = 4096
"""Positions for which the cache gets room at once; for more it grows by halves, since few texts become as long."""
LONGEST_STOP = 10_000
"""Characters of a stop string."""
STOP_TOKENS = "stop_tokens is a list of token ids"


@dataclass(frozen=True, slots=True)
class Generated:
    """One token that was chosen, with what it was chosen from.

    ``text`` is what can be shown now and was not shown before; it ends with a whole character. ``logits`` are what the
    model gave, [d_vocab], and ``scores`` what sampling made of them, −inf where a token is excluded. The token itself
    has not run when it is handed over; so ``trace`` holds the prompt and the tokens before it.
    """

    step: int
    token: Token
    text: str
    logits: Float[Tensor, " d_vocab"]
    scores: Float[Tensor, " d_vocab"]
    stopped: Stopped
    _trace: Callable[[], Trace] = field(repr=False)

    @property
    def prob(self) -> float:
        """The token's probability among the scores."""
        return float(self.scores.softmax(-1)[self.token.id])

    @property
    def trace(self) -> Trace:
        """All passes so far, as one trace."""
        return self._trace()


def generate(
    model: Model,
    prompt: Prompt | Trace,
    *,
    max_new_tokens: int = 20,
    sampling: Sampling | None = None,
    stop: Sequence[str] = (),
    stop_tokens: Iterable[int] | None = None,
    keep: Keep = "all",
    kernel: str = "auto",
    max_memory: int | None = None,
    literal: bool = False,
    chat: bool = False,
    target: Prompt | None = None,
    compile: Compile = "no",
    edits: Sequence[Edit | str] = (),
    watch: Watch | None = None,
) -> Iterator[Generated]:
    """Go on with a prompt, or from a trace, for at most ``max_new_tokens``.

    Greedy unless ``sampling`` says otherwise. Generation ends with one of ``stop_tokens`` (by default the tokens that
    end a text, as the tokenizer or the config tells), where the new text holds one of the ``stop`` strings, at
    ``max_new_tokens``, or where a model with learned positions has no more; the last token says which. Tokens of a
    stop string stay, as in transformers. Nothing runs ahead: a pass runs when the next token is asked for, and leaving
    the loop leaves everything that was handed over as it is. So does a step that fails, and ``next`` tries it again.
    ``compile``: "torch" has the pass over one token compiled, which takes some 10 to 20 seconds once, or "graphs"
    recorded as a CUDA graph; records then equal those of "no" to rounding. The other options are those of `trace`.
    Raises PromptError (for an encoder too), SamplingError and CompileError at once, and what a pass raises where it
    does.
    """
    whole = isinstance(max_new_tokens, Integral) and not isinstance(max_new_tokens, bool)
    if not whole or not 1 <= max_new_tokens <= MAX_NEW:
        raise PromptError(f"max_new_tokens must be 1…{MAX_NEW:,}, but is {display(repr(max_new_tokens))[:40]}")
    if model.config.predicts != "next token":
        raise PromptError(f"{model.name} does not predict the next token, so it cannot generate; take a decoder")
    if sampling is not None and not isinstance(sampling, Sampling):
        raise SamplingError(f"sampling is a Sampling(temperature=…), and not {display(repr(sampling))[:60]}")
    check_limit(max_memory)
    ends = _end_ids(model) if stop_tokens is None else _checked_ends(model, stop_tokens)
    stops = _checked_stops(model, stop)
    check(model, compile, prompt.passes[-1].info.kernel if isinstance(prompt, Trace) else kernel)
    if isinstance(prompt, Trace):
        if target is not None or chat or literal:
            raise PromptError("a trace is tokens already; chat, literal and target are for a prompt")
        if edits:
            raise PromptError("a trace goes on with its own edits; give it others with trace.edit(…)")
        if kernel != "auto":
            raise PromptError("passes after a trace run with its own kernel; leave kernel out")
        check_goes_on(model, prompt)
        before = prompt
    else:
        before = trace(
            model, prompt, keep=keep, kernel=kernel, max_memory=max_memory, literal=literal, chat=chat, target=target,
            goes_on=True, edits=edits, watch=watch,
        )  # fmt: skip
    model = as_edited(model, before)
    room = max_new_tokens if max_new_tokens <= MOST_ROOM else None
    if room is not None:
        _refuse_if_too_much(model, before, room, keep, max_memory)
    going_on = decoder(model, before, keep=keep, room=room, compile=compile)
    going_on.origin = "generated"
    return _Tokens(going_on, sampling or Sampling(), max_new_tokens, ends, stops, watch)


def _refuse_if_too_much(model: Model, before: Trace, new: int, keep: Keep, max_memory: int | None) -> None:
    """Raise MemoryLimitError, with the numbers, where so many more tokens cannot be recorded."""

    def need(keep: Keep) -> int:
        return bytes_of_more(
            model.program, model.config, model.dtype.itemsize, before.length, new, keep, before.source_length
        )

    what = f"recording {new} more tokens"
    refuse_if_too_much(
        need(keep), what, model.device, max_memory, residual=lambda: need("residual"), advice="take fewer"
    )


class _Tokens(Iterator[Generated]):
    """The tokens one by one. A step that fails or is cancelled changed nothing, and the next call tries it again."""

    def __init__(
        self, decoder: Decoder, sampling: Sampling, most: int, ends: frozenset[int], stops: Sequence[str],
        watch: Watch | None,
    ) -> None:  # fmt: skip
        model = decoder.model
        self._decoder, self._sampling, self._watch = decoder, sampling, watch
        self._most, self._ends, self._stops = most, ends, stops
        self._tokenizer = model.tokenizer and (model.tokenizer.target if has_encoder(model) else model.tokenizer)
        self._stream = self._tokenizer.stream(after=decoder.ids) if self._tokenizer else None
        self._seen = Held.of(torch.tensor([decoder.ids])) if sampling.repetition_penalty != 1 else None  # [1 pos]
        self._source = None if sampling.greedy else sampling.generator()
        self._longest, self._tail = max(map(len, stops), default=0), ""
        self._step = 0
        self._alone = Lock()
        self._chosen: int | None = None  # and not run yet
        self._stopped: Stopped = ""

    def __next__(self) -> Generated:
        if not self._alone.acquire(blocking=False):
            raise PromptError("the next token is being computed already; ask for one at a time")
        try:
            return self._one_more()
        finally:
            self._alone.release()

    def __copy__(self) -> _Tokens:
        raise PromptError("tokens that are being generated cannot be copied; generate(model, step.trace) goes on apart")

    def _one_more(self) -> Generated:
        if self._stopped:
            raise StopIteration
        if self._chosen is not None:
            self._decoder.feed([self._chosen], self._watch)
            if self._seen is not None:
                self._seen = self._seen.append(torch.tensor([[self._chosen]]), None)
            self._chosen = None
        logits = self._decoder.logits  # [d_vocab]
        scores = self._sampling.scores(logits, () if self._seen is None else self._seen.rows[0])  # [d_vocab]
        chosen = self._chosen = self._sampling.choose(scores, self._source)
        text = self._said(chosen)
        token = self._tokenizer.token(chosen) if self._tokenizer else bare_token(chosen)
        self._step += 1
        return Generated(self._step - 1, token, text, logits, scores, self._stopped, self._decoder.so_far())

    def _said(self, chosen: int) -> str:
        """The text that is certain with this token; it decides whether more follow."""
        text = self._stream.push(chosen) if self._stream else ""
        self._tail = (self._tail + text)[-(self._longest + len(text)) :] if self._longest else ""
        said = any(stop in self._tail for stop in self._stops)
        self._stopped = _why_stopped(chosen in self._ends, said, self._step + 1 == self._most, self._decoder.full)
        return text + self._stream.finish() if self._stopped and self._stream else text


def _why_stopped(end: bool, said: bool, last: bool, full: bool) -> Stopped:
    return "end token" if end else "stop string" if said else "length" if last else "context" if full else ""


def _end_ids(model: Model) -> frozenset[int]:
    """The ids that end a text."""
    known = model.tokenizer.eos_ids if model.tokenizer else frozenset()
    said = model.config.eos_token_id
    return known | ({said} if said is not None else frozenset())


def _checked_ends(model: Model, stop_tokens: object) -> frozenset[int]:
    told = stop_tokens.tolist() if hasattr(stop_tokens, "tolist") else stop_tokens  # of torch and numpy
    if isinstance(told, str | bytes) or not isinstance(told, Iterable):
        raise PromptError(STOP_TOKENS)
    ids = list(told)
    if not all(isinstance(i, Integral) for i in ids):
        raise PromptError(STOP_TOKENS)
    return frozenset(ids_of(model.config, ids))


def _checked_stops(model: Model, stop: Sequence[str]) -> tuple[str, ...]:
    if (
        isinstance(stop, str)
        or not isinstance(stop, Sequence)
        or not all(isinstance(s, str) and 0 < len(s) <= LONGEST_STOP for s in stop)
    ):
        raise PromptError(f"stop is a list of texts of 1…{LONGEST_STOP:,} characters each")
    if stop and model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer, so no text can stop it; give stop_tokens")
    return tuple(stop)
