"""Handouts: Markdown that a foreign parser renders, with its figures, its numbers, and nothing that runs or leads."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace

import pytest
from exported import HOSTILE, exported, hostile, of_kind, walked
from markdown_it import MarkdownIt
from marked import rendered
from PIL import Image

from engine import Trace
from engine.errors import AddressError
from engine.export import handout
from engine.export.figures import draw
from engine.export.order import Order
from engine.export.selection import Selection
from engine.sites import Address
from engine.text import display
from engine.tours import Stop, Tour

PATTERN = "blocks.2.attn.pattern[b=0,h=3,q=5,k=2]"
STOP = Stop(
    "Where it looks", Address.parse(PATTERN), "heatmap", "The weight is **{value:" + PATTERN + "}**.",
    question="Why so much?", answer="Since `disk` is {token:tokens[b=0,p=2]}.",
    notes="Do not say {value:" + PATTERN + "}!",
    beside=Address.parse("blocks.2.attn.pattern[b=0,h=4,q=5,k=2]"),
)  # fmt: skip
TOUR = Tour("Looking back", "modern", "The disk was full", (STOP, replace(STOP, beside=None, question="", answer="")))


@pytest.fixture
def drawn_fast(monkeypatch) -> None:
    """Figures of one dot: what is tested is not how they look."""
    file = io.BytesIO()
    Image.new("L", (1, 1)).save(file, format="png")
    monkeypatch.setattr(draw, "write", lambda order, out, watch=None, dpi=None: out.write(file.getvalue()))


def tables(text: str) -> list[list[list[str]]]:
    """The cells of each table of some Markdown, as markdown-it finds them."""
    found: list[list[list[str]]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and token.level == 4:
            found[-1][-1].append("".join(child.content for child in token.children or ()))
    return found


def handed_out(t: Trace, **how: object) -> str:
    return exported(t, "md", **how).decode()


def test_a_tour_is_handed_out_with_figures_formulas_and_the_model_s_numbers() -> None:
    t = walked()
    text = handed_out(t, tour=replace(TOUR, stops=TOUR.stops[1:]))
    seen = rendered(text)
    assert not seen.troubles
    assert f"The weight is {float(t[PATTERN]):.3g}." in seen.text
    softmax = next(step.op.text for step in t.program.steps if step.site.name == "blocks.2.attn.pattern")
    assert f"$$\n{softmax.latex}\n$$" in text
    assert softmax.formula in seen.text
    assert [seen.tags.count(tag) for tag in ("h1", "img")] == [1, 1]
    for src in seen.images:
        data = base64.b64decode(src.removeprefix("data:image/png;base64,"))
        with Image.open(io.BytesIO(data)) as picture:
            picture.load()
            assert picture.width > 600
    head, *rows = tables(text)[2]
    assert head == ["query/key", *(token.label for token in t.tokens[0])]
    own = t["blocks.2.attn.pattern"][0, 3].tolist()
    assert [row[1:] for row in rows] == [[f"{value:.3g}" for value in row] for row in own]


@pytest.mark.usefixtures("drawn_fast")
def test_answers_stand_at_the_end_and_notes_only_where_they_are_asked_for() -> None:
    text = handed_out(walked(), tour=TOUR)
    question, answers, answer = text.index("Why so much?"), text.index("## Answers"), text.index("␣disk`.")
    assert question < answers < answer
    assert "Do not say" not in text
    spoken = handed_out(walked(), tour=TOUR, notes=True)
    assert "## Answers" not in spoken
    assert spoken.index("Why so much?") < spoken.index("␣disk`.") < spoken.index("For the speaker")
    assert spoken.index("For the speaker") < spoken.index("Do not say") < spoken.index("## 2.")


@pytest.mark.usefixtures("drawn_fast")
def test_without_a_tour_it_goes_through_the_steps_of_a_layer() -> None:
    t = walked()
    text = handed_out(t)
    titles = re.findall(r"^## \d+\. (.*)$", text, re.MULTILINE)
    steps = [step for step in t.program.steps if step.site.block in (None, 2)]
    assert len(titles) == len(steps)
    for title, step in zip(titles, steps, strict=True):
        assert step.op.text.title in title.replace("\\", "")
        assert step.op.text.latex in text
    other = handed_out(t, selection=Selection(keep=("blocks.*.attn.pattern",), layers=(0, 3)))
    assert re.findall(r"^## \d+\. (.*)$", other, re.MULTILINE) == [f"Block {i}: Softmax over keys" for i in (0, 3)]


@pytest.mark.usefixtures("drawn_fast")
@pytest.mark.parametrize("kind", ["batch", "encoder-decoder", "experts", "nan", "bfloat16"])
def test_every_kind_of_trace_can_be_handed_out(kind: str) -> None:
    seen = rendered(handed_out(of_kind(kind)))
    assert not seen.troubles
    assert seen.tags.count("img") > 10
    if kind == "nan":
        assert "NaN" in seen.texts
    if kind == "encoder-decoder":
        assert "Source tokens" in seen.texts


@pytest.mark.usefixtures("drawn_fast")
def test_tokens_from_an_enemy_are_texts_on_the_sheet() -> None:
    t = hostile()
    stop = Stop(
        HOSTILE[1], Address.parse("blocks.0.attn.pattern[b=0,h=0,q=3,k=1]"), "heatmap",
        "Says {token:tokens[b=0,p=0]} and {token:tokens[b=0,p=4]}. <script>alert(1)</script> [x](javascript:alert(1))",
    )  # fmt: skip
    seen = rendered(handed_out(t, tour=Tour(HOSTILE[2], "m", "p", (stop,)), title="</h1><script>alert(1)</script>"))
    assert not seen.troubles
    assert set(seen.tags) <= {
        "h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "em", "strong", "code", "img", "blockquote", "br",
    }  # fmt: skip
    for text in HOSTILE:
        assert display(text).strip()[:20].split(" ")[0] in seen.text
    assert len(seen.images) == 1


@pytest.mark.usefixtures("drawn_fast")
def test_a_stop_that_the_trace_does_not_have_is_one_line() -> None:
    gone = replace(TOUR, stops=(replace(STOP, address=Address.parse("blocks.7.attn.pattern")),))
    with pytest.raises(AddressError, match=r"there is no site 'blocks.7.attn.pattern'"):
        handed_out(walked(), tour=gone)


@pytest.mark.usefixtures("drawn_fast")
def test_half_a_surrogate_pair_in_a_title_is_no_crash() -> None:
    assert "\ufffd" not in handed_out(walked(), tour=TOUR, title="x")
    assert rendered(handed_out(walked(), tour=TOUR, title="hi \ud83d")).tags[0] == "h1"


@pytest.mark.usefixtures("drawn_fast")
def test_whoever_watches_hears_of_each_stop() -> None:
    heard: list[tuple[int, int, str]] = []
    handout.write(Order(walked(), "md", tour=TOUR), io.BytesIO(), lambda *told: heard.append(told))
    assert [told for told in heard if told[2] == STOP.title] == [(0, 2, STOP.title), (1, 2, STOP.title)]
