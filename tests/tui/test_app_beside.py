"""Two things side by side: what can be beside, the same cursor in both, and their difference."""

from __future__ import annotations

import pytest
from fake_engine import FakeEngine, MemoryLink
from helpers import go, main_of, running, settled, text_of, until

from tui.screens.ask import AskScreen
from tui.screens.finder import FinderScreen, starting
from tui.screens.notice import NoticeScreen
from tui.state.beside import Beside, usual
from tui.widgets.heatmap import Heatmap
from tui.widgets.pick_list import Choice
from tui.widgets.plane import PlaneView
from tui.widgets.stage import Stage

PATTERN = "blocks.0.attn.pattern"


def both(app: object) -> list[PlaneView]:
    """The pictures of the two stages."""
    found = [stage.picture for stage in main_of(app).query(Stage) if stage.display]  # type: ignore[arg-type]
    return [picture for picture in found if picture is not None]


async def test_d_shows_the_next_head_then_the_difference_then_one_alone() -> None:
    engine = FakeEngine()
    async with running(size=(140, 40), engine=engine) as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("d")
        await settled(pilot)
        one, other = both(app)
        assert one.plane is not None
        assert other.plane is not None
        assert (dict(one.plane.place)["head"], dict(other.plane.place)["head"]) == (0, 1)
        await pilot.press("d")
        await settled(pilot)
        (difference,) = both(app)
        assert difference.plane is not None
        assert difference.block is not None
        row, col = difference.cell
        here, there = (engine.value(PATTERN, {"batch": 0, "head": head, "query": row, "key": col}) for head in (0, 1))
        assert difference.block.value(row, col) == pytest.approx(here - there, abs=1e-6)
        assert "− head 1" in "\n".join(text_of(app))
        await pilot.press("d")
        await settled(pilot)
        assert len(both(app)) == 1
        assert main_of(app).beside is None


async def test_the_cursors_of_both_sides_move_together() -> None:
    async with running(size=(140, 40)) as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("d", "up", "up", "comma")
        await settled(pilot)
        one, other = both(app)
        assert one.cell == other.cell == (6, 7)
        await pilot.press("right", "left", "right_square_bracket")
        await settled(pilot)
        one, other = both(app)
        assert one.plane is not None
        assert other.plane is not None
        assert one.plane.step.site == other.plane.step.site == "blocks.1.attn.pattern"


async def test_f_flips_the_sides_and_flipping_twice_changes_nothing() -> None:
    async with running(size=(140, 40)) as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("d")
        before = (main_of(app).cursor, main_of(app).beside)
        await pilot.press("f")
        await settled(pilot)
        one, other = both(app)
        assert one.plane is not None
        assert other.plane is not None
        assert (dict(one.plane.place)["head"], dict(other.plane.place)["head"]) == (1, 0)
        await pilot.press("f")
        assert (main_of(app).cursor, main_of(app).beside) == before


async def test_a_layer_is_chosen_by_its_name() -> None:
    async with running(size=(140, 40)) as (app, pilot):
        await go(app, pilot, "blocks.0.resid_post")
        await pilot.press("D")
        await until(pilot, lambda: isinstance(app.screen, FinderScreen))
        await pilot.press(*"layer", "space", "1", "enter")
        await settled(pilot)
        _, other = both(app)
        assert other.plane is not None
        assert other.plane.step.site == "blocks.1.resid_post"
        assert "layer 1" in "\n".join(text_of(app))


async def test_another_prompt_is_opened_beside_and_the_first_one_stays() -> None:
    async with running(size=(140, 40)) as (app, pilot):
        await go(app, pilot, PATTERN)
        trace = main_of(app).trace
        await pilot.press("D")
        await until(pilot, lambda: isinstance(app.screen, FinderScreen))
        await pilot.press(*"prompt", "enter")
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        await pilot.press(*"a cat", "enter")
        await settled(pilot)
        main = main_of(app)
        assert main.trace is trace
        assert main.session.other is not None
        assert main.session.other.prompt == "a cat"
        _, other = both(app)
        assert other.plane is not None
        assert other.plane.trace is main.session.other
        assert other.block is not None
        await pilot.press("d")
        await settled(pilot)
        (difference,) = both(app)
        assert difference.plane is not None
        smaller = min(len(trace.tokens[0]), len(main.session.other.tokens[0]))  # type: ignore[union-attr]
        assert difference.plane.size == (smaller, smaller)


