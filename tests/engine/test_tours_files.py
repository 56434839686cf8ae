"""Tours as files: what is read of both forms, what is refused and where, and that what is written reads back equal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import tours
from engine.errors import TourError
from engine.markdown import plain
from engine.sites import Address
from engine.text import display
from engine.tours import Mark, Other, Stop, Tour, filled, find_tour, parse_tour, quoted, read_tour, shipped, to_toml

ACTIONS = ("help", "step.next")
PATTERN = "blocks.0.attn.pattern[b=0,h=1,q=3,k=1]"
HEAD = 'title = "A tour"\nmodel = "modern"\nprompt = "dog bites man"\n'
STOP = '[[stop]]\ntitle = "Begin"\naddress = "tokens[p=2]"\nview = "tokens"\nnarration = "Here."\n'
OTHER = '[other]\nprompt = "man bites dog"\n'
MARKDOWN = f"""\
+++
{HEAD}
generate = 2
{OTHER}+++

What it is **about**.

## Begin

`tokens[p=2]` · tokens

Here.

## Who bites · `who`

`{PATTERN}` · all heads · beside `blocks.1.attn.pattern[h=1]`
It is **{{value:{PATTERN}}}**.

Press {{key:help}}.

- a

**Question:** Who bites?

**Answer:** The dog.
And not the man.

