"""Images and labels as people have them: folders with notes in them, labels that are names, datasets that are empty."""

import shutil

import numpy as np
import pytest
from PIL import Image

import dubium
from dubium.data.folder import list_folder
from dubium.data.image_files import find_images
from dubium.errors import ImagesError, OptionError
from tests.own_networks import bring_networks, own_images, own_networks, say

SMOKE = {"methods": ["grad"], "scale": "smoke", "images": 2, "step": 10.0}
CLASSES = ["cat", "dog", "emu"]
OWN = "owndata:network@a.pt,b.pt"


@pytest.fixture
def networks():
    return own_networks()


@pytest.fixture
def x():
    return own_images()


@pytest.fixture
def here(tmp_path, monkeypatch, networks):
    """The working folder: code, weights, four photos, and the same in two folders of classes."""
    bring_networks(tmp_path, monkeypatch, "owndata", networks)
    rng = np.random.default_rng(0)
    for name in ("photos", "pets/cat", "pets/dog"):
        (tmp_path / name).mkdir(parents=True)
        for number in range(4):
            image = Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8))
            image.save(tmp_path / name / f"{number}.png")
    return tmp_path


def test_folders_without_images_are_no_classes(here, networks):
    for folder in ("photos/notes", "pets/notes"):
        (here / folder).mkdir()
        (here / folder / "readme.txt").write_text("hi")
    assert len(dubium.explain_dataset(networks, "photos", "o", method="grad")) == 4
    assert "4 images scored" in say("explain", OWN, "--dataset", "photos", "--method", "grad")
    assert dubium.evaluate(networks, "photos", **SMOKE)["notes"] is not None
    assert dubium.data.load("photos").labels is None
    assert dubium.data.load("pets").classes == ("cat", "dog")


def test_images_beside_folders_of_images_are_said(here, networks):
    shutil.copy(here / "photos" / "0.png", here / "pets" / "stray.png")
    said = r"pets has both images \(stray\.png\) and folders of images \(cat, dog\)"
    for call in (
        lambda: dubium.explain_dataset(networks, "pets", "o", method="grad"),
        lambda: dubium.evaluate(networks, "pets", **SMOKE),
    ):
        with pytest.raises(ImagesError, match=said):
            call()


@pytest.mark.parametrize(("data", "out"), [("photos", "photos"), ("pets", "pets"), ("pets", "pets/cat")])
def test_results_are_not_put_among_the_images(data, out, here, networks):
    before = sorted(here.rglob("*"))
    said = f"{out} is the folder of the images; give another one for the results."
    for call in (
        lambda: dubium.explain_dataset(networks, data, out, method="grad", class_names=CLASSES),
        lambda: dubium.explain_dataset(networks, [data], out, method="grad", class_names=CLASSES),
        lambda: dubium.evaluate(networks, data, out=out, **SMOKE),
    ):
        with pytest.raises(OptionError, match=said):
            call()
    words = ("evaluate", "blurring", OWN, "--methods", "grad", "--scale", "smoke", "--images", "2", "--step", "10")
    assert said in say(*words, "--dataset", data, "--out", out, code=2)
    assert said in say("explain", OWN, "--images", data, "--out", out, code=2)
    assert sorted(path for path in here.rglob("*") if "__pycache__" not in str(path)) == before


@pytest.mark.parametrize("data", ["photos", "pets"])
def test_pictures_that_dubium_drew_in_a_folder_are_none_of_its_images(data, here, networks):
    images, groups = find_images([data]), list_folder(here / data, "test")
    for _ in range(2):  # the second time, the results of the first are there
        out = f"{data}/doubts"
        say("explain", OWN, "--images", data, "--out", out, "--top", "2", "--png", "--method", "grad")
        dubium.evaluate(networks, data, out=f"{data}/judged", **SMOKE)
    assert len(list((here / data).rglob("*.png"))) > len(images) + 2
    assert find_images([data]) == images
    assert list_folder(here / data, "test") == groups
    assert len(find_images([f"{data}/doubts/png"])) == 2
