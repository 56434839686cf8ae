"""Start the engine's process. Imports next to nothing, so that it can be the first thing that happens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

ENGINE = (sys.executable, "-m", "engine.service")


def start_engine(command: Sequence[str] = ENGINE) -> subprocess.Popen[bytes]:
    """An engine, listening on its stdin. It has a session of its own: ctrl+c and ctrl+z are the app's."""
    return subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
