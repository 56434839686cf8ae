"""The app's themes. The colours of heatmaps on them are in ``tui.render.palette``."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="layerstep-dark",
    dark=True,
    primary="#7aa2f7",
    secondary="#89b4c9",
    accent="#ffb454",
    warning="#ffb454",
    error="#ff7b85",
    success="#8fd17a",
    foreground="#d5dae5",
    background="#0e1118",
    surface="#141924",
    panel="#1c2433",
    variables={
        "muted": "#8d97ab",
        "faint": "#78829a",
        "cursor": "#2b3c63",
        "line": "#2c3547",
        "border-blurred": "#2c3547",
    },
)
LIGHT = Theme(
    name="layerstep-light",
    dark=False,
    primary="#1d4fb8",
    secondary="#2f5d73",
    accent="#94500a",
    warning="#94500a",
    error="#b3202c",
    success="#2b6b1d",
    foreground="#1f2630",
    background="#fbfaf7",
    surface="#f4f2ec",
    panel="#e8e5dc",
    variables={
        "muted": "#5a6270",
        "faint": "#6b717d",
        "cursor": "#c9d8f7",
        "line": "#cfccc1",
        "border-blurred": "#cfccc1",
    },
)
CONTRAST = Theme(
    name="layerstep-contrast",
    dark=True,
    primary="#8fd3ff",
    secondary="#8fd3ff",
    accent="#ffd75f",
    warning="#ffd75f",
    error="#ff9d9d",
    success="#9dff9d",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#262626",
    variables={
        "muted": "#d8d8d8",
        "faint": "#b4b4b4",
        "cursor": "#0040b0",
        "line": "#8a8a8a",
        "border-blurred": "#8a8a8a",
    },
)
THEMES = {theme.name: theme for theme in (DARK, LIGHT, CONTRAST)}


def after(name: str) -> str:
    """The next theme in the round; the first one after a theme that is not ours."""
    names = list(THEMES)
    return names[(names.index(name) + 1) % len(names)] if name in names else names[0]