async def test_a_file_that_cannot_be_opened_beside_is_one_line_and_all_stays() -> None:
    async with running(size=(140, 40), engine=FakeEngine()) as (app, pilot):
        await go(app, pilot, PATTERN)
        main_of(app)._open_beside({"file": "/nowhere/trace.bin"})
        await until(pilot, lambda: isinstance(app.screen, NoticeScreen))
        await pilot.press("escape")
        await settled(pilot)
        assert main_of(app).beside is None
        assert isinstance(both(app)[0], Heatmap)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (160, 45), (200, 50), (40, 10), (1, 1)])
async def test_two_pictures_at_every_size(size: tuple[int, int]) -> None:
    async with running(size=(140, 40)) as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("d")
        await pilot.resize_terminal(*size)
        await settled(pilot)
        assert all(len(line) >= 0 for line in text_of(app))
        await pilot.resize_terminal(140, 40)
        await settled(pilot)
        assert len(both(app)) == 2


async def test_what_has_no_such_picture_beside_says_so() -> None:
    async with running(size=(140, 40)) as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("d")
        main_of(app).beside = Beside(block=99)
        main_of(app).show_all()
        await settled(pilot)
        assert "has no such picture" in "\n".join(text_of(app))


async def test_usual_is_the_next_head_else_the_next_layer() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, PATTERN)
        trace, cursor = main_of(app).here
        assert usual(trace, cursor) == Beside(head=1)
        await go(app, pilot, "blocks.0.resid_post")
        assert usual(*main_of(app).here) == Beside(block=1)
        await go(app, pilot, "tokens")
        assert usual(*main_of(app).here) is None


async def test_a_trace_beside_is_let_go_when_it_is_not_looked_at_any_more() -> None:
    engine = FakeEngine()
    async with running(size=(140, 40), engine=engine) as (app, pilot):
        await go(app, pilot, PATTERN)
        main = main_of(app)
        main._open_beside({"model": "modern", "prompt": "a cat"})
        await settled(pilot)
        assert engine.other is not None
        await pilot.press("d", "d")
        await settled(pilot)
        assert main.session.other is None
        assert engine.other is None


async def test_after_another_engine_started_what_was_opened_beside_is_gone() -> None:
    links = [MemoryLink(FakeEngine(die_on="models")), MemoryLink(FakeEngine())]
    async with running(size=(140, 40), link=lambda: links.pop(0)) as (app, pilot):
        await go(app, pilot, PATTERN)
        main = main_of(app)
        main._open_beside({"model": "modern", "prompt": "a cat"})
        await settled(pilot)
        assert len(both(app)) == 2
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, NoticeScreen))
        while isinstance(app.screen, NoticeScreen):
            await pilot.press("escape")
        await pilot.press("E")
        await settled(pilot)
        assert main.client.state == "ready"
        assert main.beside is None
        assert main.trouble == ""
        assert len(both(app)) == 1


async def test_cancelling_while_something_opens_beside_leaves_no_doubt_about_what_is_there() -> None:
    link = MemoryLink(FakeEngine())
    async with running(size=(140, 40), link=lambda: link) as (app, pilot):
        await go(app, pilot, PATTERN)
        main = main_of(app)
        main._open_beside({"model": "modern", "prompt": "a cat"})
        await settled(pilot)
        link.hold = True
        main._open_beside({"model": "modern", "prompt": "a dog"})
        await until(pilot, lambda: main.working)
        await pilot.press("escape")
        link.release()
        await settled(pilot)
        assert main.session.other is None  # nobody knows which of the two the engine has
        assert "has no such picture" in "\n".join(text_of(app))
        await pilot.press("d")
        await settled(pilot)
        assert len(both(app)) == 1


async def test_a_head_that_the_trace_does_not_have_is_not_shown_as_another_one() -> None:
    async with running(size=(140, 40)) as (app, pilot):
        await go(app, pilot, PATTERN)
        main_of(app).put_beside(Beside(head=99))
        await settled(pilot)
        assert "has no such picture" in "\n".join(text_of(app))


