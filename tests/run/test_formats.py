"""Maps are stored at the networks' resolution and enlarged on reading; earlier formats are read as before."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import dubium
from dubium.data.fit import Preprocessing, place_map, to_size
from dubium.data.image_files import read_image
from dubium.posteriors import load_posterior
from dubium.report.compare import write_comparison
from dubium.report.exports import write_export
from dubium.report.page import write_page
from dubium.run import Settings, explain_dataset, open_results, open_work
from dubium.run import shard as shard_module
from dubium.run import store as store_module
from dubium.run.row import regions_of_row
from dubium.run.shard import read_about
from tests import piles

LARGE = (40, 60)  # height and width; the networks take 12 x 12
THIRD = ("image_height", "image_width", "seen")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(1)
    (folder / "images").mkdir()
    for index in range(3):
        Image.fromarray(rng.integers(0, 256, LARGE, np.uint8)).save(folder / "images" / f"{index}.png")
    Image.fromarray(rng.integers(0, 256, (5, 7), np.uint8)).save(folder / "images" / "small.png")
    piles.posterior(folder / "posterior")
    return folder


def run(photos, out, **changes):
    settings = Settings({"run": str(photos / "posterior")}, {"files": [str(photos / "images")]}, threads=1, **changes)
    return explain_dataset(open_work(settings), out)


def test_maps_are_stored_as_the_networks_saw_them_and_read_at_the_images_size(photos, tmp_path):
    networks = load_posterior(photos / "posterior")
    rows = list(run(photos, tmp_path).rows())
    assert read_about(tmp_path / "results" / "explained-00000.parquet")["format"] == 3
    for row in rows:
        image = read_image(row.path)
        found = dubium.explain(networks, to_size(image, (12, 12))[None])
        assert row.image_size == tuple(image.shape[1:])
        assert (row.height, row.width) == (
            (12, 12) if row.image_size == LARGE else (5, 7)
        )  # never finer than the image
        for kind, values in row.maps().items():
            expected = place_map(found.maps[kind][0], row.image_size, (0, 0, *row.image_size))
            np.testing.assert_allclose(values, expected, rtol=1e-3, atol=1e-8)
            stored = getattr(row, f"map_{kind}").astype(np.float64).sum()
            assert values.astype(np.float64).sum() == pytest.approx(stored, rel=1e-6)
            assert stored == pytest.approx(row.scores()[kind], rel=1e-4)


def test_a_large_photo_takes_no_more_room_than_what_the_network_saw(photos, tmp_path):
    run(photos, tmp_path)
    table = pq.read_table(tmp_path / "results" / "explained-00000.parquet").to_pylist()
    assert [len(row["map_total"]) for row in table] == [144, 144, 144, 35]
    assert [(row["image_height"], row["image_width"]) for row in table] == [LARGE] * 3 + [(5, 7)]


def test_what_a_crop_cuts_off_has_no_doubt(photos, tmp_path):
    prepared = Preprocessing((1, 12, 12), "crop", 15)
    rows = list(run(photos, tmp_path, fit="crop", resize=15).rows())
    for row in rows[:3]:
        assert row.seen == prepared.seen_box(LARGE) == (5, 14, 37, 46)
        values = row.maps()["epistemic"]
        assert values.shape == LARGE
        inside = values[5:37, 14:46].astype(np.float64).sum()
        assert inside == pytest.approx(values.astype(np.float64).sum(), rel=1e-12)
        assert inside == pytest.approx(row.epistemic, rel=1e-4)
        assert row.coarse_maps()["epistemic"].shape == (15, 22)
        for region in row.regions:
            mask = region.mask(LARGE)
            if not region.is_remainder:
                assert not mask[:5].any()
                assert not mask[:, :14].any()


@pytest.fixture
def old(photos, tmp_path):
    """Results of format 2: maps at the image's own size, no further columns."""
    results = run(photos, tmp_path / "new")
    schema = shard_module.SCHEMA
    for name in THIRD:
        schema = schema.remove(schema.get_field_index(name))
    about = {**results.about, "format": 2}
    with shard_module.open_shard(tmp_path / "old" / "results" / "explained-00000.parquet", about, schema) as shard:
        for row in results.rows():
            height, width = row.image_size
            values = {f"map_{kind}": array for kind, array in row.maps().items()}
            shard.add(store_module.Row(**{**vars(row), **values, "height": height, "width": width}))
    return tmp_path


