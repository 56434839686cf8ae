"""Keys of one's own: they do what is said, and wherever a key is named it is the real one."""

from __future__ import annotations

import string

import pytest
from fake_engine import FakeEngine, MemoryLink
from helpers import go, has_main, main_of, running, settled, text_of, until
from hypothesis import given
from hypothesis import strategies as some
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual.keys import _character_to_key
from textual.pilot import Pilot

from tui.actions import ACTIONS, ALWAYS, CACHE_ACTIONS, DEFAULT, Action, Keymap, keymap_of
from tui.keys import SHOWN, KeyTrouble, of_character, parse, printed
from tui.screens.about import AboutScreen
from tui.screens.cache import CacheScreen
from tui.screens.main import MainScreen
from tui.settings import Settings

PATTERN = "blocks.0.attn.pattern"


def keyed(**keys: str | tuple[str, ...]) -> Settings:
    """Settings with keys of one's own; ``step_next`` stands for ``step.next``."""
    own = {name: (key,) if isinstance(key, str) else key for name, key in keys.items()}
    return Settings(keys={name.replace("__", "."): key for name, key in own.items()})


def shown(app: object) -> str:
    return "\n".join(text_of(app))  # type: ignore[arg-type]


def told(app: object) -> list[str]:
    return [notice.message for notice in app._notifications]  # type: ignore[attr-defined]


# names


@given(some.sampled_from(string.punctuation + string.ascii_letters + string.digits + "äßñяλ字"))
def test_the_key_of_a_character_is_what_textual_calls_it(char: str) -> None:
    assert of_character(char) == _character_to_key(char)
    assert parse(char) == of_character(char)
    assert printed(of_character(char)) == char


def test_every_key_reads_back_as_it_is_printed_and_by_its_name() -> None:
    for action in (*ACTIONS, *CACHE_ACTIONS):
        for key in action.keys:
            if key != "ctrl+c":
                assert parse(key) == key
                assert parse(printed(key)) == key


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("PgUp", "pageup"),
        ("page_up", "pageup"), ("ESC", "escape"), ("return", "enter"), (" ", "space"), ("^P", "ctrl+p"),
        ("Ctrl+P", "ctrl+p"), ("shift+a", "A"), ("shift+Tab", "shift+tab"), ("⇧Tab", "shift+tab"), ("→", "right"),
        ("ctrl+right", "ctrl+right"), ("F5", "f5"), ("+", "plus"), ("-", "minus"), ("question_mark", "question_mark"),
        ("\\", "backslash"), ('"', "quotation_mark"),
    ],
)  # fmt: skip
def test_keys_can_be_written_in_several_ways(written: str, key: str) -> None:
    assert parse(written) == key


ODD_KEYS = ["ctrl+", "+", "++", "ctrl++", "shift+ctrl+x", "alt+x", "ctrl+é", "^", "¡", "\u2010"]


@given(some.text(max_size=12) | some.sampled_from(ODD_KEYS))
def test_whatever_is_written_is_a_key_that_reads_back_or_is_refused(text: str) -> None:
    try:
        key = parse(text)
    except KeyTrouble:
        return
    assert parse(printed(key)) == key


def test_named_keys_are_those_that_terminals_have_a_sequence_for() -> None:
    known = {name.value for names in ANSI_SEQUENCES_KEYS.values() if isinstance(names, tuple) for name in names}
    assert set(SHOWN) - {"space", "escape", "tab", "enter"} <= known | {"backspace"}
    for key in ("ctrl+left", "shift+down", "shift+home", "ctrl+end", "shift+tab", "ctrl+n"):
        assert parse(key) in known


# doing


def shifted(actions: tuple[Action, ...]) -> dict[str, tuple[str, ...]]:
    """Every action with the keys of the next one: as many clashes as there can be on the way."""
    own = [action for action in actions if action.id not in ALWAYS and action.keys]
    return {action.id: other.keys for action, other in zip(own, [*own[1:], own[0]], strict=True)}


async def test_every_action_can_have_the_keys_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(MainScreen, "action_do", lambda self, name: done.append(name))
    keys = shifted(ACTIONS)
    async with running(settings=Settings(keys=keys)) as (app, pilot):
        for name, own in keys.items():
            for key in own:
                done.clear()
                await pilot.press(key)
                assert done == [name], key
        await pilot.press("escape")
        assert done[-1] == "back"
        await pilot.press("ctrl+c")
        assert app._exit or done[-1] == "quit"


async def test_the_cache_view_has_its_own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    keys = shifted(CACHE_ACTIONS)
    async with running(settings=Settings(keys=keys)) as (app, pilot):
        await pilot.press("K")
        await pilot.pause()
        assert isinstance(app.screen, CacheScreen)
        footer = text_of(app)[-1]
        assert f"{Keymap(keys).key('cache.section_next')} next" in footer
        assert " Tab next" not in footer
        assert f"[{Keymap(keys).key('cache.section_1')} growth]" in shown(app)
        monkeypatch.setattr(CacheScreen, "action_do", lambda self, name: done.append(name))
        for name, own in keys.items():
            for key in own:
                done.clear()
                await pilot.press(key)
                assert done == [name], key
        monkeypatch.undo()
        await pilot.press("escape")


