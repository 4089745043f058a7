"""Labels of a folder are those of the networks' classes, or they are not used: in every command alike."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import dubium
from dubium.evaluation import protocols
from dubium.run import open_results
from tests.own_networks import say

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 10))

    def forward(self, x):
        return self.body(x)

def network():
    return Net()
"""
SHOWN = ("0", "1", "2", "4", "5", "6")  # six of ten classes
NAMES = ",".join("0123456789")
OWN = ("label_code:network@a.pt,b.pt", "--input-shape", "3,8,8")
SMOKE = ("--methods", "grad", "--scale", "smoke", "--images", 4, "--step", 10)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Code and weights of networks with ten classes, and photos of six of them that differ in size."""
    (tmp_path / "label_code.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "label_code", raising=False)
    from label_code import network

    torch.manual_seed(0)
    networks = [network().eval() for _ in range(2)]
    for file, net in zip(("a.pt", "b.pt"), networks, strict=True):
        torch.save(net.state_dict(), file)
    dubium.save_posterior(networks, "ens", classes=list("0123456789"), input_shape=(3, 8, 8))
    rng = np.random.default_rng(0)
    for place, size in (("photos", 9), ("same", 8)):
        for rank, name in enumerate(SHOWN):
            (tmp_path / place / name).mkdir(parents=True)
            height = size + rank if place == "photos" else size
            Image.fromarray(rng.integers(0, 256, (height, size, 3), np.uint8)).save(f"{place}/{name}/x.png")
    return tmp_path


@pytest.fixture
def evaluated(monkeypatch):
    """The evaluations that commands ran."""
    found, run = [], protocols.run_protocol
    monkeypatch.setattr(protocols, "run_protocol", lambda *a, **k: (found.append(a[1]), run(*a, **k))[1])
    return found


def shown_labels(evaluation):
    return [evaluation.data.classes[label] for label in evaluation.data.labels.tolist()], evaluation.data.labels


@pytest.mark.parametrize(
    "words", [(*OWN, "--names", NAMES), ("ens", "--posterior", "label_code:network")], ids=["names", "saved"]
)
def test_evaluate_matches_folders_to_the_names_of_classes(evaluated, words):
    say("evaluate", "blurring", *words, "--dataset", "photos", *SMOKE, "--out", "blur")
    names, labels = shown_labels(evaluated[0])
    assert names == list(SHOWN)
    assert labels.tolist() == [0, 1, 2, 4, 5, 6]  # not the rank of the folder
    assert "accuracy@2%" in json.loads(Path("blur/summary.json").read_text())["results"]["grad"]


@pytest.mark.parametrize("protocol", ["blurring", "removal"])
def test_evaluate_uses_no_labels_where_folders_are_fewer_than_classes(evaluated, protocol):
    words = SMOKE if protocol == "blurring" else (*SMOKE[:-2], "--steps", 4)
    said = say("evaluate", protocol, *OWN, "--dataset", "photos", *words, "--out", "blur")
    assert evaluated[0].data.labels is None
    assert "Labels are not used: photos has 6 classes (0,1,2,4,5,6), the networks have 10 classes." in said
    assert f"--names {NAMES}" in said
    summary = json.loads(Path("blur/summary.json").read_text())
    assert not [metric for metric in summary["results"]["grad"] if metric.startswith(("accuracy", "true-prob"))]
    assert f"--names {NAMES}" in Path("blur/index.html").read_text()


def test_evaluate_uses_no_labels_of_folders_that_are_no_classes(evaluated):
    say("evaluate", "blurring", *OWN, "--names", "a,b,c,d,e,f,g,h,i,j", "--dataset", "photos", *SMOKE, "--out", "blur")
    assert evaluated[0].data.labels is None


def test_evaluate_in_python_does_the_same():
    networks = dubium.load_posterior("ens", architecture="label_code:network")
    settings = {"methods": ["grad"], "scale": "smoke", "images": 4, "step": 10.0}
    found = dubium.evaluate(networks, "same", **settings)
    assert "class_names=" in found["notes"][0]
    assert "accuracy@2%" not in found["results"]["grad"]
    found = dubium.evaluate(networks, "same", **settings, class_names=list("0123456789"))
    images = dubium.data.load("same").batch(range(6))
    right = dubium.evaluate(networks, (images, torch.tensor([0, 1, 2, 4, 5, 6])), **settings)
    assert not [note for note in found["notes"] if "abels" in note]
    for metric in ("accuracy@2%", "true-probability@2%"):
        assert found["results"]["grad"][metric]["value"] == right["results"]["grad"][metric]["value"]


def test_explain_dataset_in_python_does_the_same():
    networks = dubium.load_posterior("ens", architecture="label_code:network")
    for data in ("same", dubium.data.load("same")):
        for names, labels in ((None, [None] * 6), (list("0123456789"), [0, 1, 2, 4, 5, 6])):
            out = f"{type(data).__name__}-{names is None}"
            with nullcontext() if names else pytest.warns(UserWarning, match="Labels are not used"):
                found = dubium.explain_dataset(networks, data, out, top=0, class_names=names)
            assert [row.label for row in found.rows()] == labels


class Folders:
    """What torchvision's ImageFolder is: labels count the folders in the order of their names."""

    def __init__(self, root, target_transform=None):
        self.classes = sorted(path.name for path in Path(root).iterdir())
        self.class_to_idx = {name: rank for rank, name in enumerate(self.classes)}
        self.samples = [(f"{root}/{name}/x.png", rank) for name, rank in self.class_to_idx.items()]
        self.target_transform = target_transform

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, rank = self.samples[index]
        return Image.open(path), rank if self.target_transform is None else self.target_transform(rank)


