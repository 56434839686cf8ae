"""What an app does with an open trace beyond looking: more tokens, other tokens, back, and the branches that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from secrets import randbelow
from typing import Any

from engine.branches import Branch, common, tree
from engine.decoding import branch, crop
from engine.errors import Cancelled, PromptError
from engine.generating import MAX_NEW, Generated, generate
from engine.jsontext import Json
from engine.model import Model
from engine.runtime import Watch
from engine.sampling import Sampling
from engine.traces import Trace

SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
MOST_AT_ONCE = 10_000
SEEDS = 10**6
"""Seeds are chosen below this, so that one can be typed again."""


class Branches:
    """The traces that came of one prompt, and the one that is looked at."""

    def __init__(self, trace: Trace) -> None:
        self.traces = [trace]
        self.current = 0
        self._run: _Run | None = None

    @property
    def trace(self) -> Trace:
        return self.traces[self.current]

    def generate(self, model: Model, params: Mapping[str, Any], watch: Watch) -> Json:
        """``n`` tokens more, each run as a pass; 0 only checks that it could be done.

        What was done stays where it is cancelled or fails. Where tokens are drawn without a seed one is chosen, and
        told: with it the same tokens are drawn from here.
        """
        n = params.get("n", 1)
        if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n <= MOST_AT_ONCE:
            raise PromptError(f"n must be 0…{MOST_AT_ONCE:,} tokens at a time")
        sampling = sampling_of(params)
        stop = params.get("stop") or ()
        options = (sampling, tuple(stop) if isinstance(stop, list) else stop)
        if self._run is None or self._run.options != options or self._run.trace is not self.trace:
            self._run = _Run(model, self.trace, options)
        run, stopped = self._run, ""
        tokens: list[Json] = []
        text = ""
        run.watch = lambda *_: watch(len(tokens), n, run.next.token.label)
        try:
            while len(tokens) < n and not (stopped := run.next.stopped):
                run.watch()
                one = run.step()  # of which nothing is held: its scores are as long as the vocabulary
                tokens.append({"id": one.token.id, "label": one.token.label, "prob": one.prob})
                text += one.text
        except Cancelled:
            stopped = "cancelled"
        finally:
            self._grow(run.next.trace)
            run.trace = self.trace
        told: Json = {"tokens": tokens, "text": text, "stopped": stopped}
        if stopped == "end token":
            told["end"] = run.next.token.label
        if run.seed is not None:
            told["seed"] = run.seed
        return {"generated": told}

    def branch(self, model: Model, pos: int, token: int, watch: Watch) -> Json:
        """Another token at a position. Where the text ends there it is simply one token more."""
        made = branch(model, self.trace, pos, token, watch=watch)
        return self._take(made, replaces=pos == self.trace.length)

    def crop(self, model: Model, n: int, watch: Watch) -> Json:
        """Back to the first ``n`` positions; what they were the beginning of stays as a branch."""
        cropped = crop(model, self.trace, n, watch=watch)
        known = [one for i, one in enumerate(self.traces) if i != self.current]
        return self._take(cropped, replaces=cropped is self.trace or any(_begins(self.trace, o) for o in known))

    def switch(self, to: int) -> Json:
        if isinstance(to, bool) or not isinstance(to, int) or not 0 <= to < len(self.traces):
            raise PromptError(f"there is no branch {to!r}; there are 0…{len(self.traces) - 1}")
        left = self.current
        self.current = to
        if left != to and any(_begins(self.traces[left], one) for i, one in enumerate(self.traces) if i != left):
            del self.traces[left]  # it had nothing of its own
            self.current -= to > left
        return {"branch": self.current}

    def rows(self) -> Json:
        """The branches as a tree, each with what is its own."""
        rows = []
        for i, one in enumerate(tree(self.traces)):
            own = one.trace.tokens[0][one.pos :]
            text = b"".join(token.bytes for token in own if not token.special).decode("utf-8", "replace")
            rows.append(
                {
                    "branch": i,
                    "parent": one.parent,
                    "pos": one.pos,
                    "label": own[0].label if own else "",
                    "text": text,
                    "tokens": one.trace.length,
                    "logprob": (one if one.parent is not None else _of_the_prompt(one)).logprob,
                }
            )
        return {"current": self.current, "rows": rows}

    def _take(self, trace: Trace, *, replaces: bool) -> Json:
        if not replaces:
            self.traces.append(trace)
            self.current = len(self.traces) - 1
        self._grow(trace)
        return {"branch": self.current}

    def _grow(self, trace: Trace) -> None:
        """Take a trace in the current one's place; another branch of the same tokens is that one now."""
        self.traces[self.current] = trace
        same = next((i for i, one in enumerate(self.traces) if one is not trace and _alike(one, trace)), None)
        if same is not None:
            self.traces[same] = trace
            del self.traces[self.current]
            self.current = same - (self.current < same)


class _Run:
    """A generation that stands still between requests, so that a seed means the same in one request and in many."""

    def __init__(self, model: Model, trace: Trace, options: tuple[Sampling, tuple[str, ...]]) -> None:
        self.options = options
        self.trace = trace
        self.watch: Callable[..., None] = lambda *_: None
        sampling, stop = options
        self.seed = randbelow(SEEDS) if not sampling.greedy and sampling.seed is None else None
        sampling = sampling if self.seed is None else replace(sampling, seed=self.seed)
        self._tokens = generate(
            model, trace, max_new_tokens=MAX_NEW, sampling=sampling, stop=stop, watch=lambda *told: self.watch(*told)
        )
        self.next = next(self._tokens)

    def step(self) -> Generated:
        """Run the token that was chosen, and choose the next one."""
        chosen, self.next = self.next, next(self._tokens)
        return chosen


def sampling_of(params: Mapping[str, Any]) -> Sampling:
    """How the parameters of a request say that tokens are chosen. Raises SamplingError."""
    return Sampling(**{key: params[key] for key in SAMPLING if params.get(key) is not None})


def _of_the_prompt(branch: Branch) -> Branch:
    """The first branch with what was generated alone as its own: all after the first pass."""
    return replace(branch, pos=branch.trace.passes[0].stop)


def _alike(trace: Trace, other: Trace) -> bool:
    """Whether their tokens are the same."""
    return trace.length == other.length and _begins(trace, other)


def _begins(trace: Trace, other: Trace) -> bool:
    """Whether a trace is the beginning of another one."""
    return common(trace, other) == trace.length
