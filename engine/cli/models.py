"""``layerstep models``: which samples there are, or what a model folder holds."""

from __future__ import annotations

from typing import Any

import click

from engine.cli.heavy import load_torch
from engine.cli.interrupt import prompt_interrupts
from engine.cli.options import DTYPES, MODEL_WORDS, json_option, pickle_option
from engine.cli.options import command as make_command
from engine.cli.progress import Progress
from engine.cli.streams import say, say_json
from engine.dtypes import dtype_name
from engine.told import fields, traits


@make_command(name="models", help="List the sample models; --inspect loads one and prints its config and load report.")
@click.option("--inspect", "folder", metavar="M", help=f"{MODEL_WORDS}.")
@click.option("--device", metavar="DEVICE", default="cpu", show_default=True, help="Where --inspect loads it.")
@click.option("--dtype", type=click.Choice(DTYPES), default="auto", help="What --inspect loads it as.")
@pickle_option
@json_option
def command(folder: str | None, device: str, dtype: str, allow_pickle: bool, as_json: bool) -> int:
    if folder is not None:
        inspect(folder, device, dtype, allow_pickle, as_json)
        return 0
    from engine.checkpoints.lookup import find
    from engine.cli.layout import columns
    from engine.samples import sample_folders

    found = [find(name) for name in sample_folders()]
    if as_json:
        say_json({"models": [_entry(f.config.to_json(), str(f.path), f.bytes) for f in found]})
    elif not found:
        say("no sample models are installed")
    else:
        rows = [
            [f.path.name, str(f.config.n_layers), str(f.config.d_model), str(f.config.n_ctx),
             f"{f.bytes / 1e6:.1f} MB", traits(f.config)]
            for f in found
        ]  # fmt: skip
        say(*columns([["model", "layers", "d_model", "context", "size", "architecture"], *rows], numbers=(1, 2, 3, 4)))
    return 0


def inspect(folder: str, device: str, dtype: str, allow_pickle: bool, as_json: bool) -> None:
    """Load a folder and say what is in it."""
    from engine.cli.layout import columns
    from engine.text import human

    with Progress() as progress, prompt_interrupts():
        load_torch()
        from engine import load_model

        model = load_model(folder, device=device, dtype=dtype, allow_pickle=allow_pickle, watch=progress.loading)
    size = sum(w.nbytes for w in model.weights.values())
    vocabulary = model.tokenizer.vocab_size if model.tokenizer else None
    facts = {
        "folder": model.source,
        "parameters": model.program.n_params,
        "bytes": size,
        "dtype": dtype_name(model.dtype),
        "device": str(model.device),
        "steps": len(model.program.steps),
        "tokenizer": vocabulary,
    }
    if as_json:
        weights = {name: list(w.shape) for name, w in model.weights.items()}
        say_json(
            {"config": model.config.to_json(), **facts, "weights": weights, "report": list(model.report)}
            | {"loading": model.report.to_json()}
        )
        return
    facts |= {"bytes": human(size), "tokenizer": "none" if vocabulary is None else f"{vocabulary} ids"}
    say(f"{model.name}: {traits(model.config)}", "")
    say(*columns([[key, str(value)] for key, value in facts.items()]), "")
    say(*columns(fields(model.config)), "")
    say("load report", *(f"  {line}" for line in model.report.lines or ("nothing to report",)))


def _entry(config: dict[str, Any], folder: str, size: int) -> dict[str, Any]:
    return {"name": config["name"], "folder": folder, "bytes": size, "config": config}
