"""What the heads attend to, measured on word combinations that no training text contains.

A `Case` is a text with a query word, the word a head should look back to and, mostly, one that it should not.
`find_head` picks the best of all heads on the even cases and reports it on the odd ones, so nothing is chosen
and measured on the same sentence.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from samples.training import sentences as s
from samples.training.lexicon import (
    AGREEING,
    BOYS,
    COLOURS,
    GIRLS,
    NAME_HABIT,
    OBJECTS,
    PLACES,
    THING_HABITS,
    THINGS,
)  # fmt: skip
from samples.training.prepare import BOS, N_SPECIAL

Head = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Case:
    """`query`, `target` and `foil` are character positions in `text` of a word's first letter."""

    text: str
    query: int
    target: int
    foil: int | None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Located:
    """A case in tokens: ids with BOS, and the token positions of the three words."""

    ids: list[int]
    query: int
    target: int
    foil: int | None
    kind: str


@dataclass(frozen=True, slots=True)
class HeadScore:
    """One head, picked on one half of the cases; every figure is from the other half."""

    head: Head
    target: float
    foil: float | None
    by_kind: dict[str, tuple[float, float | None]]
    same_offsets: float  # the same head's weight where the target stands in other cases
    best_offset: float  # share of cases in which one fixed distance back hits the target
    best_index: float  # share of cases in which one fixed position in the text does
    n_cases: int

    def as_dict(self) -> dict[str, object]:
        return {
            "head": f"L{self.head[0]}H{self.head[1]}",
            "target": self.target,
            "foil": self.foil,
            "by_kind": {kind: {"target": t, "foil": f} for kind, (t, f) in self.by_kind.items()},
            "baseline_same_head_elsewhere": self.same_offsets,
            "baseline_offset": self.best_offset,
            "baseline_index": self.best_index,
            "cases_reported": self.n_cases,
        }


# ---------------------------------------------------------------------------------------------- cases


def lead_in(r: random.Random) -> str:
    """Nothing, or an unrelated sentence, so that words stand at different positions."""
    return "" if r.random() < 0.5 else s.one_subject(r) + " "


def it_cases(count: int, seed: int) -> list[Case]:
    """'It' after a cause with an unseen pair of things, both clause orders in turn."""
    r = random.Random(seed)
    cases = []
    for i in range(count):
        subject, other = s.draw_pair(r, THINGS, THINGS, unseen=True)
        before = lead_in(r)
        subject_first = i % 4 < 2  # so that both halves of the cases hold both orders
        text = before + s.cause(r, subject, other, subject_first=subject_first)
        start = len(before)
        kind = "main clause first" if subject_first else "because clause first"
        target, foil = (text.index(f" {noun}", start) + 1 for noun in (subject, other))
        cases.append(Case(f"{text} It", len(text) + 1, target, foil, kind))
    return cases


def verb_cases(count: int, seed: int) -> list[Case]:
    """A verb and its subject with one or two other nouns between them, unseen pairs of nouns."""
    r = random.Random(seed)
    cases = []
    while len(cases) < count:
        head = r.choice(tuple(AGREEING))
        if sum(s.held_out(head, other) for other in AGREEING) < 2:
            continue
        others = s.between(r, head, unseen=True)
        before = lead_in(r)
        phrase, verb, number = s.subject_and_verb(r, head, others)
        subject = s.agreeing(head, number)
        text = before + phrase
        target = text.index(f" {subject}", len(before)) + 1
        kind = "one noun between" if len(others) == 1 else "two nouns between"
        cases.append(Case(f"{text} {verb}", len(text) + 1, target, text.rindex(" ") + 1, kind))
    return cases


def name_cases(count: int, seed: int) -> list[Case]:
    """'He' or 'She' after two names, one of each; an unseen pair."""
    r = random.Random(seed)
    cases = []
    for i in range(count):
        right, wrong = s.draw_pair(r, (*BOYS, *GIRLS), (*BOYS, *GIRLS), unseen=True)
        while s.pronoun(right) == s.pronoun(wrong):
            right, wrong = s.draw_pair(r, (*BOYS, *GIRLS), (*BOYS, *GIRLS), unseen=True)
        right_first = i % 4 < 2
        before = lead_in(r)
        text = before + s.whereabouts(r, (right, wrong) if right_first else (wrong, right))
        kind = "right name first" if right_first else "right name last"
        at = {name: text.index(name, len(before)) for name in (right, wrong)}
        cases.append(Case(f"{text} {s.capital(s.pronoun(right))}", len(text) + 1, at[right], at[wrong], kind))
    return cases


def locate(tokenizer: Tokenizer, case: Case) -> Located:
    """Character positions to token positions. Of a split word the last token counts: it knows the whole."""
    encoding = tokenizer.encode(case.text)

    def token_at(character: int | None) -> int | None:
        if character is None:
            return None
        end = character
        while end < len(case.text) and case.text[end].isalpha():
            end += 1
        return encoding.char_to_token(end - 1)

    query, target = token_at(case.query), token_at(case.target)
    assert query is not None
    assert target is not None
    return Located(encoding.ids, query, target, token_at(case.foil), case.kind)


