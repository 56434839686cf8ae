"""The app's glossary knows what every architecture's tensors are called."""

import pytest
from tiny import ARCHITECTURES, LONGER, SENTENCE, TRANSLATOR, tiny_config

from engine import build_program
from tui.glossary import glossary

KINDS = ARCHITECTURES | {"longer": LONGER, "sentence": SENTENCE, "translator": TRANSLATOR}


@pytest.mark.parametrize("traits", KINDS.values(), ids=KINDS)
def test_every_site_and_every_axis_has_its_word(traits):
    words, program = glossary(), build_program(tiny_config(**traits))
    sites = [step.site for step in program.steps]
    own = {site.name.rpartition(".")[2] for site in sites}
    axes = {axis for site in sites for axis in site.axes}
    assert {name for name in own | axes if words.named(name) is None and not name.isdecimal()} == set()


@pytest.mark.parametrize("traits", KINDS.values(), ids=KINDS)
def test_every_step_says_something_that_is_explained(traits):
    words, program = glossary(), build_program(tiny_config(**traits))
    for step in program.steps:
        text = step.op.text
        assert words.words(text.title, text.formula, text.story, step.site.name), step.site.name