def test_an_image_folder_of_torchvision_is_matched_by_name():
    networks, names = dubium.load_posterior("ens", architecture="label_code:network"), list("0123456789")
    data = Folders("same")
    subset = torch.utils.data.Subset(data, [5, 3])
    for given, labels in ((data, [0, 1, 2, 4, 5, 6]), (subset, [6, 4])):
        found = dubium.explain_dataset(networks, given, f"named-{len(labels)}", top=0, class_names=names)
        assert [row.label for row in found.rows()] == labels
    settings = {"methods": ["grad"], "scale": "smoke", "images": 4, "step": 10.0}
    ours, right = (
        dubium.evaluate(networks, given, **settings, class_names=names)["results"]["grad"]["true-probability@2%"]
        for given in (data, "same")
    )
    assert ours == right


def test_an_image_folder_that_cannot_be_matched_has_no_labels_and_says_so():
    networks = dubium.load_posterior("ens", architecture="label_code:network")
    with pytest.warns(UserWarning, match=r"Labels are not used: .* like a folder \(0,1,2,4,5,6\).*class_names="):
        found = dubium.explain_dataset(networks, Folders("same"), "unnamed", top=0)
    assert [row.label for row in found.rows()] == [None] * 6
    settings = {"methods": ["grad"], "scale": "smoke", "images": 4, "step": 10.0}
    assert "Folders has 6 classes" in dubium.evaluate(networks, Folders("same"), **settings)["notes"][0]


def test_an_image_folder_with_a_target_transform_has_numbers_of_classes():
    networks = dubium.load_posterior("ens", architecture="label_code:network")
    found = dubium.explain_dataset(networks, Folders("same", lambda rank: 9 - rank), "own", top=0)
    assert [row.label for row in found.rows()] == [9, 8, 7, 6, 5, 4]


def test_explain_says_where_a_factory_s_folders_are_no_classes(here):
    (here / "label_data.py").write_text(
        "from PIL import Image\n"
        "class Data:\n"
        "    class_to_idx, samples = {'cat': 0, 'dog': 1}, [('same/0/x.png', 0), ('same/1/x.png', 1)]\n"
        "    def __len__(self): return 2\n"
        "    def __getitem__(self, index): return Image.open(self.samples[index][0]), index\n"
    )
    said = say("explain", *OWN, "--dataset", "label_data:Data", "--method", "grad", "--out", "out")
    assert "Labels are not used: no class of the networks is known to be called like a folder (cat,dog)." in said
    assert "Labels" not in say(
        "uncertainty", *OWN, "--dataset", "label_data:Data", "--names", "cat,dog,c,d,e,f,g,h,i,j"
    )


