"""Text from outside, made printable; prompts, made clean; tokens as an id and bytes.

`display` is the one place where foreign text becomes printable: token text, prompts, paths, model names and
error texts all pass through it before they reach a terminal, a widget or a file for people.

This module needs nothing but the standard library, since the app imports it before its first frame.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal, get_args

from engine.errors import PromptError, TraceFileError

MAX_PROMPT_CHARS: Final = 2_000_000
"""A longer prompt is refused: no model here reads it, and the tokens alone would take gigabytes."""

MAX_PROMPT_BYTES: Final = 4 * MAX_PROMPT_CHARS
"""The same limit before decoding: no encoding takes more than four bytes for a character."""

Origin = Literal["text", "tokenizer", "special in text", "template", "template or text", "padding", "generated"]
"""Where a token comes from: what was typed, what the tokenizer or the chat template put around it, padding."""

ORIGIN_WORDS: Final[dict[str, str]] = {
    "text": "",
    "tokenizer": "added by tokenizer",
    "special in text": "special, from your text",
    "template": "added by template",
    "template or text": "template or your text",
    "padding": "padding",
    "generated": "generated",
}
"""An origin beside a token, in a table."""

# --- display ----------------------------------------------------------------------------------------------

_TAB, _NEWLINE, _SPACE, _DOTTED_CIRCLE = "⇥", "⏎", "␣", "◌"

# Assigned to letters, marks or symbols in Unicode, and yet invisible: a reader would see nothing there.
_INVISIBLE: Final = frozenset(
    map(
        chr,
        [
            0x034F,  # combining grapheme joiner
            *range(0x115F, 0x1161),  # Hangul fillers
            0x3164,
            0xFFA0,
            *range(0x17B4, 0x17B6),  # Khmer inherent vowels
            *range(0x180B, 0x1810),  # variation selectors: Mongolian, then the general ones
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ],
    )
)
# Drawn over the emoji before them by some terminals and beside it by others, so no column would line up.
_SKIN_TONES: Final = frozenset(map(chr, range(0x1F3FB, 0x1F400)))
_BLANKS: Final = frozenset("\u2800")  # a Braille cell without dots: a symbol that looks like a space
_UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def display(text: str) -> str:
    """Return `text` in a form that any terminal draws as it stands, on one line.

    | in the text | shown as |
    | --- | --- |
    | newline, tab | `⏎`, `⇥` |
    | the other C0 controls, DEL | their control pictures: `␀`, `␛`, `␍`, `␡` |
    | C1 controls, bidi controls, joiners, zero-width and other format characters | `‹U+202E›` |
    | variation selectors, skin tones, fillers, line and paragraph separators | `‹U+FE0F›` |
    | lone surrogates, private use, unassigned | `‹U+D83D›` |
    | a combining mark with nothing to stand on | the mark on a `◌` |

    Everything else stays: printable ASCII, the letters, marks and spaces of every script, most emoji. Joined
    emoji come apart into their parts, because terminals disagree on the width of the whole.

    The result is a fixed point: showing it again changes nothing. It is for eyes only: text that itself says
    `‹U+202E›` or `⏎` looks alike, and `Token.bytes` tells which it was.
    """
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    has_base = False
    for char in text:
        mark = _visible(char)
        if _combines(char) and mark == char:
            shown.append(char if has_base else _DOTTED_CIRCLE + char)
            has_base = True
        else:
            shown.append(mark)
            has_base = mark == char
    return "".join(shown)


@lru_cache(maxsize=8192)
def _visible(char: str) -> str:
    code = ord(char)
    if char == "\n":
        return _NEWLINE
    if char == "\t":
        return _TAB
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if unicodedata.category(char) in _UNPRINTABLE or char in _INVISIBLE or char in _SKIN_TONES:
        return f"‹U+{code:04X}›"
    return char


@lru_cache(maxsize=8192)
def _combines(char: str) -> bool:
    """Whether a terminal draws this character into the cell before it."""
    if unicodedata.category(char)[0] == "M":
        return True
    # The vowels and finals of Hangul are letters, drawn into the syllable that their consonant began.
    return "\u1160" <= char <= "\u11ff" or "\ud7b0" <= char <= "\ud7fb"


@lru_cache(maxsize=8192)
def _cell(char: str) -> int:
    if _combines(char) or unicodedata.category(char) in {"Cc", "Cf", "Cs"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" or _newly_wide(char) else 1


def _newly_wide(char: str) -> bool:
    """Symbols that Unicode 16 made wide; Textual and terminals know it before Python's own tables do."""
    code = ord(char)
    return (
        0x2630 <= code <= 0x2637 or 0x268A <= code <= 0x268F or 0x4DC0 <= code <= 0x4DFF or 0x1D300 <= code <= 0x1D376
    )


