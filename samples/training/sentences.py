"""A seeded generator of simple English whose next words need attention to be known.

A family is a function from a `random.Random` to one to four sentences; `document` strings a few together.
Word pairs that `held_out` names never occur in a training text; `measure.py` uses nothing but those.
"""

import random
import zlib
from collections.abc import Callable, Sequence

from samples.training.lexicon import (
    ACTORS,
    ADJECTIVES,
    AGREEING,
    ANIMALS,
    BOYS,
    COLOURS,
    COPULAS,
    DAYS,
    DEEDS,
    EVENTS,
    FACTS,
    GIRLS,
    HABIT_TAILS,
    HUES,
    LETTERS,
    LIKELY_EVENTS,
    LIKELY_STATES,
    LISTED,
    NAME_HABIT,
    NUMBERS,
    OBJECTS,
    PLACES,
    PREPOSITIONS,
    STATES,
    THING_HABITS,
    THINGS,
)  # fmt: skip

Rng = random.Random
NUMERI = ("singular", "plural")
Family = Callable[[Rng], str]

# The sample prompts' own combinations are held out by name.
_ALWAYS_HELD_OUT = {("disk", "server"), ("cabinet", "key"), ("Anna", "Tom")}


def held_out(first: str, second: str) -> bool:
    """Whether this pair of words, in either order, is kept out of training: about one pair in seven."""
    pair = tuple(sorted((first, second)))
    return pair in _ALWAYS_HELD_OUT or zlib.crc32(" ".join(pair).encode()) % 7 == 0


def draw_pair(r: Rng, first: Sequence[str], second: Sequence[str], *, unseen: bool = False) -> tuple[str, str]:
    """Two different words, from the trained pairs or, with `unseen`, from the held-out ones."""
    while True:
        a, b = r.choice(first), r.choice(second)
        if a != b and held_out(a, b) == unseen:
            return a, b


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def article(word: str) -> str:
    return ("an " if word[0] in "aeiou" else "a ") + word


def pronoun(name: str) -> str:
    return "he" if name in BOYS else "she"


def object_pronoun(name: str) -> str:
    return "him" if name in BOYS else "her"


def possessive(name: str) -> str:
    return "his" if name in BOYS else "her"


def group(r: Rng, size: int) -> list[str]:
    """Different names, no two of them a held-out pair."""
    names: list[str] = []
    while len(names) < size:
        name = r.choice(r.choice((BOYS, GIRLS)))
        if name not in names and not any(held_out(name, other) for other in names):
            names.append(name)
    return names


# ------------------------------------------------------------------------------ "It"


def noun_phrase(r: Rng, noun: str) -> str:
    determiner = "the" if r.random() < 0.8 else r.choice(("my", "our", "this", "her"))
    adjective = f"{r.choice(ADJECTIVES)} " if r.random() < 0.2 else ""
    return f"{determiner} {adjective}{noun}"


def happened(r: Rng, noun: str) -> str:
    return LIKELY_EVENTS[noun] if noun in LIKELY_EVENTS and r.random() < 0.3 else r.choice(EVENTS)


def condition(r: Rng, noun: str) -> str:
    return LIKELY_STATES[noun] if noun in LIKELY_STATES and r.random() < 0.3 else r.choice(STATES)


def cause(r: Rng, subject: str, other: str, *, subject_first: bool) -> str:
    """`subject` did something because `other` was in some state; the main clause first or last."""
    main = f"{noun_phrase(r, subject)} {happened(r, subject)}"
    reason = f"{noun_phrase(r, other)} was {condition(r, other)}"
    if subject_first:
        return f"{capital(main)} because {reason}."
    return f"Because {reason}, {main}."


def thing_habit(r: Rng, noun: str) -> str:
    return r.choices(THING_HABITS[noun], (6, 2, 2))[0]