async def test_where_both_sides_are_the_same_it_says_so_and_there_is_no_difference() -> None:
    async with running(size=(140, 40)) as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("d")
        await go(app, pilot, "blocks.0.resid_post")  # without heads
        assert "is the same here" in "\n".join(text_of(app))
        await pilot.press("d")
        await settled(pilot)
        assert main_of(app).beside is None


async def test_rankings_have_no_difference() -> None:
    async with running(size=(140, 40)) as (app, pilot):
        await go(app, pilot, "logits")
        main_of(app)._open_beside({"model": "modern", "prompt": "a cat"})
        await settled(pilot)
        assert len(both(app)) == 2
        await pilot.press("d")
        await settled(pilot)
        assert not main_of(app).difference
        assert len(both(app)) == 1


async def test_next_to_keys_the_next_ones_are_those_of_another_kv_head() -> None:
    async with running() as (app, pilot):
        await go(app, pilot, "blocks.0.attn.k")
        trace, cursor = main_of(app).here
        other = usual(trace, cursor)
        assert other is not None
        assert other.head == trace.heads_per_kv > 1


async def test_a_click_in_the_second_picture_moves_the_cursor_of_both() -> None:
    async with running(size=(140, 40)) as (app, pilot):
        await go(app, pilot, PATTERN)
        await pilot.press("d")
        await settled(pilot)
        _, other = both(app)
        other.post_message(PlaneView.Picked(2, 1))
        await settled(pilot)
        assert [picture.cell for picture in both(app)] == [(2, 1), (2, 1)]


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [("another model", "model"), ("layer 1", "block 1"), ("head 1", "head 1"), ("saved", "file"), ("layer", "block 1")],
)
def test_what_is_beside_is_chosen_by_its_name_and_not_by_the_note_beside_it(typed: str, chosen: str) -> None:
    choices = [
        Choice("head 10", "head 10", "of this layer"),
        Choice("head 1", "head 1", "of this layer"),
        Choice("block 1", "layer 1", "attn.pattern"),
        Choice("prompt", "another prompt …", "for the same model"),
        Choice("model", "another model …", "for the same prompt"),
        Choice("file", "a saved trace …", "from a file"),
    ]
    assert starting(choices, typed)[0].value == chosen
    assert starting(choices, "head 3") == []
    assert starting(choices, "") == choices


async def test_a_layer_beside_is_named_once_and_a_prompt_is_in_quotes() -> None:
    async with running(size=(160, 40)) as (app, pilot):
        await go(app, pilot, PATTERN)
        main_of(app).put_beside(Beside(block=1))
        await settled(pilot)
        shown = "\n".join(text_of(app))
        assert "layer 1 · attention · pattern" in shown
        assert "block 1" not in shown.split("layer 1", 1)[1].splitlines()[0]
        await pilot.press("d")
        await settled(pilot)
        assert "attention · pattern · layer 0 − layer 1" in "\n".join(text_of(app))
        main_of(app)._open_beside({"model": "modern", "prompt": "classic"})
        await settled(pilot)
        assert "“classic” · block 0 · pattern" in "\n".join(text_of(app))


async def test_a_difference_of_two_prompts_names_both_their_tokens_and_where_one_has_none() -> None:
    request = {"model": "modern", "prompt": "The keys to the cabinet are"}
    async with running(size=(160, 40), request=request) as (app, pilot):
        await go(app, pilot, PATTERN)
        main = main_of(app)
        main._open_beside({"model": "modern", "prompt": "The cat"})
        await settled(pilot)
        await pilot.press("d")
        await settled(pilot)
        shown = "\n".join(text_of(app))
        assert "pattern · “The keys to the cabinet…” − “The cat”" in " ".join(shown.split())
        assert "␣keys|␣cat" in shown
        assert "The|The" not in shown
        assert main.here[1].pos == 6  # beyond what the other has
        assert "value    not in both" in shown
        assert "query    ␣are  6 of 7" in shown
        assert "3 of 7 on query" in " ".join(shown.replace("│", " ").split())
        main.go_to_cell(main.plane, 2, 1)
        await settled(pilot)
        assert "not in both" not in "\n".join(text_of(app))