**Notes:** {{other:{PATTERN}}}
"""


def read(text: str, name: str = "tour.toml") -> Tour:
    return parse_tour(text.encode(), name, ACTIONS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "tour.toml: title is missing"),
        (HEAD, "tour.toml: has no stops; write each under [[stop]]"),
        (f"{HEAD}stop = []", "has no stops"),
        (f"{HEAD}stop = 3", "has no stops"),
        (f"{HEAD}stop = [3]", "has no stops"),
        (STOP, "title is missing"),
        (HEAD.replace("modern", " ") + STOP, "tour.toml:2: model is missing"),
        (HEAD.replace('"modern"', "3") + STOP, "tour.toml:2: model is no text; write it in quotes"),
        (
            f"speed = 3\n{HEAD}{STOP}",
            "tour.toml:1: 'speed' is not known; known are title, about, model, prompt,",
        ),
        (f"{HEAD}{STOP}colour = 'red'", "tour.toml:9: stop 1: 'colour' is not known; known are title, address, view,"),
        (HEAD + STOP + STOP.replace("narration", "question"), "tour.toml:9: stop 2: narration is missing"),
        (f"{HEAD}{STOP}question = 'Why?'", "stop 1: a question and its answer come together"),
        (HEAD + STOP.replace("tokens[p=2]", "tokens[2]"), "tour.toml:6: stop 1: address: 'tokens[2]': '2' is no index"),
        (HEAD + STOP.replace("tokens[p=2]", "no place"), "stop 1: address: 'no place' is not an address"),
        (f"{HEAD}{STOP}beside = 'no place'", "tour.toml:9: stop 1: beside: 'no place' is not an address"),
        (HEAD + STOP.replace("Here.", "{value:a b}"), "tour.toml:8: stop 1: narration: 'a b' is not an address"),
        (HEAD + STOP.replace("Here.", "{valeu:embed}"), "stop 1: narration: {valeu:embed} is not known; write {value:"),
        (HEAD + STOP.replace("Here.", "{key:step.nxt}"), "narration: 'step.nxt' is no action; near are step.next;"),
        (HEAD + STOP.replace("Here.", "{other:embed}"), "{other:embed} needs another trace; say which under [other]"),
        (f"about = '{{value:embed}}'\n{HEAD}{STOP}", "tour.toml:1: about quotes nothing"),
        (f"edits = 'blocks'\n{HEAD}{STOP}", "tour.toml:1: edits is a list of texts"),
        (f"edits = ['']\n{HEAD}{STOP}", "edits is a list of texts"),
        (f"edits = ['blocks.0.attn.z']\n{HEAD}{STOP}", "tour.toml:1: edits: 'blocks.0.attn.z' is no edit"),
        (f"generate = -1\n{HEAD}{STOP}", "tour.toml:1: generate is a number of tokens, 0 to 1000"),
        (f"generate = true\n{HEAD}{STOP}", "generate is a number of tokens"),
        (f"other = 3\n{HEAD}{STOP}", "tour.toml:1: other is a table"),
        (f"{HEAD}[other]\n{STOP}", "tour.toml:4: [other]: is as the main trace"),
        (
            f"{HEAD}[other]\nspeed = 1\n{STOP}",
            "tour.toml:5: [other]: 'speed' is not known; known are model, prompt,",
        ),
        (f"{HEAD}[other]\ngenerate = 'x'\n{STOP}", "tour.toml:5: [other]: generate is a number"),
        (f"{HEAD}{STOP}{STOP}title = 'again'", "is no TOML: Cannot overwrite a value"),
        ("title = [", "is no TOML"),
        (HEAD + "x=" + "[" * 3000, "is no"),
        (HEAD + "x = " + "9" * 6000, "a number in it has thousands of digits"),
        ("[\\u001b]\n" + HEAD, "is no TOML"),
        ('"\\u001b[2J\\u202e" = 3', "'\\x1b[2J\\u202e' is not known"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_printable_line(text: str, words: str) -> None:
    with pytest.raises(TourError) as caught:
        read(text)
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("+++", "---", "tour.md:1: has no head"),
        ("+++\n\nWhat", "\n\nWhat", "tour.md:1: has no head"),
        ('"modern"', "modern", "tour.md:3: is no TOML"),
        ("generate", "speed", "tour.md:6: 'speed' is not known"),
        ("generate", "stop", "tour.md: has stops in its head"),
        ('title = "A tour"', 'title = "A tour"\nabout = "x"', "tour.md:12: is about two things"),
        ("`tokens[p=2]` · tokens", "tokens[p=2], tokens", "tour.md:15: a stop begins with its place: `ADDRESS` · VIEW"),
        ("`tokens[p=2]` · tokens", "`tokens[2]` · tokens", "tour.md:15: stop 1: address: 'tokens[2]'"),
        ("`tokens[p=2]` · tokens\n\nHere.\n", "", "tour.md:14: a stop begins with its place"),
        (" · tokens", " · ", "tour.md:15: stop 1: view is missing"),
        ("\nHere.\n", "", "tour.md:13: stop 1: narration is missing"),
        ("beside `", "beside `[", "tour.md:21: stop 2: beside: "),
        ("What it is", "{value:embed}", "tour.md:11: about quotes nothing"),
        (" · all heads", " · all · heads", "tour.md:21: a stop begins with its place"),
        ("{key:help}", "{key:hlp}", "tour.md:22: stop 2: narration: 'hlp' is no action; near are help;"),
        ("**Notes:**", "**Question:**", "tour.md:33: a stop has one question"),
        ("**Answer:**", "", "tour.md:19: stop 2: a question and its answer come together"),
        ("{other:", "{others:", "tour.md:33: stop 2: notes: {others:"),
    ],
)
def test_what_is_wrong_with_a_markdown_file_is_said_with_its_line(before: str, after: str, words: str) -> None:
    with pytest.raises(TourError) as caught:
        read(MARKDOWN.replace(before, after, 1), "tour.md")
    assert words in str(caught.value)


def test_a_file_that_is_not_there_or_not_text_is_said_too(tmp_path: Path) -> None:
    with pytest.raises(TourError, match=r"nothing\.toml: no such file"):
        read_tour(tmp_path / "nothing.toml")
    with pytest.raises(TourError, match="is a directory"):
        read_tour(tmp_path)
    for data, words in (
        (b'title = "\xff"', "is not UTF-8"),
        (b"#" * (1 << 20) + b"\n", "over a megabyte"),
        (bytes(99), "is no TOML"),
    ):
        with pytest.raises(TourError, match=words):
            parse_tour(data, "bad.toml")


def test_both_forms_are_the_same_tour() -> None:
    tour = read(MARKDOWN, "tour.md")
    begin, bites = tour.stops
    assert tour.request == {"model": "modern", "prompt": "dog bites man", "generate": 2}
    assert tour.other == Other("modern", "man bites dog", (), 2)
    assert tour.about == "What it is **about**."
    assert begin == Stop("Begin", Address.parse("tokens[p=2]"), "tokens", "Here.")
    assert (bites.title, bites.view, str(bites.beside)) == (
        "Who bites · `who`",
        "all heads",
        "blocks.1.attn.pattern[h=1]",
    )
    assert bites.narration == f"It is **{{value:{PATTERN}}}**.\n\nPress {{key:help}}.\n\n- a"
    assert (bites.question, bites.answer) == ("Who bites?", "The dog.\nAnd not the man.")
    assert bites.marks == (Mark("value", PATTERN), Mark("key", "help"), Mark("other", PATTERN))
    assert bites.values == (Address.parse(PATTERN),)
    assert read(to_toml(tour)) == tour
    assert read(MARKDOWN.replace("\n", "\r\n"), "tour.md") == tour
    assert read("\ufeff" + MARKDOWN, "tour.txt") == tour


def test_what_the_other_trace_leaves_out_is_as_in_the_main_one() -> None:
    edits = 'edits = ["pos_embed = 0"]\n'
    without = read(f"{edits}{HEAD}[other]\nedits = []\n{STOP}")
    assert without.other == Other("modern", "dog bites man")
    assert without.request["edits"] == ["pos_embed = 0"]
    longer = read(f"{edits}{HEAD}[other]\ngenerate = 3\n{STOP}")
    assert longer.other is not None
    assert longer.other.request == {**longer.request, "generate": 3}
    assert [read(to_toml(tour)) for tour in (without, longer)] == [without, longer]


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="{"), max_size=30).map(str.strip)
SOME = WORDS.filter(bool)
PLACES = st.sampled_from(["embed", PATTERN, "tokens[p=2]@1", "blocks.1.attn.q[p=0:3]"]).map(Address.parse)
ASKED = st.one_of(st.just(("", "")), st.tuples(SOME, SOME))
RUNS = {
    "model": SOME,
    "prompt": st.text(st.characters(codec="utf-8"), max_size=30).filter(str.strip),
    "edits": st.sampled_from([(), ("pos_embed = 0",), ("a = 1", "b *= 2")]),
    "generate": st.integers(0, 1000),
}


@st.composite
def any_tour(draw: st.DrawFn) -> Tour:
    stops = [
        Stop(draw(SOME), draw(PLACES), draw(SOME), draw(SOME), *draw(ASKED), draw(WORDS), draw(st.none() | PLACES))
        for _ in range(draw(st.integers(1, 3)))
    ]
    run = {key: draw(values) for key, values in RUNS.items()}
    other = draw(st.none() | st.builds(Other, **RUNS))
    return Tour(
        draw(SOME), stops=tuple(stops), about=draw(WORDS), other=None if other == Other(**run) else other, **run
    )


@given(any_tour())
@settings(max_examples=60, deadline=None)
def test_what_is_written_reads_back_equal_whatever_its_words(tour: Tour) -> None:
    assert read(to_toml(tour)) == tour


LINES = st.lists(st.text("abc *_`é", min_size=1).map(str.strip).filter(bool), min_size=1, max_size=3).map("\n\n".join)


@given(LINES, LINES, LINES, LINES, st.booleans())
@settings(max_examples=30, deadline=None)
def test_the_same_words_are_the_same_tour_in_both_forms(
    title: str, told: str, asked: str, notes: str, more: bool
) -> None:
    title = title.split("\n")[0]
    text = f"+++\n{HEAD}+++\n{notes}\n## {title}\n\n`{PATTERN}` · heatmap\n\n{told}\n"
    text += f"\n**Question:** {asked}\n\n**Answer:** {told}\n\n**Notes:**\n\n{notes}\n" if more else ""
    said = {"question": asked, "answer": told, "notes": notes} if more else {}
    stop = Stop(title, Address.parse(PATTERN), "heatmap", told, **said)
    tour = Tour("A tour", "modern", "dog bites man", (stop,), about=notes)
    assert read(text, "tour.md") == read(to_toml(tour)) == tour


@given(
    st.sampled_from([MARKDOWN, f"{HEAD}{OTHER}{STOP}"]), st.integers(0, 700), st.binary(max_size=4), st.integers(0, 9)
)
@settings(max_examples=100, deadline=None)
def test_a_damaged_file_is_read_or_refused_in_one_line(text: str, at: int, junk: bytes, cut: int) -> None:
    data = text.encode()
    try:
        assert parse_tour(data[:at] + junk + data[at + cut :], "tour").stops
    except TourError as refused:
        said = str(refused)
    else:
        said = ""
    assert said == display(said)


def test_numbers_labels_and_keys_are_put_where_they_belong() -> None:
    value, none, top = Mark("value", "a[p=1]"), Mark("value", "b[p=2]"), Mark("top", "logits[p=2]")
    text = "{value:a[p=1]} and {value: b[pos=2] }, {top:logits[p=2]}, {key:step.next}, {no} `{value:a}`"
    tree = filled(text, {value: 0.98862, none: None, top: "␣*\u202e"}, {"step.next": "→"}.__getitem__)
    assert plain(tree) == ["0.989 and ?, `␣*‹U+202E›`, →, {no} `{value:a}`"]
    assert plain(filled(text, {}, str.upper)) == ["… and …, …, STEP.NEXT, {no} `{value:a}`"]
    said = {0.0: "0", 966.0: "966", 115.84: "116", 12.375: "12.4", 0.0252: "0.0252", -1.5: "-1.50", 1e-9: "1.00e-09",
            float("-inf"): "-∞", float("inf"): "∞", float("nan"): "NaN"}  # fmt: skip
    assert {number: quoted(number) for number in said} == said


def test_a_tour_is_found_by_its_name_or_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(shipped())[:3] == ["first", "vectors", "order"]
    for name in ("second.toml", "first.md", "note.txt"):
        (tmp_path / name).write_text(HEAD + STOP)
    monkeypatch.setattr(tours, "ROOTS", (tmp_path / "none", tmp_path))
    (tmp_path / "cache.toml").write_text(HEAD + STOP)
    (tmp_path / "about.toml").write_text(HEAD + STOP)
    assert list(shipped()) == ["first", "cache", "about", "second"]
    assert find_tour("second") == tmp_path / "second.toml"
    assert read_tour(str(tmp_path / "note.txt")).title == "A tour"
    assert read_tour("second").title == "A tour"
    with pytest.raises(TourError, match=r"there is no tour 'secnd'; there is second$"):
        find_tour("secnd")
    with pytest.raises(TourError, match=r"there is no tour 'x{80}'; there is first, cache, about, second"):
        find_tour("x" * 5000)
    with pytest.raises(TourError, match=r"no\.toml: no such file"):
        read_tour("no.toml")


@pytest.mark.parametrize(
    "deep", ["a" + ".a" * 100_000 + " = 1", "[" + "a . " * 60 + "a]", "x = {" + "'a'." * 60 + "b = 1}"]
)
def test_a_key_of_many_parts_is_refused_before_it_fills_memory(deep) -> None:
    with pytest.raises(TourError, match=r":\d+: is no tour: a key has more than 50 parts"):
        read(f"{HEAD}\n{deep}\n{STOP}")
    assert read(HEAD + STOP.replace("narration", 'notes = "' + "a. " * 40 + '"\nnarration', 1))


def test_the_two_forms_that_the_documentation_shows_are_the_same_tour() -> None:
    text = (Path(__file__).parents[2] / "docs" / "tours.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"^```(toml|markdown)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert read(blocks["toml"]) == read(blocks["markdown"], "tour.md")
    for key in (*tours.TEXTS, *tours.STOP_TEXTS, *(f"{{{kind}:" for kind in (*tours.PLACES, "key"))):
        assert f"`{key}" in text