def causes(r: Rng) -> str:
    subject, other = draw_pair(r, THINGS, THINGS)
    sentence = cause(r, subject, other, subject_first=r.random() < 0.5)
    if sentence.count("ecause") == 1 and r.random() < 0.08 and not sentence.startswith("Because"):
        third = r.choice(THINGS)
        if not held_out(subject, third):
            sentence = f"{sentence[:-1]} and {noun_phrase(r, third)} was {condition(r, third)}."
    said = [sentence, f"It {thing_habit(r, subject)}."]
    roll = r.random()
    if roll < 0.15:
        said.append(f"The {other} {thing_habit(r, other)}.")
    elif roll < 0.25:
        said.append(f"So the {subject} {thing_habit(r, subject)}.")
    elif roll < 0.4:
        said.append(f"Then it {thing_habit(r, subject)}.")
    return " ".join(said)


def one_thing(r: Rng) -> str:
    noun = r.choice(THINGS)
    phrase = capital(noun_phrase(r, noun))
    if r.random() < 0.4:
        return f"{phrase} {thing_habit(r, noun)}."
    return f"{phrase} {happened(r, noun)}. It {thing_habit(r, noun)}."


# ------------------------------------------------------------------------------ "He", "She" and names


def name_habit(r: Rng, name: str) -> str:
    return NAME_HABIT[name] + r.choice(HABIT_TAILS)


def whereabouts(r: Rng, names: Sequence[str]) -> str:
    """Says of every name something that tells nothing about it."""
    if len(names) == 2 and r.random() < 0.4:
        a, b = names
        place = r.choice(PLACES)
        return r.choice((
            f"{a} and {b} went to the {place}.", f"{a} met {b} in the {place}.",
            f"{a} and {b} were in the {place}.", f"{a} waited for {b}.",
        ))  # fmt: skip
    verbs = ("went to", "came from", "was in", "walked to", "lived near")
    return " ".join(f"{name} {r.choice(verbs)} the {r.choice(PLACES)}." for name in names)


def habits(r: Rng) -> str:
    """Two or three people, and a pronoun that fits exactly one of them."""
    names = group(r, r.choices((1, 2, 3), (1, 6, 3))[0])
    alone = [n for n in names if sum(pronoun(n) == pronoun(m) for m in names) == 1]
    said = [whereabouts(r, names)]
    if not alone:
        name = r.choice(names)
        return f"{said[0]} {name} {name_habit(r, name)}."
    first = r.choice(alone)
    said.append(f"{capital(pronoun(first))} {name_habit(r, first)}.")
    for name in alone:
        if name != first and r.random() < 0.7:
            said.append(f"{capital(pronoun(name))} {name_habit(r, name)}.")
    return " ".join(said)


def one_person(r: Rng) -> str:
    return " ".join(f"{name} {name_habit(r, name)}." for name in group(r, r.choice((1, 2))))


# ------------------------------------------------------------------------------ verbs and their subjects


def agreeing(noun: str, number: str) -> str:
    return noun if number == "singular" else AGREEING[noun][0]


def agreeing_phrase(r: Rng, noun: str, number: str, adjectives: float) -> str:
    adjective = f"{r.choice(ADJECTIVES)} " if r.random() < adjectives else ""
    return f"the {adjective}{agreeing(noun, number)}"


def subject_and_verb(r: Rng, head: str, others: Sequence[str]) -> tuple[str, str, str]:
    """`head` and its verb with the `others` between them: subject phrase, verb, number of the head."""
    number = r.choice(NUMERI)
    words = [capital(agreeing_phrase(r, head, number, adjectives=0.15))]
    for i, other in enumerate(others):
        words.append("to" if head == "key" and i == 0 and r.random() < 0.5 else r.choice(PREPOSITIONS))
        words.append(agreeing_phrase(r, other, r.choice(NUMERI), adjectives=0.35))
    return " ".join(words), r.choices(COPULAS[number], (3, 2))[0], number