def cells(text: str) -> int:
    """The number of terminal cells that `text`, as `display` returned it, takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    return sum(map(_cell, text))


def fit(text: str, width: int, cut: str = "…") -> str:
    """Show `text` in exactly `width` cells: padded where it is shorter, ended by `cut` where it is longer.

    A wide character that would be cut in half makes room for a space, so the result is always that wide.
    """
    shown = display(text)
    if cells(shown) > width:
        cut = cut if cells(cut) <= width else ""
        shown = _cut(shown, width - cells(cut)) + cut
    return shown + " " * (width - cells(shown))


def _cut(text: str, width: int) -> str:
    """The longest beginning of `text` within `width` cells, its combining marks kept."""
    used = 0
    for index, char in enumerate(text):
        used += _cell(char)
        if used > width:
            return text[:index]
    return text


# --- prompts ----------------------------------------------------------------------------------------------

_SURROGATE_PAIR = re.compile("([\ud800-\udbff])([\udc00-\udfff])")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
)


def refuse_long_prompt(text: str) -> None:
    """Raise `PromptError` if `text` is longer than `MAX_PROMPT_CHARS`."""
    if len(text) > MAX_PROMPT_CHARS:
        raise PromptError(f"the prompt has {len(text):,} characters, the limit is {MAX_PROMPT_CHARS:,}; shorten it")


def clean_prompt(text: str) -> tuple[str, list[str]]:
    """Make a prompt that every tokenizer accepts, and say in notices what was changed or is easily missed.

    Surrogate pairs become the character they mean, lone surrogates U+FFFD. NUL and CRLF stay. So does a byte
    order mark, since within a string it is a character that the model will read.
    """
    refuse_long_prompt(text)
    text = _SURROGATE_PAIR.sub(_join, text)
    text, lone = _LONE_SURROGATE.subn("\ufffd", text)
    notices = []
    if lone:
        notices.append(
            f"{lone} lone surrogate{'s' if lone > 1 else ''} in the prompt, replaced by U+FFFD: "
            "a part of a character was lost before the text came here"
        )
    if text.startswith("\ufeff"):
        notices.append("the prompt begins with a byte order mark (U+FEFF), kept as a character")
    return text, notices


def _join(pair: re.Match[str]) -> str:
    high, low = map(ord, pair.groups())
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


def decode_bytes(data: bytes) -> tuple[str, list[str]]:
    """Read the bytes of a prompt file or of stdin, and clean them with `clean_prompt`.

    A byte order mark decides and is left out. Otherwise the bytes are UTF-8 or, with a notice, Windows-1252
    (Latin-1 with quotation marks). What is neither, or holds NUL outside UTF-8, is refused as no text.
    """
    if len(data) > MAX_PROMPT_BYTES:
        size = f"{len(data):,} bytes, the limit is {MAX_PROMPT_BYTES:,}"
        raise PromptError(f"the prompt has {size}; shorten it")
    text, notices = _decode(data)
    text, more = clean_prompt(text)
    return text, notices + more


def _decode(data: bytes) -> tuple[str, list[str]]:
    for mark, codec, name in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            try:
                # Half a pair is text that lost something, which `clean_prompt` repairs and says.
                text = data[len(mark) :].decode(codec, "surrogatepass")
            except UnicodeDecodeError as error:
                raise PromptError(
                    f"the prompt has the byte order mark of {name} but is no {name} "
                    f"(at byte {error.start + len(mark):,}); save it as UTF-8"
                ) from None
            return text, [f"the prompt was read as {name}; its byte order mark was left out"]
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        return _decode_legacy(data, error.start)
    if text.count("\0") * 4 > len(text):
        return text, ["much of the prompt is NUL characters: perhaps it is UTF-16 without a byte order mark"]
    return text, []


def _decode_legacy(data: bytes, first_bad: int) -> tuple[str, list[str]]:
    what = f"byte {first_bad:,} is 0x{data[first_bad]:02X}"
    try:
        if b"\0" in data:
            raise ValueError
        text = data.decode("cp1252")
    except ValueError:
        raise PromptError(f"the prompt is no text ({what}, not UTF-8); save it as UTF-8") from None
    return text, [f"the prompt is not UTF-8 ({what}); it was read as Windows-1252"]


# --- tokens -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Token:
    """One position of a sequence: the id that the model reads, and the bytes that it stands for."""

    id: int
    bytes: bytes
    """What the model's vocabulary says, so a leading space added by the tokenizer is there too."""
    label: str
    """Printable, never empty: `␣full`, `⏎`, `‹F0·9F›` for a part of a character, `‹id 2050›`."""
    start: int
    """The characters `start:end` of the text that this token covers, in part at least."""
    end: int
    group: tuple[int, int] | None = None
    """(part, of), counted from 1, where characters are split over several tokens."""
    special: bool = False
    """A control token, or the token for unknown text: its bytes are its name, not text."""
    origin: Origin = "text"


