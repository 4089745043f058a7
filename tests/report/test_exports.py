import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from dubium import errors
from dubium.cli import app
from dubium.report import write_page
from dubium.report.exports import write_export
from dubium.report.exports.fiftyone import copy_image
from dubium.report.exports.review import plain_cell
from dubium.report.pictures import edge_runs, outline_path
from dubium.report.what_to_do import review_rows
from dubium.run import Settings, explain_dataset, open_results, open_work
from dubium.run.row import mask_from_counts, regions_of_row
from dubium.run.shard import open_shard
from tests import piles


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    posterior = {"run": piles.posterior(folder / "posterior")}
    explain_dataset(
        open_work(Settings(posterior, {"dataset": piles.arrays(folder / "images.npz")}, top=5)), folder / "a"
    )
    explain_dataset(open_work(Settings(posterior, {"files": [piles.folder(folder / "photos")]})), folder / "photos-out")
    return folder


def bright(row, kind="epistemic", **options):
    return [region for region in regions_of_row(row, kind, **options) if not region.is_remainder]


def explained(folder):
    return list(open_results(folder).rows(open_results(folder).explained))


def test_coco_has_every_region_with_its_mask_and_box(out):
    path, count = write_export(out / "photos-out", "coco")
    assert path == out / "photos-out" / "coco.json"
    content = json.loads(path.read_text())
    rows = {row.id: row for row in explained(out / "photos-out")}
    assert count == len(content["annotations"]) == sum(len(bright(row)) for row in rows.values())
    for image in content["images"]:
        assert image == {"id": image["id"], "file_name": rows[image["id"]].path, "width": 15, "height": 9}
    assert [annotation["id"] for annotation in content["annotations"]] == list(range(1, count + 1))
    for annotation in content["annotations"]:
        row, segmentation = rows[annotation["image_id"]], annotation["segmentation"]
        mask = mask_from_counts(segmentation["counts"], tuple(segmentation["size"]))
        x, y, width, height = annotation["bbox"]
        assert mask.sum() == annotation["area"] == mask[y : y + height, x : x + width].sum()
        assert annotation["nats"] == pytest.approx(annotation["share"] * row.epistemic)
    assert content["categories"] == [{"id": 1, "name": "epistemic", "supercategory": "uncertainty"}]


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # pycocotools with NumPy 2
def test_pycocotools_reads_the_same_masks_areas_and_boxes(out):
    coco = pytest.importorskip("pycocotools.coco", reason="masks are compared with those of COCO's own library")
    tools = pytest.importorskip("pycocotools.mask")
    path, count = write_export(out / "a", "coco")
    dataset = coco.COCO(str(path))
    masks = {row.id: [region.mask((12, 12)) for region in bright(row)] for row in explained(out / "a")}
    assert len(dataset.getAnnIds()) == count > 0
    for image in dataset.getImgIds():
        for annotation, mask in zip(dataset.loadAnns(dataset.getAnnIds(image)), masks[image], strict=True):
            np.testing.assert_array_equal(dataset.annToMask(annotation).astype(bool), mask)
            rle = dataset.annToRLE(annotation)
            assert tools.area(rle) == annotation["area"]
            assert tools.toBbox(rle).tolist() == annotation["bbox"]


def test_other_regions_can_be_asked_for(out):
    path, count = write_export(out / "a", "coco", out / "other.json", kind="total", level=0.8, smooth=0.0)
    assert path == out / "other.json"
    assert count == sum(len(bright(row, "total", level=0.8, smooth=0.0)) for row in explained(out / "a"))
    assert json.loads(path.read_text())["categories"][0]["name"] == "total"


def test_masks_have_the_numbers_of_the_regions(out):
    folder, count = write_export(out / "photos-out", "png")
    rows = explained(out / "photos-out")
    assert count == len(rows) == len(list(folder.glob("*.png")))
    for row in rows:
        labels = np.asarray(Image.open(folder / f"{row.id:06}-{Path(row.path).stem}.png"))
        assert labels.shape == (9, 15)
        expected = np.zeros((9, 15), int)
        for number, region in enumerate(bright(row), 1):
            expected[region.mask((9, 15))] = number
        np.testing.assert_array_equal(labels, expected)


def test_the_review_is_every_image_with_something_to_do_in_order(out):
    path, count = write_export(out / "a", "csv")
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    rows = {row.id: row for row in open_results(out / "a").rows()}
    assert count == len(lines) == sum(row.advice != "none" for row in rows.values()) > 0
    assert [int(line["rank"]) for line in lines] == list(range(1, count + 1))
    order = {"check-label": 0, "look": 1, "collect": 2}
    strength = {"check-label": "sure", "look": "aleatoric", "collect": "epistemic"}
    keys = [(order[line["advice"]], -float(line[strength[line["advice"]]])) for line in lines]
    assert keys == sorted(keys)
    for line in lines:
        row = rows[int(line["id"])]
        second = int(np.argsort(-row.probs)[1])
        assert (line["says"], line["or"]) == (piles.NAMES[row.prediction], piles.NAMES[second])
        assert line["label"] == piles.NAMES[row.label]
        assert float(line["total"]) == pytest.approx(row.total, abs=1e-4)
        assert (line["share"] == "") == (row.regions is None)
        if row.regions:
            kind = "aleatoric" if line["advice"] == "look" else "epistemic"
            assert line["region_kind"] == kind
            largest = next(region for region in row.regions if region.kind == kind and not region.is_remainder)
            assert [int(line[side]) for side in ("top", "left", "bottom", "right")] == [
                getattr(largest, side) for side in ("top", "left", "bottom", "right")
            ]


