"""Goes on from a trace: further passes on its cached keys and values, back, and on another way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from numbers import Integral

from jaxtyping import Float
from torch import Tensor

from engine.cache import BLOCK, Appending, Held, KVCache
from engine.config import Rotary
from engine.editing import as_edited
from engine.errors import PromptError
from engine.model import Model
from engine.ops.base import PassInfo
from engine.ops.rotary import regime
from engine.plan import Keep, bytes_of_more, kept_sites, plan_pass, refuse_if_too_much
from engine.prompts import bare_token, check_length, has_encoder, ids_of, more_ids
from engine.recording import SOURCE, first_pass, held_after, last_position, numbers, trace_of
from engine.runner import Prepared, prepare, unasked
from engine.runtime import Stopwatch, Watch
from engine.text import Origin, Token, display, grouped
from engine.told import SCALINGS
from engine.traces import Pass, Trace, fingerprint

KEYS = "key_positions"


class Decoder:
    """Goes on from a trace of one prompt, pass by pass. The trace itself does not change.

    ``keep`` is what each pass records. ``room``: for how many more positions the caches get room at once;
    None lets them grow by halves. ``origin`` is what the new tokens are said to come from. Raises
    PromptError for a trace of a batch, of another model, or of one that looks both ways.
    """

    def __init__(self, model: Model, before: Trace, *, keep: Keep = "all", room: int | None = None) -> None:
        check_goes_on(model, before)
        model = as_edited(model, before)
        program, last = model.program, before.passes[-1]
        self.model = model
        self.origin: Origin = "text"
        self.passes = list(before.passes)
        self.notices = list(before.notices)
        self._before = before
        self._new: list[int] = []  # the ids of the passes beyond ``before``
        self._room = room
        self._cache = before.cache or before.held(len(before.passes))
        self._keys = Held.of(last.given[KEYS])
        self._next = int(last.given[KEYS].max()) + 1 if not last.info.dense else before.length
        self._always = before.sites(program.handed_on, 0)
        if has_encoder(model):
            self._always |= {name: before.passes[0].given[name] for name in SOURCE}
        self._kept = tuple(name for name in kept_sites(program, keep) if name not in program.once)
        self._turning = tuple(model.config.rotaries())
        sites = map(program.site, program.caches)
        self._windows = {site.name: site.window for site in sites if site.window is not None}
        self._prepared: Prepared | None = None
        self._made: dict[str, Tensor] = {}

    @property
    def length(self) -> int:
        """Positions that have run."""
        return self.passes[-1].start + self.passes[-1].length

    @property
    def full(self) -> bool:
        """Whether no position is left: a model that learned a vector for each has no more of them."""
        return self._next > last_position(self.model)

    @property
    def logits(self) -> Float[Tensor, " d_vocab"]:
        """Of the last position that has run."""
        made = self._made.get("logits")
        return self._before["logits[p=-1]"][0] if made is None else made[0, -1]

    def feed(self, ids: Sequence[int], watch: Watch | None = None) -> Pass:
        """Run one more pass, over tokens of these ids. Raises PromptError where they are none of the vocabulary."""
        ids = ids_of(self.model.config, ids)
        if not ids:
            raise PromptError("there are no tokens to go on with; give at least one")
        with unasked():
            return self._feed(ids, watch)

    def _feed(self, ids: list[int], watch: Watch | None) -> Pass:
        start, n = self.length, len(ids)
        self._check_room(n)
        places = list(range(self._next, self._next + n))
        info = self._info(places[-1] + 1)
        keys = self._keys.append(numbers(self.model, [places]), self._room)
        appending = Appending(self._cache.held, self._room, self._windows)
        given = {"tokens": numbers(self.model, [ids]), "positions": keys.rows.narrow(1, start, n), KEYS: keys.rows}
        took = Stopwatch(self.model.device)
        made = self._run(given | self._always, appending, info, watch)
        took.stop()
        info.append = None
        inputs = given | {name: self._always[name] for name in SOURCE if name in self._always}
        kept = {name: made[name] for name in self._kept}
        self.passes.append(Pass(start, n, info, inputs, kept, took))
        self._made, self._keys = made, keys
        self._cache = held_after(self.model, made, appending.held, start + n)
        self._next += n
        self._new += ids
        return self.passes[-1]

    def _info(self, extent: int) -> PassInfo:
        last = self.passes[-1].info
        extents = tuple(max(extent, earlier) for earlier in last.extents)
        for said in _other_angles(self.model.name, self._turning, last.extents, extents):
            self._say(said)
        finite = 2 * last.finite == len(self.model.program.caches)  # keys and values: two caches a layer
        return PassInfo(last.dtype, last.dense, last.kernel, extents=extents, start=self.length, past_finite=finite)

    def _run(
        self, given: dict[str, Tensor], appending: Appending, info: PassInfo, watch: Watch | None
    ) -> dict[str, Tensor]:
        info.append = appending
        given |= appending.past
        if self._prepared is None:
            program = self.model.program
            more = ["logits"] if program.step("logits") else []
            wanted = dict.fromkeys((*self._kept, *program.caches.values(), *more))
            self._prepared = prepare(program, self.model.weights, wanted, given)
        return self._prepared.run(given, info, watch)

    def _check_room(self, n: int) -> None:
        """Raise PromptError or MemoryLimitError where so many more tokens cannot run."""
        model, start = self.model, self.length
        if start <= model.config.n_ctx:  # else it was said before
            for said in check_length(model.config, start + n):
                self._say(said)
        if self._next + n - 1 > (most := last_position(model)):
            raise PromptError(f"the next positions, {self._next} and on, are beyond the {most + 1} of {model.name}")
        size, kept, src = model.dtype.itemsize, list(self._kept), self._before.source_length
        if n > 1:
            sizes = model.config.axis_sizes(1, n, start, src)
            plan = plan_pass(model.program, sizes, size, kept)
            refuse_if_too_much(
                plan.peak, f"recording {n} tokens", model.device,
                residual=lambda: plan_pass(model.program, sizes, size, "residual").peak,
            )  # fmt: skip
        elif start % BLOCK == 0:  # one by one they are counted by blocks: out of memory ends a process unheard
            more = bytes_of_more(model.program, model.config, size, start, BLOCK, kept, src) - self._cache.bytes
            refuse_if_too_much(more, f"recording {BLOCK} more tokens", model.device, advice="save what there is")

    def _say(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices.append(notice)

    @property
    def ids(self) -> list[int]:
        """The ids of all positions that have run."""
        return [*(token.id for token in self._before.tokens[0]), *self._new]

    def trace(self) -> Trace:
        """The trace as it is now: all passes so far."""
        return self.so_far()()

    def so_far(self) -> Callable[[], Trace]:
        """What builds the trace as it is now, at any later time."""
        if not self._new:
            return lambda: self._before
        return partial(self._trace, len(self.passes), self._cache, self._made.get("logits"), tuple(self.notices))

    def _trace(self, n: int, cache: KVCache, logits: Tensor | None, notices: tuple[str, ...]) -> Trace:
        before, model = self._before, self.model
        passes = self.passes[:n]
        tokens, text = more_tokens(
            model, before, self._new[: passes[-1].start + passes[-1].length - before.length], self.origin
        )
        longer = trace_of(model, passes, (tokens,), text, notices, before.source_tokens, cache)
        for name in model.program.handed_on:  # else the next token would have the encoder run again
            longer.remember(name, 0, self._always[name])
        if logits is not None:
            longer.remember("logits", n - 1, logits)
        return longer


def more_tokens(model: Model, before: Trace, ids: Sequence[int], origin: Origin) -> tuple[tuple[Token, ...], str]:
    """The tokens of a trace and these behind, and the prompt as text: a character may have begun before."""
    if model.tokenizer is None:
        return (*before.tokens[0], *(replace(bare_token(i), origin=origin) for i in ids)), before.prompt
    whole = tuple(model.tokenizer.extend(before.tokens[0], ids, origin))
    return whole, _text(model, before, whole)


def check_goes_on(model: Model, before: Trace) -> None:
    """Raise PromptError where a model cannot go on from a trace."""
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
    windows = any(site.window for site in model.program.inputs)
    if windows and not before.passes[-1].info.dense:
        places = before.passes[-1].given[KEYS][0]
        if not bool((places.diff() > 0).all()):
            raise PromptError(
                f"{model.name} has sliding windows, which hold the last positions; those of this trace do not increase"
            )


def extend(
    model: Model, before: Trace, tokens: str | Sequence[int], *, keep: Keep = "all", watch: Watch | None = None
) -> Trace:
    """A new trace with one more pass: ``tokens`` after the prompt of ``before``, on its cached keys and values.

    ``tokens`` are ids, or a text, which is tokenised by itself and without the special tokens that a prompt gets; with
    an encoder-decoder it is more of what the decoder writes. Raises PromptError for a trace of a batch, of another
    model, or of one that looks both ways.
    """
    decoder = Decoder(model, before, keep=keep)
    ids, said = more_ids(model, tokens)
    if not ids:
        raise PromptError("there are no tokens to extend the trace with; give at least one")
    decoder.notices += [notice for notice in said if notice not in decoder.notices]
    decoder.feed(ids, watch)
    return decoder.trace()


def crop(model: Model, trace: Trace, n: int, *, watch: Watch | None = None) -> Trace:
    """The trace of the first ``n`` positions: as if no more had been run.

    Whole passes stay as they are and share their tensors; of a pass that is cut, what is left runs anew, so that
    every bit is what a fresh run gives. Raises PromptError where there are not so many.
    """
    check_goes_on(model, trace)
    model = as_edited(model, trace)
    if isinstance(n, bool) or not isinstance(n, Integral) or not 1 <= n <= trace.length:
        raise PromptError(f"the trace has {trace.length} tokens; keep 1…{trace.length} of them, and not {n!r}")
    if n == trace.length:
        return trace
    whole = [p for p in trace.passes if p.start + p.length <= n]
    cut = trace.passes[len(whole)]
    keep, all_said = list(cut.kept), _said_of(model, trace.passes)
    notices = *(notice for notice in trace.notices if notice not in all_said), *_said_of(model, whole)
    tokens = grouped(trace.tokens[0][:n])
    if not whole:
        source = [list(row) for row in trace.source_tokens]
        positions = None if cut.info.dense else cut.given["positions"][0, :n].tolist()
        return first_pass(
            model, [tokens], source or [tokens], _text(model, trace, tokens), notices, keep,
            cut.info.kernel, positions if not source else None, watch=watch,
        )  # fmt: skip
    first, text = tuple(grouped(tokens[: cut.start])), _text(model, trace, tokens[: cut.start])
    said = tuple(dict.fromkeys(notices))
    short = trace_of(model, whole, (first,), text, said, trace.source_tokens, trace.held(len(whole)))
    for name, tensor in trace.sites(model.program.handed_on, 0).items():
        short.remember(name, 0, tensor)
    if n == cut.start:
        return short
    decoder = Decoder(model, short, keep=keep)
    decoder.feed([token.id for token in tokens[cut.start :]], watch)
    return decoder.trace()


def branch(model: Model, trace: Trace, pos: int, token: int | str, *, watch: Watch | None = None) -> Trace:
    """Another token at position ``pos``, and on from there: the trace before it, and one more pass.

    A text stands for its tokens, as in `extend`. What lies before is shared with the trace. Raises PromptError where
    the position or the token is not there.
    """
    if isinstance(pos, bool) or not isinstance(pos, Integral) or not 1 <= pos <= trace.length:
        raise PromptError(f"a branch begins at position 1…{trace.length} of this trace, and not at {pos!r}")
    before = crop(model, trace, pos, watch=watch)
    return extend(model, before, token if isinstance(token, str) else [token], watch=watch)


def _text(model: Model, trace: Trace, tokens: Sequence[Token]) -> str:
    """The prompt as text; an encoder-decoder's is its source, whatever the decoder has written."""
    if trace.source_tokens or model.tokenizer is None:
        return trace.prompt
    return model.tokenizer.decode(token.id for token in tokens)


def _other_angles(
    name: str, turning: Sequence[Rotary], earlier: Sequence[int], extents: Sequence[int]
) -> Iterator[str]:
    """Say that keys in the cache were turned by other angles than a pass as long as this would turn them by."""
    for rotary in turning:
        if any(regime(rotary, a) != regime(rotary, b) for a, b in zip(earlier, extents, strict=True)):
            yield (
                f"{name} turns by other angles beyond {rotary.original_n_ctx} positions "
                f"({SCALINGS[rotary.scaling]}), and the keys in the cache were turned before: one full pass would "
                "differ"
            )


def _said_of(model: Model, passes: Sequence[Pass]) -> list[str]:
    """What there was to say of passes like these."""
    config = model.config
    said = [line for p in passes if p.start <= config.n_ctx for line in check_length(config, p.start + p.length)]
    turning = tuple(config.rotaries())
    for before, after in pairwise(passes):
        said += _other_angles(model.name, turning, before.info.extents, after.info.extents)
    return said
