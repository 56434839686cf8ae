"""The settings file, what the app remembers, and how panes and themes are arranged."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from helpers import go, main_of, picture, running, settled, text_of, until
from rich.cells import cell_len
from rich.style import Style

from tui.actions import DEFAULT, Keymap
from tui.render.palette import LEVELS, contrast, inks, palette
from tui.screens.settings import SettingsScreen
from tui.settings import Settings, SettingsError, read_settings, settings_path
from tui.settings_file import default_text, write_default
from tui.state.drawing import MODES
from tui.state.remembered import Remembered, first_time, recall, remember, seen
from tui.state.sampling import Sampling
from tui.themes import THEMES, after
from tui.widgets.heatmap import Heatmap
from tui.widgets.pass_tree import PassTree
from tui.widgets.why import WhyPane

PATTERN = "blocks.0.attn.pattern"
LOOKS = ("cells", "scale", "pace", "cell_width")


def reading(folder: Path, text: str) -> Settings:
    """The settings that a file with this text makes."""
    file = folder / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return read_settings(str(file))


def shown(app: object) -> str:
    return "\n".join(text_of(app))  # type: ignore[arg-type]


# the file


def test_without_a_file_everything_is_as_usual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LAYERSTEP_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = read_settings()
    assert found == Settings(path=found.path)
    assert found.path is not None
    assert found.path.name == "settings.toml"
    assert list(tmp_path.iterdir()) == []


def test_a_file_sets_what_it_names(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        'theme = "light"\nmouse = false\nrestore = true\n'
        '[look]\ncells = "shades"\nscale = "log"\npace = 2\ncell_width = 4\n'
        '[keys]\nplay = "M"\nstep.next = ["X", "ctrl+n"]\n"step.previous" = "ctrl+left"\n',
    )
    assert found == Settings(
        "layerstep-light", "shades", "log", 2.0, 4, False, True, found.keys, tmp_path / "settings.toml"
    )
    assert dict(found.keys) == {
        "play": ("M",), "step.next": ("X", "ctrl+n"), "step.previous": ("ctrl+left",),
    }  # fmt: skip
    assert found.shades is True


WRONG = {
    'them = "dark"': ':1: "them" is not known here; known are theme, mouse, restore, look, keys',
    '\ntheme = "solarised"': ':2: theme is "solarised"; it can be dark, light, contrast',
    "theme = 1": ":1: theme is 1; it can be dark, light, contrast",
    "mouse = 1": ":1: mouse is 1; it can be true or false",
    'restore = "yes"': ':1: restore is "yes"; it can be true or false',
    "look = 1": ":1: look is a table: write [look] on a line of its own",
    "[look]\ncolour = 1": ':2: "colour" is not known in [look]; known are cells, scale, pace, cell_width',
    "[look]\npace = 0": ":2: pace is 0; it can be 0.1 to 60 seconds",
    "[look]\npace = nan": ":2: pace is nan; it can be 0.1 to 60 seconds",
    "[look]\npace = true": ":2: pace is true; it can be 0.1 to 60 seconds",
    '[look]\nscale = "fixed"': ':2: scale is "fixed"; it can be auto, row, symmetric, log, clipped',
    "[look]\ncell_width = 99": ":2: cell_width is 99; it can be 1 to 9 columns, or 0: what the numbers need",
    "[look]\ncell_width = 1.5": ":2: cell_width is 1.5; it can be 1 to 9 columns, or 0: what the numbers need",
    '[keys]\n# one\nstep.nxt = "N"': ':3: "step.nxt" is no action; near are step.next',
    '[keys]\n"step.next" = "ctrl+enter"': ':2: step.next: "ctrl+enter" cannot be sent by every terminal',
    '[keys]\nplay = "ctrl+1"': ':2: play: "ctrl+1" cannot be sent by every terminal',
    '[keys]\nplay = "ctrl+shift+p"': ':2: play: "ctrl+shift+p" cannot be sent by every terminal',
    '[keys]\nplay = "ctrl+b"': ':2: play: "ctrl+b" is what tmux takes for itself',
    '[keys]\nplay = "ctrl+s"': ':2: play: "ctrl+s" can stop the terminal\'s output',
    '[keys]\nplay = "ctrl+m"': ':2: play: "ctrl+m" is sent as Enter',
    '[keys]\nplay = "ctrl+z"': ':2: play: "ctrl+z" always goes to the shell',
    '[keys]\nplay = "hyper"': ':2: play: "hyper" is no key; write a character, or left, right',
    '[keys]\nplay = ""': ':2: play: "" is no key',
    "[keys]\nplay = 5": ':2: play is 5; it can be a key, "x", a list of keys',
    "[keys]\nplay = [1]": ":2: play is [1]; it can be a key",
    '[keys]\nplay = "h"': ":2: play: h is the key of head.next too",
    '[keys]\nplay = "Esc"': ":2: play: Esc is the key of back too",
    '[keys]\nplay = "N"\n"chain.next" = "N"\n"chain.previous" = "n"': ":3: chain.next: N is the key of play too",
    '[keys]\n"cache.theme" = "m"': ":2: cache.theme: m is the key of cache.measure too",
    '[keys]\nplay = "x"\nplay = "y"': ": is no TOML: Cannot overwrite a value",
    "theme = ": ": is no TOML",
    'theme = "\x1b[31m"': ": is no TOML: ",
    '"\\u001b]0;PWNED" = 1': '"␛]0;PWNED" is not known here',
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_not_known_is_one_line_with_the_place(text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        reading(tmp_path, text)
    said = str(caught.value)
    assert said.startswith(str(tmp_path / "settings.toml"))
    assert WRONG[text] in said
    assert said.isprintable()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"theme = '\xff'", "is not UTF-8 (at byte 9)"),
        (b"#" * (1 << 21), "over a megabyte"),
        (b"a = " + b"[" * 9999, ""),
    ],
)
def test_what_is_no_settings_file_is_said_too(data: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_bytes(data)
    with pytest.raises(SettingsError, match="settings.toml.*" + re.escape(words)):
        read_settings(str(file))


def test_a_file_that_is_named_must_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no such settings file"):
        read_settings(str(tmp_path / "none.toml"))
    monkeypatch.setenv("LAYERSTEP_CONFIG", str(tmp_path / "other.toml"))
    assert settings_path() == tmp_path / "other.toml"
    with pytest.raises(SettingsError, match=r"other\.toml: there is no such settings file"):
        read_settings()
    with pytest.raises(SettingsError, match="is a directory"):
        read_settings(str(tmp_path))


def test_the_default_file_changes_nothing_and_without_its_marks_it_is_what_counts_anyway(tmp_path: Path) -> None:
    text = default_text()
    assert reading(tmp_path, text) == Settings(path=tmp_path / "settings.toml")
    lines = [line.removeprefix("# ") if " = " in line else line for line in text.splitlines()]
    found = reading(tmp_path, "\n".join(lines))
    assert replace(found, keys={}) == Settings(path=tmp_path / "settings.toml", keys={})
    own = Keymap(found.keys).by_id
    assert {name: action.keys for name, action in own.items()} == {
        name: action.keys for name, action in DEFAULT.by_id.items()
    }


def test_the_readme_lists_every_setting_as_it_is_without_a_file(tmp_path: Path) -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```toml\n(.*?)```", readme, re.DOTALL)
    found = reading(tmp_path, block)
    assert replace(found, keys={}) == Settings(path=tmp_path / "settings.toml", keys={})
    assert dict(found.keys) == {"step.next": ("right", "N"), "chain.previous": ("ctrl+n",)}
    written = {line.split(" = ")[0] for line in block.splitlines() if " = " in line}
    assert written == {"theme", "mouse", "restore", *LOOKS, *(f'"{name}"' for name in found.keys)}


async def test_the_settings_screen_writes_a_file_once_and_never_over_another(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "settings.toml"
    set_ = Settings(path=file, pace=3.0, keys={"chain.next": ("ctrl+n",)})
    async with running(settings=set_) as (app, pilot):
        await pilot.press("O")
        assert isinstance(app.screen, SettingsScreen)
        await pilot.pause()
        assert "there is none yet; w writes one" in shown(app)
        assert "^N         On in the chain of scores" in shown(app)
        assert "3 s a step" in shown(app)
        await pilot.press("w")
        await pilot.pause()
        assert file.read_text(encoding="utf-8") == default_text()
        assert "take the # off what you change" in shown(app)
        file.write_text("mine", encoding="utf-8")
        await pilot.press("w")
        await pilot.pause()
        assert "it stays as it is" in shown(app)
        assert file.read_text(encoding="utf-8") == "mine"
        await pilot.press("O")
        assert app.screen is main_of(app)
    async with running() as (app, pilot):
        await pilot.press("O", "w")
        await pilot.pause()
        assert "no file counts here, so none is written" in shown(app)
        await pilot.press("escape")


def test_a_file_that_cannot_be_written_is_said_by_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"[Nn]ot a directory|exists"):
        write_default(tmp_path / "file" / "settings.toml")


async def test_looks_that_are_set_count_from_the_start() -> None:
    set_ = Settings(theme="layerstep-contrast", cells="shades", scale="log", cell_width=3, pace=0.02)
    async with running(settings=set_) as (app, pilot):
        await go(app, pilot, PATTERN)
        heatmap = picture(app)
        assert isinstance(heatmap, Heatmap)
        assert (heatmap.shades, heatmap.cell_width, app.theme) == (True, 3, "layerstep-contrast")
        assert main_of(app).drawing.mode == "log"


async def test_the_light_theme_that_is_asked_for_comes_before_the_one_that_is_set() -> None:
    async with running(theme="layerstep-light", settings=Settings(theme="layerstep-contrast"), wait=False) as (app, _):
        assert app.theme == "layerstep-light"


# what is remembered


def been_here(folder: Path) -> Path:
    """What is remembered of somebody who was here before: nothing but that."""
    file = folder / "session.json"
    seen(file)
    return file


def a_memory() -> Remembered:
    return Remembered(
        {"model": "classic", "prompt": "dog bites man"}, f"{PATTERN}[b=0,h=2,q=3,k=1]@0", {"attention": "row"}, True, 3,
        "row", 0.5, False, None, "why", Sampling(0.8, 40, seed=7, stop="."), True,
    )  # fmt: skip


def test_what_is_remembered_is_read_back_and_is_for_nobody_else(tmp_path: Path) -> None:
    file = tmp_path / "state" / "session.json"
    assert recall(file) == (Remembered(), "")
    remember(file, a_memory())
    assert recall(file) == (a_memory(), "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    remember(file, replace(a_memory(), zoom=1))
    assert recall(file)[0].zoom == 1
    assert [found.name for found in file.parent.iterdir()] == ["session.json"]


def test_it_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "session.json"
    remember(file, a_memory())

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        remember(file, Remembered())
    assert recall(file) == (a_memory(), "")
    assert [found.name for found in tmp_path.iterdir()] == ["session.json"]


def test_a_prompt_with_anything_in_it_is_remembered(tmp_path: Path) -> None:
    for prompt in ("", "[/]", "\x1b]52;c;x\x07", "\u202e", "\ud800", "漢字\n\0", "a" * 100_000):
        remember(tmp_path / "s.json", Remembered({"model": "m", "prompt": prompt}))
        assert recall(tmp_path / "s.json")[0].request["prompt"] == prompt


def foreign_files() -> list[bytes]:
    good = {"format": 1, "request": {"model": "m", "prompt": "p"}}
    bad = [
        {"format": 2}, {"request": 1}, {"request": {"model": 1}}, {"views": {"a": 1}}, {"zoom": "x"}, {"zoom": True},
        {"shades": 1}, {"maximised": "all"}, {"address": None}, {"scale": "loud"}, {"limit": "x"}, {"seen": 1},
        {"sampling": {"temperature": "hot"}}, {"sampling": {"stop": 1}}, {"sampling": {"tokens": None}},
        {"sampling": [1]}, {"views": None},
    ]  # fmt: skip
    damaged = [json.dumps({**good, **one}).encode() for one in bad]
    return [b"", b"\0", b"\xff\xfe", b"[]", b"null", b"1", b'"x"', b"{}", b"[" * 100_000, *damaged]


@pytest.mark.parametrize("data", foreign_files())
def test_a_file_that_is_not_ours_counts_as_none_and_is_said(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "session.json"
    file.write_bytes(data)
    found, wrong = recall(file)
    assert found == Remembered()
    assert "is no session of layerstep's" in wrong
    assert not first_time(file)
    seen(file)
    assert recall(file) == (Remembered(seen=True), "")


def test_a_permission_is_not_remembered_and_paths_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    request = {"model": "./here", "prompt": "x", "allow_pickle": "yes", "file": "a.trace"}
    remember(tmp_path / "s.json", Remembered(request))
    assert recall(tmp_path / "s.json")[0].request == {
        "model": str(tmp_path / "here"), "prompt": "x", "file": str(tmp_path / "a.trace"),
    }  # fmt: skip
    remember(tmp_path / "s.json", Remembered({"model": "owner/name", "prompt": "x"}))
    assert recall(tmp_path / "s.json")[0].request["model"] == "owner/name"


def test_the_first_time_is_one_time(tmp_path: Path) -> None:
    file = tmp_path / "session.json"
    assert not first_time(None)
    seen(None)
    assert first_time(file)
    seen(file)
    assert not first_time(file)


async def test_the_app_is_again_where_it_was_left(tmp_path: Path) -> None:
    file = been_here(tmp_path)
    async with running(memory=file, request={"model": "classic", "prompt": "dog bites man"}) as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("h", "h", "up", "2", "c", "l", "i")
        await settled(pilot)
        left, words = main_of(app).here[1], text_of(app)
    for way in ("start", "key"):
        async with running(memory=file, last=way == "start") as (app, pilot):
            main = main_of(app)
            assert not main.query_one(WhyPane).parent.display  # type: ignore[union-attr]
            if way == "key":
                assert main.here[0].model == "modern"
                await pilot.press("R")
                await settled(pilot)
            assert (main.here[0].model, main.here[0].prompt) == ("classic", "dog bites man")
            assert main.here[1] == left
            await until(
                pilot, lambda: [line[26:] for line in text_of(app)[1:-1]] == [line[26:] for line in words[1:-1]]
            )
            assert (main.scale_mode, main.shades) == (MODES[1], True)


async def test_of_what_was_generated_the_site_and_the_head_are_remembered(tmp_path: Path) -> None:
    file = been_here(tmp_path)
    async with running(memory=file) as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("h", "g")
        await settled(pilot)
        assert len(main_of(app).here[0].passes) == 2
    assert recall(file)[0].address == f"{PATTERN}[h=1]"
    async with running(memory=file, last=True) as (app, pilot):
        trace, cursor = main_of(app).here
        assert (trace.steps[cursor.step].site, cursor.head, len(trace.passes)) == (PATTERN, 1, 1)


async def test_without_a_trace_the_session_before_stays(tmp_path: Path) -> None:
    file = tmp_path / "session.json"
    remember(file, a_memory())
    async with running(memory=file, request={"model": "missing", "prompt": "x"}, wait=False) as (_, pilot):
        await settled(pilot)
        await pilot.press("escape")
    assert recall(file)[0] == a_memory()


async def test_with_nothing_remembered_or_nothing_of_use_it_says_so(tmp_path: Path) -> None:
    async with running() as (app, pilot):
        await pilot.press("R")
        assert [note.message for note in app._notifications] == [
            "no last session is remembered; the app remembers where it is left"
        ]
    file = tmp_path / "session.json"
    file.write_bytes(b"\xff")
    async with running(memory=file, last=True) as (app, pilot):
        assert "is no session of layerstep's" in " ".join(note.message for note in app._notifications)
        assert main_of(app).here[0].model == "modern"
    assert recall(file)[0].request["model"] == "modern"


async def test_a_last_session_that_cannot_be_opened_leaves_what_is_open(tmp_path: Path) -> None:
    file = been_here(tmp_path)
    async with running(memory=file) as (app, pilot):
        remember(file, Remembered({"model": "missing", "prompt": "x"}))
        trace = main_of(app).trace
        await pilot.press("R")
        await settled(pilot)
        assert "could not open" in shown(app)
        await pilot.press("escape")
        assert main_of(app).trace is trace
        assert main_of(app).request["model"] == "modern"


async def test_a_place_that_cannot_be_written_keeps_nobody_from_leaving(tmp_path: Path) -> None:
    file = been_here(tmp_path)
    async with running(memory=file) as (app, pilot):
        file.unlink()
        file.mkdir()
        await pilot.press("q")
        assert app._exit


# panes


@pytest.mark.parametrize(("pane", "kind"), [("tree", PassTree), ("stage", Heatmap), ("why", WhyPane)])
async def test_any_pane_can_be_alone(pane: str, kind: type, tmp_path: Path) -> None:
    async with running(size=(120, 30), memory=been_here(tmp_path)) as (app, pilot):
        main = main_of(app)
        await go(app, pilot, PATTERN)
        ids = ("#tree-pane", "#stages", "#why-pane")
        sizes = [main.query_one(name).outer_size for name in ids]
        main.set_focus(main.query_one(kind))
        await pilot.press("z")
        await settled(pilot)
        alone = [name for name in ids if main.query_one(name).display]
        assert alone == [{"tree": "#tree-pane", "stage": "#stages", "why": "#why-pane"}[pane]]
        assert main.query_one(alone[0]).outer_size.width == 120
        assert isinstance(app.focused, kind)
        await pilot.press("right", "left")
        await settled(pilot)
        assert isinstance(app.focused, kind)
        await pilot.press("z" if pane != "why" else "escape")
        main.focus_picture()
        await settled(pilot)
        assert [main.query_one(name).outer_size for name in ids] == sizes
        main.set_focus(main.query_one(kind))
        await pilot.press("z")
    async with running(size=(120, 30), memory=been_here(tmp_path)) as (app, pilot):
        main = main_of(app)
        assert main.maximised == pane
        assert main.focused is not None
        assert main.focused.region.width > 100


async def test_of_two_pictures_the_one_in_use_is_alone(tmp_path: Path) -> None:
    file = been_here(tmp_path)
    async with running(size=(160, 30), memory=file) as (app, pilot):
        main = main_of(app)
        await go(app, pilot, PATTERN)
        await pilot.press("d")
        await settled(pilot)
        one, two = main.query_one("#stage"), main.query_one("#beside")
        assert one.display
        assert two.display
        main.set_focus(two.query_one(Heatmap))
        await pilot.press("z")
        await settled(pilot)
        assert (one.display, two.display) == (False, True)
        assert main.leaving().maximised == "stage"
        await pilot.press("z")
        await settled(pilot)
        assert (one.display, two.display) == (True, True)
        await pilot.press("tab", "escape")


async def test_asking_for_a_pane_ends_being_alone() -> None:
    async with running() as (app, pilot):
        main = main_of(app)
        await pilot.press("z", "t")
        await settled(pilot)
        assert main.maximised == ""
        assert not main.query_one("#tree-pane").display
        assert main.query_one("#why-pane").display


# themes


def test_the_themes_come_round() -> None:
    name, names = "layerstep-dark", []
    for _ in THEMES:
        names.append(name)
        name = after(name)
    assert set(names) == set(THEMES)
    assert name == "layerstep-dark"
    assert after("not ours") in THEMES


def ratio(style: Style) -> float:
    assert style.color is not None
    assert style.bgcolor is not None
    return contrast(style.color.get_truecolor(), style.bgcolor.get_truecolor())


@pytest.mark.parametrize("name", THEMES)
def test_every_ink_and_every_cell_can_be_read_on_every_theme(name: str) -> None:
    colours = palette(THEMES[name].dark, name)
    cells = [*colours.fills, *colours.inks, *colours.weights, *colours.weight_inks]
    cells += [colours.masked, colours.missing, colours.odd, colours.cursor]
    assert len(colours.fills) == 2 * LEVELS + 1
    texts = {field: style for field, style in vars(inks(name)).items() if not field.startswith("bar_")}
    for field, style in [*texts.items(), *((str(cell), cell) for cell in cells)]:
        assert ratio(style) >= 4.5, field
    if name == "layerstep-contrast":
        assert min(map(ratio, texts.values())) >= 7


@pytest.mark.parametrize("name", THEMES)
async def test_dialogs_and_frames_can_be_read_on_every_theme(name: str) -> None:
    """What the style sheets draw, from the screen as it is: dialogs, borders, inputs, placeholders."""
    async with running(theme=name, engine=FakeEngine()) as (app, pilot):
        main = main_of(app)
        for key in ("", "p", "slash", "ctrl+p", "O", "a", "x", "o"):
            if key:
                await pilot.press(key)
                await settled(pilot)
            box = app.screen.query("Box").first().region if app.screen is not main else main.region
            for y, strip in enumerate(app.screen._compositor.render_strips()):
                x = 0
                for segment in strip:
                    inside = box.contains(x, y) and box.contains(x + cell_len(segment.text) - 1, y)
                    words = "".join(char for char in segment.text if char.isalnum())
                    if inside and words and segment.style and segment.style.color and segment.style.bgcolor:
                        assert ratio(segment.style) >= 4.5, (key, segment)
                    x += cell_len(segment.text)
            await pilot.press("escape")
