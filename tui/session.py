"""What was asked of the engine and answered, for the trace at hand. No widget is known here."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from tui.client import EngineClient, EngineError, EngineGone, OnProgress, Stale
from tui.state.answers import Branch, Candidate, Check, Generated, Ranking
from tui.state.block import Block, Stats
from tui.state.cache import Answer, Place
from tui.state.looks import Chain, read
from tui.state.trace import Trace
from tui.state.views import Plane

KEPT_BYTES = 32 * 1024 * 1024
DERIVED_BYTES = 16 * 1024
"""About what a table or a rotation takes beside its values."""
CANDIDATES = 100
MOST_ANSWERS = 500
"""Rankings and chains that are kept: there is one for each place where the cursor was."""
About = TypeVar("About", bound=Answer)


@contextmanager
def understood() -> Iterator[None]:
    """Whatever is wrong with an answer's shape is an EngineError too."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise EngineError(
            "BadAnswer", f"the engine's answer makes no sense ({type(error).__name__}: {error})"
        ) from error


class Session:
    """The open trace with caches of windows, rankings and checks. Each call may raise EngineError."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self.trace: Trace | None = None
        self.other: Trace | None = None
        self._opened = 0
        self._blocks: OrderedDict[tuple[object, ...], Block] = OrderedDict()
        self._rankings: dict[tuple[object, ...], Ranking] = {}
        self._checks: dict[tuple[str, int | None, int], tuple[Check, ...]] = {}
        self._chains: dict[tuple[int, str], Chain] = {}
        self._cache_answers: dict[tuple[object, ...], Answer] = {}
        self.cache_place: tuple[Trace, Place] | None = None
        """Where the cache view was left, and of which trace."""

    async def open(self, on_progress: OnProgress | None = None, **params: Any) -> Trace:
        """Open a prompt or a file; the trace before stays until this one is here."""
        summary = await self.client.open(on_progress, **params)
        trace = self._arrived(summary)
        self._blocks.clear()
        return trace

    async def change(self, method: str, **params: Any) -> tuple[Trace, Generated]:
        """Make another trace of the open one: ``generate``, ``branch``, ``crop``, ``switch``."""
        result = await self.client.change(method, **params)
        with understood():
            generated = Generated.read(result.get("generated") or {})
        return self._arrived(result), generated

    async def check_sampling(self, **params: Any) -> None:
        """Raises EngineError where tokens cannot be chosen like that."""
        await self.client.request("generate", n=0, **params)

    async def branches(self) -> tuple[int, tuple[Branch, ...]]:
        """The branches of the open trace, and which of them it is."""
        result = (await self.client.request("branches")).result
        with understood():
            return int(result["current"]), tuple(Branch.read(row) for row in result["rows"])

    def _arrived(self, summary: dict[str, Any]) -> Trace:
        """Another trace: the windows of the one before go as room is needed, until it is no longer drawn."""
        self.trace = self._read(summary)
        self._rankings.clear()
        self._checks.clear()
        self._chains.clear()
        return self.trace

    def _read(self, summary: dict[str, Any]) -> Trace:
        with understood():
            trace = Trace.read(summary, self._opened + 1)
            if not trace.steps:
                raise ValueError("a trace without steps")
        self._opened += 1
        return trace

    def known(self, plane: Plane) -> Block | None:
        """What is here of a plane."""
        return self._blocks.get(plane.key)

    async def block(
        self, plane: Plane, rows: tuple[int, int], cols: tuple[int, int], on_progress: OnProgress | None = None
    ) -> Block:
        """The window ``rows`` × ``cols`` of a plane, or what the engine derives in its place; it is kept."""
        block = await self.cells(plane, rows, cols, on_progress)
        self._keep(block)
        return block

    async def cells(
        self, plane: Plane, rows: tuple[int, int], cols: tuple[int, int], on_progress: OnProgress | None = None
    ) -> Block:
        """Exactly ``rows`` × ``cols`` of a plane. They are not kept: what is drawn stays."""
        view = plane.view
        height, width = rows[1] - rows[0], cols[1] - cols[0]
        place = self._place(plane, rows, cols)
        if view.look:
            size: dict[str, Any] = {"size": [height, width]} if view.kind == "thumbs" else {}
            reply = await self.client.request("look", on_progress, name=view.look, **place, **size)
        else:
            minus: dict[str, Any] = {"minus": self._place(plane.minus, rows, cols)} if plane.minus else {}
            over: dict[str, Any] = {"over": {"head": view.over}} if view.over else {}
            reply = await self.client.request("window", on_progress, **place, **over, **minus)
        values, told = reply.values, None
        with understood():
            self._check_places(plane, dict(reply.result.get("origin") or {}), rows[0], cols[0])
            told = read(reply.result, values) if view.look else None
        if plane.has_cells:
            if len(values) != height * width:
                raise EngineError(
                    "BadAnswer", f"{plane.step.site}: {len(values)} values came where {height} × {width} were asked for"
                )
            if plane.transposed:
                values = array("f", (reply.values[col * height + row] for row in range(height) for col in range(width)))
        stats = Stats.read(reply.result.get("stats") or {})
        numbers = str(reply.result.get("numbers") or "")
        return Block(plane.key, rows[0], cols[0], height, width, values, stats, numbers, told)

    def _place(self, plane: Plane, rows: tuple[int, int], cols: tuple[int, int]) -> dict[str, Any]:
        """Where a window lies: its address, and in which of the two traces. Raises Stale where that is gone."""
        return {"address": plane.address(rows, cols)} | self._which(plane.trace)

    def _which(self, trace: Trace) -> dict[str, Any]:
        """Which of the two a request is about. Raises Stale where the trace is neither any more."""
        if trace is not self.trace and trace is not self.other:
            raise Stale
        return {"trace": "other"} if trace is self.other else {}

    async def chain(self, trace: Trace, address: str) -> Chain:
        """One cell from its score to its weight. What the trace cannot say is an empty chain."""
        key = (trace.run, address)
        if key not in self._chains:
            _bound(self._chains)
            try:
                reply = await self.client.request("look", name="chain", address=address, **self._which(trace))
            except EngineError as error:
                if error.kind in ("Stale", "EngineGone", "Cancelled"):
                    raise
                self._chains[key] = Chain()
            else:
                with understood():
                    self._chains[key] = Chain.read(reply.result)
        return self._chains[key]

    def chain_known(self, trace: Trace, address: str) -> Chain | None:
        """A cell's chain, if it was asked for before."""
        return self._chains.get((trace.run, address))

    async def open_other(self, on_progress: OnProgress | None = None, **params: Any) -> Trace:
        """Open a second trace, to be shown beside the first.

        The one before stays where the engine says that it could not.
        """
        try:
            summary = (await self.client.request("open", on_progress, trace="other", **params)).result
        except BaseException as error:
            if not isinstance(error, EngineError) or isinstance(error, Stale | EngineGone):
                self.other = None  # nobody knows which of the two the engine has
            raise
        self.other = self._read(summary)
        return self.other

    async def close_other(self) -> None:
        """Let go of the second trace."""
        self.other = None
        with suppress(EngineError):
            await self.client.request("close_other")

    @staticmethod
    def _check_places(plane: Plane, origin: dict[str, int], row: int, col: int) -> None:
        """Raises ValueError where rows or columns stand for other positions than they would be labelled with."""
        for axis, start in ((plane.view.rows, row), (plane.view.cols, col)):
            place = plane.step.first(axis) + start
            if plane.at is not None and origin.get(axis, place) != place:
                raise ValueError(f"{axis} {start} of {plane.step.site}@{plane.at} is position {origin[axis]}")

    def ranking_known(self, of: Trace, address: str, **scoring: Any) -> Ranking | None:
        """The candidates at an address of a trace, if they were asked for before."""
        return self._rankings.get(_ranking_key(of, address, scoring))

    async def ranking(self, of: Trace, address: str, **scoring: Any) -> Ranking:
        """The candidates at an address of a vocabulary site, with how likely each is drawn where ``scoring`` says how.

        That a trace cannot have them is an answer too.
        """
        key = _ranking_key(of, address, scoring)
        if key not in self._rankings:
            which = self._which(of)
            _bound(self._rankings)
            try:
                result = (await self.client.request("top", address=address, k=CANDIDATES, **which, **scoring)).result
            except EngineError as error:
                if error.kind != "NotKeptError":
                    raise
                return self._rankings.setdefault(key, Ranking(trouble=str(error)))
            with understood():
                rows = tuple(_candidate(row) for row in result.get("rows") or ())
                self._rankings[key] = Ranking(
                    rows,
                    int(result.get("nonfinite") or 0),
                    sampled=any("scores_prob" in row for row in result.get("rows") or ()),
                    numbers=str(result.get("numbers") or ""),
                )
        return self._rankings[key]

    def checks_known(self, site: str, at: int | None = None) -> tuple[Check, ...] | None:
        """The checks of a step, if they were asked for before."""
        return self._checks.get((site, at, self.trace.run if self.trace else 0))

    async def checks(self, site: str, at: int | None = None) -> tuple[Check, ...]:
        """The checks of the step that writes ``site``: in the pass ``at``, else the worst over all passes."""
        key = (site, at, self.trace.run if self.trace else 0)
        if key not in self._checks:
            place: dict[str, Any] = {} if at is None else {"at": at}
            rows = (await self.client.request("checks", site=site, **place)).result.get("rows") or ()
            with understood():
                self._checks[key] = tuple(
                    Check(
                        str(row["name"]),
                        bool(row["ok"]),
                        str(row.get("text") or ""),
                        _number(row.get("figure")),
                        _number(row.get("tolerance")),
                    )
                    for row in rows
                )
        return self._checks[key]

    def cache_known(self, kind: type[About], **params: Any) -> About | None:
        """What was answered about this trace's cache, if it was asked for before."""
        found = self._cache_answers.get(self._cache_key(kind, params))
        return found if isinstance(found, kind) else None

    async def cache_answer(self, kind: type[About], on_progress: OnProgress | None = None, **params: Any) -> About:
        """Ask about the open trace's cache, anew each time; only the answers about this trace are kept."""
        key = self._cache_key(kind, params)
        result = (await self.client.request(kind.METHOD, on_progress, **params)).result
        with understood():
            answer = kind.read(result)
        self._cache_answers = {known: kept for known, kept in self._cache_answers.items() if known[0] is self.trace}
        self._cache_answers[key] = answer
        return answer

    def _cache_key(self, kind: type[Answer], params: dict[str, Any]) -> tuple[object, ...]:
        return (self.trace, kind, *sorted(params.items()))

    async def models(self) -> list[dict[str, str]]:
        """The models that are here."""
        rows = (await self.client.request("models")).result.get("rows") or ()
        with understood():
            return [{key: str(row.get(key) or "") for key in ("name", "path", "text")} for row in rows]

    async def save(self, path: str, force: bool = False) -> tuple[str, int]:
        """Save the trace; the path and the bytes written."""
        result = (await self.client.request("save", path=path, force=force)).result
        return str(result.get("path") or path), int(result.get("size") or 0)

    async def export(self, on_progress: OnProgress | None = None, **order: Any) -> tuple[str, int]:
        """Have the engine write a file in one of its formats; the path and the bytes written."""
        result = (await self.client.request("export", on_progress, **order)).result
        return str(result.get("path") or order["path"]), int(result.get("size") or 0)

    def _keep(self, block: Block) -> None:
        self._blocks[block.key] = block
        self._blocks.move_to_end(block.key)
        total = sum(map(_bytes, self._blocks.values()))
        while total > KEPT_BYTES and len(self._blocks) > 1:
            total -= _bytes(self._blocks.popitem(last=False)[1])


def _bytes(block: Block) -> int:
    return 4 * len(block.values) + (DERIVED_BYTES if block.told else 0)


def _bound(answers: dict[Any, Any]) -> None:
    """Make room for one more answer: the oldest one goes."""
    if len(answers) >= MOST_ANSWERS:
        del answers[next(iter(answers))]


def _ranking_key(of: Trace, address: str, scoring: dict[str, Any]) -> tuple[object, ...]:
    return (address, of.run, *sorted(scoring.items()))


def _candidate(row: dict[str, Any]) -> Candidate:
    drawn = row.get("scores_prob")
    return Candidate(
        int(row["id"]),
        str(row["label"]),
        float(row["prob"] or 0),
        float(row["logit"] or 0),
        None if drawn is None else float(drawn),
    )


def _number(value: object) -> float | None:
    """A number of the engine's answer; None where there is none."""
    return float(value) if isinstance(value, int | float) else None
