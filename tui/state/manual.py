"""The help as one document: words that are shown, keys, marks, glossary; and what is left of it for a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from tui.actions import GROUPS, Action, Keymap
from tui.glossary import Glossary, Term

MARKS = (
    ("●", "a step on the path to the outcome"),
    ("○", "a step that is computed when it is looked at, in float32"),
    ("◂ read", "what the chosen step reads"),
    ("·", "a masked cell: this query may not look there"),
    ("┄", "a cell that is not here yet"),
    ("0.5 -.5", "the value in a cell, rounded; where a cell is too narrow for it: a shade, and - below zero"),
    ("░▒▓█  -=≡#", "shades above and below zero, each as strong as its share of the scale"),
    ("▂ ▆", "a pass of the text, as long as its tokens, and one that is looked at"),
    ("▸ ◂", "in a cell: above the end of the colour scale, or below it; ▸ before a line: the one that is chosen"),
    ("✓ ✗", "a check of the engine that holds, or does not"),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that is explained: a key or a mark (``head``) with its words, or a term of the glossary."""

    head: str = ""
    words: str = ""
    more: str = ""
    term: Term | None = None
    mark: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """Some entries under a title."""

    title: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Manual:
    """What there is to read.

    ``here`` has the words that are shown, under titles; ``first`` is the group of keys that is read before the others.
    """

    glossary: Glossary
    keymap: Keymap
    here: tuple[tuple[str, tuple[Term, ...]], ...] = ()
    first: str = ""

    def read(self, typed: str = "") -> list[Section]:
        """The sections that have something; where something is typed only what has all its words."""
        if not typed.strip():
            shown = [Section(title, _terms(terms)) for title, terms in self.here]
            return _filled([*shown, *self._keys(()), self._marks(()), Section("Glossary", _terms(self.glossary.terms))])
        found, words = self.glossary.find(typed), typed.casefold().split()
        exact, sections = self.glossary.named(typed.strip()), []
        if exact is not None:
            also = self.glossary.see(exact)
            sections = [Section(exact.name, _terms([exact])), Section("See also", _terms(also))]
            found = [term for term in found if term is not exact and term not in also]
        keys, marks = self._keys(words), self._marks(words)
        if exact is None:  # then a key may well be what is meant, and there are fewer of them
            return _filled([*keys, Section("Glossary", _terms(found)), marks])
        return _filled([*sections, Section("Other words", _terms(found)), *keys, marks])

    def _keys(self, words: Sequence[str]) -> list[Section]:
        actions = (*self.keymap.actions, *self.keymap.cache_actions)
        groups = sorted(GROUPS, key=lambda group: group != self.first)
        return [
            Section(f"Keys: {group}", tuple(_with(words, _of([one for one in actions if one.group == group]))))
            for group in groups
        ]

    def _marks(self, words: Sequence[str]) -> Section:
        return Section("Marks", tuple(_with(words, (Entry(mark, said, mark=True) for mark, said in MARKS))))


def _of(actions: Iterable[Action]) -> Iterable[Entry]:
    """The entries of keys; where a digit does what has its number, all of them are one entry."""
    for _, alike in groupby(actions, key=lambda action: (action.method, _numbered(action) or action.id)):
        first, *others = alike
        if not others:
            yield Entry(first.shown_keys, first.label, first.help)
            continue
        label = first.label.removesuffix(str(first.arguments[0])).rstrip()
        yield Entry(f"{first.shown_keys} … {others[-1].shown_keys}", f"{label} 1 … {len(others) + 1}", first.help)


def _numbered(action: Action) -> bool:
    return bool(action.arguments) and action.keys == (str(action.arguments[0]),)


def _with(words: Sequence[str], entries: Iterable[Entry]) -> Iterable[Entry]:
    for entry in entries:
        everything = f"{entry.head} {entry.words} {entry.more}".casefold()
        if all(word in everything for word in words):
            yield entry


def _terms(terms: Iterable[Term]) -> tuple[Entry, ...]:
    return tuple(Entry(term=term) for term in terms)


def _filled(sections: Iterable[Section]) -> list[Section]:
    return [section for section in sections if section.entries]
