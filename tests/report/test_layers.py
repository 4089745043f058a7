"""Maps over images: what the contrast of kinds says, where the peak is said to be, and strips."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dubium.report.cards import maps_html
from dubium.report.pictures import contrast_of_kinds, maps_row, place_of_most, place_of_peak, size_words
from dubium.run.store import Row

PROBS = np.array([0.5, 0.5], np.float32)
EMPTY = Row(
    id=7, path=None, label=None, prediction=0, probs=PROBS, members=PROBS[None], total=0.7, aleatoric=0.4,
    epistemic=0.3, map_total=None, map_aleatoric=None, map_epistemic=None, height=6, width=9, thumbnail=None,
)  # fmt: skip


def spots(*places, size=(6, 9)):
    """A map with a value at each place."""
    array = np.zeros(size, np.float32)
    for row, column, value in places:
        array[row, column] = value
    return array


def with_maps(aleatoric, epistemic):
    return replace(EMPTY, map_aleatoric=aleatoric, map_epistemic=epistemic)


def contrast(aleatoric, epistemic):
    return contrast_of_kinds({"aleatoric": torch.from_numpy(aleatoric), "epistemic": torch.from_numpy(epistemic)})


def test_the_contrast_of_one_picture_is_nothing_whatever_its_scores():
    found = contrast(spots((1, 2, 4), (3, 3, 4)), spots((1, 2, 0.5), (3, 3, 0.5)))
    assert found.shared == pytest.approx(1)
    assert found.difference.abs().max() == pytest.approx(0, abs=1e-7)


def test_the_contrast_of_maps_that_have_nothing_in_common_has_both_signs():
    found = contrast(spots((0, 0, 3)), spots((5, 8, 0.1)))
    assert found.shared == 0
    assert found.difference[0, 0] == pytest.approx(-1)
    assert found.difference[5, 8] == pytest.approx(1)
    assert found.difference.count_nonzero() == 2
    assert "more aleatoric at the top left, more epistemic at the bottom right" in found.words


def test_half_in_common_is_half_shared():
    assert contrast(spots((0, 0, 1), (1, 1, 1)), spots((0, 0, 5), (2, 2, 5))).shared == pytest.approx(0.5)


@pytest.mark.parametrize("missing", [None, spots()], ids=["no map", "a map of zeros"])
def test_without_two_maps_there_is_no_contrast_and_no_picture_of_one(missing):
    row = with_maps(spots((0, 0, 1)), missing)
    assert contrast_of_kinds({kind: torch.from_numpy(array) for kind, array in row.maps().items()}) is None
    assert 'class="contrast"' not in maps_html(row)


@pytest.mark.parametrize(
    ("place", "words"),
    [((0, 0), "top left"), ((5, 8), "bottom right"), ((3, 4), "centre"), ((2, 8), "middle right"),
     ((1, 5), "top centre")],
)  # fmt: skip
def test_the_peak_is_where_the_brightest_pixel_is_and_not_where_most_of_the_map_is(place, words):
    array = spots((*place, 2.0))
    array[4:, :3] += 1.0  # more in sum, darker
    assert place_of_peak(array) == words
    assert place_of_most(array) == "bottom left"
    row = with_maps(array, array)
    assert f"0.300 nats, most at the {words}" in maps_html(row)


def test_strips_are_below_each_other_and_said_to_be_stretched():
    assert "strips" in maps_row([], (10, 500))
    assert "strips" not in maps_row([], (300, 40))
    assert size_words((10, 500)) == "500 × 10 pixels, stretched to be seen"
    assert size_words((28, 28)) == "28 × 28 pixels"
    wide = spots((0, 0, 1), size=(10, 500))
    row = replace(with_maps(wide, wide), height=10, width=500, image_height=0)
    assert '<div class="maps both strips">' in maps_html(row)
