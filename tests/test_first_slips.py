"""Slips of a fourth trial, with networks and images of one's own: each is taken, or answered with what to do."""

import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

import dubium
from dubium.data import Dataset as Images
from dubium.errors import (
    DubiumError,
    FileFormatError,
    ImagesError,
    ImagesTypeError,
    NetworkError,
    OptionError,
    OutputError,
    PosteriorTypeError,
    UnknownNameError,
)
from dubium.image_checks import check_images
from dubium.posteriors import MCDropout, as_posterior, sghmc
from dubium.training import Recipe, log_explanation
from dubium.web.session import open_posterior_session
from tests.own_networks import bring_networks, own_images, own_networks, say


@pytest.fixture
def networks():
    return own_networks()


@pytest.fixture
def x():
    return own_images()


@pytest.fixture
def here(tmp_path, monkeypatch, networks):
    """A folder with code, weights and a photo."""
    bring_networks(tmp_path, monkeypatch, "slips", networks)
    (tmp_path / "photos").mkdir()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)).save("photos/x.png")
    return tmp_path


def test_what_is_drawn_from_is_saved_as_the_networks_that_are_drawn(networks, x, tmp_path):
    def draw(index):
        return networks[index % 2]

    dubium.save_posterior(draw, tmp_path / "saved")
    again = dubium.load_posterior(tmp_path / "saved", architecture=networks[0])
    with torch.no_grad():
        found = [torch.stack([network(x) for network in one]) for one in (as_posterior(draw), again)]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    ("named", "written"),
    [
        ("slips:network@", "slips:network"),
        ("./slips:network", "slips:network"),
        ("slips:network:", "slips:network"),
        ("pkg/slips:network@a.pt", "pkg.slips:network"),
    ],
)
def test_code_that_is_nearly_named_as_python_imports_it_is_answered_with_the_name(named, written, here):
    files = "a.pt" if named.endswith("a.pt") else "a.pt,b.pt"
    for words in ([named], ["--posterior", named]):
        said = say("uncertainty", *words, "--images", "photos", code=2)
        assert (
            f"as Python imports it, {written}. Weight files, where it needs them, follow an @: {written}@{files}."
            in said
        )


def test_a_network_object_stands_for_itself_where_code_is_named(here, networks, x):
    (here / "objects.py").write_text(
        "import torch, slips\none = slips.network().eval()\nsome = torch.nn.ModuleList([one])\n"
    )
    said = say("uncertainty", "objects:one", "--images", "photos", code=2)
    assert "If it is one network, name its weight files: --weights a.pt b.pt, or objects:one@a.pt,b.pt;" in said
    say("uncertainty", "objects:one@a.pt,b.pt", "--images", "photos")
    say("uncertainty", "objects:some", "--images", "photos", "--kinds", "total")
    dubium.save_posterior(networks, "saved")
    with torch.no_grad():
        for network, again in zip(networks, dubium.load_posterior("saved", "objects:one"), strict=True):
            assert torch.equal(again(x), network(x))


def test_a_class_that_is_named_as_a_method_is_called_a_class(here, networks, x):
    for method, name in ((nn.Linear, "Linear"), ("torch.nn:Linear", "torch.nn:Linear")):
        with pytest.raises(OptionError, match=rf"The method {name} is a class, and none of Captum's\. Give a function"):
            dubium.explain(networks, x, method=method)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("cifar10-resnet", "cifar10-resnet20"), ("demoo", "demo"), ("cifar100-resnts", "cifar100-resnets")],
)
def test_a_posteriors_name_that_goes_on_is_nearer_than_one_that_is_alike(given, meant, here, monkeypatch):
    for name in ("cifar10-resnet20", "cifar100-resnets", "svhn-cnn"):
        (here / "models" / name).mkdir(parents=True)
        (here / "models" / name / "posterior.json").write_text("{}")
    monkeypatch.setenv("DUBIUM_MODELS", str(here / "models"))
    with pytest.raises(FileFormatError, match=f"Did you mean '{meant}'"):
        dubium.load_posterior(given)


def test_arrays_are_images_as_tensors_are(networks, x, tmp_path):
    by_tensor = dubium.explain_dataset(networks, (x, torch.tensor([0, 1, 2, 0])), tmp_path / "a", method="grad")
    given = x.numpy(), np.array([0, 1, 2, 0])
    by_array = dubium.explain_dataset(networks, given, tmp_path / "b", method="grad")
    for one, other in zip(by_tensor.rows(), by_array.rows(), strict=True):
        assert (one.label, one.epistemic) == (other.label, other.epistemic)
    assert len(dubium.explain_dataset(networks, x.numpy(), tmp_path / "c", top=0)) == 4


