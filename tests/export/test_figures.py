"""Figures: the picture's own numbers, in files that other programs read, whatever the tokens are."""

from __future__ import annotations

import io
import math
import struct
import xml.etree.ElementTree as ET
from functools import lru_cache
from xml.sax.saxutils import unescape

import numpy as np
import pytest
import torch
from exported import KINDS, exported, hostile, of_kind, walked, with_tokens
from matplotlib.collections import LineCollection, PathCollection, PolyCollection, QuadMesh
from tiny import ARCHITECTURES, tiny

from engine import Trace, load_model, trace
from engine.analysis.cachecost import cache_bytes
from engine.errors import ExportError
from engine.export.figures import draw, letters
from engine.export.figures.cells import Cells, Kind, Scale
from engine.export.figures.costs import step_costs
from engine.export.figures.style import SHEETS
from engine.export.formats import FigureStyle
from engine.pictures import Wish, picture, views_of
from engine.place import Place

PATTERN = "blocks.1.attn.pattern"
COLUMN = FigureStyle(size="column")
SVG = "{http://www.w3.org/2000/svg}"


@lru_cache(maxsize=2)
def sample(name: str) -> Trace:
    return trace(load_model(name, device="cpu"), "The disk was full")


def drawn(t: Trace, at: str, view: str | None = None, style: FigureStyle = COLUMN, **more):
    return draw.figure(Wish(t, at, view, **more), style)


def artists(figure, kind: type, gid: str | None = None) -> list:
    return [found for axes in figure.axes for found in axes.findobj(kind) if gid is None or found.get_gid() == gid]


