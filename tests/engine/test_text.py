"""What foreign text becomes before anybody sees it, and what prompts become before a model reads them."""

import json
import subprocess
import sys
import unicodedata
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len, get_character_cell_size

from engine.errors import LayerstepError, PromptError, TraceFileError
from engine.text import (
    MAX_PROMPT_BYTES,
    MAX_PROMPT_CHARS,
    Token,
    cells,
    clean_prompt,
    decode_bytes,
    display,
    fit,
    grouped,
    label_of,
    tokens_from_json,
    tokens_to_json,
)

HOSTILE = "AA\x1b]0;PWNED\x07BB\x1b[5;5HCC\x00DD\x9b31mEE\r\x0c"
# Every character, with those that matter here far more often than chance would have them.
NASTY = st.text(
    st.one_of(
        st.characters(),
        st.characters(categories=["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Mn", "Mc", "Me"]),
        st.sampled_from("\u200d\ufe0f\u202e\u115f\u1161\U0001f3fd👩❤漢e‹›␀◌ \n\t\x1b\x9b"),
    )
)
WORDS = st.text(st.characters(categories=["L", "Nd"], exclude_characters="\u115f\u1160\u3164\uffa0"))


class TestDisplay:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("", ""),
            ("The server crashed [/] [bold] \\[b]", "The server crashed [/] [bold] \\[b]"),
            ("a\tb\nc\r\n", "a⇥b⏎c␍⏎"),
            ("\x00\x1b\x7f", "␀␛␡"),
            ("\x9b31m", "‹U+009B›31m"),
            ("\u202eabc\u2066", "‹U+202E›abc‹U+2066›"),
            ("a\u200bb\u2060\ufeff\xad", "a‹U+200B›b‹U+2060›‹U+FEFF›‹U+00AD›"),
            ("\u2028\u2029", "‹U+2028›‹U+2029›"),
            ("\ud83d", "‹U+D83D›"),
            ("\ue000\U000f0000\ufdd0\U0010ffff", "‹U+E000›‹U+F0000›‹U+FDD0›‹U+10FFFF›"),
            ("❤\ufe0f", "❤‹U+FE0F›"),
            ("👩\u200d👧", "👩‹U+200D›👧"),
            ("👍🏽", "👍‹U+1F3FD›"),
            ("\U000e0041", "‹U+E0041›"),
            ("e\u0301", "e\u0301"),
            ("\u0301", "◌\u0301"),
            ("\n\u0301\u0302", "⏎◌\u0301\u0302"),
            ("1\ufe0f\u20e3", "1‹U+FE0F›◌\u20e3"),
            ("한\u1112\u1161\u11ab", "한\u1112\u1161\u11ab"),
            ("\u1161", "◌\u1161"),
            ("\u3164", "‹U+3164›"),
        ],
    )
    def test_cases(self, text: str, shown: str) -> None:
        assert display(text) == shown

    def test_escape_sequences_come_out_whole_and_dead(self) -> None:
        shown = display(HOSTILE)
        assert shown == "AA␛]0;PWNED␇BB␛[5;5HCC␀DD‹U+009B›31mEE␍␌"

    @given(NASTY)
    def test_nothing_that_a_terminal_acts_on_is_left(self, text: str) -> None:
        for char in display(text):
            assert unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
            assert not 0xFE00 <= ord(char) <= 0xFE0F
        display(text).encode()

    @given(NASTY)
    def test_is_a_fixed_point(self, text: str) -> None:
        assert display(display(text)) == display(text)

    @given(NASTY)
    def test_nothing_is_lost_and_nothing_invisible(self, text: str) -> None:
        assert len(display(text)) >= len(text)
        assert not text or cells(display(text)) > 0

    @given(WORDS.filter(lambda word: not word[:1] or not 0x1160 <= ord(word[0]) <= 0xD7FB))
    def test_words_of_every_script_stay(self, word: str) -> None:
        assert display("a" + word) == "a" + word

    @given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
    def test_printable_ascii_stays(self, text: str) -> None:
        assert display(text) == text


class TestCells:
    @given(NASTY)
    def test_agrees_with_the_library_that_lays_out_the_app(self, text: str) -> None:
        assert cells(display(text)) == cell_len(display(text))

    def test_agrees_on_every_character(self) -> None:
        # Those that `display` writes out are ASCII then; above plane 1 there are only ideographs, in bulk.
        codes = [*range(0x20000), *range(0x20000, sys.maxunicode + 1, 97)]
        shown = [char for char in map(chr, codes) if display(char) == char]
        assert [char for char in shown if cells(char) != get_character_cell_size(char)] == []

    @given(NASTY, st.integers(-2, 30))
    def test_fit_is_exact(self, text: str, width: int) -> None:
        assert cells(fit(text, width)) == max(width, 0)
        assert cell_len(fit(text, width, cut="")) == max(width, 0)

    @pytest.mark.parametrize("joiners", range(4))
    def test_fit_measures_again(self, joiners: int) -> None:
        assert cell_len(fit("\u200d" * joiners + "a" * 79, 39)) == 39

    @pytest.mark.parametrize(
        ("text", "width", "fitted"),
        [
            ("ab", 4, "ab  "),
            ("abcdef", 4, "abc…"),
            ("漢字漢字", 4, "漢… "),
            ("漢", 1, "…"),
            ("ab", 0, ""),
            ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
            ("\x1b[2J", 6, "␛[2J  "),
        ],
    )
    def test_fit(self, text: str, width: int, fitted: str) -> None:
        assert fit(text, width) == fitted


