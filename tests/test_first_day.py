"""What people did on their first day with dubium, and were left alone with: each has an answer now."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from captum.attr import LayerGradCam, NoiseTunnel, Saliency
from PIL import Image

import dubium
from dubium.errors import OptionError, PosteriorTypeError, UnknownNameError
from dubium.run import open_results
from dubium.training import train
from tests.own_networks import say

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(self.body(x))
"""
SAME = "All networks give the same outputs"


@pytest.fixture
def networks(tmp_path, monkeypatch):
    """Networks of a user's own code, saved in `ens` with size and names, as weight files, and photos of two sizes."""
    (tmp_path / "first_day.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "first_day", raising=False)
    from first_day import Net

    torch.manual_seed(0)
    found = [Net().eval() for _ in range(3)]
    for name, network in zip("abc", found, strict=True):
        torch.save(network.state_dict(), f"{name}.pt")
    dubium.save_posterior(found, "ens", classes=["cat", "dog", "owl"], input_shape=(3, 8, 8))
    rng = np.random.default_rng(0)
    for rank, name in enumerate(["cat", "owl"]):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.fromarray(rng.integers(0, 256, (9 + rank, 9, 3), np.uint8)).save(f"photos/{name}/x.png")
    return found


@pytest.fixture
def x():
    return torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("call", [dubium.explain, dubium.uncertainty])
def test_one_network_that_is_in_the_list_several_times_is_said(call, networks, x):
    for given in ([networks[0]] * 3, dubium.load_weights(type(networks[0]), ["a.pt", "a.pt"])):
        with pytest.warns(UserWarning, match=SAME):
            call(given, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(networks, x)
        call([networks[0]] * 3, x, kinds="aleatoric")
        call([networks[0]] * 3, x[:0])


def test_it_is_said_once_for_a_dataset_and_for_an_evaluation(networks, x, tmp_path):
    same = [networks[0]] * 3
    with pytest.warns(UserWarning, match="networks give the same outputs") as said:
        dubium.explain_dataset(same, x, tmp_path / "out", batch=2)
    assert [str(warning.message)[:40] for warning in said] == ["all 3 networks give the same outputs, as"]
    agree = "All 3 networks agree everywhere"
    with pytest.warns(UserWarning, match=SAME), pytest.raises(OptionError, match=agree):
        dubium.evaluate(same, x, ["grad"], scale="smoke", images=2, step=10.0)


def test_the_command_says_it_too(networks):
    words = ("--images", "photos", "--input-shape", "3,8,8")
    said = "all 2 networks give the same outputs"
    assert said in say("uncertainty", "first_day:Net@a.pt,a.pt", *words)
    assert said not in say("uncertainty", "first_day:Net@a.pt,b.pt", *words)
    assert said in say("compare", "first_day:Net@a.pt,a.pt", "first_day:Net@a.pt,b.pt", *words, "--out", "both")


@pytest.mark.parametrize("form", ["first_day:Net", "class"])
def test_a_saved_posterior_of_own_code_keeps_size_and_names(form, networks, tmp_path):
    architecture = type(networks[0]) if form == "class" else form
    results = dubium.explain_dataset("ens", "photos", tmp_path / "out", method="grad", architecture=architecture)
    assert results.about["classes"] == ["cat", "dog", "owl"]
    assert results.about["input_shape"] == [3, 8, 8]
    assert sorted(row.label for row in results.rows()) == [0, 2]
    found = dubium.evaluate("ens", "photos", ["grad"], scale="smoke", step=10.0, architecture=architecture)
    assert not any("Labels are not used" in note for note in found["notes"])
    with pytest.raises(OptionError, match="architecture= is for the name or folder of a saved posterior"):
        dubium.explain_dataset(networks, "photos", tmp_path / "other", architecture=architecture)


def test_a_folder_and_its_code_are_named_in_one_word(networks, tmp_path):
    for words in (
        ["first_day:Net@ens"],
        ["ens", "--posterior", "first_day:Net@ens"],
        ["--posterior", "first_day:Net@ens"],
    ):
        say("explain", *words, "--images", "photos", "--method", "grad", "--out", "out")
        assert open_results("out").about["settings"]["posterior"]["architecture"] == "first_day:Net"
    said = say("explain", "elsewhere", "--posterior", "first_day:Net@ens", "--images", "photos", code=2)
    assert "named twice" in said


def test_the_explorer_takes_networks_that_were_given_in_python(networks, x, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("dubium.web.serve", lambda session, **_: opened.append(session))
    dubium.explain_dataset(networks, x, "out", method="grad")
    assert "no file has them" in say("serve", "out")
    assert "first_day:Net@" in say("serve", "out", "--posterior", "ens")
    say("serve", "out", "--posterior", "first_day:Net@ens")
    assert [session.posterior is None for session in opened] == [True, True, False]


def test_a_folder_of_photos_and_a_saved_name_are_sent_where_they_belong(networks, x):
    with pytest.raises(PosteriorTypeError, match=r"dubium\.load_posterior\('ens'\)"):
        dubium.explain("ens", x)


def test_a_noise_tunnel_is_given_by_its_class_and_that_of_the_inner_method(networks, x):
    options = {"nt_samples": 3, "stdevs": 0.1, "nt_type": "smoothgrad"}
    found = []
    for inner in (Saliency, "Saliency"):
        torch.manual_seed(0)
        found.append(dubium.explain(networks, x, method=NoiseTunnel, attribution_method=inner, **options).maps["total"])
    torch.manual_seed(0)
    by_object = dubium.explain(networks, x, method=NoiseTunnel(Saliency(networks[0])), **options).maps["total"]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], by_object)
    assert found[0].abs().max() > 0
    with pytest.raises(OptionError, match="needs the option attribution_method"):
        dubium.explain(networks, x, method=NoiseTunnel)
    with pytest.raises(UnknownNameError, match="Did you mean 'Saliency'"):
        dubium.explain(networks, x, method=NoiseTunnel, attribution_method="Salency")


def test_a_layer_whose_outputs_have_no_place_is_refused_with_what_is_needed(networks, x):
    with pytest.raises(OptionError, match=r"no place in them\. Name a layer that puts out feature maps"):
        dubium.explain(networks, x, method=LayerGradCam, layer="fc")


def test_scores_of_a_run_that_stopped_at_its_method_are_kept_for_another(networks, tmp_path):
    words = ("explain", "first_day:Net@ens", "--images", "photos", "--top", 1, "--out", "out")
    assert "No layer" in say(*words, "--method", "captum.attr:LayerGradCam:layer=conv", code=2)
    file = tmp_path / "out" / "scores" / "scored-00000.parquet"
    before = file.stat().st_mtime_ns
    assert "No layer" in say(*words, "--method", "captum.attr:LayerGradCam:layer=bod", code=2)
    assert file.stat().st_mtime_ns == before
    say(*words, "--method", "grad")
    by_grad = [row.map_epistemic for row in open_results("out").rows(open_results("out").explained)]
    say(*words[:-1], "fresh", "--method", "grad")
    fresh = [row.map_epistemic for row in open_results("fresh").rows(open_results("fresh").explained)]
    assert np.array_equal(by_grad[0], fresh[0])
    assert "other settings" in say(*words, "--method", "ig", code=2)


def test_scores_of_other_networks_are_not_kept(networks):
    words = ("--images", "photos", "--input-shape", "3,8,8", "--top", 1, "--out", "out")
    broken = ("--method", "captum.attr:LayerGradCam:layer=conv")
    say("explain", "first_day:Net@a.pt,b.pt", *words, *broken, code=2)
    assert "other settings" in say("explain", "first_day:Net@a.pt,c.pt", *words, "--method", "grad", code=2)


def test_images_in_folders_that_are_no_classes_are_said_to_have_no_labels(networks):
    words = ("--images", "photos", "--input-shape", "3,8,8")
    assert "labels are not used: 2 folders for 3 classes" in say("uncertainty", "first_day:Net@a.pt,b.pt", *words)
    (Path("photos") / "dog").mkdir()
    Image.fromarray(np.full((9, 9, 3), 9, np.uint8)).save("photos/dog/x.png")
    assert "--names cat,dog,owl says what" in say("uncertainty", "first_day:Net@a.pt,b.pt", *words)
    said = say("uncertainty", "first_day:Net@a.pt,b.pt", *words, "--names", "x,y,z")
    assert "Labels are not used: no class of the networks is known to be called like a folder (cat,dog,owl)" in said
    assert "abels are not used" not in say("uncertainty", "first_day:Net@ens", *words)


def test_a_folder_that_is_not_there_is_named_by_compare(networks):
    assert "There is no folder 'nothing' here" in say("compare", "nothing", "demo", code=2)


def test_the_number_of_images_of_an_evaluation_is_no_folder(networks):
    words = ("evaluate", "blurring", "demo", "--scale", "smoke", "--methods", "grad", "--out", "out")
    for given in ("photos", "0"):
        said = say(*words, "--images", given, code=2).replace("│ ", "")
        assert f"--images is '{given}'; here it is how many images" in said
        assert "A folder of images is named by --dataset" in said


def test_files_that_cannot_be_read_are_left_out_of_a_training_and_named(tmp_path):
    rng = np.random.default_rng(0)
    for name in "ab":
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            Image.fromarray(rng.integers(0, 256, (16, 16), np.uint8)).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "photos" / "a" / "broken.png").write_bytes(b"no image")
    changes = {"options": {"filters": 2, "units": 8}, "epochs": 1}
    record = train(str(tmp_path / "photos"), tmp_path / "run", members=1, scale="smoke", changes=changes, threads=1)
    assert record["data"]["images"] == 6
    (reason,) = record["skipped"]
    assert "broken.png" in reason
    words = ("--dataset", tmp_path / "photos", "--scale", "smoke", "--epochs", 1, "--threads", 1)
    said = say("train", *words, "--members", 1, "--out", tmp_path / "again", code=1)
    assert "skipped: " in said
    assert "1 file skipped." in said
    assert "1 file skipped." in say("train-vae", *words, "--hidden", 8, "--out", tmp_path / "vae", code=1)


def test_a_posterior_that_is_saved_over_a_larger_one_leaves_none_of_its_files(networks, tmp_path):
    (tmp_path / "ens" / "notes.txt").write_text("mine")
    dubium.save_posterior(networks[:2], "ens")
    assert sorted(path.name for path in (tmp_path / "ens").iterdir()) == [
        "member-0.safetensors", "member-1.safetensors", "notes.txt", "posterior.json",
    ]  # fmt: skip
    assert len(dubium.load_posterior("ens", architecture=type(networks[0]))) == 2
