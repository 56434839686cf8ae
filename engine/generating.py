"""Token by token: each chosen from the logits before it, and each run as a pass of its own that is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from engine.cache import Held
from engine.compiled import Compile, check, decoder
from engine.decoding import Decoder, check_goes_on
from engine.errors import PromptError, SamplingError
from engine.model import Model
from engine.plan import Keep
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
"""Positions for which the cache gets room at once; beyond them it grows by halves."""
LONGEST_STOP = 10_000
"""Characters of a stop string."""


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
    watch: Watch | None = None,
) -> Iterator[Generated]:
    """Go on with a prompt, or from a trace, for at most ``max_new_tokens``.

    Greedy unless ``sampling`` says otherwise. Generation ends with one of ``stop_tokens`` (by default the tokens that
    end a text, as the tokenizer or the config tells), where the new text holds one of the ``stop`` strings, at
    ``max_new_tokens``, or where a model with learned positions has no more; the last token says which. Tokens of a
    stop string stay, as in transformers. Nothing runs ahead: a pass runs when the next token is asked for, and leaving
    the loop leaves everything that was handed over as it is. ``compile``: "torch" has the pass over one token compiled,
    which takes some 10 to 20 seconds once, or "graphs" recorded as a CUDA graph; records then equal those of "no" to
    rounding. The other options are those of `trace`. Raises PromptError (for an encoder too), SamplingError and
    CompileError at once, and what a pass raises where it does.
    """
    whole = isinstance(max_new_tokens, Integral) and not isinstance(max_new_tokens, bool)
    if not whole or not 1 <= max_new_tokens <= MAX_NEW:
        raise PromptError(f"max_new_tokens must be 1…{MAX_NEW:,}, but is {display(repr(max_new_tokens))[:40]}")
    if model.config.predicts != "next token":
        raise PromptError(f"{model.name} does not predict the next token, so it cannot generate; take a decoder")
    if sampling is not None and not isinstance(sampling, Sampling):
        raise SamplingError(f"sampling is a Sampling(temperature=…), and not {display(repr(sampling))[:60]}")
    ends = _end_ids(model) if stop_tokens is None else _checked_ends(model, stop_tokens)
    stops = _checked_stops(model, stop)
    check(model, compile, prompt.passes[-1].info.kernel if isinstance(prompt, Trace) else kernel)
    if isinstance(prompt, Trace):
        if target is not None or chat or literal:
            raise PromptError("a trace is tokens already; chat, literal and target are for a prompt")
        check_goes_on(model, prompt)
        before = prompt
    else:
        before = trace(
            model, prompt, keep=keep, kernel=kernel, max_memory=max_memory, literal=literal, chat=chat, target=target,
            goes_on=True, watch=watch,
        )  # fmt: skip
    going_on = decoder(model, before, keep=keep, room=min(max_new_tokens, MOST_ROOM), compile=compile)
    return _tokens(going_on, sampling or Sampling(), max_new_tokens, ends, stops, watch)


def _tokens(
    decoder: Decoder, sampling: Sampling, most: int, ends: frozenset[int], stops: Sequence[str], watch: Watch | None
) -> Iterator[Generated]:
    model = decoder.model
    tokenizer = model.tokenizer and (model.tokenizer.target if has_encoder(model) else model.tokenizer)
    seen = Held.of(torch.tensor([decoder.ids])) if sampling.repetition_penalty != 1 else None  # [1 pos]
    stream = tokenizer.stream(after=decoder.ids) if tokenizer else None
    source = None if sampling.greedy else sampling.generator()
    tail, longest = "", max(map(len, stops), default=0)
    for step in range(most):
        logits = decoder.logits  # [d_vocab]
        scores = sampling.scores(logits, () if seen is None else seen.rows[0])  # [d_vocab]
        chosen = sampling.choose(scores, source)
        text = stream.push(chosen) if stream else ""
        tail = (tail + text)[-(longest + len(text)) :] if longest else ""
        stopped = _why_stopped(chosen in ends, any(s in tail for s in stops), step + 1 == most, decoder.full)
        if stopped and stream:
            text += stream.finish()
        yield Generated(
            step,
            tokenizer.token(chosen) if tokenizer else bare_token(chosen),
            text,
            logits,
            scores,
            stopped,
            decoder.so_far(),
        )
        if stopped:
            return
        decoder.feed([chosen], watch)
        if seen is not None:
            seen = seen.append(torch.tensor([[chosen]]), None)


def _why_stopped(end: bool, said: bool, last: bool, full: bool) -> Stopped:
    return "end token" if end else "stop string" if said else "length" if last else "context" if full else ""


def _end_ids(model: Model) -> frozenset[int]:
    """The ids that end a text."""
    known = model.tokenizer.eos_ids if model.tokenizer else frozenset()
    said = model.config.eos_token_id
    return known | ({said} if said is not None else frozenset())


def _checked_ends(model: Model, stop_tokens: object) -> frozenset[int]:
    if isinstance(stop_tokens, str | bytes) or not isinstance(stop_tokens, Iterable):
        raise PromptError("stop_tokens is a list of token ids")
    return frozenset(ids_of(model.config, list(stop_tokens)))


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
