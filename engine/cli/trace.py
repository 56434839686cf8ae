"""``layerstep trace PROMPT -o FILE``: record headlessly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from engine.cli.options import command as make_command
from engine.cli.options import json_option, model_option, recording_options
from engine.cli.source import record
from engine.cli.streams import say_error, say_json
from engine.dtypes import dtype_name
from engine.tracefile import check_target


@make_command(name="trace", help="Run PROMPT (or stdin) and save all that was recorded in FILE.")
@click.argument("prompt", required=False)
@click.option("-o", "--output", "path", metavar="FILE", required=True, help="Where to save, *.trace.safetensors.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@model_option
@recording_options
@json_option
def command(prompt: str | None, path: str, force: bool, as_json: bool, **options: Any) -> int:
    check_target(Path(path), force=force)  # before anything runs
    result = record(prompt, **options)
    size = result.save(Path(path), force=force)
    source = result.source_length
    if as_json:
        say_json(
            {
                "file": path,
                "bytes": size,
                "model": result.config.name,
                "tokens": result.length,
                "source_tokens": source,
                "device": str(result.device),
                "dtype": dtype_name(result.dtype),
                "kernels": list(result.kernels),
                "kept": sorted({name for p in result.passes for name in p.kept}),
                "seconds": sum(p.seconds for p in result.passes),
                "notices": list(result.notices),
            }
        )
    else:
        from engine.plan import human

        kept = sum(len(p.kept) for p in result.passes)
        read = f"{source} source tokens, " if source else ""
        say_error(f"saved {path}: {read}{result.length} tokens, {kept} tensors, {human(size)}")
    return 0