def test_results_of_format_2_are_read_as_they_were_written(old):
    file = old / "old" / "results" / "explained-00000.parquet"
    assert json.loads(pq.read_metadata(file).metadata[b"dubium"])["format"] == 2
    assert not set(THIRD) & set(pq.read_schema(file).names)
    written = pq.read_table(file).to_pylist()
    for row, cells in zip(open_results(old / "old").rows(), written, strict=True):
        assert row.image_size == (row.height, row.width) == (cells["height"], cells["width"])
        assert row.seen == (0, 0, row.height, row.width)
        for kind, values in row.maps().items():
            np.testing.assert_array_equal(values.ravel(), np.float32(cells[f"map_{kind}"]))
            np.testing.assert_array_equal(row.coarse_maps()[kind], values)


def test_pages_exports_and_comparisons_read_both(old):
    for name in ("old", "new"):
        assert write_page(old / name).stat().st_size > 10_000
        for to in ("coco", "csv", "png", "fiftyone"):
            write_export(old / name, to)
    for file in ("coco.json", "review.csv"):
        assert (old / "old" / file).read_text() == (old / "new" / file).read_text()
    masks = {path.name: path.read_bytes() for path in (old / "old" / "masks").iterdir()}
    assert masks == {path.name: path.read_bytes() for path in (old / "new" / "masks").iterdir()}
    sizes = {
        image["id"]: (image["height"], image["width"])
        for image in json.loads((old / "new" / "coco.json").read_text())["images"]
    }
    assert set(sizes.values()) == {LARGE, (5, 7)}
    _, alike = write_comparison(old / "old", old / "new", old / "both")
    assert list(alike.maps.values()) == pytest.approx([1, 1, 1])


def test_a_map_that_lies_outside_of_its_image_is_damage(photos, tmp_path):
    results = run(photos, tmp_path / "a")
    for number, seen in enumerate([(0, 0, 41, 60), (3, 0, 3, 60), (-1, 0, 40, 60)]):
        out = tmp_path / f"b{number}"
        with shard_module.open_shard(out / "results" / "explained-00000.parquet", results.about) as shard:
            shard.add(store_module.Row(**{**vars(next(results.rows())), "seen": seen}))
        with pytest.raises(dubium.errors.FileFormatError, match="not one of it"):
            list(open_results(out).rows())


def test_regions_anew_are_those_of_the_stored_map(photos, tmp_path):
    row = next(run(photos, tmp_path).rows())
    anew = regions_of_row(row, "epistemic", level=0.5)
    assert sum(region.share for region in anew) == pytest.approx(1, abs=1e-12)
    assert sum(region.area for region in anew) == LARGE[0] * LARGE[1]
    assert [int(region.mask(LARGE).sum()) for region in anew] == [region.area for region in anew]


@pytest.mark.parametrize("config", ["/etc/passwd", {}, {"mean": "x", "std": [1], "input_shape": [1, 2, 2]}])
def test_results_that_name_a_file_as_their_data_config_are_damage(photos, tmp_path, config):
    results = run(photos, tmp_path / "a")
    settings = results.about["settings"]
    about = {**results.about, "settings": {**settings, "posterior": {**settings["posterior"], "data_config": config}}}
    with shard_module.open_shard(tmp_path / "b" / "results" / "explained-00000.parquet", about) as shard:
        shard.add(next(results.rows()))
    with pytest.raises(dubium.errors.FileFormatError, match="metadata has settings"):
        open_results(tmp_path / "b")
