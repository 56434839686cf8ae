"""Options of ``layerstep export`` that would be without effect: each is refused with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from engine.export.formats import FORMATS, Format

Options = Mapping[str, Any]

DATA = ("html", "json", "npz", "safetensors", "csv", "parquet")
_KNOWN: Mapping[str, Callable[[Format], bool]] = {
    **dict.fromkeys(
        ("size", "palette", "theme", "font", "peaks", "caption"), lambda form: form.home.startswith("figures")
    ),
    **dict.fromkeys(("view", "over", "minus", "other", "other_model"), lambda form: "picture" in form.of),
    **dict.fromkeys(("layers", "heads"), lambda form: "trace" in form.of and bool(form.home)),
    "round_to": lambda form: form.name in DATA,
    **dict.fromkeys(("notes", "title"), lambda form: "tour" in form.of and bool(form.home)),
    **dict.fromkeys(("max_size", "keep", "max_memory", "literal", "ids"), lambda form: bool(form.home)),
}
"""Options that only some formats know."""


def refuse_idle(context: click.Context, form: Format, options: Options) -> None:
    """Refuse an option that is named and would be without effect, in this format or beside the others."""
    commandline = click.core.ParameterSource.COMMANDLINE
    named = sorted(name for name in options if context.get_parameter_source(name) is commandline)
    for name in named:
        known = _KNOWN.get(name)
        if known is not None and not known(form):
            those = ", ".join(other.name for other in FORMATS.values() if known(other))
            raise click.UsageError(f"{_flag(name)} is not for {form.name}; it is for {those}")
    for name in named:
        for why in (_of_a_tour(name, form, options), _IDLE[name](form, options) if name in _IDLE else ""):
            if why:
                raise click.UsageError(f"{_flag(name)} {why}")


def _flag(name: str) -> str:
    return "--at" if name == "address" else f"--{name.replace('_', '-')}"


# -- beside the others: why an option is without effect, or '' ------------------------------------------------------

_OF_A_RUN = (
    "model", "kernel", "device", "dtype", "max_memory", "target", "literal", "chat", "ids", "allow_pickle", "edit",
)  # fmt: skip
_CHOOSING = ("keep", "layers", "heads")


def _of_a_tour(name: str, form: Format, options: Options) -> str:
    if options["tour"] is None:
        return ""
    if name in _OF_A_RUN:
        return "is not for a tour, which says itself what is run"
    if name in _CHOOSING and form.name != "html":
        return f"chooses nothing of a tour as {form.name}; leave it out"
    return ""


def _of_a_trace(form: Format, options: Options) -> str:
    return "chooses of a whole trace; name what you want of one place in --at" if options["address"] else ""


def _of_a_place(form: Format, options: Options) -> str:
    return "" if options["address"] else "is of one place; name that with --at"


def _of_numbers(form: Format, options: Options) -> str:
    table = form.name in ("csv", "parquet") and not options["address"]
    return "rounds no table of the steps; name a place with --at" if table else ""


_IDLE: Mapping[str, Callable[[Format, Options], str]] = {
    **dict.fromkeys(("layers", "heads"), _of_a_trace),
    **dict.fromkeys(("over", "minus", "other", "other_model"), _of_a_place),
    "view": lambda form, options: "" if form.home.startswith("figures") else _of_a_place(form, options),
    "round_to": _of_numbers,
    "peaks": lambda form, options: "" if options["view"] == "roofline" else "is for --view roofline",
    "notes": lambda form, options: "" if options["tour"] else "are those of a tour; name one with --tour",
}