def predicate(r: Rng, noun: str) -> str:
    return r.choices(AGREEING[noun][1], (2, 1))[0]


def between(r: Rng, head: str, *, unseen: bool = False) -> list[str]:
    """One or two nouns to stand between `head` and its verb."""
    others: list[str] = []
    for _ in range(r.choices((1, 2), (7, 3))[0]):
        others.append(draw_pair(r, (head,), [n for n in AGREEING if n not in others], unseen=unseen)[1])
    return others


def agreement(r: Rng) -> str:
    head = r.choice(tuple(AGREEING))
    phrase, verb, number = subject_and_verb(r, head, between(r, head))
    said = f"{phrase} {verb} {predicate(r, head)}."
    if r.random() < 0.2:
        said += f" {'It' if number == 'singular' else 'They'} {verb} {predicate(r, head)}."
    return said


def one_subject(r: Rng) -> str:
    noun = r.choice(tuple(AGREEING))
    number = r.choice(NUMERI)
    return f"The {agreeing(noun, number)} {r.choice(COPULAS[number])} {predicate(r, noun)}."


# ------------------------------------------------------------------------------ who has what


def possession(r: Rng) -> str:
    """Some people with things, asked for again in any order."""
    names = group(r, r.choices((2, 3, 4), (4, 2, 1))[0])
    has = dict(zip(names, zip(r.sample(COLOURS, len(names)), r.sample(OBJECTS, len(names)), strict=True), strict=True))
    said = [f"{name} has a {colour} {thing}." for name, (colour, thing) in has.items()]
    for name in r.choices(names, k=r.randint(1, len(names) + 1)):
        colour, thing = has[name]
        said.append(
            r.choices((
                f"{name} has a {colour} {thing}.",
                f"So {name} has a {colour} {thing}.",
                f"What does {name} have? {capital(pronoun(name))} has a {colour} {thing}.",
                f"Who has the {thing}? {name} has the {thing}.",
                f"The {thing} is {colour}.",
            ), (5, 1, 5, 1, 1))[0]
        )  # fmt: skip
    return " ".join(said)


def liking(r: Rng) -> str:
    """The same question with less between the name and the answer."""
    names = group(r, r.choices((2, 3, 4), (2, 2, 2))[0])
    likes = dict(zip(names, r.sample(HUES, len(names)), strict=True))
    said = [f"{name} likes {hue}." for name, hue in likes.items()]
    for name in r.choices(names, k=r.randint(2, 2 * len(names))):
        again = f"{name} likes {likes[name]}."
        asked = f"What does {name} like? {capital(pronoun(name))} likes {likes[name]}."
        said.append(r.choice((again, again, asked)))
    return " ".join(said)


# ------------------------------------------------------------------------------ who did what to whom


def roles(r: Rng) -> str:
    doer, other = draw_pair(r, ACTORS, ACTORS)
    present, past, participle, suffered, did = r.choice(DEEDS)
    the = r.random()
    if the < 0.35:
        first = f"{doer} {present} {other}."
        first = first if r.random() < 0.6 else capital(first)
    elif the < 0.7:
        first = f"The {doer} {past} the {other}."
    else:
        first = f"The {other} was {participle} by the {doer}."
    return first + " " + r.choice((
        f"The {other} {suffered}.",
        f"The {doer} {did}.",
        f"Who was {participle}? The {other}.",
        f"Who {past} the {other}? The {doer}.",
        f"The {other} {suffered}. The {doer} {did}.",
    ))  # fmt: skip


def gift(r: Rng) -> str:
    a, b = group(r, 2)
    giver, taker = (a, b) if r.random() < 0.5 else (b, a)
    thing, place = r.choice(OBJECTS), r.choice(PLACES)
    said = f"When {a} and {b} went to the {place}, {giver} gave a {thing} to {taker}."
    return f"{said} {taker} thanked {giver}." if r.random() < 0.4 else said


