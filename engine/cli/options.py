"""Options that several commands share, and the kinds of values that they take."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from engine.dtypes import ITEMSIZE
from engine.text import MAX_PROMPT_BYTES, decode_bytes

F = TypeVar("F", bound=Callable[..., Any])

KERNELS = ("auto", "flash", "efficient", "cudnn", "math")
"""The engine's own names, here without torch; a test holds them equal."""
DTYPES = ("auto", *ITEMSIZE)

DEFAULT_MODEL = "modern"
MODEL_WORDS = "A sample's name, a model folder, a .gguf file or a hub id (gpt2, org/name@revision)"
ONLY_FOR_PROMPTS = (
    "keep", "kernel", "device", "dtype", "max_memory", "literal", "ids", "chat", "target", "edit",
)  # fmt: skip
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_UNITS = {unit: 1024**power for power, unit in enumerate(("", "k", "m", "g", "t"))}


def size_of(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Bytes from 2G, 512M, 1.5GiB or a plain number; K, M, G and T are powers of 1024."""
    if value is None:
        return None
    found = _SIZE.fullmatch(value.strip())
    if not found:
        raise click.BadParameter(f"{value!r} is no size; write e.g. 2G, 512M or a number of bytes", ctx, param)
    return int(float(found[1]) * _UNITS[found[2].lower()])


def command(name: str, help: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A command with what all have: -h and --debug."""

    def make(function: Callable[..., Any]) -> click.Command:
        debug = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
        return click.command(name, help=help, context_settings={"help_option_names": ["-h", "--help"]})(debug(function))

    return make


def source_command(
    name: str, help: str, metavar: str = "[FILE|PROMPT]"
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command on a saved trace or a prompt, with ``source`` as its argument; ``run_options`` are its last options."""
    words = "An argument that names a file, or ends with .safetensors, is a FILE; - is a PROMPT from stdin."
    argument = click.argument("source", metavar=metavar, required=False)
    return lambda function: command(name, f"{help}\n\n{words}")(argument(function))


def run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The context, and the options of a command that reads a saved trace or runs a prompt."""
    return model_option(recording_options(json_option(click.pass_context(function))))


def json_option(function: F) -> F:
    """--json"""
    words = 'Print JSON; NaN and ±∞ are the strings "NaN", "Infinity", "-Infinity".'
    return click.option("--json", "as_json", is_flag=True, help=words)(function)


def model_option(function: F) -> F:
    """--model"""
    words = f"{MODEL_WORDS}; {DEFAULT_MODEL} for a PROMPT, none for a FILE unless given."
    return click.option("--model", metavar="M", help=words)(function)


def pickle_option(function: F) -> F:
    """--allow-pickle"""
    words = "Read pytorch_model.bin where a model has no safetensors; as data, running no code."
    return click.option("--allow-pickle", is_flag=True, help=words)(function)


def chat_option(function: F) -> F:
    """--chat"""
    words = (
        "Put PROMPT through the model's chat template, as a message of the user, or as a JSON list of messages with "
        "role and content."
    )
    return click.option("--chat", is_flag=True, help=words)(function)


def target_option(function: F) -> F:
    """--target"""
    words = "What the decoder of an encoder-decoder has written so far."
    return click.option("--target", metavar="TEXT", help=words)(function)


def keep_option(function: F) -> F:
    """--keep"""
    words = (
        "all (the path to the logits), residual (the stream between blocks), or site patterns in which * stands for "
        "any text, e.g. blocks.*.attn.result; repeat, or separate with commas, to keep all that is named."
    )
    return click.option("--keep", multiple=True, metavar="WHAT", default=("all",), show_default=True, help=words)(
        function
    )


def edit_option(function: F) -> F:
    """--edit"""
    words = (
        "A what-if: ADDRESS = NUMBER, *= NUMBER or += NUMBER, e.g. 'blocks.2.attn.z[h=3] = 0'; repeat it for more. "
        "What depends on it follows; an --other trace runs without."
    )
    return click.option("--edit", multiple=True, metavar="TEXT", help=words)(function)


def recording_options(function: F) -> F:
    """How a prompt is run and what of it is kept."""
    options = (
        keep_option,
        click.option("--kernel", type=click.Choice(KERNELS), default="auto", help="The attention kernel to force."),
        click.option("--device", metavar="DEVICE", default="auto", help="auto, cpu, cuda or mps."),
        click.option("--dtype", type=click.Choice(DTYPES), default="auto", help="Default: the model file's own."),
        click.option(
            "--max-memory",
            callback=size_of,
            metavar="SIZE",
            help="Refuse a run above this, e.g. 2G. Default: what is free.",
        ),
        target_option,
        click.option("--literal", is_flag=True, help="Read special tokens in PROMPT as ordinary text."),
        chat_option,
        edit_option,
        click.option("--ids", is_flag=True, help="PROMPT is token ids, separated by spaces or commas."),
        pickle_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


def keep_of(given: tuple[str, ...]) -> str | list[str]:
    """The engine's ``keep`` from what was written."""
    patterns = [part.strip() for one in given for part in one.split(",") if part.strip()]
    if not patterns:
        raise click.BadParameter("is empty; write all, residual or a site pattern", param_hint="--keep")
    return patterns[0] if patterns in (["all"], ["residual"]) else patterns


def ids_of(text: str) -> list[int]:
    """Token ids from a text of numbers."""
    parts = text.replace(",", " ").split()
    if wrong := [part for part in parts if not (part.isascii() and part.isdecimal() and len(part) < 12)]:
        raise click.UsageError(f"with --ids the PROMPT is numbers, but {wrong[0]!r} is none")
    return [int(part) for part in parts]


def read_prompt(given: str | None) -> tuple[str, list[str]]:
    """The prompt as given, or from stdin where it is - or absent, with notices. One final line break is dropped."""
    if given is not None and given != "-":
        return given, []
    if sys.stdin is None:
        raise click.UsageError("there is no PROMPT, and stdin is closed")
    if given is None and sys.stdin.isatty():
        raise click.UsageError("there is no PROMPT; give one, or pipe one in")
    text, notices = decode_bytes(sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1))
    return text.removesuffix("\n").removesuffix("\r"), notices
