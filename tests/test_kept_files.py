"""Files of the user's own stay as they are: dubium replaces what it wrote itself, and nothing else."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import dubium
from dubium.errors import OptionError
from dubium.evaluation.shards import FIGURES
from dubium.report import evaluation_words
from dubium.report.exports import write_export
from tests import piles
from tests.own_networks import own_images, own_networks, say

OWN = "<html>mine</html>"
DEMO = ("explain", "demo", "--dataset", "demo", "--top", 1)
SMOKE = {"protocol": "blurring", "methods": "grad", "scale": "smoke", "images": 2, "step": 10.0}
BLURRING = ("evaluate", "blurring", "demo", "--methods", "grad", "--scale", "smoke", "--images", 2, "--step", 10)
ALL = ("evaluate", "all", "demo", "--protocols", "blurring", "--scale", "smoke")
REFUSED = "and is not of results that dubium wrote into this folder: it would be replaced. Choose another folder"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def content_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (DEMO, "index.html"),
        (DEMO, "png/0000-0.png"),
        (DEMO, "run.json"),
        ((*DEMO, "--fresh"), "index.html"),
        (("uncertainty", "demo"), "index.html"),
        (("demo",), "index.html"),
        (BLURRING, "index.html"),
        (BLURRING, "results.csv"),
        (BLURRING, "summary.json"),
        (BLURRING, "urr.png"),
        (ALL, "overview.csv"),
        (ALL, "index.html"),
        (("compare", "demo", "demo", "--methods", "grad,ig", "--top", 1), "index.html"),
    ],
)
def test_a_folder_with_a_file_of_the_users_own_is_refused_before_any_work(words, name, here):
    file = here / "out" / name
    file.parent.mkdir(parents=True)
    file.write_text(OWN)
    assert f"out/{name} is there, {REFUSED}" in say(*words, "--out", "out", code=2)
    assert content_of(here) == {f"out/{name}": OWN.encode()}


def test_the_current_folder_is_one_too(here):
    (here / "index.html").write_text(OWN)
    assert f"index.html is there, {REFUSED}" in say(*DEMO, "--out", ".", code=2)
    (here / "index.html").rename("page.html")
    say(*DEMO, "--out", ".")
    assert (here / "page.html").read_text() == OWN


@pytest.mark.parametrize("name", ["index.html", "images.csv"])
def test_functions_of_python_refuse_it_as_commands_do(name, here):
    (here / name).write_text(OWN)
    networks, x = own_networks(), own_images()
    with pytest.raises(OptionError, match=REFUSED):
        dubium.evaluate(networks, x, out=here, **SMOKE)
    if name == "index.html":
        with pytest.raises(OptionError, match=REFUSED):
            dubium.explain_dataset(networks, x, here, method="grad")
    assert content_of(here) == {name: OWN.encode()}


def test_what_dubium_wrote_goes_on_and_is_replaced_as_before(here):
    networks, x = own_networks(), own_images()
    for fresh in (False, False, True):
        dubium.explain_dataset(networks, x, "run", method="grad", fresh=fresh)
    (here / "run" / "run.json").unlink()
    dubium.explain_dataset(networks, x, "run", method="grad", fresh=True)
    for _ in range(2):
        dubium.evaluate(networks, x, out="blur", **SMOKE)
    (here / "blur" / "settings.json").unlink()  # as the message about a damaged one advises
    dubium.evaluate(networks, x, out="blur", **SMOKE)
    dubium.explain_dataset(networks, x, "other", method="ig:steps=2")
    for _ in range(2):
        say("compare", "run", "other", "--out", "compared")
    for _ in range(2):
        say(*ALL, "--methods", "grad", "--out", "all")


def test_all_figures_over_methods_are_known():
    assert {name.removesuffix(".png") for name in FIGURES} == {*evaluation_words.FIGURES, "blurring-*"}


@pytest.mark.parametrize("content", ["{}", "[1]", "mine", '{"members": 3}'])
def test_a_posterior_is_not_saved_over_a_file_that_is_none(content, here):
    (here / "posterior.json").write_text(content)
    with pytest.raises(OptionError, match=r"posterior\.json is there, and is not of a saved posterior.*Choose another"):
        dubium.save_posterior(own_networks(), here)
    assert content_of(here) == {"posterior.json": content.encode()}
    (here / "posterior.json").unlink()
    for _ in range(2):
        dubium.save_posterior(own_networks(), here)
    assert len(json.loads((here / "posterior.json").read_text())["members"]) == 2


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "run"
    x = torch.from_numpy(np.random.default_rng(0).random((3, 1, 12, 12), np.float32))
    dubium.explain_dataset(piles.networks(), x, folder, method="grad")
    return folder


@pytest.mark.parametrize(("to", "name"), [("coco", "mine.json"), ("csv", "mine.csv")])
def test_an_export_replaces_a_file_of_its_own_alone(to, name, run, here):
    for content in (OWN, "", "[1]", "a,b\n1,2\n"):
        (here / name).write_text(content)
        assert f"{name} is a file that `dubium export --to {to}` did not write" in say(
            "export", run, "--to", to, "--out", name, code=2
        )
        assert (here / name).read_text() == content
    (here / name).unlink()
    for _ in range(2):
        write_export(run, to, name)


@pytest.mark.parametrize("to", ["png", "fiftyone"])
def test_an_export_fills_a_folder_of_its_own_alone(to, run, here):
    (here / "photos").mkdir()
    for name, colours in {"cat.png": "RGB", "000000.png": "RGB", "000001.png": "P", "notes.txt": ""}.items():
        file = here / "photos" / name
        Image.new(colours, (4, 4)).save(file) if colours else file.write_text(OWN)
        before = content_of(here)
        assert f"photos has files that `dubium export --to {to}` did not write" in say(
            "export", run, "--to", to, "--out", "photos", code=2
        )
        assert content_of(here) == before
        file.unlink()
    (here / "photos" / ".hidden").write_text(OWN)
    for _ in range(2):
        assert write_export(run, to, "photos")[1] == 3
    assert (here / "photos" / ".hidden").read_text() == OWN


def test_an_export_that_was_stopped_is_done_again(run, here):
    write_export(run, "fiftyone", "folder")
    next((here / "folder" / "data").iterdir()).unlink()
    assert write_export(run, "fiftyone", "folder")[1] == 3 == len(list((here / "folder" / "data").iterdir()))
