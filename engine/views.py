"""Which pictures a site has, in the app and as text. They follow from its axes, so a new op needs no new view.

query × key is attention, anything × one more axis is a matrix, one axis is bars, the vocabulary is a ranked table,
whole numbers per token are a token table. Beside these windows of the tensor there are *looks*: pictures that the
engine derives, of the sites for which it says so (``engine.analysis.looks``). Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.sites import KEYS, LETTERS, QUERIES
from engine.sites import TOKEN_AXES as TOKEN_AXES

HEAD_AXES = ("head", "kv_head", "choice")
"""Axes that ``h`` walks: attention heads, and of a mixture of experts the chosen experts of a token, best first."""
DEPTH = "depth"
"""The axis of a look that runs over sites: its index is a step."""


@dataclass(frozen=True, slots=True)
class View:
    """A picture of a step: its kind and the axes it spreads out; '' where there is none.

    ``look`` is what the engine derives it by, '' where it is a window of the tensor; ``over`` how its heads are taken
    together; ``free`` are axes that are neither spread out nor fixed at the cursor.
    """

    kind: str  # "attention" | "matrix" | "bars" | "ranked" | "tokens" | "arcs" | "text" | "curves", and those of LOOKS
    rows: str = ""
    cols: str = ""
    name: str = ""
    look: str = ""
    over: str = ""
    free: tuple[str, ...] = ()

    @property
    def spread(self) -> tuple[str, ...]:
        """The axes of the site that are spread out."""
        return tuple(axis for axis in (self.rows, self.cols) if axis not in ("", DEPTH))

    def fixed(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The axes of a site that are fixed at one index."""
        return tuple(axis for axis in axes if axis not in (self.rows, self.cols, *self.free))


LOOKS = {
    "lens": "grid", "norms": "grid", "added": "grid", "heads": "thumbs", "layers": "thumbs", "neighbours": "list",
    "neurons": "list", "rotation": "rotation", "histogram": "histogram",
}  # fmt: skip
"""Looks that are no window of the tensor, and the kind of picture that each is."""
TOGETHER = ("mean", "max")
"""Ways to take heads together; their tiles come before those of the heads."""
WHOLE_PASS = ("lens", "norms", "added", "layers")
"""Looks that are the same at every site that has them."""


DIFFERENCE = "Cell by cell the first minus the second: 0 where both have the same, below 0 where the second has more."
"""What a difference shows."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a picture is called, by which formula its cells come about, and what they say."""

    title: str
    formula: str
    story: str


def together(how: str, axis: str, size: int, name: str, left: Sequence[str], *, weights: bool) -> Words:
    """The words for an axis of ``size`` that is taken together, of the site ``name`` inside its block.

    ``left`` are the axes that are left; ``weights``: it holds attention weights.
    """
    what, letter, along = "weight" if weights else "value", LETTERS[axis], "heads" if axis == "head" else axis
    taken = "mean" if how == "mean" else "largest"
    whose = f"that the {size} heads have there" if axis == "head" else f"at the {size} indices of {axis}"
    more = " So a row may sum to more than 1." if weights and (how, axis) == ("max", "head") else ""
    return Words(
        f"{taken.capitalize()} {what} over {along}: {how} over {letter}",
        f"{how} over {letter} of {name}[{', '.join((letter, *left))}]",
        f"Each cell is the {taken} of the {what}s {whose}.{more}",
    )


def views_of(sizes: Mapping[str, int], looks: Collection[str] = (), whole: bool = False) -> tuple[View, ...]:
    """The pictures of a site, the best one first.

    ``sizes``: how long each of its axes is, in their order; ``whole``: its values are whole numbers.
    """
    windows = tuple(_windows(sizes, looks, whole))
    first = windows[0]
    found = [view for view in windows if not view.over]
    found += [_look(tuple(sizes), first, name) for name in looks if name in LOOKS]
    found += [view for view in windows if view.over]
    if not whole:
        found.append(View("histogram", name="histogram", look="histogram", free=(first.rows, first.cols)))
    return tuple(found)


def _windows(sizes: Mapping[str, int], looks: Collection[str], whole: bool) -> Iterator[View]:
    axes = [axis for axis in sizes if axis != "batch"]
    wide = [axis for axis in axes if sizes[axis] != 1 or axis in TOKEN_AXES]
    tokens = [axis for axis in axes if axis in TOKEN_AXES]
    query = next((axis for axis in QUERIES if axis in axes), "")
    key = next((axis for axis in KEYS if axis in axes), "")
    if query and key:
        yield from (View("attention", query, key, "heatmap"), View("bars", key, "", "row"))
        more = {"arcs": View("arcs", query, key, "arcs"), "text": View("text", "", key, "text")}
        more |= {how: View("attention", query, key, how, over=how, free=("head",)) for how in TOGETHER}
        yield from (view for name, view in more.items() if name in looks)
    elif axes and axes[-1] == "d_vocab":
        yield from (View("ranked", "d_vocab", "", "ranked"), View("bars", "d_vocab", "", "row"))
        if tokens:
            yield View("matrix", tokens[0], "d_vocab", "heatmap")
    elif whole and tokens and len(wide) == 1:
        yield View("tokens", tokens[0], "", "tokens")
    elif len(wide) <= 1:
        yield View("bars", next(iter(wide or axes[-1:]), ""), "", "row")
    else:
        cols = wide[-1]
        rows = next((axis for axis in wide[:-1] if axis in TOKEN_AXES), wide[-2])
        yield from (View("matrix", rows, cols, "heatmap"), View("bars", cols, "", "row"))
        heads = next((axis for axis in wide if axis in HEAD_AXES), None)
        if heads and heads not in (rows, cols):
            yield View("matrix", heads, cols, "all heads")
        if "curves" in looks:
            yield View("curves", rows, cols, "curves")


def _look(axes: tuple[str, ...], first: View, name: str) -> View:
    kind = LOOKS[name]
    tokens = next((axis for axis in axes if axis in TOKEN_AXES), "")
    spread = tuple(axis for axis in axes if axis not in ("batch", *TOKEN_AXES))
    if kind == "grid":
        return View(kind, tokens, DEPTH, name, look=name, free=spread)
    if kind == "thumbs":
        return View(kind, name=name, look=name, free=(*spread, first.rows, first.cols))
    if kind == "rotation":
        return View(kind, name=name, look=name)
    return View(kind, name=name, look=name, free=spread)
