"""Every action by its key, and by the mouse."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_engine import FakeEngine
from helpers import go, main_of, picture, running, settled, text_of, until

from tui.actions import ACTIONS, BY_ID, GROUPS, NO_KEY, bindings
from tui.screens.about import AboutScreen
from tui.screens.ask import AskScreen
from tui.screens.finder import FinderScreen
from tui.screens.help import HelpScreen
from tui.screens.main import MainScreen
from tui.screens.notice import NoticeScreen
from tui.settings import Settings
from tui.state.views import views_of
from tui.widgets.heatmap import Heatmap
from tui.widgets.pass_tree import PassTree
from tui.widgets.why import WhyPane

PATTERN = "blocks.0.attn.pattern"


def test_every_action_has_a_method_a_group_and_keys_that_terminals_send() -> None:
    keys = [key for action in ACTIONS for key in action.keys]
    assert len(keys) == len(set(keys))
    assert len(BY_ID) == len(ACTIONS)
    for action in ACTIONS:
        assert callable(getattr(MainScreen, action.method)), action.id
        assert action.group in GROUPS
        for key in action.keys:
            *modifiers, last = key.split("+")
            assert modifiers in ([], ["ctrl"], ["shift"]), key
            if modifiers == ["ctrl"]:
                assert last in "pc", key  # never ctrl+b or ctrl+a (tmux, screen), ctrl+s or ctrl+q (flow control)
            if modifiers == ["shift"]:
                assert last == "tab"
    assert {binding.key for binding in bindings()} - {NO_KEY} == set(keys)  # type: ignore[union-attr]


async def test_walking_by_keys() -> None:
    async with running() as (app, pilot):
        main = main_of(app)
        assert main.trace is not None

        async def press(*keys: str) -> tuple[str, dict[str, int]]:
            await pilot.press(*keys)
            await settled(pilot)
            trace, cursor = main.here
            step = trace.steps[cursor.step]
            return step.site, {axis: cursor.index(trace, axis) for axis in step.axes}

        assert (await press("home"))[0] == "tokens"
        assert (await press("right"))[0] == "positions"
        assert (await press("right", "right", "left"))[0] == "embed"
        assert (await press("end"))[0] == "probs"
        assert (await press("left"))[0] == "logits"
        assert (await press("left_square_bracket"))[0] == "blocks.1.resid_pre"
        assert (await press("left_square_bracket"))[0] == "blocks.0.resid_pre"
        assert (await press("right_square_bracket"))[0] == "blocks.1.resid_pre"
        await go(app, pilot, PATTERN)
        assert (await press("up", "up"))[1]["query"] == 6
        assert (await press("down"))[1]["query"] == 7
        assert (await press("pageup"))[1]["query"] == 0
        assert (await press("pagedown"))[1]["query"] == 8
        assert (await press("comma", "comma", "comma", "full_stop"))[1]["key"] == 6
        assert (await press("less_than_sign"))[1]["key"] == 0
        assert (await press("greater_than_sign"))[1]["key"] == 8
        assert (await press("h", "h", "H"))[1]["head"] == 1
        assert (await press("H", "H", "H"))[1]["head"] == 0
        assert (await press("h", "right"))[1]["head"] == 1  # z: the head is kept
        await go(app, pilot, "blocks.0.attn.k")
        assert (await press("h"))[1]["kv_head"] == 1
        await go(app, pilot, "blocks.0.ln1.scale")
        assert (await press("up"))[1]["pos"] == 7
        assert (await press("b", "B"))[1]["batch"] == 0


async def test_the_footer_says_the_real_keys() -> None:
    async with running(size=(160, 40)) as (app, _):
        line = text_of(app)[-1]
        assert "←→ step" in line
        assert "? help" in line
        for action in ACTIONS:
            assert not action.hint or action.hint.split()[0] not in action.shown_keys.split(), action.id


async def test_views_change_in_place() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        views = views_of(main_of(app).trace.by_site[PATTERN])  # type: ignore[union-attr]
        shown = []
        for _ in (*views, 0):
            shown.append(main_of(app).view)
            await pilot.press("v")
            await settled(pilot)
        assert shown == [*views, views[0]]
        await pilot.press("V")
        assert main_of(app).view == views[0]
        for number, view in enumerate(views[:9], 1):
            await pilot.press(str(number))
            await settled(pilot)
            assert main_of(app).view == view
            assert f"[{number} {view.name}]" in "\n".join(text_of(app))


async def test_the_chain_of_scores_is_walked_on_the_same_cells() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, "blocks.0.attn.scores")
        cell, width = picture(app).cell, picture(app).cell_width  # type: ignore[attr-defined]
        sites = []
        for _ in range(4):
            sites.append(main_of(app).here[0].steps[main_of(app).here[1].step].label)
            assert (picture(app).cell, picture(app).cell_width) == (cell, width)  # type: ignore[attr-defined]
            await pilot.press("n")
            await settled(pilot)
        assert sites == ["scores", "scaled", "masked", "pattern"]
        assert main_of(app).here[0].steps[main_of(app).here[1].step].label == "scores"
        await pilot.press("N")
        assert main_of(app).here[0].steps[main_of(app).here[1].step].label == "pattern"


async def test_cells_can_be_wider_narrower_and_shaded() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        heatmap = picture(app)
        assert isinstance(heatmap, Heatmap)
        width = heatmap.cell_width
        await pilot.press("minus")
        assert heatmap.cell_width == width - 1
        await pilot.press("plus", "equals_sign")
        assert heatmap.cell_width == width + 1
        for _ in range(12):
            await pilot.press("minus")
        assert heatmap.cell_width == 1
        before = heatmap.shades
        await pilot.press("c")
        assert heatmap.shades is not before
        await settled(pilot)


async def test_the_width_of_cells_is_automatic_again_with_0_and_bars_have_none() -> None:
    def told(app: object) -> list[str]:
        return [notice.message for notice in app._notifications]  # type: ignore[attr-defined]

    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        heatmap = picture(app)
        assert isinstance(heatmap, Heatmap)
        width = heatmap.cell_width
        await pilot.press("minus", "minus")
        assert heatmap.cell_width == width - 2
        assert told(app) == [f"width {width - 1} · 0 is automatic"]
        await pilot.press("0")
        assert heatmap.cell_width == width
        assert told(app)[1:] == ["automatic width"]
        await pilot.press("v", "plus", "minus")
        assert told(app)[2:] == ["no cells to widen · v shows them"]  # said twice, it stands once
        assert main_of(app).zoom == 0
        await settled(pilot)


async def test_panes_take_the_focus_in_turn_and_arrows_follow_it() -> None:
    async with running() as (app, pilot):
        main = main_of(app)
        await go(app, pilot, PATTERN)
        assert isinstance(app.focused, Heatmap)
        await pilot.press("tab")
        assert isinstance(app.focused, WhyPane)
        await pilot.press("down", "up", "pagedown")  # scrolls, moves nothing
        assert main.here[1].pos == 8
        await pilot.press("tab")
        assert isinstance(app.focused, PassTree)
        step = main.here[1].step
        await pilot.press("down", "down", "up")
        assert main.here[1].step == step + 1
        await pilot.press("shift+tab", "shift+tab")
        assert isinstance(app.focused, Heatmap)


async def test_panes_can_be_hidden() -> None:
    async with running(size=(120, 30)) as (app, pilot):
        main = main_of(app)
        await go(app, pilot, PATTERN)
        assert main.query_one("#why-pane").display
        await pilot.press("i", "t")
        assert not main.query_one("#why-pane").display
        assert not main.query_one("#tree-pane").display
        assert "p = eˢ / Σ eˢ" in "\n".join(text_of(app))  # the caption has the formula now
        await pilot.press("i", "t")
        assert main.query_one("#why-pane").display
        await pilot.resize_terminal(90, 30)
        await until(pilot, lambda: not main.query_one("#why-pane").display)  # there is no room for it now
        await pilot.press("i")
        await settled(pilot)
        assert (main.query_one("#why-pane").display, main.query_one("#tree-pane").display) == (True, False)
        await pilot.press("t")
        assert (main.query_one("#why-pane").display, main.query_one("#tree-pane").display) == (False, True)
        await pilot.resize_terminal(60, 24)
        await pilot.press("tab", "i")
        await settled(pilot)
        assert isinstance(app.focused, WhyPane)
        await pilot.press("i")
        await settled(pilot)
        assert isinstance(app.focused, Heatmap)


async def test_play_walks_by_itself_and_any_key_pauses() -> None:
    async with running(settings=Settings(pace=0.02)) as (app, pilot):
        main = main_of(app)
        await pilot.press("home", "space")
        await until(pilot, lambda: main.here[1].step >= 3)
        await pilot.press("left")
        step = main.here[1].step
        await pilot.pause(0.1)
        assert main.here[1].step == step
        await pilot.press("end", "space")
        await until(pilot, lambda: main._player is None)


async def test_another_prompt_without_leaving() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("p")
        assert isinstance(app.screen, AskScreen)
        await pilot.press("d", "o", "g", "space", "b", "i", "t", "e", "s", "enter")
        await settled(pilot)
        main = main_of(app)
        assert main.trace is not None
        assert main.trace.prompt == "dog bites"
        assert main.trace.steps[main.here[1].step].site == PATTERN
        assert "␣bites" in text_of(app)[-2]


async def test_leaving_a_dialog_changes_nothing() -> None:
    async with running() as (app, pilot):
        for key in ("p", "o", "s", "colon", "slash", "ctrl+p", "question_mark", "m"):
            await pilot.press(key)
            await settled(pilot)
            assert app.screen is not main_of(app), key
            await pilot.press("escape")
            await settled(pilot)
            assert app.screen is main_of(app), key


async def test_a_bad_prompt_is_a_dialog_and_the_trace_stays() -> None:
    async with running() as (app, pilot):
        await pilot.press("p")
        await pilot.press("ctrl+u", "enter")
        await settled(pilot)
        assert isinstance(app.screen, NoticeScreen)
        assert "the prompt is empty" in "\n".join(text_of(app))
        await pilot.press("escape", "end")
        await settled(pilot)
        assert main_of(app).here[0].prompt.startswith("The server")


async def test_opening_a_saved_trace(tmp_path: Path) -> None:
    saved = tmp_path / "x.trace.safetensors"
    saved.write_bytes(b"made up")
    async with running() as (app, pilot):
        await pilot.press("o")
        screen = app.screen
        screen.query_one("AskInput").value = "nowhere.safetensors"  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: "there is no file" in "\n".join(text_of(app)))
        screen.query_one("AskInput").value = str(saved)  # type: ignore[attr-defined]
        await pilot.press("enter")
        await settled(pilot)
        assert main_of(app).here[0].file == str(saved)
        assert "x.trace.safetensors" in text_of(app)[0]


async def test_a_file_that_is_no_trace_is_a_dialog(tmp_path: Path) -> None:
    async with running(request={"file": str(tmp_path / "x.txt")}, wait=False) as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, NoticeScreen))
        await pilot.press("enter")
        assert app.screen is main_of(app)
        assert "no trace" in "\n".join(text_of(app))
        await pilot.press("right", "h", "v", "s")  # nothing to do, nothing happens
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)


async def test_choosing_a_model() -> None:
    async with running() as (app, pilot):
        await pilot.press("m")
        await settled(pilot)
        assert isinstance(app.screen, FinderScreen)
        await pilot.press(*"class", "enter")
        await settled(pilot)
        assert main_of(app).here[0].model == "classic"
        await pilot.press("m")
        await settled(pilot)
        await pilot.press(*"missing", "enter")
        await settled(pilot)
        assert "there is no model 'missing [/]'" in "\n".join(text_of(app))


async def test_saving() -> None:
    engine = FakeEngine()
    async with running(engine=engine) as (app, pilot):
        await pilot.press("s")
        assert app.screen.query_one("AskInput").value == "the-server-crashed-because-the.trace.safetensors"  # type: ignore[attr-defined]
        await pilot.press("enter")
        await settled(pilot)
        assert ("save", {"path": "the-server-crashed-because-the.trace.safetensors", "force": False}) in engine.asked
        assert any("120.6 KiB" in str(note.message) for note in app._notifications)
        await pilot.press("s")
        app.screen.query_one("AskInput").value = "/nowhere/x"  # type: ignore[attr-defined]
        await pilot.press("enter")
        await settled(pilot)
        assert "no such folder" in "\n".join(text_of(app))


async def test_saving_over_a_file_asks_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "x"
    there.write_text("old")
    engine = FakeEngine()
    save = engine._save

    def refuse(params: dict[str, object]) -> dict[str, object]:
        from fake_engine import FakeError

        if not params["force"]:
            raise FakeError("TraceFileError", "it is there already")
        return save(params)

    monkeypatch.setattr(engine, "_save", refuse)
    async with running(engine=engine) as (app, pilot):
        await pilot.press("s")
        app.screen.query_one("AskInput").value = str(there)  # type: ignore[attr-defined]
        await pilot.press("enter")
        await settled(pilot)
        assert isinstance(app.screen, NoticeScreen)
        shown = " ".join(text_of(app))
        assert "exists already; choose another name, or overwrite it" in " ".join(shown.replace("│", " ").split())
        assert "f overwrites it" in shown
        await pilot.press("f")
        await settled(pilot)
        assert engine.asked[-1] == ("save", {"path": str(there), "force": True})


async def test_finding_a_step() -> None:
    async with running() as (app, pilot):
        for keys, site in (
            (("slash", *"1", "space", *"pattern"), "blocks.1.attn.pattern"),
            (("slash", *"logit"), "logits"),
        ):
            await pilot.press(*keys, "enter")
            await settled(pilot)
            trace, cursor = main_of(app).here
            assert trace.steps[cursor.step].site == site
        await pilot.press("slash", "down", "down", "up", "pagedown", "enter")
        await settled(pilot)
        assert main_of(app).here[1].step != trace.by_site["logits"].index


async def test_a_step_is_found_in_the_block_at_the_cursor() -> None:
    async with running(engine=FakeEngine(layers=4)) as (app, pilot):
        trace = main_of(app).here[0]
        for start, typed, site in (
            ("blocks.2.resid_pre", "pattern", "blocks.2.attn.pattern"),
            ("blocks.2.resid_post", "z", "blocks.2.attn.z"),
            ("blocks.2.resid_post", "1 z", "blocks.1.attn.z"),
            ("logits", "pattern", "blocks.3.attn.pattern"),
            ("embed", "pattern", "blocks.0.attn.pattern"),
        ):
            await go(app, pilot, start)
            await pilot.press("slash", *("space" if char == " " else char for char in typed), "enter")
            await settled(pilot)
            assert trace.steps[main_of(app).here[1].step].site == site


async def test_the_palette_does_every_action() -> None:
    async with running() as (app, pilot):
        await pilot.press("ctrl+p", *"theme", "enter")
        await settled(pilot)
        assert app.theme == "layerstep-light"
        await pilot.press("ctrl+p", *"first", "space", *"step", "enter")
        await settled(pilot)
        assert main_of(app).here[1].step == 0
        await pilot.press("ctrl+p")
        from tui.widgets.pick_list import PickList

        choices = app.screen.query_one(PickList).choices
        assert {choice.value for choice in choices} >= {
            f"do {action.id}" for action in ACTIONS if action.id != "find.any"
        }
        await pilot.press("escape")


async def test_an_address() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("colon")
        assert app.screen.query_one("AskInput").value == f"{PATTERN}[b=0,h=0,q=8,k=8]@0"  # type: ignore[attr-defined]
        for wrong, why in (("blocks.7.attn.q", "no site"), ("[[", "not an address"), (f"{PATTERN}[h=44]", "outside")):
            app.screen.query_one("AskInput").value = wrong  # type: ignore[attr-defined]
            await pilot.press("enter")
            assert isinstance(app.screen, AskScreen)
            await until(pilot, lambda why=why: why in "\n".join(text_of(app)))
        app.screen.query_one("AskInput").value = "blocks.1.attn.hook_z[h=2,p=3,d=5]"  # type: ignore[attr-defined]
        await pilot.press("enter")
        await settled(pilot)
        trace, cursor = main_of(app).here
        assert str(cursor.address(trace)) == "blocks.1.attn.z[b=0,p=3,h=2,d=5]@0"


async def test_starting_at_an_address() -> None:
    async with running(address="blocks.1.attn.pattern[h=2,q=3,k=1]") as (app, _):
        trace, cursor = main_of(app).here
        assert str(cursor.address(trace)) == "blocks.1.attn.pattern[b=0,h=2,q=3,k=1]@0"
    async with running(address="nonsense[") as (app, _):
        assert main_of(app).here[1].step == 0


async def test_the_help_lists_every_key() -> None:
    async with running(size=(120, 190)) as (app, pilot):
        await pilot.press("question_mark", "tab")
        await pilot.pause()
        shown = "\n".join(text_of(app))
        for action in ACTIONS:
            assert (action.label[:26] if not action.arguments else "Picture 1 … 9") in shown
        await pilot.press("down", "pagedown", "up", "pageup", "question_mark")
        assert app.screen is main_of(app)
        await pilot.resize_terminal(80, 24)
        await pilot.press("question_mark", "pagedown", "space", "escape")
        assert app.screen is main_of(app)


async def test_the_mouse_does_it_too() -> None:
    async with running(size=(140, 40)) as (app, pilot):
        main = main_of(app)
        await go(app, pilot, PATTERN)
        lines = text_of(app)
        row = next(y for y, line in enumerate(lines) if "block 1" in line)
        await pilot.click(offset=(6, row))
        await settled(pilot)
        assert main.here[0].steps[main.here[1].step].site == "blocks.1.resid_pre"
        await go(app, pilot, PATTERN)
        heatmap = picture(app)
        assert isinstance(heatmap, Heatmap)
        await pilot.click(heatmap, offset=(heatmap._gutter + 2 * heatmap.cell_width + 1, 1 + 4 * heatmap._height))
        assert (main.here[1].pos, main.here[1].key) == (4, 2)
        await pilot.click(heatmap, offset=(heatmap._gutter + 3 * heatmap.cell_width + 1, 0))
        assert (main.here[1].pos, main.here[1].key) == (4, 3)
        strip = text_of(app)[-2]
        await pilot.click("#tokens", offset=(strip.index("␣disk") + 1, 0))
        assert main.here[1].pos == 6
        await go(app, pilot, "blocks.0.resid_mid")
        y = next(y for y, line in enumerate(text_of(app)) if "in  blocks.0.resid_pre" in line)
        await pilot.click(offset=(text_of(app)[y].index("blocks.0.resid_pre") + 2, y))
        assert main.here[0].steps[main.here[1].step].site == "blocks.0.resid_pre"
        await go(app, pilot, "logits")
        await pilot.click(picture(app), offset=(4, 3))
        assert main.here[1].vocab == 15
        await pilot.press("up")
        assert main.here[1].vocab == 14
        help_at = text_of(app)[-1].index("? help")
        await pilot.click("#keys", offset=(help_at, 0))
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        await pilot.press("slash", *"embe")
        await pilot.click("PickList", offset=(5, 0))
        await settled(pilot)
        assert main.here[0].steps[main.here[1].step].site == "embed"


async def test_theme_and_quit_keys() -> None:
    async with running() as (app, pilot):
        await pilot.press("T")
        assert app.theme == "layerstep-light"
        await settled(pilot)
        await pilot.press("T")
        assert app.theme == "layerstep-contrast"
        await pilot.press("T")
        assert app.theme == "layerstep-dark"
        await pilot.press("E")  # the engine runs: a notice
        await pilot.press("escape", "q")
        assert app._exit
    async with running() as (app, pilot):
        await pilot.press("p", "ctrl+c")  # from a dialog too
        assert app._exit


async def test_what_loading_the_weights_did_can_be_read() -> None:
    async with running() as (app, pilot):
        await pilot.press("a")
        await pilot.pause()
        text = "\n".join(text_of(app))
        assert "cast 38 tensors from float16 to float32" in text
        assert "n_layers  2" in text
        await pilot.press("a")
        assert not isinstance(app.screen, AboutScreen)
