"""From what a person gives as a prompt to rows of tokens, and whether a model can read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, Literal

from jaxtyping import Int
from torch import Tensor

from engine.chat import Messages
from engine.config import ModelConfig
from engine.errors import PromptError
from engine.model import Model
from engine.text import Token, clean_prompt

Prompt = (
    str
    | Messages
    | Sequence[int]
    | Sequence[str]
    | Sequence[Sequence[int]]
    | Sequence[Messages]
    | Int[Tensor, "*batch pos"]
)

Side = Literal["left", "right"]

NO_PROMPT = "a prompt is text, token ids, or a list of either"
NO_TOKENIZER = "{} has no tokenizer; give token ids instead of text (--ids)"


def has_encoder(model: Model) -> bool:
    return model.config.encoder_layers is not None


def has_padding(row: Sequence[Token]) -> bool:
    return any(token.origin == "padding" for token in row)


def targets_of(model: Model, target: Prompt | None, batch: int) -> list[list[Token]]:
    """What the decoder has written so far, for each prompt: its start token, then the target."""
    first = model.config.decoder_start_token_id
    assert first is not None
    begin = replace(model.tokenizer.token(first) if model.tokenizer else bare_token(first), origin="tokenizer")
    if target is None:
        return [[begin]] * batch
    target = plain(target)
    one = isinstance(target, str) or not target or isinstance(target[0], Integral)
    texts: list[Any] = [target] if one else list(target)
    if len(texts) != batch:
        raise PromptError(f"there are {batch} prompts and {len(texts)} targets; give one for each")
    rows = []
    for text in texts:
        if isinstance(text, str) and model.tokenizer is None:
            raise PromptError(NO_TOKENIZER.format(model.name))
        if isinstance(text, str):
            assert model.tokenizer is not None
            tokens = model.tokenizer.target.encode(clean_prompt(text)[0], add_special=False)
            ids_of(model.config, [token.id for token in tokens])
        else:
            tokens = _tokens_of_ids(model, text)
        rows.append([begin, *tokens])
    return rows


def tokenise(model: Model, prompt: Prompt, literal: bool, chat: bool) -> tuple[list[list[Token]], str, list[str]]:
    """Rows of tokens, the prompt as text, and what to tell the user about it."""
    prompt = plain(prompt)
    one_prompt = isinstance(prompt, str) or not prompt or isinstance(prompt[0], Integral | Mapping)
    batch: list[Any] = [prompt] if one_prompt else list(prompt)
    rows: list[list[Token]] = []
    texts: list[str] = []
    notices: list[str] = []
    for one in batch:
        if chat or _is_chat(one):
            row, text, said = _tokens_of_chat(model, one, literal)
            rows.append(row)
            texts.append(text)
            notices += said
        elif isinstance(one, str):
            text, said = clean_prompt(one)
            rows.append(_tokens_of_text(model, text, literal))
            texts.append(text)
            notices += said
        else:
            rows.append(_tokens_of_ids(model, one))
            texts.append(model.tokenizer.decode([t.id for t in rows[-1]]) if model.tokenizer else "")
        if not rows[-1]:
            raise PromptError(
                "the prompt is empty and this model's tokenizer adds nothing to it; give at least one token"
            )
    return rows, "\n".join(texts), notices


def _is_chat(prompt: object) -> bool:
    """Whether a prompt is messages."""
    return isinstance(prompt, Sequence) and bool(prompt) and isinstance(prompt[0], Mapping)


def _tokens_of_chat(model: Model, prompt: Any, literal: bool) -> tuple[list[Token], str, Sequence[str]]:
    """A chat's tokens, its text, and what to tell the user about it."""
    if not isinstance(prompt, str) and not _is_chat(prompt):
        raise PromptError("token ids are no chat; give a text, or messages with role and content")
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer, and so no chat template; give token ids")
    chat = model.tokenizer.render(prompt)
    tokens = model.tokenizer.chat(chat, literal=literal)
    ids_of(model.config, [token.id for token in tokens])
    return tokens, chat.text, chat.notices


def _tokens_of_text(model: Model, text: str, literal: bool) -> list[Token]:
    if model.tokenizer is None:
        raise PromptError(NO_TOKENIZER.format(model.name))
    tokens = model.tokenizer.encode(text, literal=literal)
    ids_of(model.config, [token.id for token in tokens])
    return tokens


def _tokens_of_ids(model: Model, prompt: object) -> list[Token]:
    ids = ids_of(model.config, prompt)
    return model.tokenizer.extend([], ids) if model.tokenizer else [bare_token(i) for i in ids]


def bare_token(i: int) -> Token:
    """A token of a model without a tokenizer."""
    return Token(i, b"", f"‹id {i}›", 0, 0)


def plain(prompt: object) -> Any:
    """A tensor or an array as lists. Raises PromptError for what is no prompt at all."""
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray):
        raise PromptError(NO_PROMPT)
    return prompt


def ids_of(config: ModelConfig, prompt: object) -> list[int]:
    """Token ids as plain numbers, each within the vocabulary."""
    ids = plain(prompt)
    if isinstance(ids, str) or not all(isinstance(i, Integral) and not isinstance(i, bool) for i in ids):
        raise PromptError(NO_PROMPT)
    for i in ids:
        if not 0 <= i < config.d_vocab:
            raise PromptError(f"token id {i} is outside 0…{config.d_vocab - 1}, the vocabulary of {config.name}")
    return [int(i) for i in ids]


def more_ids(model: Model, tokens: str | Sequence[int]) -> tuple[list[int], list[str]]:
    """Token ids of what a trace is extended with, and what to tell the user about it."""
    if not isinstance(tokens, str):
        return ids_of(model.config, tokens), []
    if model.tokenizer is None:
        raise PromptError(NO_TOKENIZER.format(model.name))
    tokenizer = model.tokenizer.target if has_encoder(model) else model.tokenizer
    text, said = clean_prompt(tokens)
    return ids_of(model.config, [token.id for token in tokenizer.encode(text, add_special=False)]), said


def check_length(config: ModelConfig, length: int) -> list[str]:
    """Refuse, or say, that a prompt is longer than the model was trained for."""
    if length <= config.n_ctx:
        return []
    if config.positions == "learned":
        raise PromptError(
            f"the prompt has {length} tokens, but {config.name} has only {config.n_ctx} positions; shorten it"
        )
    return [
        f"{length} tokens are more than the {config.n_ctx} that {config.name} was trained on: expect nonsense beyond"
    ]


def pad_of(model: Model) -> Token:
    pad = model.config.pad_token_id
    known = pad is not None and 0 <= pad < model.config.d_vocab
    return Token(pad if known and pad is not None else 0, b"", "‹pad›", 0, 0, special=True, origin="padding")


def padded(rows: list[list[Token]], pad: Token, side: Side) -> list[list[Token]]:
    """Rows of one length."""
    length = max(map(len, rows))
    pads = [[pad] * (length - len(row)) for row in rows]
    return [(p + row if side == "left" else row + p) for p, row in zip(pads, rows, strict=True)]
