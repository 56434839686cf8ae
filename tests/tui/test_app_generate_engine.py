"""Generating in the app with the real engine: what is shown of each pass is what the engine has there."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import go, main_of, picture, press_fast, running, settled, text_of, until
from textual.pilot import Pilot
from tiny_t5 import SOURCE, TARGET, write_t5

from tui.app import LayerstepApp
from tui.link import ProcessLink
from tui.screens.branches import BranchScreen
from tui.screens.sampling import SamplingScreen
from tui.state.sampling import Sampling
from tui.state.trace import Trace
from tui.widgets.pick_list import PickList
from tui.widgets.timeline import Timeline

PROMPT = "Once upon a time"
ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "samples" / "models" / "modern" / "model.safetensors"

pytestmark = pytest.mark.skipif(not SAMPLE.exists(), reason="the sample model is not here")


async def opened(app: LayerstepApp, pilot: Pilot[None]) -> None:
    """Wait for the trace; a real engine imports torch first."""
    await until(pilot, lambda: main_of(app).trace is not None, 60)
    await settled(pilot)


def ids(app: LayerstepApp) -> list[int]:
    return [token.id for token in main_of(app).here[0].line(0)]


async def test_a_run_is_that_of_generate_and_a_branch_goes_its_own_way() -> None:
    from engine import generate, load_model
    from engine import trace as record

    model = load_model("modern", device="cpu")
    expected = [made.token.id for made in generate(model, PROMPT, max_new_tokens=7)]
    prompt = len(record(model, PROMPT).tokens[0])
    request = {"model": "modern", "prompt": PROMPT}
    async with running((80, 24), link=ProcessLink, wait=False, request=request) as (app, pilot):
        await opened(app, pilot)
        main = main_of(app)
        main.sampling = Sampling(tokens=6)
        await press_fast(app, "G")
        await until(pilot, lambda: main.trace is not None and len(main.trace.passes) == 7, 30)
        await settled(pilot)
        assert ids(app)[prompt:] == expected[:6]
        await pilot.press("g")
        await settled(pilot)
        assert ids(app)[prompt:] == expected
        await go(app, pilot, "logits")
        await pilot.press("comma", "comma", "down")
        await settled(pilot)
        second = main.ranked_ids()[1]
        await pilot.press("enter")
        await settled(pilot)
        assert ids(app)[prompt:] == [*expected[:5], second]
        await pilot.press("u")
        await until(pilot, lambda: isinstance(app.screen, BranchScreen) and app.screen.is_mounted)
        assert [choice.note.split()[:2] for choice in app.screen.query_one(PickList).choices] == [
            ["0", str(prompt + 7)],
            [str(prompt + 5), str(prompt + 6)],
        ]
        await pilot.press("up", "enter")
        await settled(pilot)
        assert ids(app)[prompt:] == expected
        await pilot.press("backspace")
        await settled(pilot)
        assert ids(app)[prompt:] == expected[:6]


async def test_every_step_of_a_block_can_be_looked_at_in_one_pass_and_over_all() -> None:
    request = {"model": "modern", "prompt": PROMPT}
    async with running((80, 24), link=ProcessLink, wait=False, request=request) as (app, pilot):
        await opened(app, pilot)
        main = main_of(app)
        await pilot.press("g", "g", "home")
        await settled(pilot)
        whole = ("key_positions", "blocks.1.attn.pattern", "blocks.1.attn.cache_k", "logits")
        for at in (None, 2):
            main.move_to(main.here[1].in_pass(main.here[0], at))
            for step in main.here[0].steps:
                if step.site in whole or (step.block == 1 and at is not None):
                    main.go_to_step(step.index)
                    await settled(pilot)
                    assert main.trouble == "", (step.site, at, main.trouble)
        assert not app._notifications


@pytest.mark.parametrize("kind", ["modern", "classic"])
def test_shapes_and_places_of_a_pass_are_the_engines(kind: str) -> None:
    from engine.browse import Session

    session = Session()
    session.open({"model": kind, "prompt": PROMPT}, lambda *progress: None)
    trace = Trace.read(session.generate({"n": 5}, lambda *progress: None))
    _compare(trace, session.trace)


def test_shapes_and_places_of_a_windowed_layer_are_the_engines() -> None:
    import torch

    from engine import Model, ModelConfig, build_program
    from engine import trace as record
    from engine.browse import summary
    from engine.decoding import extend

    config = ModelConfig(
        name="windowed", d_vocab=20, d_model=16, n_layers=2, n_heads=4, d_head=4, d_mlp=32, n_ctx=64, n_kv_heads=2,
        window=3, positions="rotary", norm="rms",
    )  # fmt: skip
    draw = torch.Generator().manual_seed(0)
    params = build_program(config).params
    model = Model.from_weights(config, {name: torch.randn(shape, generator=draw) for name, shape in params.items()})
    going = record(model, [1, 2, 3, 4, 5])
    for token in (6, 7, 8):
        going = extend(model, going, [token])
    trace = Trace.read(summary(going))
    assert any(trace.step(step.index, 3).first("key") == 5 for step in trace.steps if "key" in step.axes)
    _compare(trace, going)


def _compare(ours, theirs) -> None:  # type: ignore[no-untyped-def]
    assert len(ours.passes) == len(theirs.passes) > 1
    for at in (None, *range(len(ours.passes))):
        for step in ours.steps:
            here = ours.step(step.index, at)
            assert here.shape == tuple(theirs.shape(step.site, at)), (step.site, at)
            for axis in {"key", "kv_pos"} & set(step.axes):
                assert here.first(axis) == (0 if at is None else theirs.first_key(step.site, at)), (step.site, at)


async def test_what_is_out_of_range_is_the_engines_line() -> None:
    request = {"model": "modern", "prompt": PROMPT}
    async with running((80, 24), link=ProcessLink, wait=False, request=request) as (app, pilot):
        await opened(app, pilot)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, SamplingScreen) and app.screen.is_mounted)
        app.screen.query_one("#field-temperature").value = "-1"  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: "temperature must be a number from 0" in "\n".join(text_of(app)))
        app.screen.query_one("#field-temperature").value = "0.7"  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is main_of(app))
        assert "T 0.7 · step" in text_of(app)[0]
        assert len(main_of(app).here[0].passes) == 1


async def test_a_decoder_beside_an_encoder_goes_on(tmp_path: Path) -> None:
    request = {"prompt": SOURCE, "target": TARGET, "model": str(write_t5(tmp_path / "t5"))}
    async with running((120, 40), link=ProcessLink, wait=False, request=request) as (app, pilot):
        await opened(app, pilot)
        main = main_of(app)
        length = len(ids(app))
        await pilot.press("g", "g", "left_curly_bracket")
        await settled(pilot)
        assert len(ids(app)) >= length + 1
        for site in ("blocks.1.cross_attn.pattern", "encoder.blocks.0.resid_post", "blocks.1.attn.pattern"):
            await go(app, pilot, site)
            assert main.trouble == ""
            assert picture(app).block is not None
        assert "pass @" in "\n".join(text_of(app)[main.query_one(Timeline).region.y :])
