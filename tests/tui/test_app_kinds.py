"""What is not a plain decoder's fresh pass: files without a model, encoder-decoders, experts, masks."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from fake_engine import FakeEngine, FakeError
from helpers import go, main_of, picture, running, settled, text_of
from textual.pilot import Pilot

from tui.app import LayerstepApp
from tui.paths import model_kind
from tui.screens.ask import AskScreen
from tui.screens.finder import FinderScreen
from tui.screens.notice import NoticeScreen
from tui.widgets.token_strip import TokenStrip

FILE = {"file": "lecture.trace.safetensors"}
TRANSLATION = {"model": "t5", "prompt": "The cat", "target": "Die Katze"}
WITHHELD = (
    "blocks.1.attn.pattern was not kept, and deriving it needs the weights; open this trace with its model, "
    "or record it with blocks.1.attn.pattern in keep"
)


def shown(app: LayerstepApp) -> str:
    """The words of the screen, without frames and line ends."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", " ".join(text_of(app))).split())


def picture_words(app: LayerstepApp) -> str:
    """The words where the picture is."""
    region = picture(app).region
    lines = [line[region.x : region.right] for line in text_of(app)[region.y : region.bottom]]
    return " ".join(" ".join(lines).split())


def strip_of(app: LayerstepApp) -> str:
    """The lines of tokens and of what is predicted."""
    region = app.screen.query_one(TokenStrip).region
    return "\n".join(text_of(app)[region.y : region.bottom])


async def typed(app: LayerstepApp, pilot: Pilot[None], key: str, text: str) -> None:
    """A key that asks, and the answer."""
    await pilot.press(key)
    assert isinstance(app.screen, AskScreen)
    app.screen.query_one("AskInput").value = text  # type: ignore[attr-defined]
    await pilot.press("enter")
    await settled(pilot)


def opened(engine: FakeEngine) -> dict[str, object]:
    """What was asked to be opened last."""
    return [params for method, params in engine.asked if method == "open"][-1]


# a trace file


async def test_a_trace_file_holds_no_model_so_a_prompt_asks_for_one_and_runs_nothing() -> None:
    engine = FakeEngine()
    async with running(engine=engine, request=FILE) as (app, pilot):
        await pilot.press("p")
        assert isinstance(app.screen, NoticeScreen)
        assert "a trace file holds no model" in shown(app)
        assert opened(engine) == FILE
        await pilot.press("m")
        await settled(pilot)
        assert isinstance(app.screen, FinderScreen)
        await pilot.press(*"classic", "enter")
        await settled(pilot)
        assert opened(engine) == {"model": "classic", "prompt": "a saved prompt"}
        await typed(app, pilot, "p", "dog bites")
        assert opened(engine) == {"model": "classic", "prompt": "dog bites"}


async def test_a_trace_file_that_was_opened_with_its_model_runs_that_one() -> None:
    engine = FakeEngine()
    async with running(engine=engine, request=FILE | {"model": "/models/modern"}) as (app, pilot):
        await typed(app, pilot, "p", "dog bites")
        assert opened(engine) == {"model": "/models/modern", "prompt": "dog bites"}


