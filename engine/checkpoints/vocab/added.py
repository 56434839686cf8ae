"""Tokens beside the vocabulary: special and added ones, as the files around a tokenizer name them.

The rules are those of transformers' `PreTrainedTokenizerBase._from_pretrained` and `TokenizersBackend.__init__`, with
one exception: a name alone never makes a new id, since the model would have no embedding for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from engine.checkpoints.vocab.files import MAX_ADDED, Settings, refuse_many
from engine.errors import TokenizerError
from engine.text import display

if TYPE_CHECKING:
    import tokenizers

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
"""What a named special token is for: `bos_token` and so on."""


def named_tokens(settings: Settings, defaults: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """The special tokens by name (`bos_token`), None where a file says null or something that is no token."""
    named: dict[str, str | None] = dict(defaults or {})
    for file in _naming(settings):
        for key, value in settings.get(file, {}).items():
            if key.removesuffix("_token") in ROLES:
                named[key] = _content(value)
    return named


def add_tokens(inner: tokenizers.Tokenizer, settings: Settings, named: Mapping[str, str | None]) -> None:
    """Make the tokens that the settings add or call special so in `inner`.

    Raises TokenizerError where a file gives an added token another id than it can have.
    """
    import tokenizers

    known = {token.content for token in inner.get_added_tokens_decoder().values()}
    special: dict[str, dict[str, bool]] = {content: {} for content in named.values() if content}
    special |= _flagged(settings)
    listed = {token.content: (id, token) for id, token in _listed(settings, special) if token.content not in known}
    inner.add_tokens([token for _, token in listed.values()])
    for content, (id, _) in listed.items():
        if (found := inner.token_to_id(content)) != id:
            raise TokenizerError(
                f"added token {display(content)[:80]!r} is given the id {id}, but its place in the vocabulary is "
                f"{found}; the tokenizer's files do not belong together"
            )
    inner.add_tokens(
        [
            tokenizers.AddedToken(content, **{**flags, "special": True})
            for content, flags in special.items()
            if content not in known and content not in listed and inner.token_to_id(content) is not None
        ]
    )


def bos_and_eos(inner: tokenizers.Tokenizer, settings: Settings, named: Mapping[str, str | None]) -> Any:
    """The post-processor that `add_bos_token` and `add_eos_token` ask for."""
    config = settings.get("tokenizer_config.json", {})
    before, after = (
        named.get(f"{role}_token") if config.get(f"add_{role}_token") is True else None for role in ("bos", "eos")
    )
    return around(inner, before, after) if before or after else None


def around(inner: tokenizers.Tokenizer, before: str | None, after: str | None) -> Any:
    """A post-processor that puts these tokens before and after a text. Raises TokenizerError where one is unknown."""
    from tokenizers import processors

    ids = {}
    for piece in filter(None, (before, after)):
        ids[piece] = inner.token_to_id(piece)
        if ids[piece] is None:
            raise TokenizerError(
                f"the vocabulary lacks {display(piece)[:80]!r}, which the tokenizer puts around a text"
            )
    # As lists, since a token may hold a space or a colon, which mean something in the one-line form.
    single = [*([before] if before else []), "$A", *([after] if after else [])]
    return processors.TemplateProcessing(single=single, special_tokens=list(ids.items()))


def _naming(settings: Settings) -> list[str]:
    """The files that name special tokens, the later ones winning."""
    config = settings.get("tokenizer_config.json", {})
    files = ["tokenizer_config.json", "special_tokens_map.json"]
    return files[:1] if "added_tokens_decoder" in config else files


def _content(value: object) -> str | None:
    content = value.get("content") if isinstance(value, Mapping) else value
    return content if isinstance(content, str) and content else None


def _flagged(settings: Settings) -> dict[str, dict[str, bool]]:
    """The special tokens that files write out as objects, or list without a role: their flags by content."""
    flagged: dict[str, dict[str, bool]] = {}
    for file in _naming(settings):
        entries = settings.get(file, {})
        values = [value for key, value in entries.items() if key.removesuffix("_token") in ROLES]
        values = [value for value in values if isinstance(value, Mapping)]
        for key in ("extra_special_tokens", "additional_special_tokens"):
            more = entries.get(key)
            values += more.values() if isinstance(more, Mapping) else more if isinstance(more, list) else []
        for value in values:
            if content := _content(value):
                flagged[content] = _flags(value) if isinstance(value, Mapping) else {}
    return flagged


def _flags(row: Mapping[str, object]) -> dict[str, bool]:
    """How an added token is looked for in a text. Raises TokenizerError where that is not yes or no."""
    keys = ("single_word", "lstrip", "rstrip", "normalized", "special")
    flags = {key: value for key in keys if isinstance(value := row.get(key, False), bool) and key in row}
    if len(flags) < sum(key in row for key in keys):
        raise TokenizerError(
            f"added token {display(repr(row.get('content')))[:80]} has a flag that is not true or false"
        )
    return flags


def _listed(settings: Settings, special: Collection[str]) -> Iterator[tuple[int, tokenizers.AddedToken]]:
    """The added tokens that a file lists with their ids, in the order of the ids."""
    import tokenizers

    rows: list[tuple[int, Mapping[str, object]]] = []
    decoder = settings.get("tokenizer_config.json", {}).get("added_tokens_decoder")
    named = settings.get("added_tokens.json", {})
    refuse_many(len(decoder if isinstance(decoder, Mapping) else named), "added tokens", "the tokenizer", MAX_ADDED)
    if isinstance(decoder, Mapping):
        rows = [(_id(id), row if isinstance(row, Mapping) else {"content": row}) for id, row in decoder.items()]
    else:
        for name, id in named.items():
            rows.append((_id(id), {"content": name, "special": name in special, "normalized": name not in special}))
    for place, row in sorted(rows, key=lambda row: row[0]):
        content = row.get("content")
        if not isinstance(content, str) or not content:
            raise TokenizerError(f"added token {place} is no text, but {display(repr(content))[:80]}")
        yield place, tokenizers.AddedToken(content, **_flags(row))


def _id(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if type(value) is not int or not 0 <= value < 2**31:
        raise TokenizerError(f"an added token of the tokenizer's files has the id {display(repr(value))[:40]}")
    return value
