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

if TYPE_CHECKING:
    from engine.traces import Trace

SUFFIX = ".safetensors"


def is_file(source: str) -> bool:
    """Whether what was written is a trace file and not a prompt: it is there, or its name ends as theirs do."""
    return os.path.isfile(source) or source.endswith(SUFFIX)


def open_source(context: click.Context, source: str | None, options: dict[str, Any]) -> Trace:
    """The trace in a file, or of a prompt (None and - are stdin); what the user should know is said on stderr."""
    if source is None or source == "-" or not is_file(source):
        return record(source, **options)
    refuse_for_file(context, ONLY_FOR_PROMPTS)
    load_torch()
    from engine import open_trace
    from engine.checkpoints.lookup import find

    if options["model"] is not None:
        with Progress() as progress:
            find(options["model"], progress.loading, options["allow_pickle"])  # downloads it, if it has to be
    trace = open_trace(Path(source), options["model"], allow_pickle=options["allow_pickle"])
    say_notices(*trace.notices)
    return trace


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
) -> Trace:
    """Load the model and run the prompt, with progress; what the user should know is said on stderr."""
    wanted = keep_of(keep)
    given, written, notices = as_given(prompt, ids=ids, chat=chat, target=target)
    with Progress() as progress, prompt_interrupts():
        load_torch()
        from engine import load_model, trace

        loaded = load_model(
            model or DEFAULT_MODEL, device=device, dtype=dtype, allow_pickle=allow_pickle, watch=progress.loading
        )
        result = trace(
            loaded,
            given,
            keep=wanted,
            kernel=kernel,
            max_memory=max_memory,
            literal=literal,
            chat=chat,
            target=written,
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
