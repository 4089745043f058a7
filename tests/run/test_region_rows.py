import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dubium.advice import advise
from dubium.errors import FileFormatError
from dubium.regions import map_regions
from dubium.run import Settings, explain_dataset, open_results, open_work
from dubium.run import shard as shard_module
from dubium.run.pixel_grid import mask_on_image
from dubium.run.row import mask_from_counts, region_rows, regions_of_row
from tests import piles
from tests.limits import IS_LINUX, call_apart


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("regions")
    posterior = {"run": piles.posterior(folder / "posterior")}
    explain_dataset(
        open_work(Settings(posterior, {"dataset": piles.arrays(folder / "images.npz")}, top=5)), folder / "a"
    )
    explain_dataset(open_work(Settings(posterior, {"files": [piles.folder(folder / "photos")]})), folder / "photos-out")
    return folder


def enlarged_mask(mask, size, box, outside):
    """Pixel by pixel: the cell whose centre is nearest, the later one of two."""
    top, left, bottom, right = box
    found = np.full(size, outside)
    for y in range(top, bottom):
        for x in range(left, right):
            row = (2 * (y - top) + 1) * mask.shape[0] // (2 * (bottom - top))
            column = (2 * (x - left) + 1) * mask.shape[1] // (2 * (right - left))
            found[y, x] = mask[row, column]
    return found


@given(st.data(), st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 6), st.floats(0, 1), st.booleans())
def test_a_mask_on_an_image_is_that_of_every_pixel(data, seed, height, width, density, outside):
    mask = np.random.default_rng(seed).random((height, width)) < density
    size = data.draw(st.tuples(st.integers(1, 15), st.integers(1, 15)))
    top, left = (data.draw(st.integers(0, side - 1)) for side in size)
    bottom, right = (data.draw(st.integers(at + 1, side)) for at, side in zip((top, left), size, strict=True))
    expected = enlarged_mask(mask, size, (top, left, bottom, right), outside)
    placed, area, counts = mask_on_image(mask, size, (top, left, bottom, right), outside=outside)
    assert all(count > 0 for count in counts[1:])
    np.testing.assert_array_equal(mask_from_counts(counts, size), expected)
    for step in (2, 3):
        np.testing.assert_array_equal(mask_from_counts(counts, size, step), expected[::step, ::step])
    assert area == expected.sum()
    rows, columns = np.nonzero(expected)
    box = (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1) if len(rows) else (0, 0, 0, 0)
    assert placed == box


@pytest.mark.skipif(not IS_LINUX, reason="processes are forked and measured as Linux does it")
def test_regions_of_a_huge_photo_take_neither_its_memory_nor_its_time():
    values = torch.rand(64, 64, generator=torch.Generator().manual_seed(0)) ** 20

    def work():
        rows = region_rows(values, "total", (10_000, 10_000), (0, 0, 10_000, 10_000), smooth=0)
        assert len(rows) > 50
        assert sum(row.area for row in rows) == 10**8
        assert rows[0].mask((10_000, 10_000), 40).shape == (250, 250)

    found = call_apart(work, seconds=20)  # of the processor
    assert (found.error, found.message) == ("", "")
    assert found.growth < 2**28


@pytest.mark.parametrize("counts", [(1, 2), (10**9, 10**9), (-1, 5), ()])
def test_run_lengths_of_another_size_are_refused(counts):
    with pytest.raises(FileFormatError, match="not a mask of 2 x 2"):
        mask_from_counts(counts, (2, 2))


def test_the_store_has_the_regions_of_its_maps(out):
    results = open_results(out / "a")
    for row in results.rows(results.explained):
        for kind, values in row.maps().items():
            stored = regions_of_row(row, kind)
            expected = map_regions(torch.from_numpy(values.copy()), kind)
            assert [(r.top, r.left, r.bottom, r.right) for r in stored] == [r.box for r in expected]
            assert [r.area for r in stored] == [r.area for r in expected]
            assert [r.is_remainder for r in stored] == [r.is_remainder for r in expected]
            assert [r.share for r in stored] == pytest.approx([r.share for r in expected], abs=1e-5)
            for one, other in zip(stored, expected, strict=True):
                np.testing.assert_array_equal(one.mask((12, 12)), other.mask.numpy())
        assert {region.kind for region in row.regions} == set(row.maps())
    assert all(row.regions is None for row in results.rows(results.scored))


def test_regions_of_photos_are_in_pixels_of_the_photo(out):
    for row in open_results(out / "photos-out").rows():
        regions = regions_of_row(row, "epistemic")
        masks = [region.mask((row.height, row.width)) for region in regions]
        assert (row.height, row.width) == (9, 15)
        np.testing.assert_array_equal(sum(mask.astype(int) for mask in masks), np.ones((9, 15), int))
        assert [region.area for region in regions] == [int(mask.sum()) for mask in masks]
        assert sum(region.share for region in regions) == pytest.approx(1, abs=1e-12)


def test_a_large_photo_has_the_regions_of_what_the_network_saw():
    values = torch.zeros(8, 8)
    values[1, 1] = values[6, 5] = 1.0
    found = region_rows(values, "total", (32, 16), (0, 0, 32, 16))
    boxes = {(r.top, r.left, r.bottom, r.right) for r in found if not r.is_remainder}
    expected = map_regions(values, "total")[:-1]
    assert boxes == {(4 * t, 2 * left, 4 * b, 2 * right) for t, left, b, right in (region.box for region in expected)}
    cropped = region_rows(values, "total", (8, 16), (0, 4, 8, 12))
    assert {r.left for r in cropped[:-1]} == {region.box[1] + 4 for region in expected}
    assert cropped[-1].area == 128 - sum(region.area for region in expected)


def test_regions_without_a_pixel_go_to_the_remainder():
    values = torch.zeros(2, 9)
    values[:, 0] = 1.0
    (rest,) = region_rows(values, "total", (2, 3), (0, 0, 2, 3), smooth=0)
    assert (rest.is_remainder, rest.share, rest.area) == (True, 1.0, 6)


def test_the_store_has_the_advice_of_every_image(out):
    for row in open_results(out / "a").rows():
        confidence = float(row.probs[row.prediction])
        expected = advise(confidence, row.prediction, row.label, total=row.total, epistemic=row.epistemic)
        assert row.advice == expected.name


def test_results_of_format_1_are_read_and_have_regions_of_their_maps(out, tmp_path):
    results = open_results(out / "a")
    old = shard_module.SCHEMA
    for name in ("advice", "regions", "image_height", "image_width", "seen"):
        old = old.remove(old.get_field_index(name))
    with shard_module.open_shard(
        tmp_path / "results" / "explained-00000.parquet", {**results.about, "format": 1}, old
    ) as shard:
        for row in results.rows(results.explained):
            shard.add(row)
    file = tmp_path / "results" / "explained-00000.parquet"
    assert "regions" not in pq.read_schema(file).names
    assert json.loads(pq.read_metadata(file).metadata[b"dubium"])["format"] == 1
    for row, new in zip(open_results(tmp_path).rows(), results.rows(results.explained), strict=True):
        assert row.regions is None
        assert row.advice is None
        before, now = regions_of_row(row, "epistemic"), regions_of_row(new, "epistemic")
        assert [region.counts for region in before] == [region.counts for region in now]
