"""What the command line says about mistakes of a first day, and about what it left out."""

import sys
import warnings

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import dubium.web
from dubium.checks import warn_user
from dubium.cli import app, say_warnings
from dubium.errors import OptionError
from dubium.evaluation.methods import label_methods
from dubium.protocols import TOGETHER

CODE = """
import torch
from torch import nn

def network():
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3))

def networks():
    torch.manual_seed(0)
    return [network().eval(), network().eval()]

def one():
    return networks()[:1]
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with a module of networks, and photos in folders that are called by numbers."""
    (tmp_path / "said_code.py").write_text(CODE)
    for label in "02":
        (tmp_path / "photos" / label).mkdir(parents=True)
        Image.fromarray(np.full((8, 8, 3), 80, np.uint8)).save(tmp_path / "photos" / label / "x.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "said_code", raising=False)
    return tmp_path


def say(*words, code=0):
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


def test_folders_called_by_numbers_are_labels_with_names_and_a_hint_without():
    run = ("uncertainty", "said_code:networks", "--images", "photos")
    assert "--names 0,1,2 takes them as labels" in say(*run)
    assert "takes them as labels" not in say(*run, "--names", "0,1,2")


def test_of_one_network_it_is_said_that_nothing_ranks_the_images():
    said = "one network cannot disagree: epistemic uncertainty is 0 for every image"
    assert said in say("explain", "said_code:one", "--images", "photos", "--top", 1, "--out", "one")
    assert said in say("uncertainty", "said_code:one", "--images", "photos")
    assert said not in say("uncertainty", "said_code:one", "--images", "photos", "--kinds", "total")
    assert said not in say("uncertainty", "said_code:networks", "--images", "photos")


TWICE = {
    "in the method": (("--method", "ig:steps=4", "--option", "steps=7"), "steps is given twice: steps=4 and steps=7"),
    "as options": (
        ("--method", "ig", "--option", "steps=4", "--option", "steps=7"),
        "steps is given twice: steps=4 and",
    ),
    "by a flag": (("--tau2", ".3", "--option", "tau2=.5"), "tau2 is given twice: by --tau2, and as tau2=0.5"),
    "in the relevance": (("--relevance", "ig:steps=4", "--option", "steps=7"), "in relevance='ig:steps=4' and as an"),
    "the relevance": (
        ("--method", "ua-backprop:relevance=ig", "--relevance", "grad"),
        "relevance is given twice: by --",
    ),
}


@pytest.mark.parametrize("place", TWICE)
def test_an_option_of_the_method_that_is_given_twice_is_refused(place, here):
    words, said = TWICE[place]
    assert said in say("explain", "demo", *words, "--top", 1, "--out", "out", code=2)
    assert not (here / "out" / "results").exists()
    with pytest.raises(OptionError, match="steps is given twice: in method='ig:steps=4'"):
        label_methods([("ig:steps=4", {"steps": 7})], 1)


def test_images_below_a_folder_are_listed_with_their_path_in_it():
    said = say("uncertainty", "said_code:networks", "--images", "photos")
    assert "0/x.png" in said
    assert "2/x.png" in said
    assert "photos/0" not in said


def test_a_misspelt_function_is_called_what_the_help_calls_it():
    said = say("uncertainty", "said_code:netwrks", "--images", "photos", code=2)
    assert "The MODULE:FACTORY 'said_code:netwrks' cannot be imported" in said
    assert "Did you mean 'networks'?" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "squars"), "A function of your own is MODULE:FUNCTION."),
        (("--method", "mine:squares:power=3,patch=4"), "separated by colons: mine:squares:power=3:patch=4"),
        (("--method", "ig", "--option", "steps=3,batch=4"), "Or give --option once for each"),
    ],
)
def test_methods_of_ones_own_and_several_options(words, message):
    assert message in say("explain", "said_code:networks", "--images", "photos", *words, code=2)


def test_evaluate_says_how_several_options_are_written():
    words = ("--methods", "mine:squares:power=3,patch=4", "--out", "out")
    assert "separated by colons" in say("evaluate", "blurring", "demo", *words, code=2)


def test_a_misspelt_option_brings_near_names_alone():
    said = say("explain", "--metod", "grad", code=2)
    assert "--method" in said
    assert "--std" not in said
    assert "--top" not in said


def test_the_explorer_says_that_it_begins_and_nothing_of_going_on_when_it_is_stopped(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(dubium.web, "serve", stop)
    said = say("serve", "demo", code=130)
    assert said.startswith("dubium: opening the networks")
    assert said.endswith("dubium: stopped.")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("explain", "demo", "--out", ""), "--out"),
        (("explain", "demo", "--out="), "--out"),
        (("evaluate", "blurring", "demo", "--out", " "), "--out"),
        (("export", "", "--to", "csv"), "One of the words"),
    ],
)
def test_an_empty_word_is_refused_before_anything_is_written(words, named, here):
    before = sorted(here.rglob("*"))
    assert f"{named} is empty. Give it a value, or leave it out" in say(*words, code=2).replace("│ ", "")
    assert sorted(here.rglob("*")) == before


def test_an_empty_folder_name_is_refused_in_python_too(here):
    before = sorted(here.rglob("*"))
    for call in (dubium.explain_dataset, dubium.evaluate):
        with pytest.raises(OptionError, match=r"'\.' is the current folder"):
            call("demo", "demo", out="")
    assert sorted(here.rglob("*")) == before


