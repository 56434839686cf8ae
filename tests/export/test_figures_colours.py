"""The colours of figures: in order of lightness, so that they can be read in grey and without red and green."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from engine.export.figures.colours import INKS, LEVELS, ink_on, luminance, rgb, scale
from engine.export.figures.style import PALETTES, SHEETS
from engine.export.formats import SIZES, THEMES, FigureStyle

DEFICIENCIES = {  # Machado, Oliveira and Fernandes 2009, severity 1; in linear light
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(colours) -> np.ndarray:
    found = np.array(colours)
    return np.where(found <= 0.04045, found / 12.92, ((found + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize(("palette", "theme", "signed"), [*itertools.product(PALETTES, THEMES, (False, True))])
def test_every_scale_is_of_one_order_of_lightness(palette, theme, signed):
    light = [luminance(colour) for colour in scale(palette, theme, signed=signed)]
    steps = np.diff(light)
    assert len(light) == LEVELS
    assert (steps > 0).all() or (steps < 0).all()
    assert abs(light[0] - light[-1]) > 0.6
    if signed:
        assert min(abs(light[LEVELS // 2] - end) for end in (light[0], light[-1])) > 0.1, "both signs differ from zero"


@pytest.mark.parametrize("palette", PALETTES)
@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_they_are_so_for_people_who_see_fewer_colours(palette, deficiency):
    for signed in (False, True):
        seen = (linear(scale(palette, "light", signed=signed)) @ np.array(DEFICIENCIES[deficiency]).T).clip(0, 1)
        steps = np.diff(seen @ (0.2126, 0.7152, 0.0722))
        assert (steps > -1e-4).all() or (steps < 1e-4).all()
        assert np.abs(steps.sum()) > 0.5


@pytest.mark.parametrize("theme", THEMES)
def test_zero_of_a_weight_is_like_the_ground_and_text_can_be_read_on_it(theme):
    inks, colours = INKS[theme], scale("", theme, signed=False)
    ground = luminance(rgb(inks.ground))
    assert abs(luminance(colours[0]) - ground) < 0.1 < abs(luminance(colours[-1]) - ground)
    for colour in (inks.ink, inks.muted, inks.odd):
        assert contrast(luminance(rgb(colour)), ground) >= 4.5
    for palette, signed in itertools.product(PALETTES, (False, True)):
        for colour in scale(palette, theme, signed=signed)[::16]:
            assert contrast(luminance(rgb(ink_on(colour))), luminance(colour)) >= 4.5


def contrast(one: float, other: float) -> float:
    bright, dim = sorted((one, other), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_every_size_that_can_be_chosen_has_a_sheet_and_the_usual_style_is_one_of_them():
    assert set(SHEETS) == set(SIZES)
    assert FigureStyle().size in SHEETS
    slide = SHEETS["slide"]
    assert (slide.width * slide.dpi, slide.height * slide.dpi) == (1920, 1080)
    assert SHEETS["column"].width == 3.3
    assert all(sheet.small >= 6 for sheet in SHEETS.values()), "what can be read when it is printed"
