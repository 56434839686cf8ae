"""What the cache view asks the engine for: the report and the pages at once, the rest when somebody wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tui.client import EngineError, Stale
from tui.session import Session
from tui.state.cache import Answer, Drift, Pages, Quantised, Timing
from tui.widgets.job import Job, JobLine

if TYPE_CHECKING:
    from textual.screen import Screen

    _Base = Screen[str]
else:
    _Base = object

NAMES = ("growth", "bytes", "drift", "time", "quantised", "pages")
GROWTH, BYTES, DRIFT, TIME, QUANTISED, PAGES = range(6)
LEAST_PAGE, MOST_PAGE = 1, 4096
MEASURED = {
    DRIFT: "running without the cache",
    TIME: "timing a token",
    QUANTISED: "running with a coarser cache",
}
"""The sections that are worked out when somebody asks, and what is done then."""


class CacheAsking(_Base):
    """Workers never touch a widget: they end in ``show_all``."""

    session: Session
    faults: list[Exception]
    troubles: dict[type[Answer], str]
    section: int
    bits: int
    page: int

    if TYPE_CHECKING:

        def show_all(self) -> None: ...
        def choose(self, section: int) -> None: ...
        def say(self, text: str, severity: str = "information") -> None: ...

    def ask(self, kind: type[Answer], title: str = "", **params: Any) -> None:
        """Ask in the background; with a title it is a job that Esc stops."""
        lane = "cache job" if title else f"cache {kind.METHOD}"

        def tell(done: int, total: int, what: str) -> None:
            self._work(Job(title, done, total, what))

        async def run() -> None:
            self.troubles.pop(kind, None)
            try:
                await self.session.cache_answer(kind, tell if title else None, **params)
            except Stale:  # the other trace has its own answers
                return
            except EngineError as error:
                if error.kind != "Cancelled":
                    self.troubles[kind] = str(error)
            except Exception as fault:  # a mistake of ours is a line too, never a dead app
                self.faults.append(fault)
                self.troubles[kind] = f"a fault in layerstep, please report it: {type(fault).__name__}: {fault}"
            finally:
                if title:
                    self._work(None)
            self.show_all()

        if title:
            self._work(Job(title))
        self.run_worker(run, name=lane, group=lane, exclusive=True)  # type: ignore[arg-type]

    def _work(self, job: Job | None) -> None:
        if self.is_attached and self.query("#job"):
            self.query_one(JobLine).show(job)

    @property
    def working(self) -> bool:
        """Whether something runs that Esc can stop."""
        return self.query_one(JobLine).job is not None

    def stop_work(self) -> None:
        """Cancel what runs."""
        self.workers.cancel_group(self, "cache job")

    def do_cache_measure(self) -> None:
        if self.section not in MEASURED:
            self.say("choose what to measure first: 3 drift, 4 time or 5 quantised")
        elif self.working:
            self.say("one at a time: Esc stops what runs")
        elif self.section == QUANTISED:
            self.ask(Quantised, MEASURED[QUANTISED], bits=self.bits)
        else:
            self.ask(Drift if self.section == DRIFT else Timing, MEASURED[self.section])

    def do_cache_bits(self) -> None:
        self.bits = 4 if self.bits == 8 else 8
        self.troubles.pop(Quantised, None)
        self.choose(QUANTISED)
        self.show_all()
        if self.session.cache_known(Quantised, bits=self.bits) is None and not self.working:
            self.do_cache_measure()

    def do_cache_pages_larger(self) -> None:
        self._pages(min(MOST_PAGE, self.page * 2))

    def do_cache_pages_smaller(self) -> None:
        self._pages(max(LEAST_PAGE, self.page // 2))

    def _pages(self, size: int) -> None:
        self.page = size
        self.choose(PAGES)
        self.show_all()
        if self.session.cache_known(Pages, size=size) is None:
            self.ask(Pages, size=size)
