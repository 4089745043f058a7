from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

import dubium
import dubium.data
from dubium import errors
from dubium.explanation import Explanation
from dubium.figures import smooth_map
from dubium.kinds import KINDS
from dubium.regions import Region, bounding_box, label_components, map_regions
from tests.networks import ensemble, images, small_cnn


def two_blocks():
    """A block of sum 6, one of sum 2 that touches nothing, and a faint pixel of 2 in all."""
    values = torch.zeros(8, 10)
    values[1:3, 1:4] = 1.0
    values[5:7, 7:9] = 0.5
    values[0, 9] = 0.2
    values[7, 0] = 1.8 / 10
    return values


def test_regions_of_two_blocks_are_the_blocks():
    values = two_blocks()
    large, small, rest = map_regions(values, "total", level=0.5, smooth=0)
    assert (large.box, large.area, large.kind) == ((1, 1, 3, 4), 6, "total")
    assert (small.box, small.area) == ((5, 7, 7, 9), 4)
    assert torch.equal(large.mask, values == 1)
    assert torch.equal(small.mask, values == 0.5)
    total = 6 + 2 + 0.2 + 0.18
    assert large.share == pytest.approx(6 / total, abs=1e-7)
    assert small.share == pytest.approx(2 / total, abs=1e-7)
    assert (rest.is_remainder, rest.area) == (True, 70)
    assert rest.share == pytest.approx(0.38 / total, abs=1e-7)
    assert not large.is_remainder


def test_a_regions_text_names_its_last_row_and_column_and_its_box_leaves_them_out():
    large, _small, rest = map_regions(two_blocks(), "total", level=0.5, smooth=0)
    assert str(large) == "Region(total: 72 % in 6 pixels, rows 1 to 2, columns 1 to 3)"
    assert large.box == (1, 1, 3, 4)
    assert large.mask.nonzero()[-1].tolist() == [2, 3]
    assert str(rest) == "Region(total: 5 % in 70 pixels, the remainder)"
    (dot, _) = map_regions(torch.eye(3)[:1].clone(), "epistemic", smooth=0)
    assert str(dot) == "Region(epistemic: 100 % in 1 pixel, row 0, column 0)"


def test_the_level_is_a_part_of_the_highest_value():
    counts = [len(map_regions(two_blocks(), "total", level=level, smooth=0)) - 1 for level in (1.0, 0.51, 0.5, 0.19)]
    assert counts == [1, 1, 2, 3]


def test_a_corner_connects_and_a_gap_does_not():
    mask = torch.tensor([[1, 0, 0, 1], [0, 1, 0, 1], [1, 0, 0, 0]], dtype=torch.bool)
    labels, count = label_components(mask)
    assert count == 2
    assert labels.tolist() == [[1, 0, 0, 2], [0, 1, 0, 2], [1, 0, 0, 0]]


@given(st.integers(0, 2**32 - 1), st.integers(1, 14), st.integers(1, 14), st.floats(0.1, 0.9))
def test_components_are_scipys(seed, height, width, density):
    mask = np.random.default_rng(seed).random((height, width)) < density
    ours, count = label_components(torch.from_numpy(mask))
    theirs, expected = ndimage.label(mask, np.ones((3, 3)))
    assert count == expected
    np.testing.assert_array_equal(ours.numpy(), theirs)


def test_boxes_are_scipys():
    labels, count = label_components(torch.rand(30, 20, generator=torch.Generator().manual_seed(0)) < 0.3)
    for number, (rows, columns) in enumerate(ndimage.find_objects(labels.numpy()), 1):
        assert bounding_box(labels == number) == (rows.start, columns.start, rows.stop, columns.stop)
    assert count > 5
    assert bounding_box(torch.zeros(3, 3, dtype=torch.bool)) == (0, 0, 0, 0)


