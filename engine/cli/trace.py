"""``layerstep trace PROMPT -o FILE``: record headlessly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from engine.cli.options import command as make_command
from engine.cli.options import json_option, model_option, recording_options
from engine.cli.source import record
from engine.cli.streams import say_error, say_json
from engine.errors import TraceFileError


@make_command(name="trace", help="Run PROMPT (or stdin) and save all that was recorded in FILE.")
@click.argument("prompt", required=False)
@click.option("-o", "--output", "path", metavar="FILE", required=True, help="Where to save, *.trace.safetensors.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@model_option
@recording_options
@json_option
def command(prompt: str | None, path: str, force: bool, as_json: bool, **options: Any) -> int:
    check_output(path, force)
    result = record(prompt, **options)
    size = result.save(Path(path), force=force)
    if as_json:
        say_json(
            {
                "file": path,
                "bytes": size,
                "model": result.config.name,
                "tokens": result.length,
                "device": str(result.device),
                "dtype": str(result.dtype).removeprefix("torch."),
                "kernels": list(result.kernels),
                "kept": sorted({name for p in result.passes for name in p.kept}),
                "seconds": sum(p.seconds for p in result.passes),
                "notices": list(result.notices),
            }
        )
    else:
        from engine.plan import human

        kept = sum(len(p.kept) for p in result.passes)
        say_error(f"saved {path}: {result.length} tokens, {kept} tensors, {human(size)}")
    return 0


def check_output(path: str, force: bool) -> None:
    """Refuse, before anything runs, a place that cannot be written."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise TraceFileError(f"{path} is a folder; name a file")
    if not os.path.isdir(folder):
        raise TraceFileError(f"the folder {folder} is not there; create it first")
    if not os.access(folder, os.W_OK):
        raise TraceFileError(f"the folder {folder} cannot be written to")
    if os.path.lexists(path) and not force:
        raise TraceFileError(f"{path} exists already; --force replaces it")
