"""Narration in Markdown: the tree that everything draws from, and what hostile text in it comes to."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from engine.markdown import markdown, marks, parse, plain, replaced, texts
from engine.text import display

TEXT = st.text(st.sampled_from("ab *_`[](){}<>#-+=.!1\\~|&:;'\"$é") | st.characters(codec="utf-8"), max_size=40)
HTML = MarkdownIt("commonmark").enable("table")


def text(words: str) -> list[object]:
    return ["text", words]


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("a\nb\n\nc", [["p", [text("a b")]], ["p", [text("c")]]]),
        ("a **b *c*** d", [["p", [text("a "), ["strong", [text("b "), ["em", [text("c")]]]], text(" d")]]]),
        ("`a*b*`", [["p", [["code", "a*b*"]]]]),
        ("- a\n- b\n  1. c", [["ul", [[["p", [text("a")]]], [["p", [text("b")]], ["ol", [[["p", [text("c")]]]]]]]]]),
        ("## a", [["p", [["strong", [text("a")]]]]]),
        ("```\na\n  b\n```", [["pre", "a\n  b"]]),
        ("{value:embed[p=1,d=0]}", [["p", [["mark", "value", "embed[p=1,d=0]"]]]]),
        (
            "**{key:help}** `{key:help}`",
            [["p", [["strong", [["mark", "key", "help"]]], text(" "), ["code", "{key:help}"]]]],
        ),
        ("\\{value:x} {no} {} {a:b{c:d}", [["p", [text("{value:x} {no} {} {a:b"), ["mark", "c", "d"]]]]),
        ("2 * 3 * 4 snake_case_name", [["p", [text("2 * 3 * 4 snake_case_name")]]]),
        ("#", []),
        ("", []),
    ],
)
def test_a_text_becomes_a_tree(source: str, tree: list[object]) -> None:
    assert parse(source) == tree


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("a<br/><img src=x onerror=y>", "a<br/><img src=x onerror=y>"),
        ("[here](javascript:alert(1))", "[here](javascript:alert(1))"),
        ("[here](data:text/html,x)", "[here](data:text/html,x)"),
        ("[here](relative)", "here"),
        ("[the *paper*](https://example.org/x)", "the paper (https://example.org/x)"),
        ("<https://example.org>", "https://example.org"),
        ("![a **head**](http://example.org/x.png)", "a head"),
        ("[x]: http://example.org\n[x]", "[x]: http://example.org [x]"),
        ("&lt;b&gt; &#x202e;", "<b> ‹U+202E›"),
        ("\u202eabc\u200b", "‹U+202E›abc‹U+200B›"),
        ("\x1b]0;x\x07", "␛]0;x␇"),
        ("a\x00b", "a\ufffdb"),
        ("> q\n---", "> q ---"),
    ],
)
def test_what_is_no_plain_narration_stays_words(source: str, words: str) -> None:
    assert plain(parse(source)) == [words]


@given(TEXT)
@settings(max_examples=60, deadline=None)
def test_every_text_is_printable_and_json(source: str) -> None:
    tree = parse(source)
    assert json.loads(json.dumps(tree)) == tree
    for words in texts(tree):
        assert display(words) == words


@given(TEXT.map(lambda words: " ".join(words.split())).filter(bool))
@settings(max_examples=60, deadline=None)
def test_written_again_no_foreign_word_is_markup(words: str) -> None:
    tree = replaced(parse("**{a:b}** {c:d} {e:f}"), lambda kind, what: [{"e": "code"}.get(kind, "text"), words])
    read = HTML.parse(markdown(tree))
    assert [token.type for token in read] == ["paragraph_open", "inline", "paragraph_close"]
    kinds = {token.type for token in read[1].children or []}
    assert kinds <= {"text", "text_special", "strong_open", "strong_close", "code_inline"}


@pytest.mark.parametrize(
    "source",
    [
        "a **b** *c* `d`\n\n- e\n- f\n\n  g\n\n1. h\n   - i\n\n```\nj ``` k\n```",
        "`` ` `` and ` `` `",
        "1\\. no list\n\n\\- none\n\n\\+ none",
        "**a***b*",
        "{value:embed[p=1]} and \\{value:embed}",
    ],
)
def test_written_again_it_reads_as_the_same_tree(source: str) -> None:
    tree = parse(source)
    assert parse(markdown(tree)) == tree


def test_marks_are_found_and_filled_where_they_are_no_code() -> None:
    tree = parse("a {value: x } *{top:y}*\n\n- `{value:z}` {key:k}")
    assert list(marks(tree)) == [("value", "x"), ("top", "y"), ("key", "k")]
    filled = replaced(tree, lambda kind, what: ["text", f"<{kind}>"])
    assert plain(filled) == ["a <value> <top>", "- `{value:z}` <key>"]
    assert filled[0] == ["p", [text("a <value> "), ["em", [text("<top>")]]]]  # neighbours are one text
    assert list(marks(tree))  # and the tree itself stays as it is


@pytest.mark.parametrize(
    "source",
    ["[" * 5_000, "*a _b " * 2_000, "*a **b " * 1_000 + "** *" * 1_000, "![a " * 1_000 + "](x)" * 1_000, "- " * 2_000,
     "{a:" * 5_000, "a\n" * 10_000, " ".join("`" * n for n in range(300))],
)  # fmt: skip
def test_what_is_made_to_be_slow_or_deep_is_read_in_time(source: str) -> None:
    start = time.process_time()
    tree = parse(source)
    assert markdown(tree)
    assert plain(replaced(tree, lambda *_: ["text", ""]))
    assert time.process_time() - start < 2
