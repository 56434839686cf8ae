"""Reads a page with Python's own HTML parser: its document, its tensors, and what a browser would take for markup."""

from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor


class Page(HTMLParser):
    """``scripts`` and ``styles`` are (attributes, text) in order; ``tags`` counts every element."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.bytes = path.read_bytes()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.styles: list[tuple[dict[str, str | None], str]] = []
        self.metas: list[dict[str, str | None]] = []
        self.tags: dict[str, int] = {}
        self.title = ""
        self._open: tuple[str, dict[str, str | None]] | None = None
        self._text: list[str] = []
        self.feed(self.bytes.decode("utf-8"))
        self.close()
        found = [text for attrs, text in self.scripts if attrs.get("id") == "layerstep"]
        assert len(found) == 1
        self.document: dict[str, Any] = json.loads(
            found[0], parse_constant=lambda word: pytest.fail(f"{word}: no JSON")
        )
        self.blocks = {attrs["id"]: text for attrs, text in self.scripts if attrs.get("type") == "text/plain"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        if tag == "meta":
            self.metas.append(dict(attrs))
        if tag in ("script", "style", "title"):
            self._open, self._text = (tag, dict(attrs)), []

    def handle_data(self, data: str) -> None:
        self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if self._open is not None and self._open[0] == tag:
            text = "".join(self._text)
            if tag == "title":
                self.title = text
            else:
                (self.scripts if tag == "script" else self.styles).append((self._open[1], text))
            self._open = None

    @property
    def policy(self) -> dict[str, list[str]]:
        """The Content-Security-Policy: words by directive."""
        [meta] = [meta for meta in self.metas if (meta.get("http-equiv") or "").lower() == "content-security-policy"]
        parts = [part.split() for part in (meta["content"] or "").split(";")]
        return {name: words for name, *words in parts}

    def raw(self, block: str) -> bytes:
        """The bytes of a block."""
        return base64.b64decode(self.blocks[block], validate=True)

    def tensor(self, site: str, trace: int = 0) -> Tensor:
        """A tensor of a site, in the dtype that it is embedded in."""
        told = self.document["traces"][trace]["tensors"][site]
        return self.numbers(told["block"], told["dtype"]).reshape(told["shape"])

    def numbers(self, block: str, dtype: str = "float32") -> Tensor:
        """The numbers of a block, flat."""
        data = bytearray(self.raw(block))
        if dtype == "bfloat16":
            return torch.from_numpy(np.frombuffer(data, "<i2").copy()).view(torch.bfloat16)
        return torch.from_numpy(np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).copy())

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(len(self.raw(block)) for block in self.blocks)
