"""Rotary positions at one token and head: every pair of dimensions before and after it is turned."""

from __future__ import annotations

from dataclasses import dataclass

from engine.analysis.places import one, pass_of, resolved
from engine.config import RotaryStyle
from engine.errors import AddressError
from engine.ops.rotary import RotaryTable, Rotate, inverse_frequencies, told
from engine.sites import Address
from engine.traces import Trace

CONVENTIONS: dict[RotaryStyle, str] = {
    "half": "halves: dim i with i + d/2 (GPT-NeoX, Llama)",
    "interleaved": "neighbours: dims 2i, 2i+1 (GPT-J)",
}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two dimensions that turn together, by ``angle`` = position · ``inv_freq``.

    ``cos`` and ``sin`` are those of the program's tables, with the attention factor where the scaling has one, and
    ``before`` and ``after`` the two numbers, all as they ran.
    """

    pair: int
    dims: tuple[int, int]
    inv_freq: float
    angle: float
    cos: float
    sin: float
    before: tuple[float, float]
    after: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Rotation:
    """All pairs of one query or key, the first ``rotated`` ``of`` its dimensions; ``pair`` is the one asked about."""

    pairs: tuple[Pair, ...]
    pair: int | None
    style: RotaryStyle
    theta: float
    scaling: str
    told: str
    position: int
    rotated: int
    of: int

    @property
    def convention(self) -> str:
        return CONVENTIONS[self.style]


def rotation(trace: Trace, place: Address) -> Rotation:
    """How one query or key was turned: ``blocks.2.attn.rot_q[b=0,p=7,h=1,d=3]``.

    Tables and scaling are those of this layer, in the pass that the token ran in: with dynamic or LongRoPE scaling the
    same position may have turned otherwise in another. Raises AddressError where nothing is turned, and NotKeptError
    where a tensor is not there.
    """
    step = trace.program.step(trace.program.site(place.site).name)
    if step is None or not isinstance(step.op, Rotate):
        raise AddressError(f"a rotation is that of rotary queries or keys, as blocks.0.attn.rot_q, not of {place.site}")
    axes, index = resolved(trace, place)
    row, head = one(place, index, "batch", 0), one(place, index, axes[2])
    at, pos = pass_of(trace, place.at, one(place, index, axes[1]))
    here = {"batch": (row, row + 1), axes[1]: (pos, pos + 1)}
    of_head = here | {axes[2]: (head, head + 1)}
    before, cos, sin = (trace.part(name, at, of_head if i == 0 else here) for i, name in enumerate(step.reads))
    x, y = before.flatten().tolist(), trace.part(step.site.name, at, of_head).flatten().tolist()  # d_head numbers
    c, s = cos.flatten().tolist(), sin.flatten().tolist()  # d_rot numbers
    rotary, dims, info = step.op.rotary, len(c), trace.passes[at].info
    extent = info.extents[row] if len(info.extents) > row else (*info.extents, 0)[0]
    turns = inverse_frequencies(rotary, dims, extent, trace.device)  # [d_rot/2]
    position = int(trace.site(_positions(trace, step.reads[1]), at)[row, pos])
    angles = (position * turns).tolist()
    pairs = []
    for i, turn in enumerate(turns.tolist()):
        a, b = (i, i + dims // 2) if rotary.style == "half" else (2 * i, 2 * i + 1)
        pairs.append(Pair(i, (a, b), turn, angles[i], c[a], s[b], (x[a], x[b]), (y[a], y[b])))
    d = index.get(axes[3])
    pair = next((p.pair for p in pairs if d in p.dims), None)
    return Rotation(
        tuple(pairs), pair, rotary.style, rotary.theta, rotary.scaling, told(rotary), position, dims, len(x)
    )


def _positions(trace: Trace, table: str) -> str:
    """The site of the positions that a table was made for."""
    step = trace.program.computing(table)
    assert step is not None
    assert isinstance(step.op, RotaryTable)
    return step.reads[0]