def texts(figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def cells_of(mesh: QuadMesh) -> np.ndarray:
    """The numbers of a mesh, NaN where it has no cell."""
    return np.ma.filled(mesh.get_array().astype(float), math.nan)


# -- what is drawn are the picture's numbers -----------------------------------------------------------------------


def test_a_heatmap_has_the_weights_of_its_head_and_no_colour_where_they_are_masked():
    t = walked()
    figure = drawn(t, f"{PATTERN}[h=2]")
    [mesh] = artists(figure, QuadMesh)
    expected = t[PATTERN][0, 2].double()
    above = torch.ones_like(expected).triu(1).bool()
    np.testing.assert_array_equal(cells_of(mesh), expected.masked_fill(above, math.nan).numpy())
    assert mesh.norm.vmax == float(expected.max())
    assert mesh.norm.vmin == 0
    hatched = [found for found in artists(figure, PolyCollection) if found.get_hatch()]
    assert len(hatched) == 1
    areas = [np.ptp(path.vertices[:, 0]) * np.ptp(path.vertices[:, 1]) for path in hatched[0].get_paths()]
    assert sum(areas) == int(above.sum())
    assert "masked" in texts(figure)


def test_a_difference_has_zero_in_the_middle_of_a_scale_of_both_signs():
    t = walked()
    x = t[PATTERN][0].double()
    [mesh] = artists(drawn(t, f"{PATTERN}[h=2]", "heatmap", minus=f"{PATTERN}[h=1]"), QuadMesh)
    above = torch.ones_like(x[0]).triu(1).bool()
    np.testing.assert_allclose(cells_of(mesh), (x[2] - x[1]).masked_fill(above, math.nan).numpy(), atol=1e-7)
    assert mesh.norm.vmin == -mesh.norm.vmax


def test_bars_are_as_high_as_the_numbers():
    t = walked()
    [bars] = artists(drawn(t, f"{PATTERN}[h=2,q=3]", "row"), PolyCollection, "bars")
    heights = [path.vertices[:, 1].max() for path in bars.get_paths()]
    assert heights == pytest.approx(t[PATTERN][0, 2, 3, :4].tolist())
    [bars] = artists(drawn(t, "blocks.1.resid_post[p=2]", "row"), PolyCollection, "bars")
    ends = [min(path.vertices[:, 1], key=lambda y: -abs(y)) for path in bars.get_paths()]
    assert ends == pytest.approx(t["blocks.1.resid_post"][0, 2].tolist())


def test_every_head_has_a_tile_with_its_weights():
    t = walked()
    figure = drawn(t, PATTERN, "heads")
    x = t[PATTERN][0].double()
    above = torch.ones_like(x[0]).triu(1).bool()
    planes = [x.mean(0), x.amax(0), *x]
    meshes = artists(figure, QuadMesh)
    assert len(meshes) == len(planes)
    for mesh, plane in zip(meshes, planes, strict=True):
        np.testing.assert_allclose(cells_of(mesh), plane.masked_fill(above, math.nan).numpy(), atol=1e-6)
    assert {f"head {h}" for h in range(len(x))} <= set(texts(figure))


def test_arcs_go_from_each_query_to_its_keys():
    t = walked()
    [arcs] = artists(drawn(t, f"{PATTERN}[h=1]", "arcs"), LineCollection, "arcs")
    weights = t[PATTERN][0, 1]
    expected = {(i, j) for i in range(t.length) for j in range(i) if weights[i, j] > 0.02 * float(weights.max())}
    found = {(round(max(x) - 0.5), round(min(x) - 0.5)) for x in (line[:, 0] for line in arcs.get_segments())}
    assert found == expected
    thick = dict(zip([(round(s[:, 0].max() - 0.5), round(s[:, 0].min() - 0.5)) for s in arcs.get_segments()],
                     arcs.get_linewidths(), strict=True))  # fmt: skip
    strong, weak = (f(expected, key=lambda ij: float(weights[ij])) for f in (max, min))
    assert thick[strong] > thick[weak]


def test_the_chain_shows_the_same_cells_in_every_stage_with_the_number_of_one():
    t = walked()
    figure = drawn(t, f"{PATTERN}[h=1,q=3,k=2]", "chain", FigureStyle(size="page"))
    names = [f"blocks.1.attn.{name}" for name in ("scores", "scaled", "masked", "pattern")]
    meshes = artists(figure, QuadMesh)
    assert len(meshes) == len(names)
    for mesh, name in zip(meshes, names, strict=True):
        plane = t[name][0, 1].double()
        np.testing.assert_allclose(cells_of(mesh)[3, :4], plane[3, :4].numpy(), rtol=1e-6)
        assert f"{float(plane[3, 2]):.4g}".replace("-", "−") in texts(figure)


def test_the_lens_has_the_models_own_prediction_in_its_last_column():
    t = walked()
    figure = drawn(t, "blocks.0.resid_pre", "lens", FigureStyle(size="slide"))
    [mesh] = artists(figure, QuadMesh)
    top = [t.top(1, pos=pos)[0] for pos in range(t.length)]
    assert cells_of(mesh)[:, -1] == pytest.approx([candidate.prob for candidate in top], rel=1e-5)
    assert {letters.plain(candidate.label) for candidate in top} <= set(texts(figure))


def test_norms_are_the_lengths_of_the_stream():
    t = walked()
    [mesh] = artists(drawn(t, "blocks.0.resid_pre", "norms"), QuadMesh)
    assert cells_of(mesh)[:, 0] == pytest.approx(t["blocks.0.resid_pre"][0].norm(dim=-1).tolist(), rel=1e-5)


def test_curves_are_dimensions_along_positions():
    t = walked()
    figure = drawn(t, "rotary_cos", "curves")
    lines = [line for axes in figure.axes for line in axes.lines if len(line.get_xdata()) == t.length]
    table = t["rotary_cos"][0]
    assert len(lines) >= 4
    for line in lines:
        assert any(torch.equal(torch.tensor(line.get_ydata(), dtype=table.dtype), table[:, d]) for d in range(8))


def test_the_cache_grows_by_what_the_formula_says_after_every_pass():
    t = walked()
    figure = draw.figure(draw.ordered(order(t, "kv-growth")), COLUMN)
    [passes] = artists(figure, PathCollection, "passes")
    expected = [[p.stop, cache_bytes(t.config, p.stop, 4)] for p in t.passes]
    assert passes.get_offsets().tolist() == expected
    config = t.config
    assert expected[-1][1] == 2 * config.n_layers * config.kv_heads * config.d_head * 4 * t.length


def test_costs_are_those_of_the_products_that_a_pass_computes():
    t = sample("modern")
    config, n = t.config, t.length
    costs = {step.name: step for step in step_costs(t, [0])}
    d_attn = config.n_heads * config.d_head
    assert costs["attn.q"].cost.flops == config.n_layers * 2 * n * config.d_model * d_attn
    assert costs["mlp_out"].cost.flops == config.n_layers * 2 * n * config.d_mlp * config.d_model
    touched = n * config.d_model + config.d_model * d_attn + n * d_attn
    assert costs["attn.q"].cost.bytes == 4 * config.n_layers * touched
    assert sum(step.cost.flops for step in costs.values()) == t.program.flops(t.sizes(0))


def test_points_of_a_roofline_lie_on_the_roof_of_the_peaks_that_are_said():
    t = sample("modern")
    subject = draw.ordered(order(t, "roofline", peaks=(5e12, 2e11)))
    [points] = artists(draw.figure(subject, COLUMN), PathCollection, "pass 0")
    found = np.asarray(points.get_offsets())
    assert found[:, 1] == pytest.approx(np.minimum(5e12, 2e11 * found[:, 0]))
    expected = [step.intensity for step in step_costs(t, [0]) if step.cost.flops and step.cost.bytes]
    assert found[:, 0] == pytest.approx(expected)
    assert "as given: 5 TFLOP/s and 200 GB/s" in draw.caption(subject)
    assert not [text for text in texts(draw.figure(subject, COLUMN)) if "assumed" in text]
    assumed = order(t, "roofline")
    assert "assumed peaks, of no machine in particular" in draw.caption(assumed)
    assert "Nothing here was timed" in draw.caption(assumed)
    assert "assumed peak: 1 TFLOP/s" in texts(draw.figure(assumed)), "in the picture too"


def order(t: Trace, view: str, **style):
    from engine.export.order import Order

    return Order(t, "svg", view=view, style=FigureStyle(size="column", **style))


# -- what is no number, and what is too much -----------------------------------------------------------------------


def test_cells_that_are_no_numbers_are_told_apart():
    found = Cells.of(np.array([[1.0, math.nan, math.inf], [-math.inf, -2.0, 0.0]]), masks=False)
    assert found.kinds.tolist() == [[Kind.NUMBER, Kind.NAN, Kind.ABOVE], [Kind.BELOW, Kind.NUMBER, Kind.NUMBER]]
    assert Cells.of(np.array([[-math.inf]]), masks=True).kinds.tolist() == [[Kind.MASKED]]


def test_nan_and_infinity_are_hatched_and_named():
    t = of_kind("nan")
    figure = drawn(t, "blocks.1.resid_post", "heatmap", FigureStyle(size="page"))
    x = t["blocks.1.resid_post"][0]
    assert bool(x.isnan().any())
    assert "NaN" in texts(figure)
    shown = cells_of(artists(figure, QuadMesh)[0])
    np.testing.assert_array_equal(np.isnan(shown), ~x.isfinite().numpy())
    assert f"{int(x.isnan().sum())} nan" in draw.caption(Wish(t, "blocks.1.resid_post", "heatmap"))


def test_cells_share_one_where_there_are_too_many_and_none_that_is_large_or_bad_is_lost():
    values = np.zeros((1000, 700))
    values[501, 333], values[2, 2], values[999, 699] = -7.0, math.nan, 3.0
    found = Cells.of(values, masks=False).shrunk((500, 500))
    assert (found.shape, found.bins) == ((500, 350), (2, 2))
    assert found.values[250, 166] == -7.0
    assert found.values[499, 349] == 3.0
    assert found.kinds[1, 1] == Kind.NAN
    assert int((found.kinds != Kind.NUMBER).sum()) == 1


def test_a_long_text_is_drawn_as_an_image_and_says_how_many_share_a_cell():
    t = trace(tiny(dtype=torch.float32, n_ctx=600, **ARCHITECTURES["modern"]), [i % 37 for i in range(520)])
    wish = Wish(t, f"{PATTERN}[h=0]", "heatmap")
    image = draw.figure(wish, COLUMN).axes[0].images[0]
    assert image.get_array().shape == (260, 260)
    assert "farthest from 0 of 2 × 2" in draw.caption(wish)
    weights = t[PATTERN][0, 0].double().numpy()
    binned = weights.reshape(260, 2, 260, 2).max(axis=(1, 3))
    there = ~image.get_array().mask
    np.testing.assert_array_equal(image.get_array()[there], binned[there])
    names = [text for text in draw.figure(wish, COLUMN).texts if "‹id" in text.get_text()]
    assert 0 < len(names) < 150, "thinned"


def test_colours_are_not_washed_out_by_one_number_and_say_so():
    values = np.append(np.linspace(-1, 1, 1000), 500.0)
    scale = Scale.of([values])
    assert scale.beyond
    assert scale.limit < 2
    assert Scale.of([np.linspace(-1, 1, 1000)]) == Scale(1.0, True, False)


def test_a_picture_of_too_many_numbers_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(draw, "MOST_NUMBERS", 10)
    with pytest.raises(ExportError, match=r"has 36 values; name a part of it$"):
        drawn(walked(), f"{PATTERN}[h=0]", "heatmap")


# -- files ---------------------------------------------------------------------------------------------------------


def comments_and_text(data: bytes) -> str:
    """All text of an SVG; that of outlined letters stands beside them in a comment, escaped once more."""
    root = ET.fromstring(data, ET.XMLParser(target=ET.TreeBuilder(insert_comments=True)))
    comments = (unescape(node.text or "") for node in root.iter() if node.tag is ET.Comment)
    return "\n".join([*("".join(node.itertext()) for node in root.iter()), *comments])


@pytest.mark.parametrize("view", ["heatmap", "arcs", "text", "chain"])
@pytest.mark.parametrize("font", ["outlined", "text"])
def test_an_svg_is_xml_and_has_the_tokens_whatever_they_are(view, font):
    t = with_tokens(trace(tiny(dtype=torch.float32, **ARCHITECTURES["modern"]), list(range(6))), HOSTILE)
    data = exported(t, "svg", at=f"{PATTERN}[h=1]", view=view, style=FigureStyle(size="page", font=font))
    root = ET.fromstring(data)
    assert root.tag == f"{SVG}svg"
    assert not [node for node in root.iter() if node.tag.rpartition("}")[2] in ("script", "a", "foreignObject")]
    links = {value for node in root.iter() for name, value in node.items() if name.endswith("href")}
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links), "nothing from outside"
    there = comments_and_text(data)
    for token in t.tokens[0]:
        shown = letters.plain(token.label)
        assert shown[:6].replace("--", "- -") in there.replace("--", "- -"), token.label
    if font == "text":
        written = {"".join(node.itertext()) for node in root.iter(f"{SVG}text")}
        assert any("$x_1^2$" in text for text in written), "no formula is read in a token"