async def test_a_key_of_ones_own_takes_the_place_of_the_usual_ones() -> None:
    async with running(settings=keyed(step__next=("N", "ctrl+n"), chain__previous="ctrl+y")) as (app, pilot):
        main = main_of(app)
        start = main.here[1].step
        await pilot.press("N", "ctrl+n")
        assert main.here[1].step == start + 2
        await pilot.press("right")
        assert main.here[1].step == start + 2
        await pilot.press("left")
        assert main.here[1].step == start + 1
        await settled(pilot)


async def test_an_action_without_a_key_gets_one_and_one_with_a_key_can_be_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = next(action.id for action in ACTIONS if not action.keys)
    own = Settings(keys={bare: ("ctrl+y",), "play": (), "help": ()})
    done: list[str] = []
    monkeypatch.setattr(MainScreen, "action_do", lambda self, name: done.append(name))
    async with running(settings=own) as (app, pilot):
        await pilot.press("ctrl+y", "space", "question_mark")
        assert done == [bare]
        assert "play" not in text_of(app)[-1]
        assert "help" not in text_of(app)[-1]


# telling


def chords() -> Settings:
    """Every action of the walk that has one letter, on ctrl or another letter; nothing as it was."""
    free = iter("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞ" + "ĀĂĄĆĈĊČĎĐĒĔĖĘĚĜĞĠĢĤĦĨĪĬĮİĴĶĹĻĽĿŁŃŅŇŊŌŎŐŒŔŖŘŚŜŞŠŢŤŦŨŪŬŮŰŲŴŶŸŹŻŽ")
    own = [action.id for action in ACTIONS if action.keys and action.id not in ("back", "quit")]
    return Settings(keys={name: (next(free),) for name in own})


async def test_the_footer_the_palette_the_help_and_notices_name_the_real_keys() -> None:
    own = chords()
    keymap = Keymap(own.keys)
    async with running(size=(220, 120), settings=own) as (app, pilot):
        assert keymap_of(app).changed == dict(own.keys)
        await go(app, pilot, PATTERN)
        footer = text_of(app)[-1]
        for action in ACTIONS:
            if action.hint and not (action.for_target or action.for_passes):
                assert f"{keymap.hint_keys(keymap.by_id[action.id])} {action.hint}" in footer, action.id
        tabs = next(line for line in text_of(app) if "heatmap]" in line)
        assert f"[{keymap.key('view.1')} heatmap] {keymap.key('view.2')} row" in tabs
        await pilot.press(keymap.by_id["find.any"].keys[0], *"theme")
        await settled(pilot)
        assert f"Next theme {keymap.key('theme')}" in " ".join(shown(app).replace("│", " ").split())
        await pilot.press("escape", keymap.by_id["help"].keys[0])
        await settled(pilot)
        lines = [" ".join(line.replace("│", " ").split()) for line in text_of(app)]
        for name in ("step.next", "play", "layer.next"):
            words = f"{keymap.key(name)} {keymap.by_id[name].label}"
            assert any(words in line for line in lines), words
        await pilot.press("escape", keymap.by_id["trace.about"].keys[0])
        assert isinstance(app.screen, AboutScreen)
        await pilot.press(keymap.by_id["trace.about"].keys[0])
        assert app.screen is main_of(app)
        await pilot.press(keymap.by_id["view.2"].keys[0], keymap.by_id["cells.wider"].keys[0])
        assert told(app)[-1] == f"no cells to widen · {keymap.key('view.next')} shows them"
        await settled(pilot)


async def test_before_there_is_a_trace_the_real_keys_are_named_too() -> None:
    own = keyed(trace__prompt="P", trace__open="ctrl+o", trace__model="f2", find__site="f3")
    async with running(settings=own, request={"model": "missing", "prompt": "x"}, wait=False) as (app, pilot):
        await until(pilot, lambda: "could not open" in shown(app))
        await pilot.press("escape")
        assert "P prompt · ^O open · F2 model · q quit" in shown(app)
        await pilot.press("f3")
        assert told(app) == ["F3: not yet, there is no trace"]
        await pilot.press("P", "escape")


async def test_a_dead_engine_is_started_again_by_the_real_key() -> None:
    links = [MemoryLink(FakeEngine(die_on="models")), MemoryLink(FakeEngine())]
    async with running(link=lambda: links.pop(0), settings=keyed(engine__restart="ctrl+r")) as (app, pilot):
        await pilot.press("m")
        await until(pilot, lambda: "the engine ended" in shown(app))
        await settled(pilot)
        dialogs = ""
        while app.screen is not main_of(app):
            dialogs += shown(app)
            await pilot.press("escape")
        assert "^R starts it again" in dialogs
        await pilot.press("g")
        assert told(app)[-1] == "the engine is not running; press ^R to start it again"
        await pilot.press("ctrl+r")
        await settled(pilot)
        assert main_of(app).client.state == "ready"


async def press_all(pilot: Pilot[None], keys: str) -> None:
    for key in keys:
        await pilot.press(key)


async def test_without_keys_of_ones_own_nothing_is_another() -> None:
    assert Keymap().actions == ACTIONS
    assert DEFAULT.for_textual == {}
    async with running(wait=False) as (app, pilot):
        await until(pilot, lambda: has_main(app))
        assert app._keymap == {}
        await press_all(pilot, "q")
