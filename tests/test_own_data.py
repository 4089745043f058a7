"""Images and labels as people have them: folders with notes in them, labels that are names, datasets that are empty."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

import dubium
from dubium.data.folder import list_folder
from dubium.data.image_files import find_images
from dubium.errors import DubiumError, DubiumWarning, FileFormatError, ImagesError, ImagesTypeError, OptionError
from dubium.image_checks import check_images
from tests.own_networks import bring_networks, own_images, own_networks, say, write_photos

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
    write_photos([tmp_path / name for name in ("photos", "pets/cat", "pets/dog")], 4, (8, 8))
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


class Samples(Dataset):
    """Images of ones, each with what `label` says of its number."""

    def __init__(self, label, count=4):
        self.label, self.count = label, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((3, 8, 8), index / 4), self.label(index)


def explain_and_evaluate(networks, data, folder):
    return [
        lambda: dubium.explain_dataset(networks, data, folder / "o", method="grad"),
        lambda: dubium.evaluate(networks, data, **SMOKE),
    ]


PETS = ["cat", "dog", "emu", "cat"]
NO_NUMBERS = {
    "names": (
        lambda x: (x, PETS),
        r"The labels are a list, of 'cat' .*: \[names\.index\(label\) for label in labels\]",
    ),
    "an array of names": (lambda x: (x, np.array(PETS)), "The labels are a ndarray, of 'cat'"),
    "dicts": (lambda x: (x, [{"label": 1}] * 4), "The labels are a list, of \"{'label': 1}\""),
    "one-hot labels": (lambda x: (x, torch.eye(4)), r"labels\.argmax\(1\)"),
    "samples with names": (
        lambda x: Samples(PETS.__getitem__),
        r"has 'cat' for its label; .* \[\(image, names\.index\(label\)\) for image, label in dataset\]",
    ),
    "samples with dicts": (lambda x: Samples(lambda index: {"label": 1}), "has {'label': 1} for its label; the number"),
    "samples with a fraction": (lambda x: Samples(lambda index: 0.7), "has 0.7 for its label; the number"),
    "samples below 0": (lambda x: Samples(lambda index: -1), "has -1 for its label; the number .* from 0 on"),
}


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_labels_that_are_no_numbers_are_refused_in_words(name, networks, x, tmp_path):
    make, said = NO_NUMBERS[name]
    for call in explain_and_evaluate(networks, make(x), tmp_path):
        with pytest.raises(ImagesError, match=said):
            call()


def test_the_advice_about_names_runs(networks, x, tmp_path):
    names, labels, dataset = CLASSES, PETS, Samples(PETS.__getitem__)
    pairs = [(image, names.index(label)) for image, label in dataset]
    for number, data in enumerate(((x, [names.index(label) for label in labels]), pairs)):
        results = dubium.explain_dataset(networks, data, tmp_path / str(number), method="grad", class_names=names)
        assert sorted((row.id, row.label) for row in results.rows()) == [(0, 0), (1, 1), (2, 2), (3, 0)]


@pytest.mark.parametrize("label", [torch.eye(4).__getitem__, np.eye(4).__getitem__, torch.eye(4).tolist().__getitem__])
def test_labels_of_several_numbers_are_said_not_to_be_used(label, networks, tmp_path):
    said = r"Labels are not used: sample 0 of the dataset has a \w+ of shape \(4,\) for its label.* label\.argmax\(\)"
    for number, data in enumerate((Samples(label), list(Samples(label)))):
        with pytest.warns(DubiumWarning, match=said):
            dubium.explain_dataset(networks, data, tmp_path / str(number), method="grad")
        assert re.search(said, " ".join(dubium.evaluate(networks, data, **SMOKE)["notes"]))


@pytest.mark.parametrize("name", ["label", "target", "targets"])
def test_labels_of_dicts_are_found_by_their_usual_names(name, networks, x, tmp_path):
    results = dubium.explain_dataset(networks, [{"image": image, name: 1} for image in x], tmp_path, method="grad")
    assert [row.label for row in results.rows()] == [1] * 4


EMPTY = """
from torch.utils.data import Subset