def test_an_argument_that_is_misspelt_is_no_option(networks, x):
    with pytest.raises(UnknownNameError, match="is it the argument method= that is meant"):
        dubium.explain(networks, x, methd="auto")


PREPARED = {
    "mean": r"models\.Normalized\(network, mean, std\)\.eval\(\) for each, or dubium\.load_weights\(\.\.\., mean=",
    "fit": r"transform of a torch dataset, as of torchvision\.datasets\.ImageFolder\(folder, transform\)",
}


@pytest.mark.parametrize(
    ("name", "like"),
    [("mean", "mean"), ("std", "mean"), *((n, "fit") for n in ("fit", "resize", "interpolation", "data_config"))],
)
def test_how_images_are_prepared_is_no_option_and_is_told_where_it_is_done(name, like, networks, x, tmp_path):
    for method in ("auto", "ua-backprop"):
        with pytest.raises(UnknownNameError, match=PREPARED[like]):
            dubium.explain(networks, x, method=method, **{name: 0.5})
    with pytest.raises(UnknownNameError, match=PREPARED[like]):
        dubium.explain_dataset(networks, x, tmp_path / "out", **{name: 0.5})


def test_of_images_that_differ_in_size_the_middle_is_taken_as_python_can(here, networks):
    Image.new("RGB", (9, 9)).save("photos/y.png")
    with pytest.raises(
        OptionError, match=r"in Python by the transform of a torch dataset, as of torchvision\.datasets"
    ):
        dubium.explain_dataset(networks, "photos", "out", method="grad")


def test_pictures_of_several_sizes_are_told_how_to_become_a_batch():
    with pytest.raises(ImagesTypeError, match="differ in size; with the networks' own") as raised:
        check_images(pictures := [Image.new("RGB", (8, 9)), Image.new("RGB", (10, 9))])
    code = str(raised.value).split("for 224: ")[1].removesuffix(".").replace("(224, 224)", "(6, 5)")
    assert eval(code, {"torch": torch, "numpy": np, "x": pictures}).shape == (2, 3, 5, 6)


def test_a_pair_is_for_images_and_not_for_folders(networks, x, tmp_path):
    with pytest.raises(OptionError, match=r"pair= is of dubium\.explain alone.*explain\(posterior, x, pair=\(4, 9\)\)"):
        dubium.explain_dataset(networks, x, tmp_path / "out", method="auto", pair=(0, 1))
    assert "of dubium.explain alone" in say("explain", "demo", "--option", "pair=4,9", code=2)


def test_one_method_needs_no_list(networks, x):
    found = dubium.evaluate(networks, x, "grad", scale="smoke", images=2, step=10.0)
    assert next(iter(found["results"])) == "grad"


@pytest.mark.parametrize("form", ["list", "batches", "image", "images", "bytes", "array", "swapped", "path"])
def test_the_advice_about_images_runs(form, networks, x):
    picture = Image.fromarray(np.full((8, 8, 3), 51, np.uint8))
    given = {
        "list": list(x), "batches": [x, x], "image": picture, "images": [picture, picture],
        "bytes": np.full((2, 3, 8, 8), 51, np.uint8), "array": x.numpy(), "swapped": networks, "path": "photos",
    }[form]  # fmt: skip
    with pytest.raises(ImagesTypeError) as raised:
        check_images(given)
    said = str(raised.value)
    if form in ("swapped", "path"):
        assert ("are the arguments swapped?" if form == "swapped" else "dubium.explain_dataset") in said
        return
    (code,) = re.findall(r"(?:Convert it|batch of it): (.+?)(?:, or (?:.+) of batches)?\.$", said)
    code = "torch.cat(x)" if form == "batches" else code
    made = eval(code, {"torch": torch, "numpy": np, "x": given})
    check_images(made)
    assert made.shape[1:] == (3, 8, 8)
    assert form not in ("image", "images", "bytes") or torch.equal(made, torch.full_like(made, 0.2))


@pytest.mark.parametrize(
    ("given", "named"), [("demo", "load_posterior('demo')"), (["a.pt", "b.pt"], "load_weights(Net, files)")]
)
def test_a_name_or_files_in_place_of_networks_are_told_how_to_be_loaded(given, named, x):
    with pytest.raises(PosteriorTypeError, match=re.escape(named)):
        dubium.explain(given, x)


