"""What the screens say, at two sizes: assertions on lines of text, not on whole snapshots."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from fake_engine import FakeEngine
from helpers import go, main_of, picture, running, settled, text_of
from rich.cells import cell_len

from tui.state.answers import Check
from tui.state.block import EVERYTHING, Stats
from tui.state.numbers import short
from tui.widgets.heatmap import Heatmap

DARK, LIGHT = "layerstep-dark", "layerstep-light"
LOOKS = [
    ((80, 24), DARK),
    ((80, 24), LIGHT),
    ((160, 45), DARK),
    ((160, 45), LIGHT),
    ((60, 20), DARK),
    ((400, 120), LIGHT),
]
SITES = [
    "tokens", "positions", "embed", "rotary_cos", "blocks.0.ln1.scale", "blocks.0.attn.q", "blocks.0.attn.cache_k",
    "blocks.0.attn.scores", "blocks.1.attn.masked", "blocks.1.attn.pattern", "blocks.1.attn.z", "blocks.1.attn.result",
    "blocks.1.mlp.post", "logits", "probs",
]  # fmt: skip


@pytest.mark.parametrize(("size", "theme"), LOOKS)
async def test_every_view_fills_the_screen_exactly(size: tuple[int, int], theme: str) -> None:
    async with running(size=size, theme=theme) as (app, pilot):
        for site in SITES:
            await go(app, pilot, site)
            lines = text_of(app)
            assert len(lines) == size[1]
            assert {cell_len(line) for line in lines} == {size[0]}
            name = main_of(app).here[0].by_site[site].name
            assert f"{name} ─" in lines[1]
            assert f"step {main_of(app).here[1].step + 1}/" in lines[0]
            if size[0] >= 80:
                assert any("▌" in line and name in line for line in lines), "the cursor's step is visible in the tree"


async def test_the_cursor_stays_in_sight_however_far_it_jumps() -> None:
    async with running(size=(80, 24), engine=FakeEngine(layers=4)) as (app, pilot):
        trace = main_of(app).here[0]
        for site in (
            "blocks.3.attn.pattern",
            "tokens",
            "blocks.1.resid_post",
            "probs",
            "blocks.0.attn.z",
            "blocks.3.attn.z",
        ):
            await go(app, pilot, site)
            assert any("▌" in line and trace.by_site[site].name in line for line in text_of(app)), site
        await pilot.press("slash")
        await settled(pilot)
        assert any("▌ blocks.3.attn.z" in line for line in text_of(app))


async def test_attention_at_80_by_24() -> None:
    async with running(size=(80, 24)) as (app, pilot):
        await go(app, pilot, "blocks.1.attn.pattern")
        shown = "\n".join(text_of(app))
        assert "block 1 · attention · pattern" in shown
        assert "p = eˢ / Σ eˢ" in shown  # the caption, since the explanation is hidden
        first = next(line for line in text_of(app) if "<|bos|>" in line and "·" in line)
        assert first.count("·") == 8  # the mask: the first token sees only itself
        assert re.search(r"0\.\d+ +query ␣full \(8\) · key ␣full \(8\)", shown)
        assert "[␣full]" in shown
        assert "→  . 0.16   ␣and 0.12" in shown


async def test_the_explanation_at_160_by_45() -> None:
    async with running(size=(160, 45)) as (app, pilot):
        await go(app, pilot, "blocks.1.attn.pattern")
        shown = "\n".join(text_of(app))
        for words in (
            "The pattern step",
            "p = eˢ / Σ eˢ",
            "9 tokens, d_model = 32",
            "out blocks.1.attn.pattern 4×9×9",
            "✓ rows sum to 1",
            "does not write this down",
        ):
            assert words in shown
        assert "head 0 of 4" in shown
        await go(app, pilot, "blocks.1.attn.z")
        assert "✗ pattern @ v = z" in "\n".join(text_of(app))
        await go(app, pilot, "blocks.1.attn.k")
        assert "kv head 0 of 2 · for heads 0–1" in "\n".join(text_of(app))


async def test_values_on_the_screen_are_the_engines() -> None:
    engine = FakeEngine()
    async with running(size=(160, 45), engine=engine) as (app, pilot):
        await go(app, pilot, "blocks.0.attn.scores")
        heatmap = picture(app)
        for row in range(9):
            label = re.escape(main_of(app).here[0].label(0, row))
            middle = (line.split("││")[1] for line in text_of(app) if line.count("││") == 2)
            line = next(part for part in middle if re.match(rf" *{label} .*\.", part))
            numbers = [float(n) for n in re.findall(r"-?\d*\.\d+", line)]
            exact = [
                engine.value("blocks.0.attn.scores", {"batch": 0, "head": 0, "query": row, "key": key})
                for key in range(9)
            ]
            assert numbers == pytest.approx(exact, abs=0.006)
        assert isinstance(heatmap, Heatmap)


async def test_a_large_pattern_is_fetched_in_windows() -> None:
    engine = FakeEngine(layers=1, heads=1, kv=1)
    prompt = " ".join(f"w{i}" for i in range(399))
    async with running(size=(100, 30), engine=engine, request={"model": "modern", "prompt": prompt}) as (app, pilot):
        await go(app, pilot, "blocks.0.attn.scores")
        asked = [params["address"] for method, params in engine.asked if method == "window"]
        sizes = [re.search(r"q=(\d+):(\d+),k=(\d+):(\d+)", address) for address in asked if "scores" in address]
        spans = [tuple(int(n) for n in found.groups()) for found in sizes if found]
        assert spans
        assert all((b - a) * (d - c) < EVERYTHING for a, b, c, d in spans)
        heatmap = picture(app)
        assert heatmap.block is not None
        assert heatmap.block.has(*heatmap.seen())
        assert heatmap.seen()[0][1] == 400  # the cursor's row is in sight
        count = len(asked)
        await pilot.press("up", "comma")  # inside the window: nothing is asked for
        await settled(pilot)
        assert sum(method == "window" for method, _ in engine.asked) == count
        heatmap.scroll_to(0, 0, animate=False, immediate=True)
        await settled(pilot)
        assert heatmap.seen() == ((0, heatmap.seen()[0][1]), (0, heatmap.seen()[1][1]))
        assert heatmap.block.has(*heatmap.seen())
        assert "┄" not in "\n".join(text_of(app))
        heatmap.scroll_to(10**6, 10**6, animate=False, immediate=True)
        await settled(pilot)
        assert heatmap.seen()[1][1] == 400
        assert len(heatmap._strips) < 2100


async def test_what_is_not_here_yet_is_marked() -> None:
    from fake_engine import MemoryLink

    link = MemoryLink()
    async with running(link=lambda: link) as (app, pilot):
        link.hold = True
        main_of(app).go_to_step(main_of(app).here[0].by_site["blocks.0.attn.scores"].index)
        await pilot.pause()
        assert "┄" in "\n".join(text_of(app))
        link.release()
        await settled(pilot)
        assert "┄" not in "\n".join(text_of(app))


async def test_non_finite_values_are_marked_and_counted() -> None:
    async with running(size=(160, 45), engine=FakeEngine(hostile=True)) as (app, pilot):
        await go(app, pilot, "blocks.0.attn.z")
        shown = "\n".join(text_of(app))
        assert "NaN" in shown
        assert "∞" in shown
        assert "8 not finite" in shown


async def test_shades_carry_the_sign_without_colour() -> None:
    async with running(size=(100, 30)) as (app, pilot):
        await go(app, pilot, "embed")
        if not main_of(app).shades:
            main_of(app).shades = False
        await pilot.press("c")
        for _ in range(9):
            await pilot.press("minus")
        shown = "\n".join(text_of(app))
        assert all(glyph in shown for glyph in "▓█=#")


async def test_no_ranking_from_values_that_are_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    monkeypatch.setattr(engine, "_top", lambda params: {"rows": [], "nonfinite": 7})
    async with running(engine=engine) as (app, pilot):
        await go(app, pilot, "logits")
        shown = "\n".join(text_of(app))
        assert "no ranking: 7 values" in shown
        assert "not finite: no next token" in shown


async def test_a_trace_without_logits_is_walked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    opened = engine._open

    def bare(params: dict[str, object]) -> dict[str, object]:
        summary = opened(params)
        summary["steps"] = [step for step in summary["steps"] if step["site"] not in ("logits", "probs", "tokens")]
        summary["tokens"] = []
        return summary

    monkeypatch.setattr(engine, "_open", bare)
    async with running(engine=engine) as (app, pilot):
        for _ in range(25):
            await pilot.press("right")
        await settled(pilot)
        assert main_of(app).here[1].step == 25


async def test_words_without_room_end_with_an_ellipsis() -> None:
    async with running(size=(80, 24)) as (app, pilot):
        await go(app, pilot, "tokens")
        assert any("added by" in line and "tokenizer" not in line and "…" in line for line in text_of(app))
    async with running(size=(160, 60)) as (app, pilot):
        await pilot.press("question_mark", "tab")
        await settled(pilot)
        assert any("Show or hide the explanation " in line for line in text_of(app))


async def test_the_scale_says_on_which_side_values_lie_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Stats.read
    monkeypatch.setattr(Stats, "read", lambda stats: replace(read(stats), low=-62.0, high=0.5, mean=0.0, std=1.0))
    async with running(size=(160, 45)) as (app, pilot):
        await go(app, pilot, "blocks.0.attn.z")
        shown = "\n".join(text_of(app))
        assert re.search(r"≤-\d", shown)
        assert "≥" not in shown


async def test_both_ends_of_the_scale_are_marked_where_values_lie_beyond_both(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Stats.read
    monkeypatch.setattr(Stats, "read", lambda stats: replace(read(stats), low=-48.0, high=86.6, mean=0.0, std=8.486))
    for size in ((80, 24), (160, 45)):
        async with running(size=size) as (app, pilot):
            await go(app, pilot, "blocks.0.attn.z")
            shown = "\n".join(text_of(app))
            assert "≤-33.944 " in shown
            assert "≥33.944 " in shown


async def test_cells_without_numbers_say_what_their_shade_is() -> None:
    async with running(size=(120, 40)) as (app, pilot):
        await go(app, pilot, "blocks.0.attn.q")
        assert "shade =" not in "\n".join(text_of(app))
        for _ in range(9):
            await pilot.press("minus")
        limit = picture(app).scale.limit  # type: ignore[attr-defined]
        assert f"shade = share of ±{short(limit, 5)}" in "\n".join(text_of(app))


async def test_the_bars_of_a_row_are_scaled_to_that_row(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Stats.read
    monkeypatch.setattr(Stats, "read", lambda stats: replace(read(stats), low=-900.0, high=900.0, std=1.0))
    async with running(size=(160, 45)) as (app, pilot):
        await go(app, pilot, "blocks.0.attn.z")
        shown = text_of(app)
        assert any("█" in line for line in shown)
        heatmap = picture(app)
        assert heatmap.block is not None
        row = [value for value in heatmap.block.line(heatmap.cell[0], 0, heatmap.block.cols) if value is not None]
        for end in (max(row), min(row)):
            assert any(f" {short(end, 6)} " in line for line in shown)


async def test_checks_say_what_their_numbers_are() -> None:
    async with running(size=(160, 45)) as (app, pilot):
        await go(app, pilot, "blocks.1.attn.pattern")
        assert "off by 1.2e-07, allowed 1.0e-05" in "\n".join(text_of(app))
    assert Check("same", True, "same: 0.0e+00 ≤ 0.0e+00", 0.0, 0.0).words == "exact"
    assert Check("same", True, "", 0.0, 1e-5).words == "off by 0, allowed 1.0e-05"
    assert Check("same", False, "same: nothing to compare").words == "nothing to compare"


async def test_a_table_that_goes_on_to_the_right_says_so() -> None:
    async with running(size=(80, 24)) as (app, pilot):
        await go(app, pilot, "embed")
        assert "more → │" in "\n".join(text_of(app)).replace("→│", "→ │")
        await pilot.press(*[">"] * 3)
        await settled(pilot)
        assert "more →" not in "\n".join(text_of(app))
    async with running(size=(160, 45)) as (app, pilot):
        await go(app, pilot, "blocks.0.attn.q")
        assert "more →" not in "\n".join(text_of(app))


@pytest.mark.parametrize(("width", "numbers"), [(4, True), (5, True), (6, False), (9, False)])
async def test_columns_too_narrow_for_their_tokens_have_numbers(width: int, numbers: bool) -> None:
    async with running(size=(160, 45)) as (app, pilot):
        main_of(app).zoom = width
        await go(app, pilot, "blocks.0.attn.pattern")
        line = next(line for line in text_of(app) if "query ↓" in line)
        assert bool(re.search(r"query ↓ +0 +1 +2 +3 .* ␣full ", line)) is numbers  # and the label at the cursor
        assert bool(re.search(r" (␣bec…|␣because) ", line)) is not numbers


@pytest.mark.parametrize(("size", "data"), [((80, 24), "2e "), ((120, 40), "2e "), ((200, 40), "2e ")])
async def test_the_token_table_shows_bytes_and_what_was_generated(size: tuple[int, int], data: str) -> None:
    async with running(size=size) as (app, pilot):
        await pilot.press("g", "home")
        await settled(pilot)
        for site in ("tokens", "positions"):
            await go(app, pilot, site)
            lines = text_of(app)
            assert any(re.search(r"bytes +note", line) for line in lines)
            assert any(re.search(rf"9  \. .* {data} +generat(ed|…)", line) for line in lines)
            assert any(re.search(r"␣disk .*20 ?64 ?69 ?73 ?6b", line) for line in lines)
            assert not any("text" in line and "␣disk" in line for line in lines)
