"""HTML and Markdown as foreign parsers take them, and what must never be in them."""

from __future__ import annotations

from html.parser import HTMLParser

from markdown_it import MarkdownIt

VOID = {"img", "br", "hr", "input", "meta"}
DRAWN = ("data:image/png;base64,",)
FORBIDDEN = {"script", "style", "iframe", "object", "embed", "link", "meta", "base", "form", "input", "svg", "math"}


class Seen(HTMLParser):
    """Tags, attributes and texts of HTML; ``troubles`` is what could run, load or lead somewhere, or is left open."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.images: list[str] = []
        self.troubles: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.troubles += [f"<{tag}> is left open" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in FORBIDDEN:
            self.troubles.append(f"<{tag}>")
        for name, value in attrs:
            if name.startswith("on") or name in ("href", "srcset", "action", "formaction"):
                self.troubles.append(f"{tag} {name}={value}")
            if name == "src" and not (value or "").startswith(DRAWN):
                self.troubles.append(f"{tag} {name}={value}")
            if name == "src":
                self.images.append(value or "")
            if name == "style" and any(word in (value or "").lower() for word in ("url(", "expression", "@import")):
                self.troubles.append(f"{tag} {name}={value}")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.troubles.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def rendered(markdown: str) -> Seen:
    """Markdown with tables as a reader renders it that lets HTML through."""
    return Seen(MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown))
