"""Dataclasses from plain data: what a JSON file says, checked against the declared types, closed-world."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from engine.errors import ConfigError

T = TypeVar("T")


def from_plain(cls: type[T], data: Mapping[str, Any], where: str) -> T:
    """A dataclass from plain data. An unknown key, a missing one or a value of the wrong kind is refused by name."""
    assert dataclasses.is_dataclass(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    if unknown := sorted(set(map(str, data)) - set(fields)):
        raise ConfigError(f"{where}: unknown field {unknown[0][:80]!r}; layerstep refuses what it does not know")
    for key, field in fields.items():
        if key not in data and field.default is dataclasses.MISSING:
            raise ConfigError(f"{where}: field {key!r} is missing")
    kinds = _declared(cls)
    built: T = cls(**{key: _built(kinds[key], value, where) for key, value in data.items()})
    return built


def check_types(instance: Any, where: str) -> None:
    """Refuse, by name, a field whose value is not of its declared kind, in the dataclasses that it holds too."""
    for key, kind in _declared(instance.__class__).items():
        value = getattr(instance, key)
        if not _fits(kind, value):
            raise ConfigError(f"{where}: {key} must be {_told(kind)}, but is {value!r}"[:300])
        for part in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(part):
                check_types(part, f"{where}: {key}")


@cache
def _declared(cls: Hashable) -> dict[str, Any]:
    """The kinds that a dataclass declares for its fields."""
    assert isinstance(cls, type)
    assert dataclasses.is_dataclass(cls)
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _choices(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a union; the kind alone where it is none."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _built(kind: Any, value: Any, where: str) -> Any:
    """A value as its kind asks: lists become tuples and objects dataclasses; what does not fit stays as it is."""
    for one in _choices(kind):
        if dataclasses.is_dataclass(one) and isinstance(one, type) and isinstance(value, Mapping):
            return from_plain(one, value, where)
        if get_origin(one) is tuple and isinstance(value, list | tuple):
            return tuple(_built(get_args(one)[0], item, where) for item in value)
    return value


def _fits(kind: Any, value: Any) -> bool:
    for one in _choices(kind):
        if get_origin(one) is Literal:
            fits = isinstance(value, str) and value in get_args(one)
        elif get_origin(one) is tuple:
            fits = isinstance(value, tuple) and all(_fits(get_args(one)[0], item) for item in value)
        elif one in (int, float):
            fits = isinstance(value, int | float if one is float else int) and not isinstance(value, bool)
        else:
            fits = isinstance(value, one)
        if fits:
            return True
    return False


def _told(kind: Any) -> str:
    """A kind as people read it."""
    told = []
    for one in _choices(kind):
        if get_origin(one) is Literal:
            told.append(f"one of {', '.join(get_args(one))}")
        elif get_origin(one) is tuple:
            told.append(f"a list of {_told(get_args(one)[0])}")
        elif one is not NoneType:
            told.append("an object" if dataclasses.is_dataclass(one) else one.__name__)
    return " or ".join(told)