class TestPrompts:
    @pytest.mark.parametrize("text", ["", "The server crashed", "a\x00b", "a\r\nb\r\n", "👍", "  "])
    def test_ordinary_text_stays(self, text: str) -> None:
        assert clean_prompt(text) == (text, [])

    def test_a_pair_of_surrogates_is_the_character(self) -> None:
        assert clean_prompt("\ud83d\udc4d") == ("👍", [])
        assert clean_prompt("\udbff\udfff") == ("\U0010ffff", [])

    @pytest.mark.parametrize("text", ["hi \ud83d", "\udbc0", "caf\udce9", "\udc4d\ud83d"])
    def test_lone_surrogates_are_replaced_and_said(self, text: str) -> None:
        clean, notices = clean_prompt(text)
        assert len(clean) == len(text)
        assert "\ufffd" in clean
        assert clean.encode()
        assert "lone surrogate" in notices[0]

    def test_a_byte_order_mark_is_said(self) -> None:
        text, notices = clean_prompt("\ufeffhi")
        assert text == "\ufeffhi"
        assert "byte order mark" in notices[0]

    def test_the_limit(self) -> None:
        clean_prompt("a" * MAX_PROMPT_CHARS)
        with pytest.raises(PromptError, match=r"2,000,001 characters, the limit is 2,000,000"):
            clean_prompt("a" * (MAX_PROMPT_CHARS + 1))
        with pytest.raises(ValueError, match="the limit is"):
            decode_bytes(b"a" * (MAX_PROMPT_BYTES + 1))

    @given(NASTY)
    def test_the_result_is_text(self, text: str) -> None:
        clean, _ = clean_prompt(text)
        assert json.loads(json.dumps(clean)) == clean
        assert clean_prompt(clean)[0] == clean.encode().decode()


class TestBytes:
    @pytest.mark.parametrize(
        ("data", "text", "notice"),
        [
            (b"", "", None),
            ("地 👍\r\n\0".encode(), "地 👍\r\n\0", None),
            (b"\xef\xbb\xbfhi", "hi", "read as UTF-8; its byte order mark"),
            ("hi 地".encode("utf-16"), "hi 地", "read as UTF-16"),
            (b"\xfe\xff\x00h\x00i", "hi", "read as UTF-16"),
            ("hi 👍".encode("utf-32"), "hi 👍", "read as UTF-32"),
            (b"\xff\xfeh\x00\x3d\xd8", "h\ufffd", "UTF-16"),
            (b"\xed\xa0\xbd\xed\xb1\x8d", "👍", None),
            ("café".encode("latin-1"), "café", "byte 3 is 0xE9"),
            (b"\x93quoted\x94", "“quoted”", "Windows-1252"),
            ("hi".encode("utf-16-le"), "h\0i\0", "perhaps it is UTF-16"),
        ],
    )
    def test_reads(self, data: bytes, text: str, notice: str | None) -> None:
        got, notices = decode_bytes(data)
        assert got == text
        assert (notice is None) == (not notices)
        assert notice is None or notice in notices[0]

    @pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\x00\x00", b"\xff\xfea", b"\x81\x8d"])
    def test_refuses_what_is_no_text(self, data: bytes) -> None:
        with pytest.raises(PromptError) as caught:
            decode_bytes(data)
        assert "save it as UTF-8" in str(caught.value)
        assert "\n" not in str(caught.value)

    @given(st.binary())
    def test_any_bytes_are_text_or_refused(self, data: bytes) -> None:
        with suppress(PromptError):
            decode_bytes(data)[0].encode()


def token(data: bytes, *, special: bool = False) -> Token:
    return Token(7, data, label_of(data, 7), 0, 0, special=special)