def test_fiftyone_gets_images_and_labels_that_name_them(out):
    for run in ("a", "photos-out"):
        folder, count = write_export(out / run, "fiftyone")
        content = json.loads((folder / "labels.json").read_text())
        assert count == len(content["images"]) == len(list((folder / "data").iterdir()))
        for image in content["images"]:
            with Image.open(folder / "data" / image["file_name"]) as picture:
                assert picture.size == (image["width"], image["height"])


def test_a_file_that_is_no_image_is_not_copied(out, tmp_path):
    secret = tmp_path / "secret.png"
    secret.write_text("not for anybody")
    row = replace(explained(out / "a")[0], path=str(secret))
    copy_image(row, tmp_path / "data" / "copy.png")
    assert (tmp_path / "data" / "copy.png").read_bytes() == row.thumbnail


@pytest.mark.parametrize(("given", "written"), [("=1+1.png", "'=1+1.png"), ("@a", "'@a"), ("a=1", "a=1"), (-0.5, -0.5)])
def test_no_cell_is_a_formula(given, written):
    assert plain_cell(given) == written


def with_paths(out, folder, path):
    """Somebody else's results, whose images have this path."""
    results = open_results(out / "a")
    with open_shard(folder / "results" / "explained-00000.parquet", results.about) as shard:
        for row in results.rows(results.explained):
            shard.add(replace(row, path=path))
    return folder


@pytest.mark.parametrize("to", ["coco", "csv", "png", "fiftyone"])
@pytest.mark.parametrize("path", ["a" * 3000, "\u00e9" * 300, "/", "..", "../../x.png", "/etc/passwd", "a\n=1"])
def test_paths_of_somebody_elses_results_name_no_other_file(to, path, out, tmp_path):
    _, count = write_export(with_paths(out, tmp_path / "run", path), to, tmp_path / "written" / "out")
    assert count > 0
    assert {file.name for file in tmp_path.iterdir()} == {"run", "written"}
    assert {file.name for file in (tmp_path / "written").iterdir()} == {"out"}
    assert not any(b"root:" in file.read_bytes() for file in (tmp_path / "written").rglob("*") if file.is_file())


def test_a_path_with_a_zero_byte_is_refused(out, tmp_path):
    with pytest.raises(errors.FileFormatError, match=r"explained-00000\.parquet.*a path that no file has"):
        write_export(with_paths(out, tmp_path, "a\0b"), "png")


def test_a_review_that_somebody_filled_in_is_kept(out, tmp_path):
    path, count = write_export(out / "a", "csv", tmp_path / "review.csv")
    assert write_export(out / "a", "csv", path) == (path, count)
    filled_in = path.read_text(encoding="utf-8").replace("\r\n", ",seen\r\n")
    path.write_text(filled_in, encoding="utf-8", newline="")
    with pytest.raises(errors.OptionError, match=r"may have edited it.*--out"):
        write_export(out / "a", "csv", path)
    assert path.read_text(encoding="utf-8") == filled_in


def test_the_command_writes_and_says_what(out):
    done = CliRunner().invoke(app, ["export", str(out / "a"), "--to", "coco", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["path"] == str(out / "a" / "coco.json")
    assert said["count"] == len(json.loads(Path(said["path"]).read_text())["annotations"])
    done = CliRunner().invoke(app, ["export", str(out / "a"), "--to", "cocoa"])
    assert done.exit_code == 2
    assert "Did you mean 'coco'" in done.output
    done = CliRunner().invoke(app, ["export", str(out / "nowhere"), "--to", "csv"])
    assert done.exit_code == 2


def test_maps_that_are_not_there_are_refused(out, tmp_path):
    settings = Settings({"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")}, kinds=("total",), top=2)
    explain_dataset(open_work(settings), tmp_path)
    with pytest.raises(errors.OptionError, match=r"kind='epistemic', but the maps in .* are of total"):
        write_export(tmp_path, "coco", kind="epistemic")
    assert json.loads(write_export(tmp_path, "coco")[0].read_text())["categories"][0]["name"] == "total"


def test_the_page_says_what_to_do_and_outlines_the_regions(out):
    text = write_page(out / "a").read_text()
    rows = [row for found in review_rows(open_results(out / "a")).values() for row in found]
    for name, title in (("look", "Look at the image"), ("collect", "Collect more like it")):
        count = sum(row.advice == name for row in rows)
        assert (f"<b>{title}: {count} image{'s' * (count != 1)}.</b>" in text) == (count > 0)
    assert text.count('class="outlines"') == 3 * 5
    assert text.count("<b>Where</b>") == 5


def test_outlines_are_the_edges_between_inside_and_outside():
    mask = np.array([[True, True, False], [False, True, False]])
    assert sorted(edge_runs(mask)) == [(0, 0, 2), (1, 0, 1), (2, 1, 2)]
    assert outline_path(mask) == "M0 0H2M0 1H1M1 2H2M0 0V1M1 1V2M2 0V2"


@pytest.mark.parametrize(
    ("to", "name", "better"), [("coco", "x.csv", "x.json"), ("png", "x.png", "x"), ("csv", "x.JSON", "x.csv")]
)
def test_a_name_of_another_kind_of_file_is_refused(to, name, better, out, tmp_path):
    with pytest.raises(errors.OptionError, match=f"--to {to} writes a .*Name it .*{better}"):
        write_export(out / "a", to, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
