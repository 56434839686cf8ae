"""The cache view: what it shows is what the engine said, and its keys lead where they should."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from cache_view import NARROW, WIDE, cells_on_screen, engine_of, press, shown, told, view_of
from fake_engine import MemoryLink
from helpers import main_of, running, settled, text_of, until
from hypothesis import given
from hypothesis import strategies as st

from tui.actions import ACTIONS, CACHE_ACTIONS, CACHE_SECTIONS, GROUPS
from tui.app import LayerstepApp
from tui.client import EngineError
from tui.render.palette import inks
from tui.screens.cache import BY_ID, NAMES, CacheScreen
from tui.screens.main import MainScreen
from tui.session import understood
from tui.state.cache import CacheReport, Drift, Growth, Layer, Share, Timing
from tui.state.cache_grid import Columns, state, states
from tui.state.numbers import count
from tui.widgets.cache_sharing import sharing_lines
from tui.widgets.job import JobLine

# what is true of the cells


def kept_by(layer: Layer, passes: list[int]) -> Iterator[list[str]]:
    """Another way to the same cells: append and drop, pass after pass."""
    total, rows, fate = sum(passes), [], ["absent"] * sum(passes)
    seen = 0
    for new in passes:
        fate = ["held" if now == "added" else now for now in fate]
        for pos in range(seen, seen + new):
            rows.append(pos)
            fate[pos] = "added"
        seen += new
        while layer.window is not None and len(rows) > layer.window - 1:
            fate[rows.pop(0)] = "dropped"
        yield fate[:total]


def layer_after(total: int, window: int | None) -> Layer:
    stored = total if window is None else min(total, window - 1)
    kind = "full" if window is None else "window"
    return Layer(0, kind, window, 4, 2, 2, 8, stored, total - stored, 100 * stored, 100 * stored, 100 * stored)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.none() | st.integers(2, 12))
def test_cells_are_what_appending_and_dropping_leaves(passes: list[int], window: int | None) -> None:
    layer, seen = layer_after(sum(passes), window), 0
    for at, (new, fate) in enumerate(zip(passes, kept_by(layer, passes), strict=True)):
        seen += new
        growth = Growth(at, seen, new, 0)
        assert states(layer, growth, Columns(sum(passes), 1, 1)) == fate
        assert layer.rows(seen) == sum(name in ("held", "added") for name in fate)
        assert layer.held_bytes(seen) == 100 * layer.rows(seen)


@given(st.integers(1, 40_000), st.integers(-5, 300))
def test_columns_hold_every_position_and_fit(total: int, room: int) -> None:
    columns = Columns.within(total, room)
    assert columns.count * columns.per >= total > (columns.count - 1) * columns.per
    assert columns.cells <= max(1, room)
    assert columns.width == 1 or columns.per == 1


def test_a_column_of_several_positions_shows_the_newest_of_them() -> None:
    layer, growth = layer_after(10, 4), Growth(1, 10, 1, 0)
    assert [state(layer, growth, *span) for span in ((0, 5), (5, 9), (5, 10), (9, 12), (10, 14))] == [
        "dropped", "held", "added", "added", "absent"
    ]  # fmt: skip


@given(st.integers(1, 40), st.integers(1, 40), st.integers(20, 160))
def test_the_map_of_heads_names_every_head_once_over_its_own(kv: int, group: int, width: int) -> None:
    sharing = [Share(n, tuple(range(n * group, (n + 1) * group))) for n in range(kv)]
    lines = ["".join(part.text for part in line) for line in sharing_lines(sharing, 0, width, inks("layerstep-dark"))]
    assert all(len(line) <= width or " read by " in line for line in lines)
    if " read by " in lines[0]:
        spans = [re.fullmatch(r" kv (\d+)  read by heads (\d+)–(\d+)", line) for line in lines]
        assert [tuple(map(int, span.groups())) for span in spans if span] == [
            (n, n * group, (n + 1) * group - 1) for n in range(kv)
        ]
        return
    found: dict[int, list[int]] = {}
    for heads, bracket, own in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        edges = [at.end() for at in re.finditer(r"└[─┴┬┼]*┘|│", bracket)]
        starts = [at.start() for at in re.finditer(r"└[─┴┬┼]*┘|│", bracket)]
        for number in re.finditer(r"\d+", own):
            place = next(n for n, end in enumerate(edges) if starts[n] < number.end() <= end)
            found[int(number[0])] = [
                int(head[0]) for head in re.finditer(r"\d+", heads) if starts[place] < head.end() <= edges[place]
            ]
    assert found == {share.kv_head: list(share.heads) for share in sharing}


# opening, leaving, keys


def test_every_action_of_the_view_has_a_method_a_group_and_a_key_of_its_own() -> None:
    keys = [key for action in CACHE_ACTIONS for key in action.keys]
    assert len(keys) == len(set(keys))
    assert len(BY_ID) == len(CACHE_ACTIONS)
    assert len(NAMES) == len(CACHE_SECTIONS)
    for action in CACHE_ACTIONS:
        assert callable(getattr(CacheScreen, action.method)), action.id
        assert action.group in GROUPS
    assert next(action for action in ACTIONS if action.id == "cache").keys == ("K",)


@pytest.mark.parametrize("key", ["escape", "q", "K"])
async def test_it_opens_and_leaves_and_the_walk_stands_where_it_was(key: str) -> None:
    async with running(engine=engine_of()) as (app, pilot):
        await press(pilot, "right", "right")
        cursor = main_of(app).here[1]
        await press(pilot, "K")
        assert "growth of the KV cache" in shown(app)
        await press(pilot, key)
        assert isinstance(app.screen, MainScreen)
        assert main_of(app).here[1] == cursor


async def test_the_footer_and_the_help_know_its_keys() -> None:
    async with running(size=(200, 90), engine=engine_of()) as (app, pilot):
        assert "K cache" in text_of(app)[-1]
        await press(pilot, "K")
        assert "Esc back" in text_of(app)[-1]
        await press(pilot, "question_mark", "tab")
        assert "Keys: In the cache view" in shown(app)
        await press(pilot, "escape", "escape")
        assert isinstance(app.screen, MainScreen)


async def test_tab_and_digits_go_through_the_sections() -> None:
    async with running(size=NARROW, engine=engine_of()) as (app, pilot):
        await press(pilot, "K")
        seen = []
        for key in ("tab",) * 6 + ("shift+tab", "2"):
            await press(pilot, key)
            seen.append(next(name for name in NAMES if f"─ {NAMES.index(name) + 1} {name}" in text_of(app)[2]))
        assert seen == ["bytes", "drift", "time", "quantised", "pages", "growth", "pages", "bytes"]


@pytest.mark.parametrize("section", "12356")
async def test_it_opens_again_where_it_was_left(section: str) -> None:
    async with running(size=NARROW, engine=engine_of(heads=8, kv=4)) as (app, pilot):
        await press(pilot, "K", "home", "right", "down", "down", "h", "5", "m", "down", "down", "minus", section)
        place = view_of(app).place_now
        assert (place.at, place.row, place.head, place.page, place.site) == (1, 2, 1, 8, 2)
        for leave in ("escape", "enter"):
            await press(pilot, leave)
            if section == "3" and leave == "enter":
                return  # there it measures
            assert app.screen is main_of(app)
            await press(pilot, "K")
            assert view_of(app).place_now == place
            assert f"─ {section} " in text_of(app)[2]


async def test_at_the_newest_pass_it_opens_again_at_the_newest() -> None:
    async with running(size=NARROW, engine=engine_of()) as (app, pilot):
        await press(pilot, "K", "down", "escape", "g", "K")
        assert (view_of(app).at, view_of(app).row) == (5, 1)


async def test_the_footer_offers_what_does_something() -> None:
    async with running(size=NARROW, engine=engine_of(heads=8, kv=4)) as (app, pilot):
        await press(pilot, "K")
        footer = {}
        for key in ("1", "2", "3", "m", "4", "5", "M", "6"):
            await press(pilot, "m" if key == "M" else key)
            footer[key] = text_of(app)[-1]
        everywhere = ("Tab next", "Esc back")
        assert all(words in line for words in everywhere for line in footer.values())
        offered = {
            "1": ("←→ pass", "Space play", "↑↓ layer", "h head", "Enter keys", "v values"),
            "2": ("↑↓ scroll",),
            "3": ("m measure",),
            "m": ("←→ pass", "Space play", "↑↓ layer", "Enter look", "m measure"),
            "4": ("m measure",),
            "5": ("m measure", "i int4"),
            "M": ("↑↓ site", "Enter unquantised", "m measure", "i int4"),
            "6": ("+- size",),
        }
        for key, words in offered.items():
            left = footer[key]
            for word in (*words, *everywhere, "? help"):
                assert word in left or word == "? help", (key, word)
                left = left.replace(word, "")
            assert not left.strip(), (key, left)
        await pilot.resize_terminal(80, 50)
        await press(pilot, "2")
        assert "↑↓" not in text_of(app)[-1]  # all of it is in sight


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (100, 30), (120, 36), (144, 42), (150, 45), (160, 45)])
async def test_no_words_are_cut(size: tuple[int, int]) -> None:
    async with running(size=size, engine=engine_of(heads=8, kv=4)) as (app, pilot):
        await press(pilot, "K")
        for keys in ("1", "2", "3", "3m", "4", "4m", "5", "5m", "6"):
            await press(pilot, *keys)
            for line in text_of(app)[1:]:
                left = re.sub(r"^│? +layer +.* rows |(\S|^) ?…\S+ +[\d.e+-]+ ", "", line)  # tokens and sites may be
                assert "…" not in left, line


# growth


async def test_why_it_grows_is_said_and_what_room_is_for() -> None:
    for size in ((60, 16), (60, 18), NARROW, WIDE):
        async with running(size=size, engine=engine_of()) as (app, pilot):
            await press(pilot, "K", *["pagedown"] * (size[1] < 18))
            said = told(app)
            assert "so they are kept: a new token adds one row per layer, and computes only its own." in said
            assert ("allocated: with room to grow into" in said) == (size == WIDE)


@pytest.mark.parametrize(("kv", "words"), [(4, "query heads 0 and 1"), (8, "query head 0"), (2, "query heads 0 to 3")])
async def test_the_kv_head_at_the_cursor_says_who_reads_it(kv: int, words: str) -> None:
    async with running(size=NARROW, engine=engine_of(heads=8, kv=kv)) as (app, pilot):
        await press(pilot, "K")
        assert f"kv head 0, read by {words} " in shown(app)


@pytest.mark.parametrize("size", [WIDE, (100, 30), NARROW])
async def test_the_grid_grows_pass_by_pass(size: tuple[int, int]) -> None:
    engine = engine_of(first=5)
    async with running(size=size, engine=engine) as (app, pilot):
        await press(pilot, "K", "home")
        passes = [5, 1, 1, 1, 1]
        expected = [[*kept_by(layer_after(9, window), passes)] for window in (None, 4, None, 4)]
        for at in range(5):
            assert cells_on_screen(app) == [fates[at] for fates in expected]
            assert f"pass {at} of 0–4 adds" in shown(app)
            assert f" {5 + at} positions" in shown(app)
            await press(pilot, "right")
        assert "pass 4 of 0–4 adds ␣full at 8" in shown(app)  # no further than the last
        assert re.search(r" 1 window 4 .* 3 +6 +384 B ", shown(app))
        assert re.search(r" 2 full .* 9 +· +1\.1 KiB ", shown(app))
        await press(pilot, "left_curly_bracket", "left")
        assert view_of(app).at == 2


async def test_a_single_pass_says_how_another_one_comes() -> None:
    async with running(size=NARROW, engine=engine_of(first=99)) as (app, pilot):
        await press(pilot, "K")
        assert "pass 0 adds 9 positions · 9 positions · 3.0 KiB in all" in shown(app)
        assert "g in the walk adds a token" in shown(app)
        await press(pilot, "escape", "g", "K")
        assert "pass 1 of 0–1 adds" in shown(app)
        assert "g in the walk" not in shown(app)


async def test_tokens_are_named_where_there_is_room_and_positions_counted_where_not() -> None:
    async with running(size=WIDE, engine=engine_of()) as (app, pilot):
        await press(pilot, "K")
        assert re.search(r"layer +<\|bos\|> The +␣server", shown(app))
        await pilot.resize_terminal(*NARROW)
        await settled(pilot)
        assert re.search(r"layer +0 +5 +rows", shown(app))


async def test_more_positions_than_columns_share_cells() -> None:
    engine = engine_of(first=500)
    request = {"model": "modern", "prompt": " ".join(f"w{n}" for n in range(600))}
    async with running(size=NARROW, engine=engine, request=request) as (app, pilot):
        await press(pilot, "K", "home")
        assert "16 positions a cell" in shown(app)
        full, windowed = (next(line for line in text_of(app) if f" {kind} " in line) for kind in ("0 full", "1 window"))
        assert full.count("█") == 32  # 500 positions of one pass
        assert full.count("┄") == 6
        assert windowed.count("×") == 31
        assert windowed.count("█") == 1


async def test_space_lets_it_grow_by_itself_and_stops_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.screens.cache.PACE", 0.01)
    async with running(engine=engine_of()) as (app, pilot):
        await press(pilot, "K")
        view = view_of(app)
        assert view.at == 4
        await pilot.press("space")
        await until(pilot, lambda: view.at == 4 and view._player is None)
        monkeypatch.setattr("tui.screens.cache.PACE", 600)
        await press(pilot, "space")
        assert view.at == 0  # from the start, if it was at the end
        assert view._player is not None
        await press(pilot, "h")
        assert view._player is None


async def test_which_heads_share_is_drawn_and_said() -> None:
    for heads, kv, words in ((8, 4, "2 share one (GQA)"), (4, 4, "(MHA)"), (4, 1, "(MQA)")):
        async with running(size=NARROW, engine=engine_of(heads=heads, kv=kv)) as (app, pilot):
            await press(pilot, "K")
            assert words in shown(app)
            if kv == 4 and heads == 8:
                assert re.search(
                    r"query +0 1   2 3   4 5   6 7 .*\n.*└┬┘   └┬┘   └┬┘   └┬┘.*\n.*kv +0     1     2     3", shown(app)
                )


async def test_many_layers_scroll_and_what_stands_below_them_comes_to_sight() -> None:
    async with running(size=NARROW, engine=engine_of(layers=40)) as (app, pilot):
        await press(pilot, "K")
        assert "who shares" not in shown(app)
        await press(pilot, *["pagedown"] * 4)
        assert "▸ 39 window 4" in shown(app)
        assert "who shares" in shown(app)
        await press(pilot, *["pageup"] * 4)
        assert "pass 4 of 0–4" in shown(app)


# where it leads


@pytest.mark.parametrize(("key", "name"), [("enter", "cache_k"), ("v", "cache_v")])
async def test_enter_and_v_lead_to_the_keys_and_values_of_the_head(key: str, name: str) -> None:
    async with running(engine=engine_of(heads=8, kv=4)) as (app, pilot):
        await press(pilot, "K", "home", "right", "down", "down", "h", "h", "H", key)
        trace, cursor = main_of(app).here
        assert app.screen is main_of(app)
        step = trace.steps[cursor.step]
        assert step.site == f"blocks.2.attn.{name}"
        assert cursor.index(trace, "kv_head") == 1
        assert cursor.at == 1


async def test_the_view_begins_at_the_pass_and_head_of_the_walk() -> None:
    async with running(engine=engine_of(heads=8, kv=4)) as (app, pilot):
        assert main_of(app).go_to_address("blocks.1.attn.q[h=5]@2") == ""
        await press(pilot, "K")
        assert (view_of(app).at, view_of(app).row, view_of(app).head) == (2, 1, 2)


# bytes


async def test_bytes_are_measured_beside_the_formula() -> None:
    async with running(size=(100, 40), engine=engine_of(heads=8, kv=4)) as (app, pilot):
        await press(pilot, "K", "2")
        total = 2 * 4 * 8 * 4 * (9 + 3 + 9 + 3)  # keys and values × kv heads × d_head × float32 × rows
        text = shown(app)
        assert f"{count(total)} B, measured" in text
        assert "✓ the same" in text
        assert "2 (k and v) × 4 layers × 4 kv heads × 8 d_head × 9 positions × 4 B" in text
        assert "fits until about 34 million tokens in the 8.0 GiB that are free" in text
        assert text.index("fits until") < text.index("with other heads")  # in sight, however low the terminal
        assert re.search(r"int8 .*\n.* and a scale of 2 B for every 16 ", text)
        assert re.search(r"int4 .*\n.* and a scale and a minimum of 2 B for every 16 ", text)
        assert re.findall(r"● (\S+)", text) == ["GQA", "float32", "9"]
        assert re.search(r"1,024\* +\d", text)  # beyond n_ctx
        assert not re.search(r"256\* +\d", text)


async def test_a_measure_that_the_formula_does_not_give_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of()
    honest = engine._cache
    monkeypatch.setattr(engine, "_cache", lambda params: honest(params) | {"formula": honest(params)["bytes"] + 1500})
    async with running(size=NARROW, engine=engine) as (app, pilot):
        await press(pilot, "K", "2")
        assert "✗ 1,500 B apart" in shown(app)


def bar_of(app: LayerstepApp, name: str) -> float:
    """The length of a bar in cells."""
    line = next(line for line in text_of(app) if re.search(rf"│ [●▸ ] {re.escape(name)} ", line))
    return sum(" ▏▎▍▌▋▊▉█".index(char) / 8 for char in line if char in "▏▎▍▌▋▊▉█")


async def test_bars_are_as_long_as_their_numbers() -> None:
    async with running(size=(100, 50), engine=engine_of(heads=8, kv=4)) as (app, pilot):
        await press(pilot, "K", "2")
        assert bar_of(app, "MQA") == pytest.approx(bar_of(app, "MHA") / 8, abs=0.13)
        assert bar_of(app, "bfloat16") == pytest.approx(bar_of(app, "float32") / 2, abs=0.13)
        assert bar_of(app, "256") == pytest.approx(bar_of(app, "1,024*") / 4, abs=0.13)


# what is measured on the spot


async def test_time_is_measured_when_asked_and_shown_with_its_ratio() -> None:
    engine = engine_of()
    async with running(size=NARROW, engine=engine) as (app, pilot):
        await press(pilot, "K", "4")
        assert "timing" not in [method for method, _ in engine.asked]
        await press(pilot, "m")
        text = shown(app)
        assert re.search(r"cached +0\.50 ms", text)
        assert re.search(r"uncached +4\.00 ms", text)
        assert "8.0 × as long without, at 9 positions" in text
        await press(pilot, "escape", "K", "4")
        assert "8.0 ×" in shown(app)  # it is known still
        await press(pilot, "m")
        assert [method for method, _ in engine.asked].count("timing") == 2  # and measured anew when asked again


def test_a_time_too_short_to_measure_has_no_ratio() -> None:
    assert str(Timing(0.0, 1.0, 3).ratio) == "nan"


async def test_a_job_says_how_far_it_is_and_escape_ends_it() -> None:
    link = MemoryLink(engine_of())
    async with running(size=NARROW, link=lambda: link) as (app, pilot):
        await press(pilot, "K", "3")
        link.hold = True
        await pilot.press("m")
        await until(pilot, lambda: "Esc cancels" in shown(app))
        number = next(sent["id"] for sent in link.sent if sent["method"] == "drift")
        told = {"event": "progress", "id": number, "run": 1, "done": 3, "total": 5, "what": "pass 3"}
        main_of(app).client._received(told, b"")
        await until(pilot, lambda: "running without the cache  pass 3" in shown(app) and "3/5" in shown(app))
        await pilot.press("m")  # one at a time
        await pilot.pause()
        assert [sent["method"] for sent in link.sent].count("drift") == 1
        await pilot.press("escape")
        await settled(pilot)
        assert link.sent[-1]["method"] == "cancel"
        assert view_of(app).query_one(JobLine).job is None
        link.release()
        await settled(pilot)
        assert "m runs every pass again" in shown(app)  # the answer that came after all changes nothing
        await press(pilot, "escape")
        assert app.screen is main_of(app)


async def test_drift_shows_the_number_of_every_layer_and_pass() -> None:
    async with running(size=(100, 30), engine=engine_of()) as (app, pilot):
        await press(pilot, "K", "3", "m")
        text = shown(app)
        assert "✓ within the tolerance of every site in float32" in text
        for layer in range(4):
            numbers = [0.0, *(10 ** (layer / 2 - 9) * (at + 1) for at in range(1, 5))]
            line = next(line for line in text_of(app) if f" layer {layer} " in line).split(f"layer {layer}")[1]
            found = [float(number) for number in re.findall(r" (0|\de-\d+) ", line.replace(" ", "  "))]
            assert found == pytest.approx(numbers, rel=0.5)
        assert re.search(r"first bit off +blocks\.1\.attn\.z@4 ", text)
        assert re.search(r"nearest to it +blocks\.2\.attn\.k@4 +5e-8 of 1e-5 ", text)
        assert "the same sums in another order" in told(app)


async def test_enter_leads_from_drift_to_the_first_site_that_differs() -> None:
    async with running(engine=engine_of()) as (app, pilot):
        await press(pilot, "K", "3", "enter")  # measures first
        assert "first bit off" in shown(app)
        await press(pilot, "enter")
        trace, cursor = main_of(app).here
        assert trace.steps[cursor.step].site == "blocks.1.attn.z"
        assert cursor.at == 4


async def test_drift_beyond_the_tolerance_is_marked_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of()
    drift = {
        "tolerance": 1e-5, "dtype": "bfloat16", "ok": False, "text": "", "logits": [1e-9],
        "first": {"site": "blocks.0.attn.z", "at": 1, "gap": 2e-3},
        "first_bit": {"site": "embed", "at": 0, "gap": 1e-9},
        "rows": [{"at": 0, "gaps": [1e-5, 2e-3, None, 0.0]}],
    }  # fmt: skip
    monkeypatch.setattr(engine, "_drift", lambda params: drift)
    async with running(size=NARROW, engine=engine) as (app, pilot):
        await press(pilot, "K", "3", "m")
        text = shown(app)
        assert "✗ beyond the tolerance of a site in bfloat16" in text
        assert re.search(r"layer 0 +1e-5 ", text)
        assert re.search(r"layer 1 +✗2e-3 ", text)
        assert re.search(r"layer 2 +NaN ", text)
        assert re.search(r"layer 3 +0 ", text)
        await press(pilot, "enter")
        trace, cursor = main_of(app).here
        assert (trace.steps[cursor.step].site, cursor.at) == ("blocks.0.attn.z", 1)


async def test_where_nothing_differs_enter_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of()
    honest = engine._drift
    monkeypatch.setattr(engine, "_drift", lambda params: honest(params) | {"first_bit": None})
    async with running(engine=engine) as (app, pilot):
        await press(pilot, "K", "3", "m", "enter")
        assert [notice.message for notice in app._notifications] == ["nothing differs, not by one bit"]


async def test_passes_that_do_not_fit_come_with_the_cursor() -> None:
    async with running(size=(60, 24), engine=engine_of(first=1)) as (app, pilot):
        await press(pilot, "K", "3", "m", "home")
        assert re.search(r"pass +0 +1 ", shown(app))
        await press(pilot, "end")
        assert re.search(r" 8 +│", next(line for line in text_of(app) if re.search(r"│ +pass ", line)))


async def test_few_colours_get_shades_beside_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CacheScreen, "few_colours", property(lambda screen: True))
    async with running(size=NARROW, engine=engine_of()) as (app, pilot):
        await press(pilot, "K", "3", "m")
        assert re.search(r"layer 0 .*░ \de-\d", shown(app))
        assert re.search(r"logits .*[▓█] \de-\d", shown(app))


# what-ifs


async def test_a_quantised_cache_has_its_error_at_each_site_in_the_order_of_the_pass() -> None:
    engine = engine_of()
    async with running(size=(100, 40), engine=engine) as (app, pilot):
        await press(pilot, "K", "5")
        assert "quantised" not in [method for method, _ in engine.asked]
        await press(pilot, "m")
        rows = re.findall(r"(blocks\.\d\.\S+) +([\d.e+-]+) +([\d.]+)%", shown(app))
        assert [site for site, _, _ in rows] == [
            site for site in engine.steps if site.endswith(("cache_k", "attn.z", "resid_post"))
        ]
        assert [float(error) for _, error, _ in rows] == pytest.approx([(n + 1) / 100 for n in range(len(rows))])
        lengths = [bar_of(app, site) for site in ("blocks.0.attn.cache_k", "blocks.3.resid_post")]
        assert lengths[0] == pytest.approx(lengths[1] / len(rows), abs=0.13)
        assert "int8  31.2 KiB → 7.8 KiB  4.0 × less" in shown(app)
        assert "✓ same top token 9 of 9" in shown(app)
        await press(pilot, "i")
        assert "✗ same top token 8 of 9" in shown(app)
        assert [params["bits"] for method, params in engine.asked if method == "quantised"] == [8, 4]
        await press(pilot, "i")
        assert "int8" in shown(app)
        assert [method for method, _ in engine.asked].count("quantised") == 2  # it is known still
        await press(pilot, "down", "down", "enter")
        trace, cursor = main_of(app).here
        assert (trace.steps[cursor.step].site, cursor.at) == ("blocks.0.resid_post", 4)
        assert [notice.message for notice in app._notifications] == ["this site as the trace has it, not in int8"]


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (8, "In int8, every 32 numbers share a scale, and each is rounded to one of 255 steps."),
        (4, "In int4, every 32 numbers share a scale and a minimum, and each is rounded to one of 16 steps."),
    ],
)
async def test_what_few_bits_do_is_said_before_the_sites(bits: int, words: str) -> None:
    async with running(size=NARROW, engine=engine_of()) as (app, pilot):
        await press(pilot, "K", "5", "m" if bits == 8 else "i")
        assert f"{words} KL: how far the next token's probabilities move. of norm: ‖change‖ / " in told(app)


async def test_pages_of_other_sizes_by_keys() -> None:
    engine = engine_of()
    async with running(size=NARROW, engine=engine) as (app, pilot):
        await press(pilot, "K", "6")
        assert re.search(r" 0 +1 +9 of 16 ", shown(app))
        assert re.search(r" 1 +1 +3 of 16 ", shown(app))
        await press(pilot, "minus")
        assert re.search(r" 0 +2 +9 of 16 ", shown(app))
        await press(pilot, "plus", "plus")
        assert re.search(r" 0 +1 +9 of 32 ", shown(app))
        assert [params["size"] for method, params in engine.asked if method == "pages"] == [16, 8, 32]
        await press(pilot, *["minus"] * 12)
        assert re.search(r" 0 +9 +9 of 9 +0 B", shown(app))


# reading answers


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3), lambda kids: st.lists(kids, max_size=2)
    )
)
def test_any_answer_is_read_or_refused_by_name(value: object) -> None:
    engine = engine_of()
    engine._open({"prompt": "a b c"})
    honest = engine._cache({})
    for key in honest:
        with suppress(EngineError), understood():  # any other exception is a mistake
            CacheReport.read(honest | {key: value})


def test_the_site_to_look_at_is_the_first_beyond_the_tolerance_else_the_first_bit() -> None:
    answer = {"tolerance": 1, "ok": True, "rows": [], "first": None, "first_bit": {"site": "a", "at": 0, "gap": 1}}
    assert Drift.read(answer).site == Drift.read(answer).first_bit
    answer["first"] = {"site": "b", "at": 0, "gap": 2}
    assert Drift.read(answer).site == Drift.read(answer).first
