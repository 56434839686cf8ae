"""The app's actions and their keys, as texts name them.

By name: the app stands on the engine and not the other way round, so nothing here imports it. What needs them does
without where it is not installed.
"""

from __future__ import annotations

from importlib import import_module

ACTIONS = "tui.actions"


def known_actions() -> frozenset[str] | None:
    """The actions of the app; None where it is not installed."""
    try:
        return frozenset(import_module(ACTIONS).DEFAULT.by_id)
    except ModuleNotFoundError:
        return None


def usual_key(action: str) -> str:
    """The key of an action without settings; the last word of its name where there is none."""
    try:
        return str(import_module(ACTIONS).DEFAULT.key(action))
    except (ModuleNotFoundError, KeyError):
        return action.rpartition(".")[2]