async def test_a_file_opened_later_forgets_the_model_before_it(tmp_path: Path) -> None:
    saved = tmp_path / "x.trace.safetensors"
    saved.write_bytes(b"made up")
    async with running() as (app, pilot):
        await typed(app, pilot, "o", str(saved))
        await pilot.press("p")
        assert isinstance(app.screen, NoticeScreen)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_why_there_is_no_picture_stands_whole_in_its_place(size: tuple[int, int]) -> None:
    async with running(size, FakeEngine(withheld=WITHHELD), request=FILE) as (app, pilot):
        await go(app, pilot, "blocks.1.attn.pattern")
        assert WITHHELD in picture_words(app)
        assert "┄" not in shown(app)
        await pilot.press("i") if size[0] < 100 else None
        await settled(pilot)
        assert "computed when you look" not in shown(app)
        assert "✗ blocks.1.attn.pattern was not kept" in shown(app)
        await go(app, pilot, "blocks.1.attn.z")
        assert "was not kept" not in shown(app)
        assert main_of(app).trouble == ""


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_a_trace_without_logits_says_so_where_they_would_be_and_nowhere_else(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine()

    def refuse(params: dict[str, object]) -> dict[str, object]:
        raise FakeError("NotKeptError", "logits was not kept; open this trace with its model")

    monkeypatch.setattr(engine, "_top", refuse)
    async with running(size, engine, request=FILE) as (app, pilot):
        await go(app, pilot, "blocks.1.attn.z")
        assert "was not kept" not in shown(app)
        assert "→ the next token is not in this trace" in " ".join(strip_of(app).split())
        await go(app, pilot, "logits")
        assert "logits was not kept; open this trace with its model" in picture_words(app)


async def test_about_a_trace_file_says_that_no_weights_were_loaded() -> None:
    async with running(request=FILE) as (app, pilot):
        main_of(app).here[0].__dict__["report"] = ()
        await pilot.press("a")
        await pilot.pause()
        assert "opened from a file: its weights are not loaded" in shown(app)
        assert "kinds sliding, window 8; full" in shown(app)


# an encoder-decoder


async def test_another_prompt_keeps_the_target_and_y_changes_it() -> None:
    engine = FakeEngine(source=True)
    async with running((120, 40), engine, request=TRANSLATION) as (app, pilot):
        assert "y target" in text_of(app)[-1]
        await typed(app, pilot, "p", "The dog")
        assert opened(engine) == TRANSLATION | {"prompt": "The dog"}
        await typed(app, pilot, "y", "Der Hund")
        assert opened(engine) == TRANSLATION | {"prompt": "The dog", "target": "Der Hund"}
        await typed(app, pilot, "y", "")
        assert opened(engine) == {"model": "t5", "prompt": "The dog"}


async def test_the_target_of_a_file_is_kept_too() -> None:
    engine = FakeEngine(source=True)
    request = FILE | {"model": "t5", "target": "Die Katze"}
    async with running((120, 40), engine, request=request) as (app, pilot):
        del main_of(app).request["target"]  # a file is opened without one
        await typed(app, pilot, "p", "The dog")
        assert opened(engine)["target"] == "Die Katze"


async def test_a_model_without_a_target_says_so() -> None:
    async with running() as (app, pilot):
        assert "y target" not in text_of(app)[-1]
        await pilot.press("y")
        assert [note.message for note in app._notifications] == ["modern is no encoder-decoder, so it has no target"]


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_beside_the_source_the_prediction_names_the_token_it_follows(size: tuple[int, int]) -> None:
    async with running(size, FakeEngine(source=True), request=TRANSLATION) as (app, pilot):
        await go(app, pilot, "encoder.blocks.0.resid_post")
        assert "[␣cat]" in strip_of(app)
        assert "decoder, after Katze →  . 0." in strip_of(app)
        await go(app, pilot, "logits")
        assert "[Katze]" in strip_of(app)
        assert "decoder, after" not in strip_of(app)


async def test_cross_attention_is_told_from_self_attention_where_it_is_narrow() -> None:
    async with running((80, 24), FakeEngine(source=True, layers=12), request=TRANSLATION) as (app, pilot):
        await go(app, pilot, "blocks.11.cross_attn.pattern")
        assert "decoder block 11 · cross · pattern" in text_of(app)[1]
        assert re.search(r"h(ead)? 0( of |/)4", text_of(app)[1])


# a mixture of experts


async def test_experts_are_numbered_with_whole_numbers() -> None:
    async with running(engine=FakeEngine(experts=True)) as (app, pilot):
        await go(app, pilot, "blocks.0.mlp.expert_indices")
        assert re.search(r"│ *The +3 +4 ", "\n".join(text_of(app)))
        assert not re.search(r"\.\d", picture_words(app))
        assert "min 0 max 7" in shown(app)
        await pilot.press("v")
        await settled(pilot)
        assert type(picture(app)).__name__ == "Bars"
        assert re.search(r"▸ +0 +0 +│", "\n".join(text_of(app)))  # the last token's best, and no bar


async def test_the_choice_of_an_expert_is_walked_like_a_head_and_named() -> None:
    async with running((160, 45), FakeEngine(experts=True)) as (app, pilot):
        await go(app, pilot, "blocks.0.mlp.expert_out")
        await settled(pilot)
        assert "choice 0 of 2" in text_of(app)[1]
        assert "choice expert 0 (0) · pos ␣full (8)" in shown(app)  # 3 · 8 mod 8
        await pilot.press("h")
        await settled(pilot)
        assert "choice 1 of 2" in text_of(app)[1]
        assert "choice expert 1 (1)" in shown(app)
        assert "choice expert 1 1 of 2" in shown(app)  # the explanation
        await pilot.press("up", "H")
        await settled(pilot)
        assert "choice expert 5 (0)" in shown(app)  # 3 · 7 mod 8
        await pilot.press("full_stop", "full_stop")
        cursor = main_of(app).here[1]
        assert (cursor.dim, cursor.choice) == (2, 0)  # the dim is another axis


# a mask


async def test_a_masked_model_is_looked_at_where_it_is_to_fill_in() -> None:
    async with running((80, 24), FakeEngine(mask=4)) as (app, _):
        assert main_of(app).here[1].pos == 4
        assert "[␣because]" in strip_of(app)


async def test_a_small_probability_is_not_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine(mask=4)
    row = {"id": 3, "label": "paris", "logit": 0.1}
    rows = [row | {"prob": 0.004}, row | {"prob": 0.003}]
    monkeypatch.setattr(engine, "_top", lambda params: {"rows": rows, "nonfinite": 0})
    async with running((80, 24), engine) as (app, _):
        assert "here:  paris <.01" in strip_of(app)
        assert strip_of(app).count("paris") == 1


# places


@pytest.mark.parametrize(
    ("address", "key"),
    [("blocks.0.attn.masked[h=1,q=3]", 3), ("blocks.0.attn.masked[h=1,q=3,k=1]", 1), ("blocks.0.attn.masked[h=1]", 8)],
)
async def test_a_query_without_a_key_is_looked_at_where_it_sees_itself(address: str, key: int) -> None:
    async with running(address=address) as (app, _):
        assert main_of(app).here[1].key == key


async def test_a_typed_folder_is_opened_as_it_was_typed() -> None:
    engine = FakeEngine()
    async with running(engine=engine) as (_, pilot):
        await pilot.press("m")
        await settled(pilot)
        await pilot.press(*"./modern", "enter")
        await settled(pilot)
        assert opened(engine)["model"] == "./modern"  # and not the sample of that name


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("{here}/x.gguf", "a GGUF file"),
        ("{here}", "a folder"),
        ("{here}/no.gguf", "no such file"),
        ("{here}/nowhere", "no such folder"),
        ("./nowhere", "no such folder"),
        ("HuggingFaceTB/SmolLM2-135M", "from the hub"),
        ("gpt2@main", "from the hub"),
        ("a/b/c", "no such folder"),
        ("{here}/notes.txt", "no model: neither a folder nor a GGUF file"),
    ],
)
def test_a_typed_model_is_named_as_what_it_is(typed: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").touch()
    (tmp_path / "notes.txt").touch()
    assert model_kind(typed.format(here=tmp_path)) == words


async def test_of_many_weights_a_few_are_named() -> None:
    async with running((120, 60)) as (app, pilot):
        main = main_of(app)
        step = main.trace.steps[main.cursor.step]  # type: ignore[union-attr]
        many = replace(step, params=tuple(f"experts.{i}.gate.weight" for i in range(128)))
        steps = tuple(many if one is step else one for one in main.trace.steps)  # type: ignore[union-attr]
        main.trace = replace(main.trace, steps=steps)
        main.show_all()
        await settled(pilot)
        shown = "\n".join(text_of(app))
        assert "experts.3.gate.weight" in shown
        assert "experts.4.gate.weight" not in shown
        assert "… and 124 more" in shown