# ---------------------------------------------------------------------------------------------- heads


@torch.no_grad()
def patterns_of(model: nn.Module, ids: Tensor) -> Tensor:
    """All attention patterns `[batch, layer, head, query, key]`."""
    found: list[Tensor] = []
    model(ids, found)
    return torch.stack(found, dim=1)


def query_rows(model: nn.Module, cases: Sequence[Located]) -> list[Tensor]:
    """For every case the attention row of its query word, `[layer, head, key]`."""
    return [patterns_of(model, torch.tensor([case.ids]))[0, :, :, case.query] for case in cases]


def mean_at(rows: Sequence[Tensor], keys: Sequence[int | None]) -> Tensor | None:
    """Mean weight at one key per row, `[layer, head]`; keys outside their row count as weight zero."""
    if None in keys:
        return None
    picked = [
        row[:, :, key] if 0 <= key < row.shape[-1] else torch.zeros(row.shape[:2])
        for row, key in zip(rows, keys, strict=True)
    ]
    return torch.stack(picked).mean(0)


def most_common_share(values: Sequence[int]) -> float:
    return max(values.count(v) for v in set(values)) / len(values)


def find_head(model: nn.Module, tokenizer: Tokenizer, cases: Sequence[Case]) -> HeadScore:
    """The head with the highest target weight less foil weight on the even cases, scored on the odd ones.

    Among kinds of cases the worst one decides, so that a head has to serve them all.
    """
    located = [locate(tokenizer, case) for case in cases]
    rows = query_rows(model, located)
    kinds = sorted({case.kind for case in located})

    def scores(members: list[int]) -> tuple[Tensor, Tensor | None]:
        target = mean_at([rows[i] for i in members], [located[i].target for i in members])
        foil = mean_at([rows[i] for i in members], [located[i].foil for i in members])
        assert target is not None
        return target, foil

    def margin(members: list[int]) -> Tensor:
        target, foil = scores(members)
        return target if foil is None else target - foil

    chosen, reported = list(range(0, len(located), 2)), list(range(1, len(located), 2))
    per_kind = [margin([i for i in chosen if located[i].kind == kind]) for kind in kinds]
    worst = torch.stack(per_kind).amin(0)  # [layer, head]
    layer, head = divmod(int(worst.argmax()), worst.shape[1])

    def at_head(members: list[int]) -> tuple[float, float | None]:
        target, foil = scores(members)
        return float(target[layer, head]), None if foil is None else float(foil[layer, head])

    target, foil = at_head(reported)
    offsets = [located[i].query - located[i].target for i in reported]
    elsewhere = list(offsets)
    random.Random(0).shuffle(elsewhere)
    moved = [
        (i, located[i].query - other)
        for i, other, own in zip(reported, elsewhere, offsets, strict=True)
        if other != own
    ]
    same_offsets = mean_at([rows[i] for i, _ in moved], [key for _, key in moved])
    return HeadScore(
        head=(layer, head),
        target=target,
        foil=foil,
        by_kind={kind: at_head([i for i in reported if located[i].kind == kind]) for kind in kinds},
        same_offsets=0.0 if same_offsets is None else float(same_offsets[layer, head]),
        best_offset=most_common_share(offsets),
        best_index=most_common_share([located[i].target for i in reported]),
        n_cases=len(reported),
    )


# ---------------------------------------------------------------------------------------------- copying


def best_head(weights: Tensor) -> tuple[Head, float]:
    """The best head on the even rows of `[batch, layer, head]` and its mean on the odd ones."""
    chosen, reported = weights[::2].mean(0), weights[1::2].mean(0)  # [layer, head]
    layer, head = divmod(int(chosen.argmax()), chosen.shape[1])
    return (layer, head), float(reported[layer, head])


def previous_token(model: nn.Module, ids: Tensor) -> tuple[Head, float]:
    """Mean weight on the token before, over all positions of `ids` [batch, pos] but the first."""
    patterns = patterns_of(model, ids)
    return best_head(patterns.diagonal(-1, -2, -1).mean(-1))


@torch.no_grad()
def induction(model: nn.Module, d_vocab: int, period: int, n_rows: int, seed: int) -> dict[str, object]:
    """A uniform random sequence twice: where heads look in the second copy, and the loss of both copies."""
    generator = torch.Generator().manual_seed(seed)
    once = torch.randint(N_SPECIAL, d_vocab, (n_rows, period), generator=generator)
    ids = torch.cat((torch.full((n_rows, 1), BOS), once, once), dim=1)  # [row, 1 + 2*period]
    found: list[Tensor] = []
    logits = model(ids[:, :-1], found)  # [row, pos, d_vocab]
    query = torch.arange(1 + period, 2 * period)  # second copy; the last one's successor is not in the row
    weights = torch.stack(found, dim=1)[:, :, :, query, query - period + 1].mean(-1)  # [row, layer, head]
    loss = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")  # [row, pos]
    right = (logits.argmax(-1) == ids[:, 1:]).float()
    head, weight = best_head(weights)
    return {
        "head": f"L{head[0]}H{head[1]}",
        "weight": weight,
        "loss_first_copy": float(loss[:, :period].mean()),
        "loss_second_copy": float(loss[:, period + 1 :].mean()),
        "accuracy_second_copy": float(right[:, period + 1 :].mean()),
        "period": period,
    }


