"""``layerstep tour``: list the tours, play one in the app, print it as text, or check it against its model."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.appkeys import known_actions
from engine.cli.interrupt import prompt_interrupts
from engine.cli.options import command as make_command
from engine.cli.options import json_option
from engine.cli.progress import Progress
from engine.cli.streams import say, say_error, say_json
from engine.cli.walk import APP, app_options, app_settings, open_app
from engine.errors import Cancelled, LayerstepError, TourError
from engine.text import display

if TYPE_CHECKING:
    from engine.model import Model
    from engine.touring import Checked, TourRun
    from engine.tours import Tour

WIDTH = 100
"""Columns of a text that is read, where the terminal has more."""


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """What a shell may complete a NAME to."""
    from engine.tours import shipped

    return [name for name in shipped() if name.startswith(incomplete)]


@make_command(
    name="tour",
    help="Play a tour in the app: places in a trace, one after the other, with words about each. NAME is one of those "
    "that come along, which `layerstep tour` lists; FILE is one in TOML or Markdown, as r records it in the app.\n\n"
    "A lecturer presents with --present in one terminal and reads the notes with --notes in a second one. "
    "`layerstep export --tour NAME --to html` makes a page of it, md a handout, ipynb a notebook.",
)
@click.argument("names", metavar="[NAME|FILE]...", nargs=-1, shell_complete=_names)
@click.option("--present", is_flag=True, help="Full screen, for an audience.")
@click.option("--notes", is_flag=True, help="Follow a presentation here: the speaker's notes, and what comes next.")
@click.option("--text", is_flag=True, help="Print it with its numbers, questions, answers and notes.")
@click.option(
    "--check",
    is_flag=True,
    help="Print for every stop whether its places and views are there and its numbers the model's; exit 1 if one does "
    "not hold. All that come along are checked where none is named.",
)
@app_options
@json_option
def command(
    names: tuple[str, ...],
    present: bool,
    notes: bool,
    text: bool,
    check: bool,
    as_json: bool,
    config: str | None,
    no_mouse: bool,
    light: bool,
) -> int:
    modes = {"--present": present, "--notes": notes, "--text": text, "--check": check}
    chosen = [name for name, on in modes.items() if on]
    if len(chosen) > 1:
        raise click.UsageError(f"{chosen[0]} and {chosen[1]} are different things; choose one")
    if as_json and (text or present or notes or (names and not check)):
        raise click.UsageError("--json is for the list, or for --check")
    if check:
        return _check(names, as_json)
    if len(names) > 1:
        raise click.UsageError("one tour at a time; --check takes several")
    settings = app_settings(config, no_mouse, light)
    if notes:
        if names:
            raise click.UsageError("--notes follows the presentation that runs; leave the NAME out")
        return _notes(settings)
    if not names and (present or text):
        raise click.UsageError(f"{chosen[0]} needs the NAME of a tour, or its FILE; `layerstep tour` lists them")
    if not names:
        _list(as_json)
        return 0
    tour, path = _read(names[0])
    if text:
        say(*_told(tour, _opened(tour, {})))
        return 0
    if present:
        settings["present"] = True
    return open_app(None, None, None, None, tour=str(path), **settings)


def _read(name: str) -> tuple[Tour, Path]:
    """A tour by its name or file, and the file. Raises TourError."""
    from engine.tours import find_tour, read_tour

    path = find_tour(name)
    return read_tour(path, known_actions()), path


def _notes(settings: dict[str, Any]) -> int:
    """The second terminal of a presentation; the app runs it."""
    try:
        follow = import_module(APP).notes
    except ModuleNotFoundError as error:
        raise LayerstepError(f"the notes cannot be shown without {error.name}; install layerstep again") from None
    return int(follow(**settings))


# --- the list ---------------------------------------------------------------------------------------------


def _list(as_json: bool) -> None:
    from engine.cli.layout import columns
    from engine.tours import shipped

    entries, rows = [], []
    for name, path in shipped().items():
        try:
            tour, _ = _read(name)
        except TourError as error:
            entries.append({"name": name, "file": str(path), "error": str(error)})
            rows.append([name, "", "", str(error)])
        else:
            entries.append({"name": name, "file": str(path), **_entry(tour)})
            rows.append([name, str(len(tour.stops)), tour.model, tour.title])
    if as_json:
        say_json({"tours": entries})
    elif not rows:
        say("no tours are installed")
    else:
        say(*columns([["tour", "stops", "model", "title"], *rows], numbers=(1,)))


def _entry(tour: Tour) -> dict[str, Any]:
    about = {"title": tour.title, "about": tour.about, **tour.request}
    return about | {"other": tour.other and tour.other.request, "stops": [stop.title for stop in tour.stops]}


# --- checking ---------------------------------------------------------------------------------------------


def _check(names: tuple[str, ...], as_json: bool) -> int:
    """Check tours one by one; what is wrong with one does not keep another from being checked."""
    from engine.tours import shipped

    models: dict[str, Model] = {}
    results, failed = [], 0
    for name in names or shipped():
        found: list[Checked] = []
        title, error = "", ""
        try:
            tour, _ = _read(name)
            title, found = tour.title, _checked(tour, models)
        except Cancelled:
            raise
        except LayerstepError as trouble:
            error = str(trouble)
        wrong = sum(not stop.ok for stop in found)
        failed += bool(wrong or error)
        results.append(_result(name, title, error, found))
        if not as_json:
            _say_checked(name, title, error, found)
    if as_json:
        say_json({"tours": results})
    if failed:
        say_error(f"{failed} of {len(results)} tours do not hold" if len(results) > 1 else "the tour does not hold")
    return 1 if failed else 0


def _checked(tour: Tour, models: dict[str, Model]) -> list[Checked]:
    run = _opened(tour, models)
    from engine.touring import check

    with Progress() as progress, prompt_interrupts():
        return list(check(run, progress.watch))


def _opened(tour: Tour, models: dict[str, Model]) -> TourRun:
    from engine.cli.heavy import load_torch

    with Progress() as progress, prompt_interrupts():
        load_torch()
        from engine.touring import open_tour

        return open_tour(tour, progress.watch, loading=progress.loading, models=models)


def _result(name: str, title: str, error: str, found: list[Checked]) -> dict[str, Any]:
    stops = [
        {"stop": one.number, "title": one.stop.title, "address": str(one.stop.address), "view": one.stop.view,
         "ok": one.ok, "troubles": list(one.troubles)}
        for one in found
    ]  # fmt: skip
    ok = not error and all(one.ok for one in found)
    return {"tour": name, "title": title, "ok": ok, "error": error or None, "stops": stops}


def _say_checked(name: str, title: str, error: str, found: list[Checked]) -> None:
    if error:
        say(f"✗ {name}: {error}")
        return
    say(f"{name} · {title}")
    for one in found:
        say(f"  {'✓' if one.ok else '✗'} {one.number} {one.stop.title} · {one.stop.address} · {one.stop.view}")
        say(*(f"      {trouble}" for trouble in one.troubles))


# --- as text ----------------------------------------------------------------------------------------------


def _told(tour: Tour, run: TourRun) -> Iterator[str]:
    """A tour as it is read in a terminal."""
    yield from (tour.title, *_paragraphs(run, tour.about))
    for number, stop in enumerate(tour.stops, 1):
        yield from ("", f"{number}. {display(stop.title)}", f"   {stop.address} · {stop.view}")
        if stop.beside:
            yield f"   beside {stop.beside}"
        yield from _paragraphs(run, stop.narration)
        for word, said in (("Question", stop.question), ("Answer", stop.answer), ("Notes", stop.notes)):
            yield from _paragraphs(run, said, f"{word}: ")


def _paragraphs(run: TourRun, text: str, first: str = "") -> Iterator[str]:
    from engine.cli.layout import room
    from engine.markdown import plain

    width = min(room(full=False) or WIDTH, WIDTH)
    for line in plain(run.words(text)):
        inner = " " * (len(line) - len(line.lstrip()))
        yield ""
        yield from textwrap.wrap(first + line.strip(), width, initial_indent=inner, subsequent_indent=inner) or [""]
        first = ""