# ------------------------------------------------------------------------------ lists, facts and stories


def repeated_list(r: Rng) -> str:
    words = r.choices(LISTED, k=r.randint(3, 9))
    return " ".join(words * r.randint(2, 4))


def series(r: Rng) -> str:
    kind, start = r.randrange(3), r.randrange(26)
    if kind == 0:
        return ", ".join(DAYS[(start + i) % 7] for i in range(r.randint(4, 9))) + "."
    if kind == 1:
        return ", ".join(NUMBERS[start % 5 : start % 5 + r.randint(4, 6)]) + "."
    return " ".join(LETTERS[start % 18 : start % 18 + r.randint(5, 8)])


def facts(r: Rng) -> str:
    return " ".join(r.sample(FACTS, r.randint(1, 3)))


def story(r: Rng) -> str:
    a, b = group(r, 2)
    place, other_place = r.sample(PLACES, 2)
    thing, colour, animal = r.choice(OBJECTS), r.choice(COLOURS), r.choice(ANIMALS)
    he, him, his = pronoun(a), object_pronoun(a), possessive(a)
    kind = "boy" if a in BOYS else "girl"
    opening = r.choice((
        f"Once upon a time there was a {r.choice(('little', 'kind', 'clever', 'young'))} {kind} named {a}.",
        f"Once upon a time, there was a {kind} named {a}. {capital(he)} lived near the {place}.",
        f"One day, {a} went to the {place}.",
        f"{a} lived near the {place}.",
    ))  # fmt: skip
    wish = r.choice((
        f"{capital(he)} had a {colour} {thing}.",
        f"{capital(he)} wanted a {colour} {thing}.",
        f"{capital(he)} found a {colour} {thing} in the {place}.",
        f"{capital(he)} liked to play with {his} {animal}.",
    ))  # fmt: skip
    middle = r.sample((
        f'{b} saw {a} and asked, "Can I play with you?" "Yes," said {a}.',
        f"{a} lost the {thing}. {capital(he)} looked in the {other_place}, but it was not there.",
        f"{b} found the {thing} and gave it to {a}. {a} was very happy.",
        f"A big {animal} came out of the {place}. {a} was afraid, but {b} was not afraid.",
        f"The {thing} was too heavy, so {a} asked {b} to help {him}.",
        f'"Where is my {thing}?" asked {a}. "It is in the {other_place}," said {b}.',
        f"It rained all day, so they stayed in the {other_place} and told stories.",
        f"{a} and {b} were tired, so they sat down under a tree.",
        f'{a} said to {b}, "Thank you." {b} smiled at {him}.',
    ), r.randint(2, 4))  # fmt: skip
    ending = r.choice((
        f"At last {a} and {b} went home. They were good friends.",
        f"{a} never forgot the {thing}.",
        f"Then {a} went home and told {his} mother about {b}.",
        "The end.",
    ))  # fmt: skip
    return " ".join((opening, wish, *middle, ending))


# Shares are of documents started with the family.
FAMILIES: tuple[tuple[Family, int], ...] = (
    (causes, 24), (one_thing, 5), (habits, 17), (one_person, 3), (agreement, 15), (one_subject, 3),
    (possession, 16), (liking, 8), (roles, 8), (gift, 4), (repeated_list, 4), (series, 2), (facts, 2), (story, 7),
)  # fmt: skip


def document(r: Rng) -> str:
    """One to four families on one line; half the time the same family again."""
    families, shares = zip(*FAMILIES, strict=True)
    first: Family = r.choices(families, shares)[0]
    if first is story:
        return story(r)
    said = [first(r)]
    for _ in range(r.choice((0, 0, 1, 2, 3))):
        said.append((first if r.random() < 0.5 else r.choices(families[:-1], shares[:-1])[0])(r))
    return " ".join(said)


def documents(count: int, seed: int) -> list[str]:
    r = random.Random(seed)
    return [document(r) for _ in range(count)]
