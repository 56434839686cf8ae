"""What a notebook shows of a trace, a picture and an explanation: right, and safe whatever the tokens are."""

from __future__ import annotations

import base64
import io
import json
import re

import numpy as np
import pytest
import torch
from chromium import chromium
from exported import HOSTILE, KINDS, hostile, of_kind, walked
from marked import Seen
from PIL import Image
from tiny import MODERN

from engine import Trace, explain, open_trace, show, trace
from engine.analysis.chain import chain
from engine.errors import AddressError
from engine.htmltext import pixels
from engine.pictures import views_of
from engine.sites import Address
from engine.summary import summary
from engine.text import display

CELL = "blocks.2.attn.pattern[b=0,h=3,q=5,k=2]"


def pictures(t: Trace) -> list[tuple[str, str]]:
    """An address and a view for every kind of picture that a trace has."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for site in t.program.sites:
        for view in views_of(t, site) if "past" not in site.axes else ():
            index = "[h=0,q=0,k=0]" if view.kind == "chain" else ""
            found.setdefault((view.kind, view.name), (site.name + index, view.name))
    return list(found.values())


@pytest.mark.parametrize("kind", ["walked", "hostile", *KINDS])
def test_every_picture_is_safe_and_whole_html(kind: str) -> None:
    t = {"walked": walked, "hostile": hostile}.get(kind, lambda: of_kind(kind))()
    for at, view in pictures(t):
        seen = Seen(show(t, at, view)._repr_html_())
        assert not seen.troubles, (at, view)
        assert seen.text


@pytest.mark.parametrize("kind", ["walked", "hostile", *KINDS])
def test_a_trace_shows_its_tokens_what_comes_next_and_its_sites(kind: str) -> None:
    t = {"walked": walked, "hostile": hostile}.get(kind, lambda: of_kind(kind))()
    seen = Seen(t._repr_html_())
    assert not seen.troubles
    for row in (*t.tokens, *t.source_tokens):
        for token in row:
            assert token.label in seen.texts
    for candidate in t.top(5):
        assert display(candidate.label) in seen.texts
        assert f"{candidate.prob:.4f}" in seen.texts
    assert {site.name for site in t.program.sites} <= set(seen.texts)
    assert display(t.config.name) in seen.text


def test_the_numbers_of_a_heatmap_are_those_of_the_trace() -> None:
    t = walked()
    html = show(t, "blocks.2.attn.pattern[h=3]")._repr_html_()
    own = t["blocks.2.attn.pattern[b=0,h=3]"]
    pointed = re.findall(r'title="[^"]*: ([^"]*)"', html)
    shown = [own[q, k] for q in range(6) for k in range(q + 1)]  # the others are masked
    assert [np.float32(text) for text in pointed] == [value.numpy() for value in shown]
    assert html.count('title="masked"') == 15


def test_what_is_not_finite_is_named_and_marked() -> None:
    seen = Seen(show(of_kind("nan"), "blocks.1.mlp_out")._repr_html_())
    assert "NaN" in seen.texts
    assert {"∞", "−∞"} & set(seen.texts)
    assert "NOT FINITE" in seen.text
    assert "no next token: the logits there are not finite" in Seen(of_kind("nan")._repr_html_()).texts


def test_a_large_plane_is_thinned_and_says_so(tiny) -> None:
    t = trace(tiny(dtype=torch.float32, **MODERN | {"n_ctx": 700}), [1] * 600)
    html = show(t, "blocks.1.attn.pattern[h=1]")._repr_html_()
    seen = Seen(html)
    assert not seen.troubles
    assert len(html) < 400_000
    assert (
        "600 × 600 cells, every second row and column as a dot; numbers of the first and last ones below" in seen.text
    )
    assert seen.tags.count("td") < 2000


def test_a_picture_in_dots_is_a_png_of_the_values() -> None:
    img = pixels([[0.0, 0.5, 1.0], [-1.0, float("nan"), float("-inf")]], 1.0, "dots", 60)
    data = base64.b64decode(img.get("src", "").removeprefix("data:image/png;base64,"))
    with Image.open(io.BytesIO(data)) as picture:
        assert (picture.size, picture.mode) == ((3, 2), "RGBA")
        dots = np.asarray(picture)
    assert dots[..., 3].tolist() == [[0, 128, 255], [255, 255, 0]]
    assert len({tuple(dot[:3]) for dot in (dots[0, 2], dots[1, 0], dots[1, 1])}) == 3


@pytest.mark.parametrize("kind", ["walked", "hostile", "encoder-decoder", "experts", "nan"])
def test_an_explanation_says_what_the_app_says(kind: str) -> None:
    t = {"walked": walked, "hostile": hostile}.get(kind, lambda: of_kind(kind))()
    for row in summary(t)["steps"]:
        told = explain(t, row["site"])
        assert (told.title, told.formula, told.latex, told.story) == (
            row["title"], row["formula"], row["latex"], row["story"],
        )  # fmt: skip
        assert (told.numbers, list(told.axes), list(told.shape)) == (row["numbers"], row["axes"], row["shape"])
        assert (told.dtype, told.on_path) == (row["dtype"], row["on_path"])
        assert [read.site for read in told.reads] == row["reads"]
        assert list(told.params) == row["params"]
        assert not Seen(told._repr_html_()).troubles


def test_an_explanation_of_a_cell_has_its_value_its_tokens_and_its_way() -> None:
    t, told = walked(), explain(walked(), "blocks.2.attn.hook_pattern[h=3,q=-1,k=2,b=0]")
    assert told.address == CELL
    assert told.value == float(t[CELL])
    assert np.float32(told.exact) == t[CELL].numpy()
    assert [(place.axis, place.index, place.of, place.label) for place in told.where] == [
        ("batch", 0, 1, ""), ("head", 3, 8, ""), ("query", 5, 6, "␣again"), ("key", 2, 6, "␣disk"),
    ]  # fmt: skip
    assert list(told.stages) == chain(t, Address.parse(CELL))
    assert told.exact in Seen(told._repr_html_()).texts
    assert told.exact in str(told)
    assert json.loads(json.dumps(told.to_json()))["stages"][-1]["label"] == "pattern"


def test_a_masked_cell_says_that_it_is_masked() -> None:
    told = explain(walked(), "blocks.2.attn.pattern[b=0,h=3,q=1,k=4]")
    assert (told.value, told.exact) == (0.0, "0.0 (masked)")
    assert told.stages[-1].state == "masked"


def test_a_tensor_without_a_cell_has_figures_in_place_of_a_value() -> None:
    t = walked()
    told = explain(t, "blocks.1.resid_post[p=2]")
    assert told.value is None
    assert told.stats["norm"] == pytest.approx(float(t["blocks.1.resid_post"][0, 2].double().norm()))
    assert f"norm {told.stats['norm']:.4g}" in str(told)


def test_whole_numbers_are_explained_too() -> None:
    told = explain(walked(), "tokens[p=2]")
    assert told.value == walked().tokens[0][2].id
    assert told.title == "Token ids"


def test_without_weights_the_words_stay_and_the_trouble_is_said(tmp_path) -> None:
    t = walked()
    t.save(tmp_path / "t.trace.safetensors")
    bare = open_trace(tmp_path / "t.trace.safetensors")
    told = explain(bare, "blocks.1.attn.result[h=0]")
    assert told.title == explain(t, "blocks.1.attn.result").title
    assert "needs the weight" in told.trouble
    assert told.trouble in str(told)
    assert told.trouble in Seen(told._repr_html_()).texts
    assert not Seen(bare._repr_html_()).troubles


@pytest.mark.parametrize("address", ["blocks.9.attn.q", "blocks.0.attn.q[h=99]", "blocks.0.attn.q[x=1]", "<script>"])
def test_an_address_that_is_not_there_is_one_line(address: str) -> None:
    for ask in (explain, show):
        with pytest.raises(AddressError) as error:
            ask(walked(), address)
        assert "\n" not in str(error.value)


def test_chromium_shows_every_text_and_runs_none(tmp_path) -> None:
    t = hostile()
    parts = [t._repr_html_(), show(t, "blocks.0.attn.pattern[h=0]")._repr_html_(), show(t, "tokens")._repr_html_(),
             explain(t, "blocks.0.attn.pattern[h=0,q=3,k=1]")._repr_html_()]  # fmt: skip
    page = tmp_path / "cells.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><title>as it was</title><body>{''.join(parts)}</body>")
    with chromium() as browser:
        opened = browser.open(page)
        assert opened.evaluate("document.title") == "as it was"
        assert opened.evaluate("document.querySelectorAll('script, iframe, a, object, svg').length") == 0
        shown = opened.evaluate("document.body.textContent")
        width = opened.evaluate("document.querySelector('.layerstep').scrollWidth")
    for text in HOSTILE:
        assert display(text).replace(" ", "␣")[:12] in shown.replace(" ", "␣")
    assert width <= 1280