CONTINUATION: Final = bytes(range(0x80, 0xC0))
"""The bytes that do not begin a character in UTF-8."""

_ESCAPED_BYTES = re.compile("([\udc80-\udcff]+)")


def label_of(data: bytes, id: int) -> str:
    """The label of a token with these bytes: text with every space visible, and the rest in hexadecimal."""
    if not data:
        return f"‹id {id}›"
    parts = _ESCAPED_BYTES.split(data.decode("utf-8", "surrogateescape"))
    return "".join(_hex(part) if index % 2 else label_of_text(part) for index, part in enumerate(parts))


def label_of_text(text: str) -> str:
    """`display` for a label: blanks would vanish at its ends, so they are visible as well."""
    return "".join(map(_blank, display(text)))


@lru_cache(maxsize=8192)
def _blank(char: str) -> str:
    if char == " ":
        return _SPACE
    return f"‹U+{ord(char):04X}›" if unicodedata.category(char) == "Zs" or char in _BLANKS else char


def _hex(escaped: str) -> str:
    return "‹" + "·".join(f"{ord(char) - 0xDC00:02X}" for char in escaped) + "›"


def grouped(tokens: Iterable[Token]) -> list[Token]:
    """Fill in `Token.group`: tokens between which a character is split belong together.

    A token that ends one split character and begins another joins both groups into one.
    """
    result = list(tokens)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    first, opened = 0, False
    for index, token in enumerate(result):
        data = b"" if token.special else token.bytes
        if not (opened and data and data[0] in CONTINUATION):
            _number(result, first, index)
            first = index
        if not data:
            decoder.reset()
            opened = False
        elif opened or not data.isascii():
            decoder.decode(data)
            opened = bool(decoder.getstate()[0])
    _number(result, first, len(result))
    return result


def _number(tokens: list[Token], first: int, last: int) -> None:
    """Make one group of `tokens[first:last]`, or none of a single token."""
    size = last - first
    if size == 1 and tokens[first].group is None:
        return
    for index in range(first, last):
        group = (index - first + 1, size) if size > 1 else None
        tokens[index] = replace(tokens[index], group=group)


def tokens_to_json(tokens: Sequence[Token]) -> list[dict[str, object]]:
    """Tokens as plain JSON, for a trace file that opens without the tokenizer.

    Groups, and labels that follow from the bytes, are left out: `tokens_from_json` finds them again.
    """
    rows: list[dict[str, object]] = []
    for token in tokens:
        row: dict[str, object] = {
            "id": token.id,
            "bytes": token.bytes.hex(),
            "special": token.special,
            "origin": token.origin,
            "span": [token.start, token.end],
        }
        if token.label != label_of(token.bytes, token.id):
            row["label"] = token.label
        rows.append(row)
    return rows


def tokens_from_json(rows: object) -> list[Token]:
    """The tokens that `tokens_to_json` wrote; anything else is a `TraceFileError` naming the place."""
    if not isinstance(rows, list):
        raise TraceFileError("the trace file's tokens are not a list; the file is damaged")
    return grouped(_token_from_json(index, row) for index, row in enumerate(rows))


_TYPES: Final = {"id": int, "bytes": str, "special": bool, "origin": str, "span": list, "label": str}
_MAX_ID: Final = 2**31


def _token_from_json(index: int, row: object) -> Token:
    """One token, checked: a trace file comes from outside, and its labels pass `display` again."""

    def damaged(what: str) -> TraceFileError:
        return TraceFileError(f"token {index} of the trace file {what}; the file is damaged")

    if not isinstance(row, dict):
        raise damaged("is not an object")
    keys = set(row)
    if keys - {"label"} != set(_TYPES) - {"label"}:
        raise damaged("lacks a field or has one too many")
    for key in keys:
        if type(row[key]) is not _TYPES[key]:  # exactly: JSON's true is no number
            raise damaged(f"has a wrong {key}")
    if not 0 <= row["id"] < _MAX_ID:
        raise damaged("has an id out of range")
    if row["origin"] not in get_args(Origin):
        raise damaged("has an unknown origin")
    span = row["span"]
    if len(span) != 2 or any(type(end) is not int for end in span) or not 0 <= span[0] <= span[1]:
        raise damaged("has a wrong span")
    if not re.fullmatch("([0-9a-f]{2})*", row["bytes"]):
        raise damaged("has wrong bytes")
    data = bytes.fromhex(row["bytes"])
    label = label_of_text(row["label"]) if row.get("label") else label_of(data, row["id"])
    start, end = span
    return Token(row["id"], data, label, start, end, None, row["special"], row["origin"])


def human(size: int) -> str:
    """Bytes as people read them: 32.0 GiB."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
