"""Mistakes of a new user whose messages named internals, the wrong way out, or nothing to do."""

import numpy as np
import pytest
import torch
from torch import nn

import dubium
from dubium.data import load
from dubium.errors import FileFormatError, NetworkError, OutputError, UnknownNameError
from dubium.posteriors import load_posterior
from dubium.training import recipe_for
from tests import piles
from tests.own_networks import bring_networks, own_images, own_networks, say, write_photos

SMOKE = {"methods": ["grad"], "scale": "smoke", "step": 10.0}
NO_INTERVAL = "One image has no interval, and shows no difference between methods. Give more images."


@pytest.fixture
def networks():
    return own_networks()


@pytest.fixture
def here(tmp_path, monkeypatch, networks):
    """Code, weights, and photos."""
    bring_networks(tmp_path, monkeypatch, "named", networks)
    write_photos([tmp_path / "photos"], 3, (8, 8))
    return tmp_path


def test_one_image_has_no_interval_and_a_note_says_so(networks, here):
    assert NO_INTERVAL in dubium.evaluate(networks, own_images()[:1], **SMOKE)["notes"]
    assert NO_INTERVAL not in dubium.evaluate(networks, own_images()[:2], **SMOKE)["notes"]
    words = ("evaluate", "blurring", "demo", "--methods", "grad", "--scale", "smoke", "--step", 10)
    said = say(*words, "--images", 1, "--out", "one")
    assert NO_INTERVAL in said
    assert "95 % intervals" not in said
    assert "Dots are estimates, lines their 95 % intervals." not in (here / "one" / "index.html").read_text()
    said = say(*words, "--images", 4, "--out", "four")
    assert "95 % intervals" in said
    assert NO_INTERVAL not in said


def test_a_misspelt_split_brings_the_splits_that_the_file_has(here):
    images = np.zeros((2, 8, 8, 3), np.uint8)
    np.savez("both.npz", test_images=images, x_train=images)
    np.savez("test.npz", images=images)
    said = say("explain", "named:network@a.pt,b.pt", "--dataset", "both.npz:tran", "--out", "out", code=2)
    assert "No split of both.npz called 'tran'. Did you mean 'train'? Available: train, test." in said
    assert "A function of yours" not in said
    said = r"test\.npz has one set of images, and no split 'tran'\. Leave ':tran' out"
    with pytest.raises(UnknownNameError, match=said):
        load("test.npz:tran")
    with pytest.raises(UnknownNameError, match=r"No dataset called 'a/b:tran'.*npz file\.$"):
        load("a/b:tran")


def test_a_folders_splits_are_no_functions_of_a_package(here):
    write_photos([here / "both" / name / label for name in ("train", "test") for label in ("cat", "dog")], 1, (8, 8))
    words = ("uncertainty", "named:network@a.pt,b.pt", "--dataset")
    assert "2 images scored" in say(*words, "both:train")
    said = say(*words, "both:tran", code=2)
    assert "No split of both called 'tran'. Did you mean 'train'? Available: train, test." in said
    (here / "both" / "__init__.py").write_text("")
    assert "'both:tran' cannot be imported" in say(*words, "both:tran", code=2)


def test_errors_of_a_comparison_say_of_which_side_they_are(here):
    wide = nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).eval()
    torch.save(wide.state_dict(), "wide.pt")
    (here / "named_wide.py").write_text(
        "from torch import nn\ndef network():\n    return nn.Sequential(nn.Flatten(), nn.Linear(192, 3))\n"
    )
    sides = ["named:network@a.pt,b.pt", "named_wide:network@wide.pt,wide.pt"]
    compare = ("--images", "photos", "--methods", "grad", "--input-shape", "3,6,6", "--out", "out")
    assert "dubium: B: Network 0 cannot take images" in say("compare", *sides, *compare, code=2)
    assert "dubium: A: Network 0 cannot take images" in say("compare", *sides[::-1], *compare, code=2)
    assert "3 images" in say("compare", *sides, *compare, "--input-shape-b", "3,8,8")


def test_training_takes_one_mean_for_all_channels(here):
    data = dubium.data.Dataset(torch.zeros(8, 3, 8, 8), torch.zeros(8).long(), ("cat", "dog"), "mine", "train")
    for one in ((0.5,), 0.5, [0.5]):
        recipe = recipe_for(data, "smoke", {"mean": one, "std": (0.2, 0.3, 0.4)})
        assert (recipe.mean, recipe.std) == ((0.5, 0.5, 0.5), (0.2, 0.3, 0.4))
    write_photos([here / "pets" / name for name in ("cat", "dog")], 4, (32, 32))
    train = ("train", "--dataset", "pets", "--scale", "smoke", "--members", 1, "--epochs", 1, "--out", "run")
    say(*train, "--mean", ".5", "--std", ".25")
    assert dubium.posteriors.posterior_record("run").normalisation == {"mean": [0.5] * 3, "std": [0.25] * 3}
    say(*train, "--mean", ".5,.5,.5", "--std", ".25,.25,.25")  # the same run