# ---------------------------------------------------------------------------------------------- behaviour


@torch.no_grad()
def next_logits(model: nn.Module, tokenizer: Tokenizer, text: str) -> Tensor:
    return model(torch.tensor([tokenizer.encode(text).ids]))[0, -1]  # [d_vocab]


def word_id(tokenizer: Tokenizer, word: str) -> int:
    """The first token of a word that follows a space."""
    return tokenizer.encode(f" {word}", add_special_tokens=False).ids[0]


Words = tuple[str, ...]
Question = tuple[str, Words, Words]  # text, right next words, wrong ones


def share_right(model: nn.Module, tokenizer: Tokenizer, questions: Sequence[Question]) -> tuple[int, int, int]:
    """How often a right word is on top of all, how often at least before the wrong ones, and of how many."""
    on_top = before = 0
    for text, right, wrong in questions:
        logits = next_logits(model, tokenizer, text)
        own, others = ([word_id(tokenizer, word) for word in words] for words in (right, wrong))
        on_top += int(logits.argmax()) in own
        before += bool(logits[own].max() > logits[others].max())
    return on_top, before, len(questions)


def two_names(r: random.Random) -> tuple[str, str]:
    return s.draw_pair(r, (*BOYS, *GIRLS), (*BOYS, *GIRLS), unseen=True)


def possession_questions(count: int, seed: int, ending: Callable[[str], str]) -> list[Question]:
    """Two owners, an unseen pair of names, each asked for half of the time."""
    r = random.Random(seed)
    questions = []
    for i in range(count):
        names, colours, things = two_names(r), r.sample(COLOURS, 2), r.sample(OBJECTS, 2)
        said = " ".join(f"{n} has a {c} {t}." for n, c, t in zip(names, colours, things, strict=True))
        own = i % 2
        questions.append((f"{said} {ending(names[own])}", (colours[own],), (colours[1 - own],)))
    return questions


def possession_again(count: int, seed: int) -> list[Question]:
    return possession_questions(count, seed, lambda name: f"{name} has a")


def possession_asked(count: int, seed: int) -> list[Question]:
    return possession_questions(count, seed, lambda name: f"What does {name} have? {s.capital(s.pronoun(name))} has a")


def agreement_questions(count: int, seed: int) -> list[Question]:
    """Is or are after an unseen pair of nouns that differ in number."""
    r = random.Random(seed)
    questions = []
    for i in range(count):
        head, other = s.draw_pair(r, tuple(AGREEING), tuple(AGREEING), unseen=True)
        number, foreign = ("singular", "plural") if i % 2 else ("plural", "singular")
        text = f"The {s.agreeing(head, number)} near the {s.agreeing(other, foreign)}"
        questions.append((text, s.COPULAS[number], s.COPULAS[foreign]))
    return questions


def gift_questions(count: int, seed: int) -> list[Question]:
    """Who gets the gift: not the giver. An unseen pair of names."""
    r = random.Random(seed)
    questions = []
    for i in range(count):
        a, b = two_names(r)
        giver, taker = (a, b) if i % 2 else (b, a)
        text = f"When {a} and {b} went to the {r.choice(PLACES)}, {giver} gave a {r.choice(OBJECTS)} to"
        questions.append((text, (taker,), (giver,)))
    return questions


def it_questions(count: int, seed: int) -> list[Question]:
    """What the subject of an unseen pair does next, rather than what the other thing does."""
    questions = []
    r = random.Random(seed)
    for i in range(count):
        subject, other = s.draw_pair(r, THINGS, THINGS, unseen=True)
        text = s.cause(r, subject, other, subject_first=bool(i % 2))
        questions.append((f"{text} It", first_words(subject), first_words(other)))
    return questions


def first_words(noun: str) -> Words:
    return tuple(habit.split()[0] for habit in THING_HABITS[noun][:2])


def name_questions(count: int, seed: int) -> list[Question]:
    """What he or she does, of an unseen pair of names with different habits."""
    questions = []
    for case in name_cases(2 * count, seed):
        right, wrong = (NAME_HABIT[word_at(case.text, start)] for start in (case.target, case.foil))
        if right != wrong:
            questions.append((case.text, (right,), (wrong,)))
    return questions[:count]


def verb_questions(count: int, seed: int) -> list[Question]:
    """What the subject is, rather than what the noun before the verb is."""
    singular = {plural: noun for noun, (plural, _) in AGREEING.items()} | {noun: noun for noun in AGREEING}
    questions = []
    for case in verb_cases(count, seed):
        right, wrong = (singular[word_at(case.text, start)] for start in (case.target, case.foil))
        questions.append((case.text, AGREEING[right][1], AGREEING[wrong][1]))
    return questions


def word_at(text: str, start: int | None) -> str:
    assert start is not None
    return text[start:].split()[0].strip(".")
