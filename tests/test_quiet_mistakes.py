"""Mistakes that once passed without a word, or ended in the words of another library."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

import dubium
from dubium.errors import ImagesTypeError, NetworkError, OptionError, PosteriorTypeError
from dubium.models import Normalized
from dubium.posteriors import MCDropout
from dubium.run import open_results
from dubium.training import Recipe
from tests.own_networks import bring_networks, own_images, own_networks, say, write_photos

OWN = "quiet:network@a.pt,b.pt"
SMOKE = {"evaluate blurring": ("--methods", "grad", "--scale", "smoke", "--images", "2", "--step", "10")}


@pytest.fixture
def networks():
    return own_networks()


@pytest.fixture
def x():
    return own_images()


@pytest.fixture
def here(tmp_path, monkeypatch, networks):
    """Code, weights, and wide photos of three classes."""
    bring_networks(tmp_path, monkeypatch, "quiet", networks)
    write_photos([tmp_path / "photos" / name for name in ("cat", "dog", "emu")], 10, (12, 16))
    return tmp_path


TWICE = (
    "The networks standardise images themselves, with mean 0.5,0.25,0.5 and std 0.25,0.25,0.125, and would do so "
    "twice. Leave out --mean and --std (mean= and std= in Python)."
)


@pytest.mark.parametrize("command", ["uncertainty", "explain", "compare", "evaluate blurring"])
def test_networks_that_standardise_images_are_not_told_to_do_so_again(command, here, networks):
    own = [Normalized(network, (0.5, 0.25, 0.5), (0.25, 0.25, 0.125)).eval() for network in networks]
    dubium.save_posterior(own, "saved", input_shape=(3, 12, 16))
    run = ["quiet:network@saved"] * (2 if command == "compare" else 1)
    images = ("--dataset", "photos") if command == "evaluate blurring" else ("--images", "photos")
    out = () if command == "uncertainty" else ("--out", "out")
    for given in (("--mean", ".5", "--std", ".25"), ("--mean", ".5")):
        assert TWICE in say(*command.split(), *run, *images, *given, *out, code=2)
    assert TWICE not in say(*command.split(), *run, *images, *out, *SMOKE.get(command, ()))


def test_weights_of_networks_that_standardise_images_take_no_other_mean(here, networks):
    own = Normalized(networks[0], (0.5, 0.25, 0.5), (0.25, 0.25, 0.125))
    torch.save(own.state_dict(), "own.pt")
    with pytest.raises(OptionError) as refused:
        dubium.load_weights(own, ["own.pt"], mean=0.5, std=0.25)
    assert str(refused.value) == TWICE


def test_causes_trains_its_networks_on_images_that_are_not_square(here):
    words = ("evaluate", "causes", "--dataset", "photos", "--methods", "grad", "--scale", "smoke", "--out", "causes")
    assert say(*words, "--estimate").startswith("2 networks to train on 24 images")
    say(*words)
    found = json.loads((here / "causes" / "summary.json").read_text())
    assert found["settings"]["data"]["shape"] == [3, 12, 16]
    images = torch.rand(30, 3, 12, 16, generator=torch.Generator().manual_seed(0))
    found = dubium.evaluate(None, (images, torch.arange(30) % 3), ["grad"], "causes", scale="smoke")
    assert "grad" in found["results"]


def test_all_protocols_take_images_that_are_not_square(here):
    named = ("evaluate", "all", OWN, "--dataset", "photos", "--methods", "grad", "--scale", "smoke", "--out", "all")
    say(*named, "--protocols", "anomaly,causes")
    found = json.loads((here / "all" / "overview.json").read_text())
    assert {*found["images"]} == {"anomaly", "causes"}


TYPO = (
    "Some images have no label: no class of the networks (cat,dgo,emu) is called dog, as their folders are. Leave "
    "these out, or name the classes as the folders are called, in their order: --names, or class_names= in Python."
)


@pytest.mark.parametrize("option", ["--images", "--dataset"])
def test_a_folder_that_is_called_like_no_class_is_named(option, here):
    words = ("explain", OWN, option, "photos", "--top", "1", "--method", "grad", "--out", "out", "--names")
    assert f"dubium: {TYPO}" in say(*words, "cat,dgo,emu")
    labels = [row.label for row in open_results("out").rows()]
    assert (labels.count(0), labels.count(None), labels.count(2)) == (10, 10, 10)
    assert "label" not in say(*words, "cat,dog,emu", "--fresh")


def test_explain_dataset_names_folders_that_are_called_like_no_class(here, networks):
    names = ["cat", "dgo", "emu"]
    with pytest.warns(UserWarning, match="have no label") as said:
        dubium.explain_dataset(networks, "photos", "out", top=0, class_names=names)
    assert [str(warning.message) for warning in said] == [TYPO]
    with pytest.warns(UserWarning, match="not used") as said:
        dubium.explain_dataset(networks, dubium.data.load("photos"), "memory", top=0, class_names=names)
    assert [str(warning.message) for warning in said] == [
        "Labels are not used: no class of the networks (cat,dgo,emu) is called dog, as photos has it. Leave that out "
        "of the dataset, or name the classes as it does, in their order: --names, or class_names= in Python."
    ]


def test_methods_are_not_asked_of_results(here):
    explain = ("explain", OWN, "--images", "photos", "--top", "1", "--method", "grad", "--out")
    say(*explain, "first")
    said = say("compare", "first", code=2)
    assert said.endswith(
        "or in place of these results their posterior twice, with another method: dubium compare RUN RUN --methods "
        "ua-backprop,grad."
    )
    given, refused = (
        ("--methods", "ua-backprop,grad", "--images", "photos", "--out", "out"),
        (
            "--methods is ua-backprop,grad, and results are compared as they are, with the maps that they have: first. "
            "Leave out --methods, or name the posterior instead of its results."
        ),
    )
    for other in ("first", OWN):
        assert refused in say("compare", "first", other, *given, code=2)
    said = say("compare", "first", "first", "--out", "out")
    assert "--methods METHOD_A,METHOD_B names two methods of a posterior that is named twice." in said
    say("compare", "first", OWN, "--methods", "ig:steps=2", "--images", "photos", "--out", "mixed")


def run_command(*words):
    """Exit code and what is said of `dubium` in a process of its own."""
    code = ("-c", "from dubium.cli import app; app()")
    done = subprocess.run([sys.executable, *code, *map(str, words)], capture_output=True, text=True)
    return done.returncode, " ".join(done.stderr.split())


def test_a_port_that_is_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, said = run_command("serve", "demo", "--port", port, "--no-browser")
    assert code == 2
    assert said.endswith(f"Port {port} is in use; choose another, or leave --port out (port= in Python).")


def test_python_m_dubium_is_the_command():
    done = subprocess.run([sys.executable, "-m", "dubium", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"dubium {dubium.__version__}\n")


def test_a_batch_with_its_labels_is_told_to_be_its_images(networks, x, unchecked):
    labels = torch.tensor([0, 2, 1, 0])
    advice = "x[0]. Labels are not used here; dubium.explain_dataset and dubium.evaluate take them."
    for batch in ((x, labels), [x, labels]):
        for call in (dubium.explain, dubium.uncertainty):
            with pytest.raises(ImagesTypeError) as refused:
                call(networks, batch)
            assert str(refused.value).endswith(f"It has images and labels: give {advice}")
    with pytest.raises(ImagesTypeError, match=r"torch\.cat\(x\) of batches"):
        dubium.explain(networks, (x, x))


def test_mitigation_says_that_its_own_networks_are_square(here, networks):
    smoke = ("--methods", "grad", "--scale", "smoke", "--seeds", "1", "--out", "out")
    words = ("evaluate", "mitigation", OWN, "--dataset", "photos", *smoke)
    said = say(*words, code=2)
    assert said.endswith(
        "The images are 12 x 16; the new networks that mitigation trains (cnn3) take square ones. If yours take these "
        "too: --input-shape 3,12,12 (input_shape= in Python). Networks that take no square images have no part in this "
        "protocol; dubium.mitigate(network, maps, images, labels) in Python trains one of them with attention."
    )
    say(*words, "--input-shape", "3,12,12")
    images, labels = dubium.data.load("photos").batch(slice(4)), torch.tensor([0, 1, 2, 0])
    maps = dubium.explain(networks, images, kinds="epistemic").maps["epistemic"]
    dubium.mitigate(networks[0], maps, images, labels, recipe=Recipe(epochs=1))


@pytest.mark.parametrize("again", [("--mean", ".4"), ("--mean=.4",)])
@pytest.mark.parametrize("command", ["uncertainty", "evaluate blurring"])
def test_a_mean_is_given_once(command, again, here):
    images = ("--dataset", "photos", "--out", "out") if command == "evaluate blurring" else ("--images", "photos")
    words = (*command.split(), OWN, *images, "--mean", ".5", ".5", *again, "--std", ".2")
    refused = "--mean is given 2 times. Give it once, with a number for each channel: --mean .5,.4,.3."
    assert refused in say(*words, code=2)


@pytest.mark.parametrize("protocol", ["blurring", "removal", "sanity", "anomaly"])
def test_fewer_images_than_were_asked_for_are_counted(protocol, here):
    few = {"blurring": ("--step", 10), "removal": ("--steps", 2), "sanity": ("--checks", "kinds")}.get(protocol, ())
    smoke = ("--methods", "grad", "--scale", "smoke", *few)
    words = ("evaluate", protocol, OWN, "--dataset", "photos", *smoke)
    assert "5 images are there; 500 were asked for." in say(
        *words, "--images", 500, "--candidates", 5, "--out", "candidates"
    )
    assert "5 images are there; 500 were asked for." in read_notes("candidates")
    say(*words, "--images", 5, "--candidates", 5, "--out", "enough")
    assert not [note for note in read_notes("enough") if "asked for" in note]


def test_fewer_training_images_than_were_asked_for_are_counted(here):
    smoke = ("--methods", "grad", "--scale", "smoke", "--seeds", 1, "--input-shape", "3,12,12")
    words = ("evaluate", "mitigation", OWN, "--dataset", "photos", *smoke)
    assert "24 images are there; 500 were asked for." in say(*words, "--images", 500, "--out", "many")
    assert "24 images are there; 500 were asked for." in read_notes("many")
    for name, few in {"enough": ("--images", 24), "of-the-scale": ()}.items():
        say(*words, *few, "--out", name)
        assert not [note for note in read_notes(name) if "asked for" in note]


def read_notes(folder):
    return json.loads((Path(folder) / "summary.json").read_text())["notes"]


def test_patches_of_the_evaluated_images_are_said_to_be_theirs(here):
    shutil.copytree("photos", "other/test")
    shutil.copytree("photos", "other/train")
    for name in ("cat", "dog", "emu"):
        for file in Path(f"other/train/{name}").iterdir():
            Image.open(file).rotate(180).save(file)
    said = (
        "Patches are cut from images that are evaluated as well. For others: --patches DATASET (patches= in Python), "
        "or a folder with train/ and test/."
    )
    for dataset in ("photos", "other"):
        words = ("--methods", "grad", "--scale", "smoke", "--out", f"of-{dataset}")
        assert (said in say("evaluate", "anomaly", OWN, "--dataset", dataset, *words)) is (dataset == "photos")
        assert (said in read_notes(f"of-{dataset}")) is (dataset == "photos")


def test_images_of_another_size_are_told_to_be_resized():
    networks = [nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(72, 3)).eval() for _ in range(2)]
    advice = (
        "resize x; for files, input_shape=(C, H, W) of explain_dataset and evaluate does so (--input-shape on the "
        "command line)."
    )
    for size in (9, 2):
        with pytest.raises(NetworkError) as refused:
            dubium.uncertainty(networks, torch.rand(2, 3, size, size))
        assert str(refused.value).endswith(advice)
    with pytest.raises(NetworkError) as refused:
        dubium.uncertainty(networks, torch.rand(2, 1, 8, 8))
    assert "resize" not in str(refused.value)


def test_a_list_of_posteriors_is_told_how_to_become_one(x):
    posteriors = [MCDropout(nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(192, 3)).eval()) for _ in range(2)]
    with pytest.raises(PosteriorTypeError) as refused:
        dubium.uncertainty(posteriors, x)
    assert str(refused.value) == (
        "Element 0 of the posterior is a MCDropout; a torch.nn.Module is needed. It is a posterior itself: of several, "
        "give the networks of all, [n for p in posteriors for n in p]."
    )
    assert len(dubium.uncertainty([n for p in posteriors for n in p], x).members) == 40