def test_several_weight_files_bring_the_advice_that_one_brings(here):
    said = say("explain", "a.pt", "b.pt", "--images", "photos", code=2)
    assert "a.pt b.pt are weight files" in said
    assert "module:function@a.pt,b.pt, or --posterior module:function --weights a.pt b.pt" in said
    assert "nexpected extra argument" in say("explain", "demo", "more", "--images", "photos", code=2)


def test_one_mean_for_all_channels_is_as_many_that_are_equal(here):
    words = ("explain", "named:network@a.pt,b.pt", "--images", "photos", "--method", "grad", "--out", "out")
    say(*words, "--mean", ".5", "--std", ".25")
    before = [file.read_bytes() for file in sorted((here / "out" / "results").iterdir())]
    say(*words, "--mean", ".5,.5,.5", "--std", ".25,.25,.25")
    assert before == [file.read_bytes() for file in sorted((here / "out" / "results").iterdir())]
    said = say(*words, "--mean", ".5,.4,.5", "--std", ".25", code=2)
    assert "settings.posterior.mean is [0.5, 0.5, 0.5] there, [0.5, 0.4, 0.5] here" in said


def test_another_method_is_named_once(here):
    words = ("explain", "named:network@a.pt,b.pt", "--images", "photos", "--out", "out")
    say(*words, "--method", "grad")
    said = say(*words, "--method", "ig:steps=2", code=2)
    assert "settings.method is 'grad' there, 'ig' here" in said
    assert "method.grad" not in said
    assert "method.ig" not in said


@pytest.mark.parametrize("call", [dubium.explain, dubium.uncertainty])
def test_images_with_another_number_of_channels_than_the_first_convolution(call, networks):
    said = r"x has 1 channel, and the first convolution takes 3: repeat the grey channel, x\.expand\(-1, 3, -1, -1\)"
    with pytest.raises(NetworkError, match=said):
        call(networks, own_images()[:, :1])
    call(networks, own_images()[:, :1].expand(-1, 3, -1, -1))
    grey, x = piles.networks(), torch.rand(2, 3, 12, 12)
    with pytest.raises(NetworkError, match=r"x has 3 channels, and .* takes 1: make x grey, x\.mean\(1, keepdim=True"):
        call(grey, x)
    call(grey, x.mean(1, keepdim=True))
    with pytest.raises(NetworkError, match=r"x has 2 channels, and .* takes 3: give x the channels that"):
        call(networks, own_images()[:, :2])


class Heads(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return {"coarse": self.network(x), "fine": self.network(x)}


def test_a_misspelt_part_of_the_output_brings_the_nearest(networks):
    with pytest.raises(OutputError, match=r"There is no 'finee' in a dict of .*\. Did you mean 'fine'\? Give output="):
        dubium.explain([Heads(network).eval() for network in networks], own_images(), output="finee")
    with pytest.raises(OutputError, match="Did you mean 'probabilities'"):
        dubium.explain(networks, own_images(), output="probabilites")


def test_a_misspelt_posterior_brings_saved_ones_alone(here, networks, monkeypatch):
    for number in range(40):
        (here / "models" / f"empty-{number}").mkdir(parents=True)
    for number in range(14):
        (here / "models" / f"saved-{number:02}").mkdir()
        (here / "models" / f"saved-{number:02}" / "posterior.json").write_text("{}")
    monkeypatch.setenv("DUBIUM_MODELS", str(here / "models"))
    dubium.save_posterior(networks, "mypost")
    with pytest.raises(
        FileFormatError, match=r"has saved-00, .*, saved-11, \.\.\.\. Did you mean 'mypost'\?"
    ) as raised:
        load_posterior("mypots")
    assert "empty" not in str(raised.value)
    with pytest.raises(FileFormatError, match=r"Did you mean 'saved-03'\?"):
        load_posterior("savd-03")


def test_what_look_like_probabilities_can_be_said_to_be_logits(here, networks):
    (here / "named_probs.py").write_text(
        "from torch import nn\nfrom named import network as plain\n"
        "def network():\n    return nn.Sequential(*plain(), nn.Softmax(-1))\n"
    )
    words = ("uncertainty", "named_probs:network@a.pt,b.pt", "--images", "photos")
    assert "logits after all: output='logits' (--network-output logits on the command line)" in say(*words, code=2)
    assert "3 images scored" in say(*words, "--network-output", "logits")
    heads = [Heads(nn.Sequential(network, nn.Softmax(-1))).eval() for network in networks]
    for head in heads:
        head.forward = lambda x, head=head: {"logits": head.network(x)}
    with pytest.raises(OutputError, match="look like probabilities"):  # it is the name of a part there
        dubium.uncertainty(heads, own_images(), output="logits")


def test_advice_to_wrap_a_network_gives_one_that_is_taken():
    networks, x = [nn.Conv2d(3, 4, 3).eval() for _ in range(2)], torch.rand(2, 3, 4, 4)
    with pytest.raises(OutputError) as raised:
        dubium.explain(networks, x)
    assert "nn.Sequential(network, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()" in str(raised.value)
    dubium.uncertainty([nn.Sequential(n, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval() for n in networks], x)