class TestTokens:
    @pytest.mark.parametrize(
        ("data", "label"),
        [
            (b" full", "␣full"),
            (b"  ", "␣␣"),
            (b"\n\t", "⏎⇥"),
            (b"\xf0\x9f", "‹F0·9F›"),
            (b" \xe2\x80", "␣‹E2·80›"),
            (b"\x9d.", "‹9D›."),
            ("地".encode(), "地"),
            ("\u0301".encode(), "◌\u0301"),
            ("\xa0\u3000\u2800\u200b".encode(), "‹U+00A0›‹U+3000›‹U+2800›‹U+200B›"),
            (b"E2", "E2"),
            (b"<0xE2>", "<0xE2>"),
            (b"[/]", "[/]"),
            (b"\x1b]0;", "␛]0;"),
            (b"", "‹id 7›"),
        ],
    )
    def test_labels(self, data: bytes, label: str) -> None:
        assert label_of(data, 7) == label

    @given(st.binary())
    def test_labels_are_visible_and_printable(self, data: bytes) -> None:
        label = label_of(data, 0)
        assert display(label) == label
        assert label.strip()

    def groups(self, *parts: bytes) -> list[tuple[int, int] | None]:
        return [token.group for token in grouped(map(token, parts))]

    def test_groups(self) -> None:
        assert self.groups(b"a", b"\xf0", b"\x9f\x91", b"\x8d", b"b") == [None, (1, 3), (2, 3), (3, 3), None]
        assert self.groups("地".encode(), "é".encode()) == [None, None]
        assert self.groups(b" \xe5", b"\x9c", b"\xb0.") == [(1, 3), (2, 3), (3, 3)]

    def test_groups_that_share_a_token_are_one(self) -> None:
        assert self.groups(b"\xc3", b"\xa9\xc3", b"\xa9") == [(1, 3), (2, 3), (3, 3)]

    def test_broken_characters_do_not_reach_over_text(self) -> None:
        assert self.groups(b"\xf0", b"a", b"\x9f", b"b") == [None] * 4
        assert self.groups(b"\xf0", b"\x9f", b"a") == [(1, 2), (2, 2), None]
        assert self.groups(b"\xc3", b"", b"\xa9") == [None] * 3

    def test_a_special_token_ends_a_group(self) -> None:
        tokens = grouped([token(b"\xc3"), token(b"<s>", special=True), token(b"\xa9")])
        assert [token.group for token in tokens] == [None] * 3

    @given(st.text(), st.data())
    def test_groups_follow_the_characters_however_bytes_are_cut(self, text: str, data: st.DataObject) -> None:
        raw = text.encode(errors="replace")
        cuts = sorted({0, len(raw), *data.draw(st.lists(st.integers(0, len(raw))))})
        parts = [raw[a:b] for a, b in pairwise(cuts)]
        tokens = grouped(map(token, parts))
        assert grouped(tokens) == tokens
        for left, right in pairwise(tokens):
            joined = bool(right.group and right.group[0] > 1)
            assert joined == (0x80 <= right.bytes[0] <= 0xBF)
            assert not joined or left.group == (right.group[0] - 1, right.group[1])


TOKENS = grouped(
    [
        Token(0, b"<|bos|>", "<|bos|>", 0, 0, special=True, origin="tokenizer"),
        Token(90, b" \xf0\x9f", "␣‹F0·9F›", 0, 2),
        Token(91, b"\x91\x8d", "‹91·8D›", 1, 2),
        Token(92, b"ing", "##ing", 2, 5),
        Token(2050, b"", "‹id 2050›", 5, 5, origin="template"),
    ]
)
ROW = {"id": 1, "bytes": "61", "special": False, "origin": "text", "span": [0, 1]}


class TestJson:
    def test_round_trip(self) -> None:
        text = json.dumps(tokens_to_json(TOKENS), allow_nan=False)
        assert tokens_from_json(json.loads(text)) == TOKENS

    def test_a_good_row(self) -> None:
        assert tokens_from_json([ROW]) == [Token(1, b"a", "a", 0, 1)]
        assert tokens_from_json([]) == []

    @pytest.mark.parametrize(
        "bad",
        [
            {"id": True},
            {"id": -1},
            {"id": 2**31},
            {"id": 1.0},
            {"bytes": "6"},
            {"bytes": "zz"},
            {"bytes": "6 1"},
            {"bytes": None},
            {"special": 0},
            {"origin": "elsewhere"},
            {"span": [1, 0]},
            {"span": [-1, 0]},
            {"span": [0]},
            {"span": [0, True]},
            {"span": "01"},
            {"label": 3},
            {"more": 1},
        ],
    )
    def test_bad_rows(self, bad: dict[str, object]) -> None:
        with pytest.raises(TraceFileError, match=r"^token 1 of the trace file .* damaged$"):
            tokens_from_json([ROW, ROW | bad])

    @pytest.mark.parametrize("bad", [None, {}, "x", 3, [None], [[]], [{}], [{"id": 1}]])
    def test_bad_shapes(self, bad: object) -> None:
        with pytest.raises(ValueError, match="damaged"):
            tokens_from_json(bad)

    def test_labels_from_a_file_are_foreign(self) -> None:
        (read,) = tokens_from_json([ROW | {"label": "\x1b[2J\u202e "}])
        assert read.label == "␛[2J‹U+202E›␣"


def test_errors_are_one_family() -> None:
    assert issubclass(PromptError, LayerstepError)
    assert str(PromptError("as given: [/] {x}")) == "as given: [/] {x}"


def test_imports_are_light() -> None:
    code = "import engine.text, engine.tokenizer, sys; print([m for m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "tokenizers", "rich", "textual", "numpy"} & set(eval(loaded))