WRONG_TYPES = {
    "MC dropout of a list": (lambda nets, x: MCDropout(nets), "one network is needed"),
    "samples of a tensor": (lambda nets, x: sghmc(nets[0], x), r"pairs \(images, labels\) are needed"),
    "weights of networks": (lambda nets, x: dubium.load_weights(nets[0], nets), "names of files are needed"),
    "weights, swapped": (lambda nets, x: dubium.load_weights(["a.pt"], type(nets[0])), "names of files are needed"),
    "a posterior of files": (lambda nets, x: dubium.load_posterior(["a.pt"]), "dubium.load_weights"),
    "letters as classes": (lambda nets, x: dubium.save_posterior(nets, "ens", classes="abc"), "a list of names"),
    "a side as shape": (lambda nets, x: dubium.explain_dataset(nets, x, "o", input_shape=8), "expected .channels"),
    "a side to train at": (lambda nets, x: dubium.training.train("demo", "o", input_shape=8), "expected .channels"),
    "a side to save": (lambda nets, x: dubium.save_posterior(nets, "ens", input_shape=8), "expected .channels"),
    "two sides to train at": (
        lambda nets, x: dubium.training.train("demo", "o", input_shape=(8, 8)),
        "width are needed, such",
    ),
    "no images": (lambda nets, x: dubium.evaluate(nets, x, "grad", images=0), "images=0; a whole number greater"),
    "attention for a list": (lambda nets, x: dubium.mitigate(nets, None, x, [0] * 4), "mitigate trains one network"),
    "a list's completeness": (lambda nets, x: dubium.fullgrad_completeness(nets, x), "One network is needed"),
    "a folder as a board": (
        lambda nets, x: log_explanation("board", dubium.explain(nets, x), 0),
        "one with add_figure",
    ),
    "a folder to save to": (lambda nets, x: dubium.uncertainty(nets, x).save("photos"), "photos/result.safetensors"),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_what_is_of_another_type_is_refused_in_words(name, here, networks, x, unchecked):
    call, words = WRONG_TYPES[name]
    with pytest.raises(DubiumError, match=words):
        call(networks, x)


def test_a_list_of_files_is_read_as_the_folder_is(here, networks):
    results = dubium.explain_dataset(networks, ["photos/x.png"], "out", method="grad")
    assert [row.path for row in results.rows()] == ["photos/x.png"]


def test_code_that_is_named_by_its_file_is_told_how_it_is_named(here):
    images = ("--images", "photos")
    assert "slips:network@a.pt,b.pt" in say("explain", "slips.py:network@a.pt,b.pt", *images, code=2)
    assert "slips:function" in say("explain", "slips.py", *images, code=2)
    assert "as Python imports it in code/" in say("explain", "--posterior", "code/slips.py:network", *images, code=2)
    assert "slips:mine" in say("explain", "demo", "--method", "slips.py:mine", code=2)
    assert "slips:data" in say("explain", "demo", "--dataset", "slips.py:data", code=2)


@pytest.mark.parametrize("files", ["", "@a.pt,b.pt"])
def test_a_factory_that_needs_arguments_is_told_to_be_written_without(here, files):
    said = say("explain", f"torch.nn:Linear{files}", "--images", "photos", code=2)
    assert "A function without arguments is needed." in said
    assert "write such a function in a file mine.py, and name it mine:function." in said


def test_channels_come_first(here, networks, x, tmp_path):
    words = ("explain", "slips:network@a.pt,b.pt", "--images", "photos")
    assert "Channels come first: 3,8,8." in say(*words, "--input-shape", "8,8,3", code=2)
    with pytest.raises(OptionError, match="Channels come first: 3,8,8"):
        dubium.save_posterior(networks, tmp_path / "ens", input_shape=(8, 8, 3))
    with pytest.raises(NetworkError, match=r"x\.movedim\(-1, 1\)"):
        dubium.explain(networks, x.movedim(1, -1))


def test_constants_for_bytes_are_refused_where_images_are_from_0_to_1(here, networks):
    words = ("uncertainty", "slips:network@a.pt,b.pt", "--images", "photos")
    said = say(*words, "--mean", "127", "127", "127", "--std", "60", "60", "60", code=2)
    assert "Divide mean and std by 255: --mean 0.498,0.498,0.498." in said
    with pytest.warns(UserWarning, match="divide mean and std by 255"):
        dubium.load_weights(networks[0], ["a.pt", "b.pt"], mean=(127.0,) * 3, std=(60.0,) * 3)


def test_labels_of_another_dataset_are_not_used_with_a_word_about_it(networks, x, tmp_path):
    far = Images(x, torch.tensor([0, 1, 2, 9]), tuple(map(str, range(10))), "far", "test")
    with pytest.warns(
        UserWarning, match="Labels are not used: the data has labels up to 9, the networks have 3 classes"
    ):
        dubium.explain_dataset(networks, (x, torch.tensor([9, 0, 1, 2])), tmp_path / "g", method="grad")
    with pytest.warns(UserWarning, match="Labels are not used: far has labels up to 9, the networks have 3 classes"):
        results = dubium.explain_dataset(networks, far, tmp_path / "out", method="grad")
    assert [row.label for row in results.rows()] == [None] * 4
    with pytest.warns(UserWarning, match=r"Give labels that are numbers of these, 0 to 2\.$"):
        dubium.explain_dataset(networks, far, tmp_path / "again", method="grad")
    with pytest.raises(OptionError, match="Image 3 has the label 9; the networks have 3 classes"):
        dubium.explain_dataset(networks, Labelled(x), tmp_path / "no")


def test_an_input_shape_of_two_numbers_is_refused_when_a_posterior_is_saved(networks, here):
    with pytest.raises(OptionError, match=r"input_shape is \(8, 8\); channels, height and width are needed"):
        dubium.save_posterior(networks, here / "saved", input_shape=(8, 8))


@pytest.mark.parametrize(
    "command", [("explain", "--out", "o"), ("uncertainty",), ("evaluate", "blurring", "--out", "e")]
)
def test_a_function_of_data_that_raises_an_error_is_named(here, command):
    (here / "raising.py").write_text("def data():\n    raise ValueError('no disk')\n")
    words = [word for word in command if word not in ("--out", "o", "e")]
    said = say(*words, "slips:network@a.pt,b.pt", "--dataset", "raising:data", *command[len(words) :], code=2)
    assert "The dataset raising:data raised ValueError: no disk. A function without arguments is needed" in said


def test_an_upload_is_brought_to_the_size_that_all_images_of_the_explorer_have(here, monkeypatch):
    monkeypatch.syspath_prepend(here)
    np.savez(here / "few.npz", images=np.zeros((3, 8, 8, 3), np.uint8))
    session = open_posterior_session({"factory": "slips:network", "weights": ["a.pt", "b.pt"]}, {"dataset": "few.npz"})
    assert session.preprocessing.network_input(torch.rand(3, 30, 20)).shape == (3, 8, 8)


def test_of_an_image_that_cannot_be_read_no_size_is_said(here):
    (here / "broken.png").write_bytes(b"none")
    assert "None pixels" not in say("explain", "slips:network@a.pt,b.pt", "--images", "broken.png", code=2)


class Labelled(Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], (0, 1, 2, 9)[index]


class Torn(Labelled):
    def __getitem__(self, index):
        if index == 1:
            raise OSError("it is torn")
        return self.x[index]


def test_samples_that_are_left_out_are_said(networks, x, tmp_path):
    with pytest.warns(UserWarning, match="1 file could not be read: Sample 1 .* it is torn"):
        results = dubium.explain_dataset(networks, Torn(x), tmp_path / "out", method="grad")
    assert len(results) == 3


def test_maps_of_ones_own_that_are_no_numbers_are_said_to_be_ones_own(networks, x):
    def empty(network, x, target):
        return (x.sum(1)[:, None] * torch.nan).expand(-1, target(network(x)).shape[1], -1, -1)

    with pytest.raises(OutputError, match="your function returned such numbers"):
        dubium.explain(networks, x, method=empty)


def test_results_are_not_written_to_a_file(here, networks, x):
    with pytest.raises(OptionError, match=r"a\.pt is a file; a folder is needed"):
        dubium.explain_dataset(networks, x, "a.pt")


class Wrapped(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return {"logits": self.network(x)}


def test_mitigate_answers_the_usual_slips(networks, x, unchecked):
    network, labels, recipe = networks[0], [0, 1, 2, 0], Recipe(epochs=1)
    result = dubium.explain(networks, x, kinds="epistemic")
    maps = result.maps["epistemic"]
    assert dubium.mitigate(network, maps, x, labels, recipe=recipe)(x).shape == (4, 3)
    for wrong in (result, result.maps):
        with pytest.raises(ImagesTypeError, match=r"maps=result\.maps\['epistemic'\]"):
            dubium.mitigate(network, wrong, x, labels, recipe=recipe)
    with pytest.raises(ImagesError, match="The labels are 0 to 7; the network has 3 classes"):
        dubium.mitigate(network, maps, x, [0, 1, 2, 7], recipe=recipe)
    with pytest.raises(ImagesError, match="numbers of classes"):
        dubium.mitigate(network, maps, x, [0.5, 1.0, 2.0, 0.0], recipe=recipe)
    with pytest.raises(OutputError, match="puts out a dict"):
        dubium.mitigate(Wrapped(network), maps, x, labels, recipe=recipe)


def test_an_array_where_a_word_belongs_is_refused_in_words(networks, x):
    with pytest.raises(UnknownNameError, match="output that UA-Backprop explains"):
        dubium.explain(networks, x, of=np.array([1, 2]))
