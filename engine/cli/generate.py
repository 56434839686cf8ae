"""``layerstep generate PROMPT``: go on with a prompt or a saved trace, token by token, everything recorded."""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.cli.heavy import load_torch
from engine.cli.interrupt import prompt_interrupts
from engine.cli.options import DEFAULT_MODEL, ONLY_FOR_PROMPTS, keep_of, run_options, source_command
from engine.cli.progress import Progress
from engine.cli.source import as_given, is_file, refuse_for_file
from engine.cli.streams import Text, say_error, say_json, say_notices
from engine.dtypes import dtype_name
from engine.edits import edits_of
from engine.errors import Cancelled, LayerstepError, PromptError, SamplingError
from engine.text import human
from engine.tracefile import check_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.generating import Generated
    from engine.model import Model
    from engine.sampling import Sampling
    from engine.traces import Trace

COMPILE = ("no", "torch", "graphs")
MAX_NEW, LONGEST_STOP = 1_000_000, 10_000
"""The engine's own words and bounds, here without torch; a test holds them equal."""
FOR_DRAWING = ("top_k", "top_p", "min_p")
SAMPLING = ("temperature", *FOR_DRAWING, "repetition_penalty", "seed")
CANDIDATES = 5
WHY = {
    "end token": "the text ended",
    "stop string": "a --stop text came",
    "length": "-n asks for no more",
    "context": "the model has no more positions",
}
"""Why no more tokens follow, in words."""


@source_command(
    "generate",
    "Print how PROMPT (or stdin), or the text of a saved trace (FILE, with its --model), goes on: token by token, as "
    "it comes. Greedy unless --temperature is given. --trace saves what was recorded, also where it is broken off.",
    "[PROMPT|FILE]",
)
@click.option(
    "-n", "--max-new-tokens", "most", type=click.IntRange(1, MAX_NEW), metavar="N", default=20, show_default=True,
    help="At most so many tokens.",
)  # fmt: skip
@click.option(
    "--temperature", type=float, metavar="T", help="Draw tokens: 1 as likely as they are, less: the likelier."
)
@click.option("--top-k", type=int, metavar="K", help="Draw from the K likeliest.")
@click.option("--top-p", type=float, metavar="P", help="Draw from the fewest that have probability P together.")
@click.option("--min-p", type=float, metavar="P", help="Draw from those at least P times as likely as the likeliest.")
@click.option("--repetition-penalty", type=float, metavar="R", help="Make what was there less likely (above 1).")
@click.option("--seed", type=int, metavar="S", help="The same seed draws the same tokens; without it one is told.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End after TEXT; repeat for several.")
@click.option(
    "--stop-token", "stop_tokens", multiple=True, type=click.IntRange(0), metavar="ID",
    help="End after this token, in place of the model's own; repeat for several.",
)  # fmt: skip
@click.option("--trace", "path", metavar="FILE", help="Save all that was recorded, *.trace.safetensors.")
@click.option("--force", is_flag=True, help="Replace the --trace FILE if it exists.")
@click.option(
    "--compile", type=click.Choice(COMPILE), default="no", show_default=True, help="Compile the step of a token."
)
@run_options
def command(
    context: click.Context,
    /,
    source: str | None,
    most: int,
    stop: tuple[str, ...],
    stop_tokens: tuple[int, ...],
    path: str | None,
    force: bool,
    compile: Any,
    as_json: bool,
    **options: Any,
) -> int:
    if any(not 1 <= len(text) <= LONGEST_STOP for text in stop):
        raise click.BadParameter(f"must be a text of 1…{LONGEST_STOP:,} characters", param_hint="--stop")
    if force and path is None:
        raise click.UsageError("--force is for --trace FILE")
    if path is not None:
        check_target(Path(path), force=force)  # before anything runs
    keep, edits = keep_of(options.pop("keep")), edits_of(options.pop("edit"))
    text = None if as_json else Text()
    running = False

    def watch(done: int, total: int, site: str) -> None:
        if not running:
            progress.watch(done, total, site)

    with Progress() as progress, prompt_interrupts():
        load_torch()
        from engine import extend, generate

        sampling = sampling_of({name: options.pop(name) for name in SAMPLING})
        model, prompt, more, notices = _read(context, source, progress, edits=edits, **options)
        choices = generate(
            model, prompt, max_new_tokens=most, sampling=sampling, stop=stop, stop_tokens=stop_tokens or None,
            keep=keep, compile=compile, watch=watch, **more,
        )  # fmt: skip
    say_notices(*notices, *model.report.warnings)
    running, one, told, began = True, None, [], time.perf_counter()
    try:
        # What takes long may end the process where it stands only if nothing is to be saved.
        with progress, prompt_interrupts() if path is None else nullcontext():
            for one in choices:
                if text is None:
                    told.append(_token_to_json(model, one))
                else:
                    text.say(one.text if model.tokenizer else f"{one.token.id} ")
                if text is None or not text.on_terminal:
                    progress.loading(one.step + 1, most, "token")
            assert one is not None
            seconds, trace = time.perf_counter() - began, one.trace
            if path is not None:
                with suppress(PromptError):  # there may be no position for the last token
                    trace = extend(model, trace, [one.token.id], keep=keep)
    except BaseException as error:
        if one is not None:
            _broken_off(one, text, path, force, error)
        raise
    if text is not None:
        text.end()
    say_notices(*(notice for notice in trace.notices if notice not in notices))
    size, failed = None, None
    try:
        size = trace.save(Path(path), force=force) if path is not None else None
    except (LayerstepError, OSError) as error:  # what there is to tell, the seed above all, is told first
        failed = error
    result = Result(model, trace, one, sampling, seconds, path, size)
    if as_json:
        notices = list(dict.fromkeys((*notices, *trace.notices)))
        whole = "".join(row["text"] for row in told)
        say_json(result.to_json() | {"notices": notices, "text": whole, "tokens": told})
    else:
        say_error(*result.lines())
    if failed is not None:
        raise failed
    return 0