def samples():
    return Subset([], [])
"""


def test_a_dataset_without_samples_is_said_to_have_none(here, networks):
    said = "The dataset has no samples."
    empty = Samples(int, 0)
    images = dubium.data.Dataset(torch.zeros(0, 3, 8, 8), None, (), "mine", "all")
    for data in (empty, DataLoader(empty), Subset(Samples(int), []), [], images):
        for call in explain_and_evaluate(networks, data, here):
            with pytest.raises(ImagesError, match=said):
                call()
    (here / "nothing_given.py").write_text(EMPTY)
    for words in (("explain",), ("uncertainty",), ("explain", "--estimate")):
        assert said in say(*words, OWN, "--dataset", "nothing_given:samples", code=2)


def test_a_list_of_files_belongs_to_a_dataset_as_one_file_does():
    for files in (["photos/0.png"], [Path("photos/0.png")], "photos/0.png"):
        with pytest.raises(ImagesTypeError, match=r"Give it to dubium\.explain_dataset\(posterior, x, 'doubts'\)"):
            check_images(files)


def test_what_cannot_be_written_is_an_error_of_dubiums(here, networks, x):
    result = dubium.uncertainty(networks, x)
    calls = {
        r"a\.pt is a file; a folder is needed": lambda: dubium.save_posterior(networks, "a.pt"),
        r"a\.pt/ens/member-0\.safetensors: Not a dir.*A file is": lambda: dubium.save_posterior(networks, "a.pt/ens"),
        "a.pt/o: Not a directory. A file is where": lambda: dubium.explain_dataset(networks, x, "a.pt/o", top=0),
        "a.pt/r: Not a directory. A file is where": lambda: dubium.evaluate(networks, x, out="a.pt/r", **SMOKE),
        r"a\.pt: File exists\. A file is where": lambda: result.save("a.pt/x.safetensors"),
    }
    if sys.platform == "linux":
        nowhere = "No such file or directory. Nothing can be made there. Choose another folder"
        calls[f"/proc/zz: {nowhere}"] = lambda: dubium.explain_dataset(networks, x, "/proc/zz", top=0)
        calls[f"^/proc/x.safetensors: {nowhere}"] = lambda: result.save("/proc/x.safetensors")
    for said, call in calls.items():
        with pytest.raises(DubiumError, match=said):
            call()


def test_images_whose_channels_come_last_are_told_to_put_them_first(networks, x, tmp_path):
    said = r"Are the axes \(H, W, C\)\? Channels come first: x\.movedim\(-1, 1\) .*, x\.transpose\(0, 3, 1, 2\)"
    for data in (x.movedim(1, -1), x.movedim(1, -1).numpy(), list(x.movedim(1, -1))):
        for call in explain_and_evaluate(networks, data, tmp_path):
            with pytest.raises(DubiumError, match=said):
                call()
    again = x.movedim(1, -1).numpy().transpose(0, 3, 1, 2)
    assert len(dubium.explain_dataset(networks, again, tmp_path / "o", top=0)) == 4


class Stream(IterableDataset):
    def __iter__(self):
        return iter([Samples(int)[0]] * 3)


def test_samples_that_come_one_by_one_are_told_to_become_a_list(networks, tmp_path):
    for data in ((sample for sample in [Samples(int)[0]]), Stream(), DataLoader(Stream())):
        for call in explain_and_evaluate(networks, data, tmp_path):
            with pytest.raises(ImagesTypeError, match=r"becomes a list: list\(dataset\)"):
                call()
    dataset = Stream()
    assert len(dubium.explain_dataset(networks, list(dataset), tmp_path / "o", top=0)) == 3


def test_a_folder_is_no_explanation_and_a_file_of_a_posterior_no_posterior(networks, tmp_path):
    dubium.save_posterior(networks, tmp_path / "ens")
    with pytest.raises(FileFormatError, match=r"ens is a folder; an explanation is a file.*dubium\.load_posterior"):
        dubium.load(tmp_path / "ens")
    with pytest.raises(FileFormatError, match=r"is a file of a saved posterior; give its folder, '.*ens'\."):
        dubium.load_posterior(tmp_path / "ens" / "posterior.json")


def test_empty_masks_are_named(networks, x):
    masks = torch.zeros(4, 8, 8)
    with pytest.raises(ImagesError, match="The 4 masks are all empty"):
        dubium.evaluate(networks, x, ["grad"], "masks", scale="smoke", masks=masks)
    masks[1:3] = 1
    notes = dubium.evaluate(networks, x, ["grad"], "masks", scale="smoke", masks=masks)["notes"]
    assert "2 images with an empty mask are left out: index 0, 3" in notes


def test_images_that_are_standardised_already_are_warned_of(networks, x):
    standardising = [dubium.models.Normalized(network, 0.5, 0.25).eval() for network in networks]
    with pytest.warns(DubiumWarning, match=r"values down to -2, and the networks standardise them by a mean and a std"):
        dubium.explain(standardising, (x.round() - 0.5) / 0.25, method="grad")
    dubium.explain(standardising, x, method="grad")
    dubium.explain(networks, (x - 0.5) / 0.25, method="grad")


def test_a_posterior_behind_a_list_is_told_to_go_before_the_options(here):
    for words in (("--images", "photos", OWN), ("--mean", ".5", "--std", ".5", OWN)):
        found = say("explain", "--input-shape", "3,8,8", *words, code=2)
        assert (
            "before the options: a word behind --images, --weights, --mean or --std is taken as one of theirs." in found
        )


def test_options_of_explained_images_are_refused_for_evaluations(here):
    options = "--dataset pets --input-shape 3,8,8 --methods grad --scale smoke --images 2 --step 10 --out ev"
    say("evaluate", "blurring", OWN, *options.split())
    for words in (("--beside", "nowhere"), ("--smooth", 2), ("--png",), ("--gallery", 3)):
        found = say("report", "ev", *words, code=2)
        assert f"ev is an evaluation; only for a folder of explained images: {words[0]}." in found
    say("report", "ev", "--title", "Mine")


def test_explained_images_and_evaluations_do_not_share_a_folder(here):
    networks, smoke = (
        (OWN, "--input-shape", "3,8,8"),
        ("--methods", "grad", "--scale", "smoke", "--images", 2, "--step", 10),
    )
    say("evaluate", "blurring", *networks, "--dataset", "pets", *smoke, "--out", "ev")
    page = (here / "ev/index.html").read_bytes()
    refused = "ev has an evaluation. Choose another folder for the results of explained images."
    assert refused in say("explain", *networks, "--images", "photos", "--top", 1, "--out", "ev", code=2)
    assert (here / "ev/index.html").read_bytes() == page
    assert "ev is an evaluation, which has no results of explained images." in say(
        "export", "ev", "--to", "csv", code=2
    )
    say("explain", *networks, "--images", "photos", "--method", "grad", "--top", 1, "--out", "ex")
    for protocol in ("blurring", "all"):
        words = ("evaluate", protocol, *networks, "--dataset", "pets", *smoke[:6], "--out", "ex")
        assert "ex has the results of explained images. Choose another folder" in say(*words, code=2)


def test_folders_of_another_kind_are_called_what_they_are(here):
    smoke = ("--methods", "grad", "--scale", "smoke", "--images", 2, "--step", 10)
    networks = (OWN, "--input-shape", "3,8,8")
    say("evaluate", "blurring", *networks, "--dataset", "pets", *smoke, "--out", "ev")
    say(
        "compare", OWN, OWN, "--methods", "grad,random", "--images", "photos", "--input-shape", "3,8,8", "--out", "both"
    )
    assert "ev has an evaluation." in say("serve", "ev", "--no-browser", code=2)
    assert "ev is an evaluation. Name posteriors, or folders that `dubium explain` wrote." in say(
        "compare", "ev", "ev", code=2
    )
    assert "both compares two runs, both/a and both/b. Name one of them." in say("report", "both", code=2)


def test_names_that_a_saved_posterior_has_are_not_taken_from_folders(here, networks, recwarn):
    write_photos([here / "pets" / "emu"], 4, (8, 8))
    dubium.posteriors.save_posterior(networks, "named", classes=CLASSES, input_shape=(3, 8, 8))
    dubium.posteriors.save_posterior(networks, "unnamed", input_shape=(3, 8, 8))
    dubium.explain_dataset("named", "pets", "o1", architecture=networks[0], top=1)
    assert not [each for each in recwarn if "folders are taken" in str(each.message)]
    with pytest.warns(DubiumWarning, match="The folders are taken as the networks' classes"):
        dubium.explain_dataset("unnamed", "pets", "o2", architecture=networks[0], top=1)


def test_a_size_to_resize_to_is_that_of_a_middle_to_be_taken(here):
    one = ("uncertainty", OWN, "--images", "photos/0.png", "--input-shape", "3,6,6", "--json")
    cropped = say(*one, "--resize", 7, "--fit", "crop")
    assert say(*one, "--resize", 7) == cropped
    assert say(*one, "--resize", 7, "--fit", "stretch") != say(*one, "--fit", "stretch")
    found = say(*one[:-1], "--resize", 7, "--fit", "stretch")
    assert "6 pixels high, 6 wide (--fit stretch --resize 7: the middle of that is taken)." in found


def test_pictures_of_deleted_results_go_with_them(here):
    run = ("explain", OWN, "--images", "photos", "--input-shape", "3,8,8", "--method", "grad", "--out", "o")
    say(*run, "--png", "--top", 3)
    assert len([*(here / "o/png").glob("*.png")]) == 3
    (here / "o/png/mine.png").write_bytes(b"")
    say(*run, "--top", 1, "--fresh")
    assert [file.name for file in (here / "o/png").iterdir()] == ["mine.png"]


def test_networks_of_other_classes_are_not_compared(here):
    code = (here / "owndata.py").read_text().replace("(8, 3)", "(8, 4)")
    (here / "four.py").write_text(f"{code}\n\ndef networks():\n    return [network().eval() for _ in range(2)]\n")
    options = ("--images", "photos", "--input-shape", "3,8,8", "--methods", "grad", "--top", 1)
    said = "The first networks have 3 classes, the second 4, so that they cannot be compared."
    assert said in say("compare", OWN, "four:networks", *options, "--out", "both", code=2)
    assert not (here / "both").exists()
    for out, networks in (("a", OWN), ("b", "four:networks")):
        say("explain", networks, "--images", "photos", "--input-shape", "3,8,8", "--method", "grad", "--out", out)
    assert said in say("compare", "a", "b", "--out", "both", code=2)


def test_names_of_a_dataset_are_not_those_of_fewer_classes(here):
    found = say("explain", OWN, "--dataset", "demo", "--input-shape", "3,28,28", "--method", "grad", "--top", 1)
    assert "Labels are not used: demo has labels up to 9, the networks have 3 classes." in found


def test_two_images_in_a_list_are_two_images(here, networks):
    assert len(dubium.explain_dataset(networks, [torch.rand(3, 8, 8) for _ in range(2)], "o", method="grad")) == 2


def test_dropout_that_drops_nothing_is_not_advised(networks):
    for p, is_said in ((0.0, False), (0.5, True)):
        network = torch.nn.Sequential(torch.nn.Dropout(p), networks[0]).eval()
        with pytest.raises(DubiumError) as error:
            dubium.explain(network, own_images())
        assert ("MCDropout" in str(error.value)) == is_said


def test_the_command_ends_with_its_own_exit_code(here):
    for words, code in ((["--version"], 0), (["nonsense"], 2), (["report", "nowhere"], 2)):
        done = subprocess.run([sys.executable, "-m", "dubium", *words], capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert done.stdout + done.stderr


def test_a_label_below_zero_is_named(networks, x):
    with pytest.raises(ImagesError, match="A label is -1; whole numbers from 0 on are needed"):
        dubium.explain_dataset(networks, (x, torch.tensor([0, 1, -1, 2])), "o")
