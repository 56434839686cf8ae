"""A trace whose texts try to be more than text: tokens, prompt, model's name, notices."""

from __future__ import annotations

from dataclasses import replace

from engine import Trace
from engine.text import display

HOSTILE = (
    '</script><script>document.title="x"</script>', "<!--<script>", "<img src=x onerror=alert(1)>", "-->", "]]>",
    '"><svg onload=alert(1)>', "';alert(1)//", "\u2028\u2029", "{{x}}", "{% x %}", "__DATA__", "<!--blocks-->",
    "\x1b]0;PWNED\x07\x00", "\u202egnp.exe", "hi \ud83d", "\udbc0", "&lt;b&gt;", "&#60;b&#62;", "\\u003c/script>",
    "a\r\nb\tc", "</title><script>alert(1)</script>", "<base href=//x>", "𝕏​\ufeff",
)  # fmt: skip


def hostile(t: Trace) -> Trace:
    """The same numbers with hostile texts for tokens, prompt, model and notices."""
    labels = [*HOSTILE, *HOSTILE][: t.length]
    tokens = tuple(
        replace(token, label=display(text), bytes=text.encode("utf-8", "surrogatepass"))
        for token, text in zip(t.tokens[0], labels, strict=False)
    )
    return Trace(
        replace(t.config, name=HOSTILE[0]), t.program, t.weights, t.passes, (tokens,), prompt="".join(HOSTILE),
        label_of=lambda i: display(HOSTILE[i % len(HOSTILE)]), notices=HOSTILE,
    )  # fmt: skip
