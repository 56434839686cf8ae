"""The glossary: what the words on the screen mean, and which words a text holds. The words are in ``glossary.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("glossary.toml")

SYMBOL = 2
"""So long is a word at most that is taken for a symbol, where capitals matter."""
_LETTER = r"[^\Wᵀˢᵢⱼₕₖ⁰¹²³⁴-⁹₀-₉]"
"""What a word is made of. The small letters of formulas are none: in ``kᵀ`` and in ``z₁`` a word ends before them."""
_PATH = re.compile(rf"{_LETTER}+(?:\.{_LETTER}+)+|{_LETTER}*_{_LETTER}+")
"""A site's name, or a name with an underscore: ``blocks.2.attn.rot_q``, ``d_head``."""


@dataclass(frozen=True, slots=True)
class Term:
    """A word with what it means.

    ``aliases`` are recognised wherever they stand, as the name is unless it is an ``everyday`` word too; ``names`` only
    as the name of a site, an axis or a picture. ``see`` names other terms.
    """

    name: str
    text: str
    aliases: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    everyday: bool = False
    source: str = ""
    see: tuple[str, ...] = ()

    @property
    def also(self) -> tuple[str, ...]:
        """Its other spellings that a person may look for."""
        return tuple(dict.fromkeys((*self.aliases, *self.names)))

    @property
    def spellings(self) -> tuple[str, ...]:
        """Those of the aliases that say something beside the others: a plural does not."""
        known = {f"{name}s" for name in (self.name, *self.aliases)}
        return tuple(alias for alias in self.aliases if alias not in known)

    def has(self, words: Iterable[str]) -> bool:
        """Whether each of some words, in lower case, is a part of it."""
        everything = " ".join((self.name, *self.also, self.text, self.source)).casefold()
        return all(word in everything for word in words)


class Glossary:
    """All terms, in the file's order."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self.terms = tuple(terms)
        self.by_name = {term.name: term for term in self.terms}
        self._called = {name: term for term in self.terms for name in (*term.aliases, term.name)}
        self._called |= {name: term for term in self.terms for name in term.names}
        self._folded = {name.casefold(): term for name, term in reversed(self._called.items())}
        self._written = {
            _key(name): term
            for term in self.terms
            for name in (*term.aliases, *(() if term.everyday else (term.name,)))
        }

    def named(self, name: str) -> Term | None:
        """The term that a site, an axis or a picture is called by, or that a person typed."""
        return self._of(name) or self._folded.get(name.casefold())

    def _of(self, name: str) -> Term | None:
        """The term of a site's name: of ``rotary_cos_local`` that of ``rotary_cos``, of one kind of layers."""
        while name not in self._called and "_" in name:
            name = name.rpartition("_")[0]
        return self._called.get(name)

    def find(self, text: str) -> list[Term]:
        """The terms that match what was typed: first the one of that name, then by name, then by text."""
        words = text.casefold().split()
        if not words:
            return list(self.terms)
        exact, found = self.named(text.strip()), [term for term in self.terms if term.has(words)]
        whole = " ".join(words)

        def rank(term: Term) -> int:
            called = [name.casefold() for name in (term.name, *term.also)]
            if term is exact:
                return 0
            return 1 if any(name.startswith(whole) for name in called) else 2 if any(whole in n for n in called) else 3

        return sorted(found if exact is None or exact in found else [exact, *found], key=rank)

    def see(self, term: Term) -> list[Term]:
        """The terms that one refers to."""
        return [self.by_name[name] for name in term.see]

    def words(self, *texts: str) -> list[Term]:
        """The terms that texts hold, in the order in which they are first met."""
        return list(dict.fromkeys(term for text in texts for _, _, term in self.spots(text)))

    def spots(self, text: str) -> Iterator[tuple[int, int, Term]]:
        """Where a text holds which term: whole words and symbols only, the longer before the shorter."""
        for found in self._pattern.finditer(text):
            start, word = found.start(), found[0]
            if not _PATH.fullmatch(word):
                yield start, found.end(), self._written[_key(word)]
            elif (term := self._of(word)) is not None:
                yield start, found.end(), term
            else:
                for part in re.finditer(r"\w+", word):
                    if (term := self._of(part[0])) is not None:
                        yield start + part.start(), start + part.end(), term

    def at(self, text: str, place: int) -> Term | None:
        """The term that covers a character of a text."""
        return next((term for start, stop, term in self.spots(text) if start <= place < stop), None)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        words = sorted(self._written, key=len, reverse=True)
        exact = "|".join(re.escape(word) for word in words if len(word) <= SYMBOL)
        loose = "|".join(re.escape(word) for word in words if len(word) > SYMBOL)
        before, after = rf"(?<!{_LETTER})(?<![√.-])", rf"(?!{_LETTER}|-)"
        return re.compile(rf"{before}(?:{_PATH.pattern}){after}|{before}(?i:{loose}){after}|{before}(?:{exact}){after}")


def _key(word: str) -> str:
    """A word as it is looked up: short ones are symbols, and Q is not q."""
    return word if len(word) <= SYMBOL else word.casefold()


@cache
def glossary() -> Glossary:
    """The glossary that comes with the app."""
    with FILE.open("rb") as file:
        entries = tomllib.load(file)["term"]
    return Glossary(map(_term, entries))


def _term(entry: Mapping[str, Any]) -> Term:
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Term(**given)