HOSTILE = ("</svg><script>", "a & b", "$x_1^2$", "\x00\x1b[31m", "漢👩\u202e", "שלום ]]> --")


def test_a_pdf_has_its_font_in_it_and_text_that_can_be_searched():
    from pypdf import PdfReader

    t = walked()
    reader = PdfReader(io.BytesIO(exported(t, "pdf", at=f"{PATTERN}[h=2]", style=COLUMN)))
    [page] = reader.pages
    said = page.extract_text()
    for token in t.tokens[0]:
        assert token.label.removeprefix("␣") in said
    for font in page["/Resources"]["/Font"].values():
        kind = font.get_object()
        kind = kind["/DescendantFonts"][0].get_object() if "/DescendantFonts" in kind else kind
        assert "/FontFile2" in kind["/FontDescriptor"], "embedded as TrueType"
    width, height = (float(side) / 72 for side in page.mediabox[2:])
    assert width == pytest.approx(SHEETS["column"].width, abs=0.01)
    assert height <= SHEETS["column"].most + 1
    assert reader.metadata["/Title"] == "attn.pattern of block 1, head 2"
    assert "/CreationDate" not in reader.metadata


def test_a_png_of_a_slide_is_full_hd():
    data = exported(walked(), "png", at=f"{PATTERN}[h=2]")
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (1920, 1080)


