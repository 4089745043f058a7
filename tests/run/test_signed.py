"""Signed maps: stored beside the results, which stay as they were, and shown on the page."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

import dubium
from dubium.data import load
from dubium.errors import FileFormatError
from dubium.report import write_page
from dubium.run import Settings, explain_dataset, open_results, open_work
from dubium.run import job as job_module
from dubium.run.shard import SCHEMA
from dubium.run.signed import lowering_row, rows_with_signs, signed_shard
from dubium.types import KINDS
from tests import piles


def run(folder, method="auto", **options):
    named = {"run": piles.posterior(folder / "posterior")}, {"dataset": piles.arrays(folder / "images.npz")}
    return open_work(Settings(*named, top=5, shard=3, method=method, **options))


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("signed")
    for method in ("auto", "grad"):
        explain_dataset(run(folder, method), folder / method)
    return folder


def test_the_signed_maps_are_those_of_explain(out):
    rows = list(rows_with_signs(open_results(out / "auto")))
    x = load(str(out / "images.npz"), "test").batch([row.id for row in rows])
    found = dubium.explain(piles.networks(), x, method="auto").extras["signed"]
    assert len(rows) == 5
    for place, row in enumerate(rows):
        assert set(row.signed) == set(KINDS)
        for kind in KINDS:
            np.testing.assert_allclose(row.signed[kind], found[kind][place].numpy(), atol=1e-6)
            lowering = lowering_row(row).maps()[kind]
            np.testing.assert_array_equal(lowering, np.maximum(-row.signed[kind], 0))


def test_the_results_themselves_have_no_new_column_and_no_new_file(out):
    results, others = (open_results(out / method) for method in ("auto", "grad"))
    assert [file.name for file in results.files] == [file.name for file in others.files]
    assert all(pq.read_schema(file).names == SCHEMA.names for file in results.files)
    assert len(list((out / "auto" / "results").iterdir())) == len(results.files)
    assert all(row.signed is None for row in results.rows())


def test_a_method_without_signs_stores_none(out):
    assert not (out / "grad" / "signed").exists()
    assert all(row.signed is None for row in rows_with_signs(open_results(out / "grad")))


def test_maps_larger_than_their_image_are_brought_to_its_size(tmp_path):
    photos = {"files": [piles.folder(tmp_path / "photos", size=(8, 5), broken=False)]}
    settings = Settings({"run": piles.posterior(tmp_path / "posterior")}, photos, method="auto")
    for row in rows_with_signs(explain_dataset(open_work(settings), tmp_path / "out")):
        assert row.signed["total"].shape == row.map_total.shape == (5, 8)


def test_a_job_that_fails_leaves_neither_file(tmp_path, monkeypatch):
    work = run(tmp_path, batch=2)
    monkeypatch.setattr(job_module, "signed_row", lambda row: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        explain_dataset(work, tmp_path / "out")
    assert not list(tmp_path.glob("out/results/*")) + list(tmp_path.glob("out/signed/*"))


def test_fresh_results_of_another_method_leave_no_signs(out, tmp_path):
    shutil.copytree(out / "auto", tmp_path / "auto")
    explain_dataset(run(tmp_path, "grad"), tmp_path / "auto", fresh=True)
    assert not list((tmp_path / "auto" / "signed").iterdir())


def test_signs_of_other_images_and_damaged_ones_are_refused(out, tmp_path):
    shutil.copytree(out / "auto", tmp_path / "auto")
    results = open_results(tmp_path / "auto")
    first, second = map(signed_shard, results.explained)
    shutil.copy(second, first)
    with pytest.raises(FileFormatError, match="is not of the images in"):
        list(rows_with_signs(results))
    content = bytearray(second.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    with pytest.raises(FileFormatError, match="damaged"):
        list(rows_with_signs(results))


@pytest.mark.parametrize("lost", [[0], [1], [0, 1]])
def test_signs_that_vanished_are_made_again_by_the_same_command(lost, tmp_path):
    work = run(tmp_path)
    files = [signed_shard(file) for file in explain_dataset(work, tmp_path / "out").explained]
    whole = {file: file.read_bytes() for file in sorted((tmp_path / "out").rglob("*.*"))}
    for place in lost:
        files[place].unlink()
    explain_dataset(work, tmp_path / "out")
    assert {file: file.read_bytes() for file in sorted((tmp_path / "out").rglob("*.*"))} == whole


def test_a_run_that_goes_on_checks_the_signs_that_are_there(tmp_path):
    work = run(tmp_path)
    results = explain_dataset(work, tmp_path / "out")
    signed = signed_shard(results.explained[0])
    content = bytearray(signed.read_bytes())
    content[len(content) // 2] ^= 1
    signed.write_bytes(content)
    results.explained[1].unlink()
    with pytest.raises(FileFormatError, match=r"signed/explained-00000\.parquet is damaged"):
        explain_dataset(work, tmp_path / "out")


def test_the_page_shows_what_lowers_the_doubt_where_it_is_known(out):
    page = write_page(out / "auto").read_text()
    assert page.count("<summary>What lowers the doubt</summary>") == 5
    for kind in KINDS:
        assert page.count(f'alt="What lowers {kind} uncertainty over image ') == 5
    assert "What lowers" not in write_page(out / "grad").read_text()
    assert write_page(out / "grad", beside=out / "auto").read_text().count("What lowers the doubt") == 5
