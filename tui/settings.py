"""What a person sets in a file of their own: keys, theme, looks. Read once, before the app starts; never changed by it.

Whatever the file says that is not known is an error, so that nothing in it is without effect.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from engine.errors import LayerstepError

VARIABLE = "LAYERSTEP_CONFIG"


class SettingsError(LayerstepError):
    """A settings file that cannot be followed: one line with the file, the line and what is known."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is set; as it is without a file. ``keys`` has the actions with keys of the person's own, by id."""

    theme: str = "layerstep-dark"
    cells: str = "auto"
    scale: str = "auto"
    pace: float = 1.2
    cell_width: int = 0
    mouse: bool = True
    restore: bool = False
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    path: Path | None = None
    """The file they are from, or would be from; None where no file counts."""

    @property
    def shades(self) -> bool | None:
        """Whether cells are shades; None: as the terminal's colours ask for."""
        return None if self.cells == "auto" else self.cells == "shades"


def settings_path(given: str | None = None) -> Path:
    """The file that counts: the one given, else the one in the environment, else the usual one."""
    if given or (given := os.environ.get(VARIABLE)):
        return Path(given).expanduser()
    from platformdirs import user_config_path

    return user_config_path("layerstep", appauthor=False) / "settings.toml"


def memory_path() -> Path:
    """The file of what the app remembers."""
    from platformdirs import user_state_path

    return user_state_path("layerstep", appauthor=False) / "session.json"


def read_settings(given: str | None = None) -> Settings:
    """The person's settings. Raises SettingsError; a file that was named must be there, the usual one need not."""
    named = given or os.environ.get(VARIABLE)
    try:
        path = settings_path(given)
        with path.open("rb") as file:
            from engine.tomltext import LARGEST

            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        if not named:
            return Settings(path=path)
        raise _unread(named, "there is no such settings file") from None
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _unread(named or "settings.toml", reason.lower()) from None
    from tui.settings_file import Reader

    return Reader(path, data).settings()


def _unread(name: str, why: str) -> SettingsError:
    from engine.text import display

    return SettingsError(f"{display(name)}: {display(why)}")