@pytest.mark.parametrize("to", ["svg", "pdf", "png"])
def test_the_same_order_gives_the_same_bytes_whatever_the_user_has_set(to):
    import matplotlib

    how = {"at": f"{PATTERN}[h=2]", "style": FigureStyle(size="column", caption="text")}
    first = exported(walked(), to, **how)
    with matplotlib.rc_context({"svg.fonttype": "none", "font.size": 31, "axes.grid": True, "lines.linewidth": 9}):
        assert exported(walked(), to, **how) == first
        assert matplotlib.rcParams["font.size"] == 31, "and these stay as they were"
    assert "matplotlib.pyplot" not in __import__("sys").modules


def test_letters_that_the_font_lacks_are_code_points():
    assert letters.plain("漢\x1bé👩") == "‹U+6F22›‹U+001B›é‹U+1F469›"
    assert letters.plain("a\u202eb\ud83d") == "a‹U+202E›b‹U+D83D›"


def test_text_is_cut_and_broken_where_it_is_too_wide():
    assert letters.fit("short", 5, 10) == "short"
    cut = letters.fit("a" * 200, 1.0, 10)
    assert cut.endswith("…")
    assert 0.9 < letters.width(cut, 10) <= 1.0
    lines = letters.wrap("one two three four five " + "x" * 80, 1.0, 10)
    assert all(letters.width(line, 10) <= 1.0 for line in lines)
    assert "".join(lines).replace(" ", "") == "onetwothreefourfive" + "x" * 80