def test_explain_takes_a_dataset_of_fewer_folders_as_it_takes_images():
    rows = {}
    for option in ("--dataset", "--images"):
        out = f"out{option}"
        said = say("explain", *OWN, option, "photos", "--method", "grad", "--out", out)
        assert f"--names {NAMES} takes them as labels" in said
        assert "6/x.png" in said
        rows[option] = [(row.path, row.label, row.epistemic) for row in open_results(out).rows()]
    assert rows["--dataset"] == rows["--images"]
    assert {label for _, label, _ in rows["--dataset"]} == {None}


@pytest.mark.parametrize("option", ["--dataset", "--images"])
def test_cards_tell_equal_names_in_two_folders_apart(option):
    say("explain", *OWN, option, "photos/", "--method", "grad", "--out", "out")
    page = Path("out/index.html").read_text()
    for name in SHOWN:
        assert f">{name}/x.png</a>" in page


def test_a_saved_posterior_of_own_code_says_how_it_is_named_on_the_command_line():
    said = say("explain", "ens", "--images", "photos", code=2)
    assert "--posterior label_code:Net on the command line" in said
    say("uncertainty", "ens", "--posterior", "label_code:Net", "--images", "photos")


@pytest.mark.parametrize("option", ["--dataset", "--images"])
def test_explain_matches_folders_to_names(option):
    say("explain", *OWN, option, "photos", "--names", NAMES, "--method", "grad", "--out", "out")
    assert sorted(row.label for row in open_results("out").rows()) == [0, 1, 2, 4, 5, 6]


def test_explain_takes_the_names_of_folders_that_are_as_many_as_classes(here):
    for name in ("3", "7", "8", "9"):
        (here / "same" / name).mkdir()
        Image.fromarray(np.full((8, 8, 3), 90, np.uint8)).save(here / "same" / name / "x.png")
    for rank, name in enumerate(sorted((here / "same").iterdir())):
        name.rename(here / "same" / f"class{rank}")
    say("explain", *OWN, "--dataset", "same", "--top", 1, "--out", "out")
    results = open_results("out")
    assert results.about["classes"] == [f"class{rank}" for rank in range(10)]
    assert sorted(row.label for row in results.rows()) == list(range(10))


def test_folders_with_words_for_names_bring_a_hint(here):
    for name in SHOWN:
        (here / "same" / name).rename(here / "same" / f"class{name}")
    assert "6 folders for 10 classes; --names A,B,..." in say("explain", *OWN, "--dataset", "same", "--out", "out")


def test_numbers_in_a_file_need_not_reach_the_last_class(here):
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
    np.savez(here / "few.npz", images=images, labels=np.array([0, 5, 2]))
    say("explain", *OWN, "--dataset", "few.npz", "--method", "grad", "--out", "out")
    assert sorted((row.id, row.label) for row in open_results("out").rows()) == [(0, 0), (1, 5), (2, 2)]


def test_too_few_names_say_how_many_are_needed():
    said = say("explain", *OWN, "--dataset", "photos", "--names", "a,b", "--out", "out", code=2)
    assert "There are 2 names of classes for 10 classes (a,b); give one for each" in said
    assert f"--names {NAMES}" in said
    said = say("evaluate", "blurring", *OWN, "--dataset", "photos", "--names", "a,b", *SMOKE, "--out", "b", code=2)
    assert "2 names of classes for 10 classes" in said


@pytest.mark.parametrize("command", [("explain",), ("evaluate", "blurring")])
def test_images_that_differ_in_size_are_described_in_words(command):
    said = say(*command, OWN[0], "--dataset", "photos", "--out", "out", code=2)
    assert "0/x.png: 9 pixels high, 9 wide" in said
    assert "1/x.png: 10 pixels high, 9 wide" in said
    assert "--input-shape 3,224,224" in said
