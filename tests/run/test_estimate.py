"""Sizes that are not known, and what a run will take."""

import json

import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import dubium
from dubium.cli import app
from dubium.cli._progress import ProgressLines
from dubium.data.image_files import image_size, read_image
from dubium.errors import OptionError
from dubium.run import Settings, explain_dataset, open_work
from dubium.run.estimate import estimate_run
from tests import piles


@pytest.fixture
def fully_convolutional():
    torch.manual_seed(0)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)]
    return [nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), *head).eval() for _ in range(2)]


def photos(folder, sizes):
    folder.mkdir()
    for index, size in enumerate(sizes):
        Image.new("RGB", size, (10 * index, 50, 90)).save(folder / f"{index}.png")
    return {"files": [str(folder)]}


def test_images_of_different_sizes_are_refused_where_the_networks_size_is_not_known(tmp_path, fully_convolutional):
    images = photos(tmp_path / "photos", [(12, 10), (20, 10)])
    with pytest.raises(
        OptionError, match=r"(?s)0.png: 10 pixels high, 12 wide, .*1.png: 10 pixels high, 20 wide.*--input-shape"
    ):
        open_work(Settings({"given": "2 networks"}, images), posterior=fully_convolutional)
    work = open_work(Settings({"given": ""}, images, input_shape=(3, 8, 9)), posterior=fully_convolutional)
    assert work.preprocessing.shape == (3, 8, 9)
    assert not work.about["size_taken"]


def test_images_of_one_size_go_in_as_they_are_and_that_is_said(tmp_path, fully_convolutional):
    images = photos(tmp_path / "photos", [(12, 10), (12, 10)])
    (tmp_path / "photos" / "broken.png").write_bytes(b"no image")
    work = open_work(Settings({"given": ""}, images), posterior=fully_convolutional)
    assert work.preprocessing.shape == (3, 10, 12)
    assert work.about["size_taken"]


def test_the_size_in_a_header_is_that_of_the_upright_image(tmp_path):
    for orientation in range(1, 9):
        file, image = tmp_path / f"{orientation}.jpg", Image.new("RGB", (12, 8))
        image.getexif()[0x0112] = orientation
        image.save(file, exif=image.getexif())
        assert image_size(file) == tuple(read_image(file).shape[1:])
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    assert image_size(tmp_path / "a.png") is None


def test_an_estimate_counts_what_the_run_writes(tmp_path):
    named = {"run": piles.posterior(tmp_path / "posterior")}, {"dataset": piles.arrays(tmp_path / "images.npz")}
    work = open_work(Settings(*named, top=5))
    expected = estimate_run(work)
    results = explain_dataset(work, tmp_path / "out")
    assert (expected.images, expected.explained) == (len(results), results.explained_count()) == (20, 5)
    assert expected.passes == 60
    assert expected.seconds > 0
    written = sum(file.stat().st_size for file in results.files)
    assert written / 4 < expected.bytes < 4 * written


def test_the_command_estimates_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, ["explain", "demo", "--top", "2", "--estimate"])
    assert "64 images to score (320 forward passes), 2 to explain: about" in said.output
    facts = json.loads(CliRunner().invoke(app, ["explain", "demo", "--estimate", "--json"]).output)
    assert (facts["images"], facts["explained"]) == (64, 64)
    assert list(tmp_path.iterdir()) == []


def test_lines_of_progress_come_now_and_then_with_the_time_left(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("dubium.cli._progress.monotonic", lambda: now[0])
    lines = ProgressLines(every=10.0)
    for second, done in ((0, 0), (5, 10), (12, 24), (15, 30), (25, 50)):
        now[0] = float(second)
        lines.show("score", float(done), 100)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "score: 10 of 100, 45 s left"  # as soon as it is seen that it will take long
    assert said[1:] == ["score: 30 of 100, 35 s left", "score: 50 of 100, 25 s left"]
    for second, done in ((26, 0), (28, 3), (30, 8)):
        now[0] = float(second)
        lines.show_text(f"maps: {done} of 8")
    assert capsys.readouterr().err == ""  # over before it is worth a line
    for second, done in ((31, 0), (33, 1)):
        now[0] = float(second)
        lines.show_text(f"curves: {done} of 8")
    assert capsys.readouterr().err == "curves: 1 of 8, 14 s left\n"


def test_ctrl_c_says_how_to_go_on(monkeypatch):
    def stop(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("dubium.run.open_work", stop)
    found = CliRunner().invoke(app, ["explain", "demo", "--estimate"])
    assert found.exit_code == 130
    assert "the same command goes on" in found.output


def test_ctrl_c_promises_nothing_where_no_folder_was_named(tmp_path, monkeypatch):
    def stop(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("dubium.run.explain_dataset", stop)
    found = CliRunner().invoke(app, ["uncertainty", "demo"])
    assert (found.exit_code, "Nothing is kept; with --out FOLDER" in found.output) == (130, True)
    found = CliRunner().invoke(app, ["uncertainty", "demo", "--out", str(tmp_path / "out")])
    assert (found.exit_code, "the same command goes on from there" in found.output) == (130, True)


def test_networks_given_in_python_take_the_size_that_is_said(tmp_path, fully_convolutional):
    data = [(torch.rand(3, 10, 12 + index), index) for index in range(2)]

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return data[index]

    with pytest.raises(OptionError, match="differ in size"):
        dubium.explain_dataset(fully_convolutional, Samples(), tmp_path / "a")
    results = dubium.explain_dataset(fully_convolutional, Samples(), tmp_path / "b", input_shape=(3, 10, 12))
    assert [row.maps()["total"].shape for row in results.rows()] == [(10, 12), (10, 13)]
