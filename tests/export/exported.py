"""Traces of many kinds, some with tokens from an enemy, and the bytes that an export of them writes."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from tiny import ARCHITECTURES, TRANSLATOR, tiny

from engine import Trace, extend, load_model, trace
from engine.export.formats import FORMATS
from engine.export.order import Order
from engine.text import Token, label_of

HOSTILE = (
    "</script><script>document.title='x'</script>", "<img src=x onerror=alert(1)>", '"><svg onload=alert(1)>', "|a|b|",
    "`code` ``` ~~~", "[x](javascript:alert(1))", "![x](http://localhost/x.png)", "$\\href{javascript:alert(1)}{x}$",
    "=1+1", "@SUM(A1)", "\x1b]0;PWNED\x07", "\u202egnp.exe", "a\x00b", "# head\n\n* item", "&lt;b&gt; &amp; \\",
    "{{x}}", "\u2028", "]]>", "---", "👍",
)  # fmt: skip
"""Texts that are markup, formulas or controls somewhere."""


def exported(of: Trace, to: str, **how: Any) -> bytes:
    """What an export of a trace writes; it is about as large as was said before, or smaller."""
    order, home = Order(of, to, **how), import_module(f"engine.export.{FORMATS[to].home}")
    size, file = home.size(order), io.BytesIO()
    home.write(order, file, None)
    data = file.getvalue()
    assert size is None or len(data) <= 1.1 * size + 1024
    return data


@lru_cache(maxsize=1)
def walked() -> Trace:
    """Two passes of a sample model."""
    model = load_model("modern", device="cpu")
    return extend(model, trace(model, "The disk was full"), " again")


def with_tokens(of: Trace, texts: tuple[str, ...] = HOSTILE) -> Trace:
    """The same trace, with these texts for tokens."""
    rows, at = [], 0
    for row in of.tokens:
        line = []
        for token in row:
            data = texts[at % len(texts)].encode("utf-8", "surrogatepass")
            line.append(replace(token, bytes=data, label=label_of(data, token.id)))
            at += 1
        rows.append(tuple(line))

    def label(i: int) -> str:
        return label_of(texts[i % len(texts)].encode(), i)

    config = replace(of.config, name="<b>evil</b> | `m` $x$ [a](javascript:b)")
    return Trace(config, of.program, of.weights, of.passes, tuple(rows), prompt="".join(texts), label_of=label)


@lru_cache(maxsize=1)
def hostile() -> Trace:
    """A trace of twenty tokens, each of which is markup, a formula or a control somewhere."""
    return with_tokens(trace(tiny(dtype=torch.float32, **ARCHITECTURES["modern"]), list(range(len(HOSTILE)))))


@lru_cache(maxsize=8)
def of_kind(kind: str) -> Trace:
    """A tiny trace: of a dtype, a batch with padding, an encoder beside a decoder, with NaN in it …"""
    modern = ARCHITECTURES["modern"]
    if kind in ("bfloat16", "float16", "float64"):
        return trace(tiny(dtype=getattr(torch, kind), **modern), [3, 1, 4, 1, 5])
    if kind == "batch":
        return trace(tiny(dtype=torch.float32, **modern), [[3, 1, 4], [1, 5]])
    if kind == "encoder-decoder":
        return trace(tiny(dtype=torch.float32, **TRANSLATOR), [3, 1, 4], target=[5, 9])
    if kind == "experts":
        return trace(tiny(dtype=torch.float32, **ARCHITECTURES["experts"]), [3, 1, 4, 1, 5, 9])
    assert kind == "nan"
    model = tiny(dtype=torch.float32, **modern)
    spoiled = {name: weight.clone() for name, weight in model.weights.items()}
    spoiled["blocks.1.mlp.down.weight"][0, 0] = torch.nan
    spoiled["blocks.1.mlp.down.weight"][1, 0] = torch.inf
    return trace(type(model).from_weights(model.config, spoiled), [3, 1, 4])


KINDS = ("bfloat16", "float16", "float64", "batch", "encoder-decoder", "experts", "nan")


def a_token(text: str) -> Token:
    """One token of this text."""
    return Token(7, text.encode(), label_of(text.encode(), 7), 0, len(text))
