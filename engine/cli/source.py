"""Where a trace comes from: a prompt that is run, or a file that was saved."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.cli.heavy import load_torch
from engine.cli.interrupt import prompt_interrupts
from engine.cli.options import DEFAULT_MODEL, ONLY_FOR_PROMPTS, ids_of, keep_of, read_prompt
from engine.cli.progress import Progress
from engine.cli.streams import say_notices
from engine.edits import edits_of

if TYPE_CHECKING:
    from engine.model import Model
    from engine.traces import Trace

SUFFIX = ".safetensors"
Held = dict[str, "Model"]
"""Models that a command has loaded, by the name they were asked for by."""


def is_file(source: str) -> bool:
    """Whether what was written is a trace file and not a prompt: it is there, or its name ends as theirs do."""
    return os.path.isfile(source) or source.endswith(SUFFIX)


def open_source(context: click.Context, source: str | None, options: dict[str, Any], held: Held | None = None) -> Trace:
    """The trace in a file, or of a prompt (None and - are stdin); what the user should know is said on stderr."""
    if source is None or source == "-" or not is_file(source):
        return record(source, **options, held=held)
    refuse_for_file(context, ONLY_FOR_PROMPTS)
    return open_file(source, options["model"], options["allow_pickle"])


def open_file(source: str, model: str | None, allow_pickle: bool) -> Trace:
    """The trace in a file; what the user should know is said on stderr."""
    load_torch()
    from engine import open_trace
    from engine.checkpoints.lookup import find

    if model is not None:
        with Progress() as progress:
            find(model, progress.loading, allow_pickle)  # downloads it, if it has to be
    trace = open_trace(Path(source), model, allow_pickle=allow_pickle)
    say_notices(*trace.notices)
    return trace


def open_other(source: str | None, main: str | None, model: str | None, options: dict[str, Any], held: Held) -> Trace:
    """The trace beside the ``main`` one: another prompt or file, or the same prompt, in another model or the same, run
    as the main one is."""
    piped = main is None or main == "-"
    if piped and source in (None, "-"):
        raise click.UsageError(
            "stdin is one PROMPT; write it as an argument, or give the other trace its own with --other"
        )
    source = main if source is None else source
    assert source is not None
    if is_file(source):
        return open_file(source, model, options["allow_pickle"])
    return record(source, **{**options, "model": model or options["model"], "edit": ()}, held=held)


def refuse_for_file(context: click.Context, names: Iterable[str]) -> None:
    """Refuse options of a run where a FILE is named."""
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} is for a PROMPT; what is in FILE was recorded already")


def record(
    prompt: str | None,
    *,
    model: str | None,
    keep: tuple[str, ...],
    kernel: str,
    device: str,
    dtype: str,
    max_memory: int | None,
    literal: bool,
    ids: bool,
    chat: bool,
    target: str | None,
    allow_pickle: bool,
    edit: tuple[str, ...] = (),
    held: Held | None = None,
) -> Trace:
    """Load the model, unless it is ``held``, and run the prompt, with progress; what the user should know is said on
    stderr."""
    wanted, edits = keep_of(keep), edits_of(edit)
    given, written, notices = as_given(prompt, ids=ids, chat=chat, target=target)
    with Progress() as progress, prompt_interrupts():
        load_torch()
        from engine import load_model, trace

        held, name = {} if held is None else held, model or DEFAULT_MODEL
        if name not in held:
            held[name] = load_model(name, device=device, dtype=dtype, allow_pickle=allow_pickle, watch=progress.loading)
        loaded = held[name]
        result = trace(
            loaded,
            given,
            keep=wanted,
            kernel=kernel,
            max_memory=max_memory,
            literal=literal,
            chat=chat,
            target=written,
            edits=edits,
            watch=progress.watch,
        )
    say_notices(*notices, *loaded.report.warnings, *result.notices)
    return result


def as_given(prompt: str | None, *, ids: bool, chat: bool, target: str | None) -> tuple[Any, Any, list[str]]:
    """PROMPT (or stdin) and --target as the engine takes them, and what to tell the user about them."""
    text, notices = read_prompt(prompt)
    if ids and chat:
        raise click.UsageError("--ids and --chat are for different kinds of PROMPT; choose one")
    written = ids_of(target) if ids and target is not None else target
    if not chat:
        return ids_of(text) if ids else text, written, notices
    from engine.chat import is_mistyped, messages_of

    if is_mistyped(text):
        words = "PROMPT begins as a JSON list of messages and is none (each has role and content); it is read as text"
        notices = [*notices, words]
    return messages_of(text), written, notices
