"""Writes an export: whole or not at all, never over what is there unasked, and not larger than allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from engine.errors import ExportError
from engine.export.formats import FORMATS, format_of
from engine.export.order import Order
from engine.runtime import Watch
from engine.text import human
from engine.traces import Trace
from engine.wholefile import check_target, whole_file

if TYPE_CHECKING:
    from types import ModuleType

MAX_SIZE: Mapping[str, int] = {"html": 64 * 1024 * 1024, "md": 64 * 1024 * 1024, "ipynb": 64 * 1024 * 1024}
"""Bytes above which these are refused unless more is allowed: people open them in a browser."""
Tell = Callable[[int | None], None]
"""Hears how large a file will be (None: small), before anything is written."""


def save_as(
    trace: Trace,
    path: str | Path,
    to: str | None = None,
    *,
    force: bool = False,
    watch: Watch | None = None,
    tell: Tell = lambda size: None,
    **how: Any,
) -> int:
    """Export a trace to a file, in the format that is named or that the file's name ends with; the file's size.

    ``save_as(t, "pattern.svg", at="blocks.2.attn.pattern[h=3]")`` is a figure, ``save_as(t, "walk.html")`` a page. What
    else can be said is in `Order`. Raises ExportError for what cannot be made or is too large, AddressError,
    NotKeptError; an existing file is replaced only with ``force``.
    """
    form = format_of(Path(path), to)
    return write(Order(trace, form.name, **how), Path(path), force=force, watch=watch, tell=tell)


def write(
    order: Order, path: Path, *, force: bool = False, watch: Watch | None = None, tell: Tell = lambda size: None
) -> int:
    """Write what is ordered to a file; its size."""
    check_target(path, ExportError, force=force)
    home, size = _measured(order, tell)
    with whole_file(path, ExportError, force=force, size=size or 0) as file:
        return _written(order, home, file, watch)


def write_to(order: Order, file: BinaryIO, watch: Watch | None = None, tell: Tell = lambda size: None) -> None:
    """Write what is ordered to an open file, which is of no use where this raises."""
    _written(order, _measured(order, tell)[0], file, watch)


def _written(order: Order, home: ModuleType, file: BinaryIO, watch: Watch | None) -> int:
    """Write the file; its size. What was said of that before is an estimate, so a limit that is named is kept here."""
    home.write(order, file, watch)
    file.flush()
    size = file.tell()
    if order.max_size is not None and size > order.max_size:
        raise _too_large(order, home, size, order.max_size)
    return size


def _measured(order: Order, tell: Tell) -> tuple[ModuleType, int | None]:
    """The module that writes a format, and how large the file will be. Raises ExportError for one that is too large."""
    home = _home(order)
    size: int | None = home.size(order)
    tell(size)
    limit = order.max_size if order.max_size is not None else MAX_SIZE.get(order.to)
    if size is not None and limit is not None and size > limit:
        raise _too_large(order, home, size, limit)
    return home, size


def _too_large(order: Order, home: ModuleType, size: int, limit: int) -> ExportError:
    cheaper = home.cheaper(order, limit) if hasattr(home, "cheaper") else _LESS if order.at is None else _PART
    return ExportError(
        f"this would be {human(size)}, over the limit of {human(limit)}; {cheaper}, "
        f"or allow it with --max-size {-(-size // 1024**2)}M"
    )


_LESS = "choose less with --keep, --layers or --heads, or round with --round-to float16"
_PART = "name a smaller part in --at"


def _home(order: Order) -> ModuleType:
    form = FORMATS[order.to]
    if not form.home:
        raise ExportError(f"a {form.name} is recorded by the app: layerstep export … --to {form.name}")
    if order.at is None and "picture" in form.of and len(form.of) == 1 and order.view is None:
        raise ExportError(
            f"{form.words} ({form.name}) is of one place; name it with --at, e.g. --at 'blocks.0.attn.pattern[h=0]'"
        )
    if order.at is not None and "picture" not in form.of:
        raise ExportError(f"{form.words} ({form.name}) is of a whole trace; leave --at out, and choose with --keep")
    if order.tour is not None and "tour" not in form.of:
        there = ", ".join(name for name, other in FORMATS.items() if "tour" in other.of)
        raise ExportError(f"a tour cannot be {form.words} ({form.name}); it can be {there}")
    return import_module(f"engine.export.{form.home}")
