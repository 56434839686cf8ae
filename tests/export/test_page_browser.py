"""A page in Chromium, from a file and offline: its numbers are the engine's, keys walk it, foreign text stays text."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from chromium import Browser, chromium
from chromium import Page as Tab
from hostile_trace import HOSTILE, hostile
from pypdf import PdfReader
from tiny_bert import PROMPT, write_bert
from tiny_t5 import SOURCE, TARGET, write_t5
from torch import Tensor

from engine import Model, Trace, generate, load_model, trace
from engine.analysis import looks
from engine.export.saving import save_as
from engine.export.selection import Selection
from engine.hidden import hidden
from engine.sites import Address
from engine.tours import parse_tour
from engine.views import View
from tui.state.numbers import exact

DISK = "The server crashed because the disk was full"
CELL = "blocks.1.attn.pattern[b=0,h=5,q=7,k=2]"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model("modern", device="cpu")


@pytest.fixture(scope="module")
def walked(model) -> Trace:
    return trace(model, DISK)


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    """Opens a page of a trace, written anew; what happened in it is looked at when the test is over."""
    folder = tmp_path_factory.mktemp("pages")
    tabs: list[Tab] = []

    def open_it(t: Trace, at: str = "", *, width: int = 1280, height: int = 800, **how) -> Tab:
        path = folder / f"{len(tabs)}.html"
        save_as(t, path, **how)
        tab = browser.open(f"{path}{at and '#' + at}", width, height)
        tab.wait("window.layerstep && layerstep.ready")
        tabs.append(tab)
        return tab

    return open_it


@pytest.fixture(scope="module")
def walk(opened, walked) -> Tab:
    return opened(walked)


def quiet(tab: Tab) -> None:
    """Nothing was asked for, nothing went wrong, nothing was said."""
    assert (tab.requests, tab.errors, tab.dialogs) == ([], [], [])


def go(tab: Tab, address: str, view: str) -> dict:
    """Go to a place; the numbers that a screen reader finds there. Of a trace of one pass the page says which, as the
    app does."""
    tab.evaluate(f"layerstep.go({json.dumps(address)}, {json.dumps(view)})")
    state = tab.evaluate("new Promise(done => requestAnimationFrame(() => done(layerstep.state())))")
    assert (state["address"].removesuffix("@0"), state["view"]) == (address.removesuffix("@0"), view)
    caption = f", {view} at {state['address']}"
    tab.wait(f"document.querySelector('.behind caption')?.textContent.includes({json.dumps(caption)})")
    return tab.evaluate(
        "({value: document.querySelector('.value').textContent,"
        " cols: [...document.querySelectorAll('.behind thead th')].slice(1).map(e => e.textContent),"
        " rows: [...document.querySelectorAll('.behind tbody tr')].map(r => [...r.children].map(e => e.textContent))})"
    )


def plane(t: Trace, address: str, view: View) -> tuple[Tensor, Tensor | None]:
    """The numbers that a view spreads out, [rows, cols] in float64, and which of them are masked."""
    place = Address.parse(address)
    site = t.program.site(place.site)
    whole = t[site.name] if place.at is None else t.site(site.name, place.at)
    index, axes = place.resolve(site.axes, tuple(whole.shape)), list(site.axes)
    whole = whole.double()
    masked: Tensor | None = None
    if "query" in axes:
        weights = hidden(t, site.name, place.at, (0, whole.shape[2]), (0, whole.shape[3]))
        masked = (whole == -torch.inf) if weights is None else weights.expand_as(whole) & (whole == 0)
    if view.over:
        dim = axes.index("head")
        whole = whole.mean(dim) if view.over == "mean" else whole.amax(dim)
        masked = None if masked is None else masked.all(dim)
        axes.pop(dim)

    def spread(x: Tensor) -> Tensor:
        left = [axis for axis in axes if axis in (view.rows, view.cols)]
        x = x[tuple(slice(None) if axis in left else index[axis] for axis in axes)]
        return x.T if left == [view.cols, view.rows] else x.reshape(*x.shape, *[1] * (2 - x.ndim))

    return spread(whole), None if masked is None else spread(masked)


def word(value: float, masked: bool) -> str:
    if masked:
        return "0 (masked)" if value == 0 else "-∞ (masked)"
    return exact(float(torch.tensor(value, dtype=torch.float32)))


def number(heading: str) -> int:
    return int(heading.split()[-1])


PLACES = [
    (CELL, View("attention", "query", "key", "heatmap")),
    (CELL, View("bars", "key", "", "row")),
    (CELL, View("attention", "query", "key", "mean", over="mean")),
    (CELL, View("attention", "query", "key", "max", over="max")),
    ("blocks.0.attn.masked[b=0,h=0,q=3,k=8]", View("attention", "query", "key", "heatmap")),
    ("blocks.3.attn.scores[b=0,h=7,q=8,k=8]", View("attention", "query", "key", "heatmap")),
    ("blocks.2.resid_post[b=0,p=4,d=100]", View("matrix", "pos", "d_model", "heatmap")),
    ("blocks.2.attn.q[b=0,p=4,h=3,d=15]", View("matrix", "pos", "d_head", "heatmap")),
    ("blocks.2.attn.q[b=0,p=4,h=3,d=15]", View("matrix", "head", "d_head", "all heads")),
    ("blocks.1.attn.cache_k[b=0,k=4,g=3,d=1]", View("matrix", "kv_pos", "d_head", "heatmap")),
    ("blocks.1.attn.result[b=0,p=8,h=3,d=127]", View("matrix", "pos", "d_model", "heatmap")),
    ("blocks.1.mlp.post[b=0,p=1,d=383]", View("matrix", "pos", "d_mlp", "heatmap")),
    ("ln_final.scale[b=0,p=1,d=0]", View("bars", "pos", "", "row")),
    ("logits[b=0,p=8,v=2047]", View("matrix", "pos", "d_vocab", "heatmap")),
    ("probs[b=0,p=8,v=5]", View("matrix", "pos", "d_vocab", "heatmap")),
]


@pytest.mark.parametrize(("address", "view"), PLACES, ids=lambda one: one if isinstance(one, str) else one.name)
def test_every_number_shown_is_the_engines(walk: Tab, walked: Trace, address: str, view: View) -> None:
    told, (values, masked) = go(walk, address, view.name), plane(walked, address, view)
    assert len(told["rows"]) == min(len(values), 200 if not view.cols else 40)
    assert len(told["cols"]) == min(values.shape[1], 24)
    for head, *cells in told["rows"]:
        i = number(head)
        for j, cell in zip([number(one) for one in told["cols"]] if view.cols else [0], cells, strict=True):
            assert cell == word(float(values[i, j]), masked is not None and bool(masked[i, j])), (i, j)
    assert any(told["value"] in row for row in told["rows"])
    quiet(walk)


@pytest.mark.parametrize("look", ["lens", "norms", "added"])
def test_looks_along_depth_show_the_engines_numbers(walk: Tab, walked: Trace, look: str) -> None:
    site = "blocks.1.attn_out" if look == "added" else "blocks.1.resid_post"
    told, (about, values) = go(walk, f"{site}[b=0,p=6,d=0]", look), looks.look(walked, look, f"{site}[b=0]")
    assert values is not None
    assert [number(head) for head, *_ in told["rows"]] == list(range(walked.length))
    texts = about.get("texts")
    for i, (_, *cells) in enumerate(told["rows"]):
        ought = [exact(float(value)) for value in values[i]]
        assert cells == ([f"{text} {n}" for text, n in zip(texts[i], ought, strict=True)] if texts else ought)
    quiet(walk)


def test_candidates_are_those_of_the_engine(walk: Tab, walked: Trace) -> None:
    for pos in (2, 8):
        walk.evaluate(f"layerstep.go('logits[b=0,p={pos},v=0]', 'ranked')")
        walk.painted()
        rows = walk.evaluate(
            "[...document.querySelectorAll('.stage tbody tr')]"
            ".map(r => [...r.children].slice(1, 4).map(e => e.textContent))"
        )
        top = walked.top(len(rows), pos=pos)
        assert rows == [[c.label, str(c.id), exact(c.logit)[:9]] for c in top]
    quiet(walk)


def test_keys_walk_and_the_address_line_follows(opened, walked) -> None:
    tab = opened(walked, CELL)

    def state() -> tuple[str, str]:
        told = tab.evaluate("layerstep.state()")
        return told["address"].removesuffix("@0"), told["view"]

    assert state() == (CELL, "heatmap")
    for key, ought in (
        ("ArrowRight", ("blocks.1.attn.z[b=0,p=7,h=5,d=0]", "heatmap")),
        ("ArrowLeft", (CELL, "heatmap")),
        ("h", ("blocks.1.attn.pattern[b=0,h=6,q=7,k=2]", "heatmap")),
        ("]", ("blocks.2.attn.pattern[b=0,h=6,q=7,k=2]", "heatmap")),
        ("ArrowDown", ("blocks.2.attn.pattern[b=0,h=6,q=8,k=2]", "heatmap")),
        (".", ("blocks.2.attn.pattern[b=0,h=6,q=8,k=3]", "heatmap")),
        ("v", ("blocks.2.attn.pattern[b=0,h=6,q=8,k=3]", "row")),
        ("3", ("blocks.2.attn.pattern[b=0,h=6,q=8,k=3]", "arcs")),
    ):
        tab.press(key)
        assert state() == ought, key
    tab.wait("decodeURIComponent(location.hash) === '#blocks.2.attn.pattern[b=0,h=6,q=8,k=3]@0&view=arcs'")
    tab.evaluate("location.hash = '#logits[b=0,p=8,v=3]'")
    tab.wait("layerstep.state().address === 'logits[b=0,p=8,v=3]@0'")
    tab.evaluate("location.hash = '#blocks.99.attn.q[<b>]'")
    tab.wait("document.body.innerText.includes('Shown is where you were')")
    assert state()[0] == "logits[b=0,p=8,v=3]"
    tab.press("?")
    assert tab.evaluate("document.querySelector('dialog').open")
    tab.press("Escape")
    assert not tab.evaluate("document.querySelector('dialog').open")
    quiet(tab)


def test_whoever_cannot_see_or_point_has_it_all(walk: Tab) -> None:
    go(walk, CELL, "heatmap")
    heard = walk.read_aloud()
    assert ("heading", "Softmax over keys") in heard
    assert [role for role, name in heard if not name and role in ("button", "link", "application", "table")] == []
    assert {"columnheader", "rowheader", "cell", "MathMLMath"} <= {role for role, _ in heard}
    walk.evaluate("document.activeElement.blur()")
    walk.press("Tab", "Enter")  # the first thing that is reached leads to the picture
    assert "stage" in walk.evaluate("document.activeElement.className")
    walk.press("Tab")
    assert walk.evaluate("document.activeElement.tagName") in ("BUTTON", "SUMMARY")
    quiet(walk)


# -- foreign text --------------------------------------------------------------------------------------------------

EVERYWHERE = """(async () => {
  const painted = () => new Promise(done => requestAnimationFrame(done));
  const {address} = layerstep.state();
  for (let n = 0; n < %d; n++) {
    document.querySelector("nav.tree").dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowDown", bubbles: true}));
    if (n %% %d === 0) await painted();
    if (n %% %d === 0) for (let v = 0; v < 9; v++) {
      dispatchEvent(new KeyboardEvent("keydown", {key: "v"}));
      await painted();
    }
  }
  return [address, layerstep.state().address];
})()"""


def test_hostile_texts_stay_texts_in_every_step_and_view(opened, walked) -> None:
    text = TOUR.replace("NARRATION", json.dumps("".join(HOSTILE[:12])))
    tour = replace(parse_tour(text.encode(), "t.toml"), title="".join(HOSTILE))
    tab = opened(hostile(walked), title="".join(HOSTILE), tour=tour, notes=True, width=900, height=500)
    title = tab.evaluate("document.title")
    scripts = tab.evaluate("document.scripts.length")
    first, last = tab.evaluate(EVERYWHERE % (110, 1, 15), 60)
    assert (first, last) == ("tokens[b=0,p=2]@0", "probs[b=0,p=2,v=0]@0")
    assert tab.evaluate("document.title") == title
    assert title.startswith('</script><script>document.title="x"</script>')
    assert tab.evaluate("document.scripts.length") == scripts
    foreign = "img,iframe,object,embed,link,base,form,[onerror],[onload]"
    assert tab.evaluate(f"document.querySelectorAll('{foreign}').length") == 0
    shown = tab.evaluate(
        "document.body.innerText + [...document.querySelectorAll('[aria-label]')].map(e => e.ariaLabel)"
    )
    assert '</script><script>document.title="x"</script>' in shown
    assert not set("\x1b\x07\x00\u202e\u2028\u2029\ufeff\u200b") & set(shown)
    assert shown.encode("utf-8")  # no half of a surrogate pair
    quiet(tab)


TOUR = """
title = "x"
model = "modern"
prompt = "x"
[[stop]]
title = '<img src=x onerror=alert(1)></script>'
address = "tokens[b=0,p=2]"
view = "tokens"
narration = NARRATION
question = "**What** `</script>` <b>next</b>? [a](javascript:alert(1)) ![b](http://x.y/z.png)"
answer = "{top:logits[b=0,p=8]} {value:embed[b=0,p=1,d=2]}"
notes = "<script>alert(2)</script>"
beside = "tokens[b=0,p=3]"
"""


SECOND = """
[[stop]]
title = "Then"
address = "blocks.1.attn.pattern[b=0,h=5,q=7,k=6]"
view = "arcs"
narration = "There."
"""


def test_nothing_else_may_run_or_be_asked_for(opened, walked) -> None:
    tab = opened(walked, selection=Selection(("residual",)))
    for attempt, refused in (
        ("const s = document.createElement('script'); s.text = 'document.title = 1'", "TrustedScript"),
        ("document.body.innerHTML = '<img src=x onerror=alert(1)>'", "TrustedHTML"),
        ("document.body.setAttribute('onclick', 'document.title = 2')", "TrustedScript"),
        ("await fetch('https://example.org/')", "Failed to fetch"),
        ("await fetch(location.href)", "Failed to fetch"),
        ("const i = new Image(); i.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACw='; await i.decode()", "decoded"),
    ):
        assert refused in tab.evaluate(f"(async () => {{ {attempt} }})().catch(e => e.message)")
    assert tab.evaluate("document.title") == f"{DISK} · modern"
    assert any("Content Security Policy" in error for error in tab.errors)


# -- other traces --------------------------------------------------------------------------------------------------


def test_passes_are_walked_and_the_cache_grows(opened, model) -> None:
    for step in generate(model, "Once upon a", max_new_tokens=4, stop_tokens=[]):
        t = step.trace
    tab = opened(t)
    view = View("attention", "query", "key", "heatmap")
    for address in ("blocks.1.attn.pattern[b=0,h=1,q=6,k=2]", "blocks.1.attn.pattern[b=0,h=1,q=0,k=4]@2"):
        told, (values, masked) = go(tab, address, "heatmap"), plane(t, address, view)
        assert masked is not None
        assert [cells for _, *cells in told["rows"]] == [
            [word(float(x), bool(m)) for x, m in zip(row, hide, strict=True)]
            for row, hide in zip(values, masked, strict=True)
        ]
    tab.press("{")
    assert tab.evaluate("layerstep.state().address").endswith("@1")
    assert "pass" in tab.evaluate("document.body.innerText")
    quiet(tab)


def test_other_kinds_of_models_are_walked_to_the_end(opened, tmp_path) -> None:
    t5 = trace(load_model(str(write_t5(tmp_path / "t5"))), SOURCE, target=TARGET)
    bert = trace(load_model(str(write_bert(tmp_path / "bert", head=False))), PROMPT)
    batch = trace(load_model("classic", device="cpu"), ["dog bites man", DISK[:20]])
    for t in (t5, bert, batch):
        how = {"selection": Selection(heads=(0, 1))} if t is batch else {}
        tab = opened(t, width=700, height=400, **how)
        first, last = tab.evaluate(EVERYWHERE % (len(t.program.sites), 3, 40), 60)
        assert first.split("[")[0] in ("tokens", "source_tokens")
        assert last != first
        quiet(tab)


def test_nan_is_said_and_ranks_no_token(opened, model) -> None:
    spoilt = {**model.weights, "blocks.2.mlp.down.weight": model.weights["blocks.2.mlp.down.weight"] * torch.nan}
    t = trace(Model.from_weights(model.config, spoilt), [5, 6, 7])
    tab = opened(t)
    told = go(tab, "blocks.3.resid_post[b=0,p=1,d=3]", "heatmap")
    assert {cell for _, *cells in told["rows"] for cell in cells} == {"NaN"}
    tab.evaluate("layerstep.go('logits[b=0,p=2,v=0]', 'ranked')")
    tab.painted()
    assert "not finite" in tab.evaluate("document.querySelector('.stage').textContent")
    quiet(tab)


def test_what_is_rounded_and_what_is_missing_is_said(opened, walked) -> None:
    tab = opened(walked, dtype="float16", selection=Selection(layers=(1,)))
    said = tab.evaluate("document.body.textContent")
    assert "Numbers are rounded to float16" in said
    assert "Only these layers were chosen for this file (--layers): 1." in said
    told = go(tab, CELL, "heatmap")
    value = float(walked[CELL].half())
    assert told["value"] == exact(value)
    quiet(tab)


def test_a_tour_is_walked_with_its_answers_hidden(opened, walked) -> None:
    text = TOUR.replace("NARRATION", '"It is **{value:embed[b=0,p=1,d=2]}**."')
    tab = opened(walked, tour=parse_tour(text.encode(), "t.toml"))
    number = f"{float(walked['embed[b=0,p=1,d=2]']):#.3g}".rstrip(".")
    assert tab.evaluate("document.querySelector('.narration strong').textContent") == number
    assert not tab.evaluate("document.querySelector('details.answer').open")
    tab.press("Enter")  # first the answer, as in the app; another one would go on
    assert tab.evaluate("document.querySelector('details.answer').open")
    assert walked.top(1, pos=8)[0].label in tab.evaluate("document.querySelector('details.answer').textContent")
    quiet(tab)


def test_it_prints_what_is_shown_or_each_stop_of_a_tour_on_a_page(opened, walked) -> None:
    tour = parse_tour((TOUR + SECOND).replace("NARRATION", '"Here."').encode(), "t.toml")
    for more, pages in (({}, 1), ({"tour": tour}, len(tour.stops))):
        tab = opened(walked, CELL, **more)
        printed = PdfReader(io.BytesIO(tab.pdf())).pages
        assert len(printed) == pages
        assert "pattern" in printed[-1].extract_text()
        quiet(tab)


def test_a_phone_scrolls_no_page_sideways(opened, walked) -> None:
    tab = opened(walked, CELL, width=390, height=844)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    quiet(tab)
