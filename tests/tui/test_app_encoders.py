"""The app on encoders, with the real engine: all steps are walked, and none is asked for a next token."""

from __future__ import annotations

import pytest
from helpers import main_of, running, settled, text_of, until
from textual.pilot import Pilot
from tiny_bert import PROMPT, write_bert
from tiny_t5 import SOURCE, TARGET, write_t5

from tui.app import LayerstepApp
from tui.link import ProcessLink
from tui.widgets.token_strip import TokenStrip


async def opened(app: LayerstepApp, pilot: Pilot[None]) -> None:
    """Wait for the trace; a real engine imports torch first."""
    await until(pilot, lambda: main_of(app).trace is not None, 60)
    await settled(pilot)


async def walk(app: LayerstepApp, pilot: Pilot[None]) -> list[str]:
    """Every step from first to last, by the key; the sites that were shown."""
    main = main_of(app)
    assert main.trace is not None
    seen = []
    for _ in main.trace.steps:
        seen.append(main.trace.steps[main.cursor.step].site)  # type: ignore[union-attr]
        assert main.trouble == "", (seen[-1], main.trouble)
        await pilot.press("right")
        await settled(pilot)
    return seen


def strip_of(app: LayerstepApp) -> str:
    """The line of tokens and of what is predicted."""
    top = app.screen.query_one(TokenStrip).region
    return "\n".join(text_of(app)[top.y : top.bottom])


@pytest.mark.parametrize("sentence", [False, True], ids=["alone", "for sentences"])
async def test_without_a_head_every_step_is_walked_and_it_says_so(tmp_path, sentence) -> None:
    folder = write_bert(tmp_path / "bert", head=False, sentence=sentence)
    request = {"prompt": PROMPT, "model": str(folder)}
    async with running((80, 24), link=ProcessLink, wait=False, request=request) as (app, pilot):
        await opened(app, pilot)
        assert "encoder: no next token" in strip_of(app)
        assert "…" not in strip_of(app)  # nothing is being waited for
        main = main_of(app)
        seen = await walk(app, pilot)
        assert seen == [step.site for step in main.trace.steps]  # type: ignore[union-attr]
        assert not main.session._rankings
        assert main.address_trouble("logits") == "this trace has no site 'logits'; press / to find one"
        for size in ((60, 20), (120, 40)):
            await pilot.resize_terminal(*size)
            await settled(pilot)
            assert "encoder: no next token" in strip_of(app)


async def test_with_a_head_it_shows_what_fits_in_the_mask(tmp_path) -> None:
    from engine import load_model, trace

    folder = write_bert(tmp_path / "bert")
    best = trace(load_model(folder, device="cpu"), PROMPT).top(1, pos=4)[0]
    request = {"prompt": PROMPT, "model": str(folder)}
    async with running((80, 24), link=ProcessLink, wait=False, request=request) as (app, pilot):
        await opened(app, pilot)
        assert main_of(app).here[1].pos == 4  # where the mask is
        main_of(app).go_to_address("blocks.1.ln2.normalized")
        await settled(pilot)
        shown = strip_of(app)
        assert "[[MASK]]" in shown
        assert f"here:  {best.label} {best.prob:.2f}" in shown
        assert "→" not in shown
        seen = await walk(app, pilot)
        assert seen[-1] == "probs"


async def test_an_encoder_decoder_has_two_texts_and_both_are_walked(tmp_path) -> None:
    request = {"prompt": SOURCE, "target": TARGET, "model": str(write_t5(tmp_path / "t5"))}
    async with running((120, 40), link=ProcessLink, wait=False, request=request) as (app, pilot):
        await opened(app, pilot)
        main = main_of(app)
        assert "[</s>]" in strip_of(app)  # it begins with what the encoder reads
        assert main.here[0].target == TARGET.replace(" ", "")  # tokens of whole words have no spaces
        main.go_to_address("blocks.1.cross_attn.pattern[h=1,q=2,k=1]")
        await settled(pilot)
        text = "\n".join(text_of(app))
        assert "decoder block 1" in text
        assert "cross-attention" in text
        assert "query Katze (2) · src_key cat (1)" in text
        assert "[Katze]" in strip_of(app)
        await pilot.press("left_square_bracket")  # a layer up: the same step of the decoder's first block
        assert main.trace.steps[main.cursor.step].site == "blocks.0.cross_attn.pattern"  # type: ignore[union-attr]
        await pilot.press("left_square_bracket")  # and on to the encoder's last
        assert main.trace.steps[main.cursor.step].site.startswith("encoder.blocks.0.")  # type: ignore[union-attr]
        await pilot.press("home")
        seen = await walk(app, pilot)
        assert seen == [step.site for step in main.trace.steps]  # type: ignore[union-attr]