@dataclass(frozen=True, slots=True)
class Result:
    """What a generation came to: ``last`` is its last token; ``size`` the bytes of the file, where it was saved."""

    model: Model
    trace: Trace
    last: Generated
    sampling: Sampling
    seconds: float
    path: str | None
    size: int | None

    def to_json(self) -> dict[str, Any]:
        t = self.trace
        prompt = t.tokens[0][: self.last.trace.length - self.last.step]
        rows = {"prompt_tokens": prompt, **({"source_tokens": t.source_tokens[0]} if t.source_tokens else {})}
        return {
            "model": self.model.name,
            "device": str(self.model.device),
            "dtype": dtype_name(self.model.dtype),
            **{key: [{"id": token.id, "label": token.label} for token in row] for key, row in rows.items()},
            "stopped": self.last.stopped,
            "sampling": asdict(self.sampling),
            "seconds": self.seconds,
            **({"file": self.path, "bytes": self.size} if self.size is not None else {}),
        }

    def lines(self) -> Iterator[str]:
        """What is said of it beside the text."""
        passes = self.last.step  # the first token was chosen from the prompt's pass
        speed = f" ({passes / self.seconds:.3g} a second)" if passes else ""
        drawn = "" if self.sampling.greedy else f"; --seed {self.sampling.seed} draws the same"
        yield f"{passes + 1} token{'s' if passes else ''}{speed}: {WHY[self.last.stopped]}{drawn}"
        if self.size is not None:
            t = self.trace
            yield f"saved {self.path}: {t.length} tokens in {len(t.passes)} passes, {human(self.size)}"


def sampling_of(given: dict[str, Any]) -> Sampling:
    """How tokens are chosen, from the options; where a seed is needed and none was given, with one that was drawn."""
    from engine import Sampling

    needless = [name for name in (*FOR_DRAWING, "seed") if given[name] is not None]
    if not given["temperature"] and needless:
        raise click.UsageError(f"--{needless[0].replace('_', '-')} is for drawing tokens; give --temperature as well")
    try:
        sampling = Sampling(**{name: value for name, value in given.items() if value is not None})
    except SamplingError as error:
        name, _, words = str(error).partition(" ")
        raise click.UsageError(f"--{name.replace('_', '-')} {words}") from None
    if sampling.greedy or sampling.seed is not None:
        return sampling
    return replace(sampling, seed=sampling.generator().initial_seed() % 2**32)  # exact in any JSON, and short


def _read(
    context: click.Context,
    source: str | None,
    progress: Progress,
    *,
    model: str | None,
    device: str,
    dtype: str,
    ids: bool,
    chat: bool,
    target: str | None,
    allow_pickle: bool,
    **running: Any,
) -> tuple[Model, Any, dict[str, Any], list[str]]:
    """The model, what it goes on from, the options of a run, and what to tell the user."""
    from engine import load_model, open_trace

    if source is None or not is_file(source):
        given, written, notices = as_given(source, ids=ids, chat=chat, target=target)
        name = model or DEFAULT_MODEL
        loaded = load_model(name, device=device, dtype=dtype, allow_pickle=allow_pickle, watch=progress.loading)
        return loaded, given, {**running, "chat": chat, "target": written}, notices
    refuse_for_file(context, [name for name in ONLY_FOR_PROMPTS if name != "keep"])
    opened = open_trace(source)  # a file that is missing or damaged is said first
    if model is None:
        raise click.UsageError("a FILE holds no weights; name the model that it was recorded with (--model M)")
    dtype = dtype_name(opened.dtype)
    loaded = load_model(model, device="cpu", dtype=dtype, allow_pickle=allow_pickle, watch=progress.loading)
    return loaded, open_trace(source, loaded), {}, []


def _token_to_json(model: Model, one: Generated) -> dict[str, Any]:
    """A token, and the likeliest by the model's own logits, before sampling."""
    logits = one.logits.float()  # [d_vocab]
    best = logits.softmax(-1).topk(min(CANDIDATES, len(logits)))
    label = model.tokenizer.label if model.tokenizer else lambda i: f"‹id {i}›"
    top = [
        {"id": i, "label": label(i), "prob": prob, "logit": float(logits[i])}
        for prob, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]
    return {"id": one.token.id, "label": one.token.label, "text": one.text, "prob": one.prob, "top": top}


def _broken_off(one: Generated, text: Text | None, path: str | None, force: bool, error: BaseException) -> None:
    """Ends the line, and saves what ran. The token that was chosen last has not."""
    if text is not None:
        with suppress(OSError, LayerstepError):
            text.end()
    if path is None:
        return
    why = "it was cancelled" if isinstance(error, KeyboardInterrupt | Cancelled) else "it was broken off"
    try:
        trace = one.trace
        size = trace.save(Path(path), force=force)
    except Exception as again:
        say_error(f"what was done could not be saved: {again}")
    else:
        say_error(f"saved {path}: {trace.length} tokens that ran before {why}, {human(size)}")