def test_a_weight_file_instead_of_a_posterior_says_what_is_missing(here):
    (here / "m.pt").write_bytes(b"")
    said = say("explain", "m.pt", "--images", "photos", code=2)
    assert "m.pt is a file; a posterior is a folder." in said
    assert "module:function@m.pt on the command line" in said


def test_some_folders_called_by_numbers_bring_the_hint_too(here):
    (here / "photos" / "unknown").mkdir()
    Image.fromarray(np.full((8, 8, 3), 80, np.uint8)).save(here / "photos" / "unknown" / "x.png")
    assert "--names 0,1,2 takes them as labels" in say("uncertainty", "said_code:networks", "--images", "photos")


def test_colours_that_change_are_said(here):
    colour = ("said_code:networks", "--input-shape")
    grey = Image.fromarray(np.full((8, 8), 80, np.uint8))
    (here / "grey").mkdir()
    grey.save(here / "grey" / "x.png")
    said = say("uncertainty", *colour, "3,8,8", "--images", "grey")
    assert "images are grey and become colour: the networks take 3 channels." in said
    assert "become" not in say("uncertainty", *colour, "3,8,8", "--images", "photos")
    assert "become" not in say("uncertainty", *colour, "3,8,8", "--images", "grey", "--json")


def test_evaluate_leaves_out_files_that_cannot_be_read_and_names_them(here):
    (here / "photos" / "0" / "broken.png").write_bytes(b"rubbish")
    words = ("--methods", "grad", "--scale", "smoke", "--images", "2", "--out")
    for shape in (("--input-shape", "3,8,8"), ()):
        said = say(
            "evaluate",
            "blurring",
            "said_code:networks",
            "--dataset",
            "photos",
            *shape,
            *words,
            f"blur{len(shape)}",
            code=1,
        )
        assert "1 file could not be read: photos/0/broken.png is damaged or not an image" in said
        assert "broken.png" in (here / f"blur{len(shape)}" / "index.html").read_text()
    found = dubium.evaluate(networks(here), "photos", ["grad"], scale="smoke", images=2)
    assert "broken.png is damaged" in found["notes"][0]
    for file in (here / "photos").rglob("*.png"):
        file.write_bytes(b"rubbish")
    said = say("evaluate", "blurring", "said_code:networks", "--dataset", "photos", *words, "none", code=2)
    assert "No image in photos can be read: photos/0/broken.png is damaged" in said


def networks(folder):
    sys.path.insert(0, str(folder))
    import said_code

    return said_code.networks()


def test_results_are_not_put_among_the_images(here):
    for option in ("--images", "--dataset"):
        said = say("explain", "said_code:networks", option, "photos", "--out", "photos/", code=2)
        assert "photos is the folder of the images; give another one for the results." in said
    assert {path.name for path in (here / "photos").iterdir()} == {"0", "2"}


def test_warnings_are_said_once_and_without_a_place_in_the_code(capsys):
    with warnings.catch_warnings(record=True) as others, say_warnings():
        warnings.simplefilter("always")
        for _ in range(2):
            warn_user("of dubium")
        warnings.warn("of another library", stacklevel=1)
    assert capsys.readouterr().err == "dubium: of dubium\n"
    assert [str(other.message) for other in others] == ["of another library"]


def test_results_may_be_in_a_folder_that_is_called_like_a_dataset(here):
    assert "4 explained" in say("explain", "demo", "--dataset", "demo", "--top", "4", "--out", "demo")
    assert (here / "demo" / "index.html").exists()


def test_a_split_of_a_file_in_this_folder_is_no_module(here):
    images = np.zeros((2, 8, 8, 3), np.uint8)
    np.savez(here / "few.npz", test_images=images, train_images=np.repeat(images, 2, 0))
    assert "4 images scored" in say("uncertainty", "said_code:networks", "--dataset", "few.npz:train")
    assert "2 images scored" in say("uncertainty", "said_code:networks", "--dataset", "few.npz:test")


def test_train_says_that_it_takes_no_function_and_where_sizes_are_changed(here):
    assert "A function of yours cannot be named here" in say("train", "--dataset", "said_code:data", code=2)
    Image.fromarray(np.full((9, 8, 3), 80, np.uint8)).save(here / "photos" / "0" / "y.png")
    said = say("train", "--dataset", "photos", code=2)
    assert (
        "--input-shape 3,224,224 (channels, height, width) of `dubium explain`, `dubium evaluate`, `dubium train`"
        in said
    )


@pytest.mark.parametrize("command", ["explain demo", "uncertainty demo", "train"])
def test_a_misspelt_dataset_or_split_brings_the_nearest_and_nothing_of_functions(command):
    for given, meant in {"mnist:tset": "'mnist:test'", "mnsit:test": "'mnist'", "mnsit": "'mnist'"}.items():
        said = say(*command.split(), "--dataset", given, code=2)
        assert f"Did you mean {meant}?" in said
        assert "function" not in said


def test_an_estimate_of_several_protocols_has_a_line_for_each(here):
    words = ("--methods", "grad", "--scale", "smoke", "--estimate", "--out", "all")
    said = CliRunner().invoke(app, ["evaluate", "all", "demo", *words]).output.splitlines()
    assert [line.partition(":")[0] for line in said] == [*TOGETHER, "Together"]
    assert "about" in said[-1]
    assert not (here / "all").exists()
