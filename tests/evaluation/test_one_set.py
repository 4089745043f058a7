"""Networks are never tested on images that they were trained on, also where the user has one set of images only."""

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import dubium
from dubium._evaluate import other_images
from dubium.cli import app
from dubium.data import load
from dubium.evaluation.methods import parse_methods
from dubium.evaluation.protocols.evaluation import Evaluation, hold_out, labelled_sets
from tests import piles


def noise(count=60, classes=2):
    draws = torch.Generator().manual_seed(0)
    return torch.rand(count, 1, 12, 12, generator=draws), torch.randint(classes, (count,), generator=draws)


def rows(data):
    return {image.tobytes() for image in data.images.numpy()}


def test_the_parts_of_one_set_have_no_image_in_common_and_follow_the_seed():
    data = dubium.data.Dataset(*noise(), ("a", "b"), "given", "all")
    training, test, places, notes = hold_out(data, 0)
    assert (len(training), len(test)) == (48, 12)
    assert not rows(training) & rows(test)
    assert (data.images[places] == test.images).all()
    assert (data.labels[places] == test.labels).all()
    assert "12 of its 60" in notes[0]
    assert (hold_out(data, 0).places == places).all()
    assert (hold_out(data, 1).places != places).any()


def test_images_in_memory_are_divided_and_the_summary_and_the_page_say_so(tmp_path):
    options = {"scale": "smoke", "images": 60, "epochs": 1, "seeds": 1, "test_images": None}
    found = dubium.evaluate(piles.networks(2), noise(), ["grad"], "mitigation", tmp_path, **options)
    settings = found["settings"]
    assert settings["data"]["images"] == 48
    assert settings["test data"]["images"] == 12
    assert settings["test"] == "given:a fifth of all"
    assert settings["data"]["sha256"] != settings["test data"]["sha256"]
    assert any("one set of images" in note for note in found["notes"])
    assert "There is one set of images" in (tmp_path / "index.html").read_text()


def class_folder(path):
    for index in range(20):
        (path / "ab"[index % 2]).mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(index).integers(0, 256, (12, 12), np.uint8)
        Image.fromarray(pixels).save(path / "ab"[index % 2] / f"{index}.png")
    return str(path)


@pytest.mark.parametrize("protocol", ["mitigation", "causes"])
@pytest.mark.parametrize("make", [class_folder, piles.arrays], ids=["folder", "npz"])
def test_folders_and_files_without_a_test_set_are_divided(make, protocol, tmp_path):
    given = make(tmp_path / ("images" if make is class_folder else "images.npz"))
    run = [piles.posterior(tmp_path / "run")] if protocol == "mitigation" else []
    out = tmp_path / "out"
    command = [
        "evaluate",
        protocol,
        *run,
        "--dataset",
        given,
        "--scale",
        "smoke",
        "--methods",
        "grad",
        "--threads",
        "1",
    ]
    found = CliRunner().invoke(app, [*command, "--out", str(out)])
    assert found.exit_code == 0, found.output
    assert "4 of its 20, drawn with the seed, are the test images" in re.sub(r"\s+", " ", found.output)
    summary = json.loads((out / "summary.json").read_text())
    settings = summary["settings"]
    other = "test data" if protocol == "mitigation" else "training data"
    assert sorted([settings["data"]["images"], settings[other]["images"]]) == [4, 16]
    if protocol == "causes":
        data = load(given)
        index, labels = summary["images"]["index"], summary["images"]["label"]
        assert data.labels[index].tolist() == labels
        assert set(index) <= set(hold_out(data, 0).places.tolist())


@pytest.mark.parametrize("name", ["demo", "demo:train", "demo:test"])
@pytest.mark.parametrize("own", ["train", "test"])
def test_the_parts_of_the_demo_have_no_image_in_common(name, own, tmp_path):
    """Its test images are all of its digits, its training images half of these."""
    others = other_images(name, load(name))
    evaluation = Evaluation(
        (), load(name, own), parse_methods(["grad"], 1), ("epistemic",), tmp_path, other_data=others
    )
    training, test, _, _ = labelled_sets(evaluation, own, "nothing can be trained")
    assert not rows(training) & rows(test)


def test_two_sets_stay_as_they_are(own, tmp_path):
    file = str(own / "images.npz")
    evaluation = Evaluation((), load(file), parse_methods(["grad"], 1), ("epistemic",), tmp_path)
    training, test, places, notes = labelled_sets(evaluation, "test", "nothing can be trained")
    assert (len(training), len(test), places, notes) == (24, 26, None, ())