def test_regions_of_a_result_are_of_its_smoothed_maps_and_add_up_to_its_scores():
    result = dubium.explain(ensemble(small_cnn), images(3))
    for kind in ("epistemic", "total"):
        for index, regions in enumerate(result.regions(kind)):
            values = result.maps[kind][index].double()
            bright = smooth_map(values, 12 / 18) >= 0.5 * smooth_map(values, 12 / 18).max()
            assert torch.equal(sum(region.mask.int() for region in regions[:-1]).bool(), bright)
            assert torch.equal(regions[-1].mask, ~bright)
            assert sum(region.share for region in regions) == pytest.approx(1, abs=1e-12)
            assert sum(region.area for region in regions) == 144
            for region in regions:
                assert region.share == pytest.approx(float(values[region.mask].sum() / values.sum()), abs=1e-9)
                assert float(values[region.mask].sum()) == pytest.approx(
                    region.share * float(result.scores[kind][index]), abs=1e-6
                )
            assert [region.share for region in regions[:-1]] == sorted((r.share for r in regions[:-1]), reverse=True)
    default, named = result.regions(), result.regions("epistemic", level=0.5, smooth=12 / 18)
    assert [[r.box for r in regions] for regions in default] == [[r.box for r in regions] for regions in named]
    assert [len(regions) for regions in result.numpy().regions()] == [len(regions) for regions in default]


@pytest.mark.parametrize(
    ("kinds", "kind"), [("total", "total"), (("total", "aleatoric"), "total"), (KINDS, "epistemic")]
)
def test_regions_are_of_the_epistemic_map_or_of_the_first_where_no_kind_is_named(kinds, kind):
    result = dubium.explain(ensemble(small_cnn), images(2), kinds=kinds)
    assert {region.kind for regions in result.regions() for region in regions} == {kind}
    assert [[r.box for r in regions] for regions in result.regions()] == [
        [r.box for r in regions] for regions in result.regions(kind)
    ]


def test_the_region_that_the_page_prints_is_the_first_of_the_demo():
    page = (Path(__file__).parents[1] / "docs/how-to/regions.md").read_text()
    result = dubium.explain(
        dubium.load_posterior("demo"), dubium.data.load("demo").batch(range(8)), method="auto", kinds="epistemic"
    )
    assert f"print(region)  # {result.regions()[0][0]}\n" in page


def test_a_map_of_zeros_is_all_remainder_and_negative_parts_count_as_zero():
    (rest,) = map_regions(torch.zeros(4, 5), "epistemic")
    assert (rest.share, rest.area, rest.box, rest.is_remainder) == (1.0, 20, (0, 0, 4, 5), True)
    region, rest = map_regions(torch.tensor([[2.0, -1.0], [-3.0, -1.0]]), "epistemic", smooth=0)
    assert (region.share, region.area, rest.share) == (1.0, 1, 0.0)


def test_what_is_not_there_is_refused():
    maps = {"total": torch.rand(1, 4, 4)}
    result = Explanation({"total": torch.ones(1)}, maps, torch.rand(1, 3), torch.rand(2, 1, 3), "grad", {})
    with pytest.raises(errors.OptionError, match=r"kind='epistemic'.*it has total"):
        result.regions("epistemic")
    with pytest.raises(errors.OptionError, match=r"level=1\.5; .*at most 1"):
        result.regions("total", level=1.5)
    with pytest.raises(errors.OptionError, match=r"level=0"):
        result.regions("total", level=0)
    with pytest.raises(errors.OptionError, match=r"dubium\.explain makes maps"):
        dubium.uncertainty(ensemble(small_cnn), images(1)).regions()


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.41, "41 %"), (0.0099, "1 %"), (0.0042, "0.4 %"), (0.0001, "under 0.1 %"), (0.0, "0 %"), (1.0, "100 %")],
)
def test_a_share_below_one_per_cent_is_no_zero(share, text):
    region = Region(torch.ones(2, 2, dtype=torch.bool), (0, 0, 2, 2), 4, share, "total")
    assert repr(region) == f"Region(total: {text} in 4 pixels, rows 0 to 1, columns 0 to 1)"


def test_levels_and_smoothing_may_be_numpys(unchecked):
    values = torch.rand(6, 6)
    ours = map_regions(values, "total", level=np.float32(0.5), smooth=np.float64(1))
    assert repr(ours) == repr(map_regions(values, "total", level=0.5, smooth=1.0))
