"""What the cache saves: a token's time with it and without it."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from rich.segment import Segment

from tui.actions import keymap_of
from tui.state.cache import Timing
from tui.state.numbers import count
from tui.widgets.cache_section import Line, Section, flow, keyed, paragraph

STORY = "With the cache only the new token is computed; without it all positions before it are, once more."


class CacheTime(Section):
    """Two bars and their ratio, once it was measured."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._timing: Timing | None = None

    def show(self, timing: Timing | None, trouble: str = "") -> None:
        """Draw what was measured; None: nothing yet."""
        self._timing = timing
        self.say(timing, trouble=trouble)

    def write(self, width: int) -> Iterator[Line]:
        timing, inks = self._timing, self.inks
        if timing is None:
            measures = keymap_of(self.app).key("cache.measure")
            yield from keyed(measures, "measures a token with the cache and without it", inks, width)
            yield from paragraph(STORY, inks.faint, width)
            return
        most = max(timing.cached, timing.uncached)
        for name, time in (("cached", timing.cached), ("uncached", timing.uncached)):
            yield self.bar(name, _ms(time), time, most, (8, 9, width), "●" if name == "cached" else " ")
        ratio = f"{timing.ratio:.1f} ×" if isfinite(timing.ratio) else "?"
        words = f" as long without, at {count(timing.tokens)} positions"
        yield from flow((Segment(f" {ratio}", inks.accent), Segment(words, inks.muted)), width)
        yield from paragraph(STORY, inks.faint, width)


def _ms(time: float) -> str:
    return f"{time:.2f} ms" if time < 100 else f"{time:.0f} ms"