def overlaps(figure) -> list[tuple[str, str]]:
    """Pairs of level or upright texts that cover one another."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in figure.texts
             if text.get_text() and text.get_rotation() in (0, 90)]  # fmt: skip
    return [
        (a, b)
        for i, (a, one) in enumerate(boxes)
        for b, other in boxes[i + 1 :]
        if min(one.x1, other.x1) - max(one.x0, other.x0) > 2 and min(one.y1, other.y1) - max(one.y0, other.y0) > 4
    ]


@pytest.mark.parametrize("size", ["slide", "column"])
@pytest.mark.parametrize("view", ["heatmap", "chain", "heads", "text"])
def test_no_text_lies_over_another_or_outside_however_many_tokens_there_are(size, view):
    for n in (5, 60):
        t = trace(tiny(dtype=torch.float32, **ARCHITECTURES["modern"]), [i % 37 for i in range(n)])
        at = PATTERN if view == "heads" else f"{PATTERN}[h=1]"
        figure = drawn(t, at, view, FigureStyle(size=size))
        assert overlaps(figure) == []
        width, height = figure.get_size_inches()
        for text in figure.texts:
            x, y = text.get_position()
            assert -0.01 <= x <= width + 0.01
            assert -0.01 <= y <= height + 0.01


# -- every view ----------------------------------------------------------------------------------------------------


def every_view(t: Trace):
    """Each view once for each two axes that it spreads out; those of attention both before and after the mask."""
    seen = set()
    for site in t.program.sites:
        if "past" in site.axes or not t.can_have(site.name, 0):
            continue
        for view in views_of(t, site, 0):
            key = (view.name, *view.spread, view.look and "head" in site.axes and site.name.endswith("pattern"))
            if key not in seen:
                seen.add(key)
                yield site.name, view


@pytest.mark.parametrize("name", ["modern", "classic"])
def test_every_view_of_a_sample_can_be_drawn(name):
    t, count = sample(name), 0
    for site, view in every_view(t):
        shown = picture(Wish(t, site, view.name))
        assert draw.figure(shown, COLUMN).axes or view.kind in ("tokens", "list", "ranked"), (site, view.name)
        assert draw.caption(shown)
        count += 1
    assert count > 20


@pytest.mark.parametrize("kind", [*KINDS, "hostile", "bert"])
def test_every_kind_of_trace_can_be_drawn(kind):
    if kind == "bert":
        t = trace(tiny(dtype=torch.float32, **ARCHITECTURES["bert"]), [3, 1, 4])
    else:
        t = hostile() if kind == "hostile" else of_kind(kind)
    for site, view in [*every_view(t)][:: 4 if kind in ("nan", "encoder-decoder", "hostile") else 9]:
        figure, file = draw.figure(Wish(t, site, view.name), COLUMN), io.BytesIO()
        figure.savefig(file, format="svg")
        ET.fromstring(file.getvalue())


def test_an_address_without_a_view_is_drawn_by_its_axes():
    t = walked()
    for at in ("blocks.0.attn.q", "blocks.0.attn.pattern[q=0:0]", "logits[p=1,v=2]", "logits[p=1]", "tokens", PATTERN):
        draw.figure(picture(Wish(t, at)), COLUMN)


def test_more_planes_than_a_figure_can_have_are_refused(monkeypatch):
    monkeypatch.setattr("engine.export.figures.planes.TILES", 5)
    shown = picture(Wish(walked(), "blocks.0.attn.q"))
    with pytest.raises(ExportError, match="6 planes over pos, and a figure has at most 5"):
        draw.figure(shown, COLUMN)


@pytest.mark.parametrize("wrong", [{"size": "poster"}, {"palette": "jet"}, {"theme": "\x1b[1m"}, {"font": "x"}])
def test_a_style_that_there_is_not_is_refused_with_those_there_are(wrong):
    with pytest.raises(ExportError, match=r"a figure has no .*; there is ") as error:
        drawn(walked(), PATTERN, "heads", FigureStyle(**wrong))
    assert str(error.value).isprintable()


def test_figures_of_a_trace_are_refused_where_they_mean_nothing():
    with pytest.raises(ExportError, match="looks both ways"):
        draw.ordered(order(trace(tiny(**ARCHITECTURES["bert"]), [3, 1, 4]), "kv-growth"))
    with pytest.raises(ExportError, match="there is kv-growth, cost, roofline"):
        draw.ordered(order(sample("modern"), "nonsense"))
    with pytest.raises(ExportError, match="both from 1 to 1e30"):
        draw.ordered(order(sample("modern"), "roofline", peaks=(0.0, 1.0)))


# -- captions ------------------------------------------------------------------------------------------------------


def test_a_caption_says_what_is_shown_from_where_and_what_was_taken():
    t = walked()
    said = draw.caption(Wish(t, PATTERN, "arcs"))
    for part in ("attn.pattern of block 1, head 0", "p = eˢ / Σ eˢ", "Of head 0 of 8", "Model modern", "“The disk"):
        assert part in said
    assert "cells are masked" in said
    latex = draw.caption(Wish(t, PATTERN, "arcs"), "latex")
    assert r"$P_{ij} = \frac{" in latex
    assert "``The disk" in latex
    with pytest.raises(ExportError, match="text or latex"):
        draw.caption(Wish(t, PATTERN, "arcs"), "html")


def test_a_caption_stands_under_the_figure_where_it_is_wanted_and_always_in_the_file():
    how = {"at": f"{PATTERN}[h=2]"}
    without = exported(walked(), "svg", style=FigureStyle(size="column"), **how)
    there = exported(walked(), "svg", style=FigureStyle(size="column", caption="text"), **how)
    heights = [float(ET.fromstring(data).get("height").removesuffix("pt")) for data in (without, there)]
    assert heights[1] > heights[0] + 10
    described = ET.fromstring(without).find(".//{http://purl.org/dc/elements/1.1/}description")
    assert described.text == draw.caption(Wish(walked(), how["at"], "heatmap"))


def test_a_place_of_a_picture_is_what_the_engine_has():
    t = walked()
    shown = picture(Wish(t, f"{PATTERN}[h=2]", "heatmap"))
    assert isinstance(shown.place, Place)
    assert torch.equal(shown.place.tensor, t[PATTERN][0, 2])
