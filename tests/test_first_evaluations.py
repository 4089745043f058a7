"""Slips of a fifth trial, with evaluations of one's own networks: each is taken, or answered with what to do."""

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import dubium
from dubium.cli import app
from dubium.data import Dataset
from dubium.errors import ImagesError, ImagesTypeError, NetworkError, OptionError, UnknownNameError
from dubium.evaluation.protocols.mitigation_arm import arm_measurements
from dubium.evaluation.summary import EvaluationSummary

CODE = """
from torch import nn

def network():
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, 4))
"""
SMOKE = ("--scale", "smoke", "--methods", "grad", "--threads", "1")


def make_networks(channels=3):
    torch.manual_seed(0)
    return [
        nn.Sequential(
            nn.Conv2d(channels, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, 4)
        ).eval()
        for _ in range(2)
    ]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with code, weights of two networks of four classes, and photos of two of these."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_code_of_trial.py").write_text(CODE)
    for name, network in zip("ab", make_networks(), strict=True):
        torch.save(network.state_dict(), f"{name}.pt")
    rng = np.random.default_rng(0)
    for index in range(8):
        folder = tmp_path / "photos" / ("cat", "dog")[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        size = (12, 12, 3) if index else (14, 12, 3)
        Image.fromarray(rng.integers(0, 256, size, np.uint8)).save(folder / f"{index}.png")
    return tmp_path


def run(*arguments):
    """Exit code and output, in one line, of a command."""
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, re.sub(r"\s+", " ", found.output)


OWN = ("own_code_of_trial:network@a.pt,b.pt", "--input-shape", "3,12,12")


@pytest.mark.filterwarnings("error")
def test_an_image_with_nan_is_named_by_its_index_in_the_dataset(tmp_path):
    networks, x = make_networks(), torch.rand(40, 3, 8, 8)
    x[37, 0, 2, 2] = torch.nan
    said = "NaN or infinity in 1 image of 40: index 37"
    labels = torch.arange(40) % 4
    for data in (x, x.numpy(), (x, labels), Dataset(x, labels, tuple("abcd"), "mine", "all")):
        with pytest.raises(ImagesError, match=said):
            dubium.explain_dataset(networks, data, tmp_path / "out")
        with pytest.raises(ImagesError, match=said):
            dubium.evaluate(networks, data, ["grad"], scale="smoke")
    with pytest.raises(ImagesError, match=r"^Image 37 has NaN or infinity"):
        dubium.explain_dataset(networks, TensorDataset(x), tmp_path / "samples")
    with pytest.raises(ImagesError, match=said):
        dubium.evaluate(networks, TensorDataset(x), ["grad"], scale="smoke")


def test_networks_of_other_classes_than_the_dataset_has_reproduce_nothing(here, monkeypatch):
    monkeypatch.setenv("DUBIUM_DATA", str(here))
    named = ("--posterior", "own_code_of_trial:network", "--weights", "a.pt", "b.pt", "--dataset", "cifar-10")
    code, output = run("reproduce", "blurring", "--scale", "smoke", *named, "--out", "rep")
    assert code == 2
    assert "The networks have 4 classes, cifar-10 has 10" in output
    assert "`dubium evaluate blurring ... --dataset cifar-10`" in output


def test_a_protocol_that_needs_labels_is_left_out_before_the_work_where_there_are_none(here):
    arguments = ("evaluate", "all", *OWN, "--dataset", "photos", *SMOKE, "--out", "all")
    said = "causes is left out: it needs labels, and the images of photos have none. Labels are not used: photos has 2"
    code, output = run(*arguments, "--protocols", "anomaly,causes", "--estimate")
    assert (code, "anomaly" in output) == (0, True)
    assert said in output
    code, output = run(*arguments, "--protocols", "anomaly,causes")
    assert code == 0
    assert output.startswith(f"dubium: {said}")
    assert "--names A,B,..." in output
    assert "Without it: --protocols anomaly." in output
    notes = json.loads((here / "all" / "overview.json").read_text())["notes"]
    assert notes["causes"][0].startswith("causes is left out")
    assert not (here / "all" / "causes").exists()
    code, output = run(*arguments, "--protocols", "causes")
    assert code == 2
    assert "causes needs labels, and the images of photos have none." in output


def test_named_classes_give_the_labels_back(here):
    arguments = ("evaluate", "all", *OWN, "--dataset", "photos", *SMOKE, "--out", "all")
    code, output = run(*arguments, "--protocols", "causes", "--names", "ant,bee,cat,dog")
    assert code == 0, output


@pytest.mark.parametrize("protocol", ["causes", "mitigation"])
def test_an_estimate_of_a_training_without_labels_is_refused_in_words(protocol, here):
    images = np.zeros((6, 12, 12, 3), np.uint8)
    np.save("images.npy", images)
    named = OWN if protocol == "mitigation" else ()
    code, output = run("evaluate", protocol, *named, "--dataset", "images.npy", *SMOKE, "--estimate", "--out", "e")
    assert code == 2
    assert "The images of images.npy have no labels" in output


def test_patches_of_a_folder_are_brought_to_the_shape_that_is_named(here):
    named = ("--dataset", "photos", "--patches", "photos", "--box", "4", *SMOKE)
    code, output = run("evaluate", "anomaly", *OWN, *named, "--out", "patched")
    assert code == 0, output
    found = dubium.evaluate(
        make_networks(), "photos", ["grad"], "anomaly", scale="smoke", input_shape=(3, 12, 12), patches="photos", box=4
    )
    assert found["results"] == json.loads((here / "patched" / "summary.json").read_text())["results"]


def test_patches_are_taken_as_the_images_are():
    x, labels = torch.rand(8, 3, 12, 12), torch.arange(8) % 4
    sources = (x, x.numpy(), (x, labels), Dataset(x, labels, (), "mine", "all"), TensorDataset(x, labels))
    found = [
        dubium.evaluate(make_networks(), x, ["grad"], "anomaly", scale="smoke", patches=source, box=4)["results"]
        for source in sources
    ]
    assert all(results == found[0] for results in found)
    white = dubium.evaluate(make_networks(), x, ["grad"], "anomaly", scale="smoke", patches=torch.ones_like(x), box=4)
    assert white["results"] != found[0]
    with pytest.raises(ImagesTypeError, match=r"a tensor \(N, C, H, W\), \(images, labels\)"):
        dubium.evaluate(make_networks(), x, ["grad"], "anomaly", scale="smoke", patches=5)


def test_all_protocols_are_run_by_the_command_line():
    with pytest.raises(UnknownNameError, match=r"`dubium evaluate all RUN .*once for each protocol: blurring, removal"):
        dubium.evaluate(make_networks(), torch.rand(8, 3, 12, 12), protocol="all")


def test_the_size_of_all_protocols_and_their_patches_are_named_once(here):
    np.save("white.npy", np.full((6, 12, 12, 3), 255, np.uint8))
    arguments = ("evaluate", "all", *OWN, "--dataset", "photos", *SMOKE, "--protocols", "blurring,anomaly,sanity")
    code, output = run(*arguments, "--images", 2, "--patches", "white.npy", "--out", "all")
    assert code == 0, output
    settings = {
        name: json.loads((here / "all" / name / "summary.json").read_text())["settings"]
        for name in ("blurring", "anomaly", "sanity")
    }
    assert {found["images"] for found in settings.values()} == {2}
    assert settings["anomaly"]["patches"].startswith("white")
    code, output = run(*arguments, "--images", 2, "--estimate", "--out", "estimated")
    assert code == 0, output


def test_a_vae_is_trained_on_photos_that_differ_in_size_once_a_shape_is_named(here):
    arguments = ("train-vae", "--dataset", "photos", "--scale", "smoke", "--threads", 1, "--latent", 2)
    code, output = run(*arguments, "--out", "vae")
    assert code == 2
    assert "and `dubium train-vae`, input_shape= in Python" in output
    code, output = run(*arguments, "--input-shape", "3,16,16", "--estimate")
    assert code == 0, output
    for _ in range(2):  # the same command goes on
        code, output = run(*arguments, "--input-shape", "3,16,16", "--out", "vae")
        assert code == 0, output
    options = json.loads((here / "vae" / "vae.json").read_text())["architecture"]["options"]
    assert (options["channels"], options["size"]) == (3, 16)
    for shape in ("16,16", "3,16,12"):
        code, output = run(*arguments, "--input-shape", shape, "--out", "other")
        assert code == 2
    assert "--input-shape 3,16,16 brings them to that" in output


def test_photos_that_differ_in_size_are_told_of_the_call_in_python_for_networks_of_ones_own(here):
    code, output = run("evaluate", "blurring", OWN[0], "--dataset", "photos", *SMOKE, "--out", "blurring")
    assert code == 2
    assert "dubium.evaluate(posterior, folder, input_shape=(3, 224, 224))" in output


def test_an_evaluation_says_a_warning_once_whatever_its_numbers_are(recwarn):
    x = dubium.data.load("demo").images[:32].float()
    dubium.evaluate("demo", x, ["grad"], scale="smoke", images=2, step=10.0)
    said = [warning for warning in recwarn if "Then give x / 255." in str(warning.message)]
    assert [warning.filename for warning in said] == [__file__]


def test_causes_takes_photos_that_differ_in_size_as_its_refusal_says(here):
    code, output = run("evaluate", "causes", "--dataset", "photos", *SMOKE, "--out", "causes")
    assert code == 2
    assert "protocol='causes', input_shape=" in output
    found = dubium.evaluate(None, "photos", ["grad"], "causes", scale="smoke", input_shape=(3, 12, 12))
    assert found["settings"]["dataset images"] == 1  # and 7 to train on
    code, output = run(
        "evaluate", "causes", "--dataset", "photos", *SMOKE, "--input-shape", "3,12,12", "--out", "shaped"
    )
    assert code == 0, output
    assert json.loads((here / "shaped" / "summary.json").read_text())["results"] == found["results"]


@pytest.mark.parametrize("protocol", ["causes", "anomaly"])
def test_a_broken_file_is_left_out_named_and_counted_by_every_protocol(protocol, here):
    (here / "photos" / "cat" / "0.png").unlink()  # of another size
    (here / "photos" / "dog" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    named = OWN[:1] if protocol == "anomaly" else ()
    code, output = run("evaluate", protocol, *named, "--dataset", "photos", *SMOKE, "--out", "out")
    assert code == 1, output
    assert "1 file could not be read: photos/dog/broken.png" in output


def test_images_of_another_shape_than_the_networks_take_are_told_how_to_be_brought_to_it(here):
    np.save("images.npy", np.zeros((6, 12, 12, 3), np.uint8))
    arguments = ("evaluate", "blurring", "demo", "--dataset", "images.npy", *SMOKE, "--out", "out")
    code, output = run(*arguments)
    assert code == 2
    assert "take images of shape 1,28,28 (channels, height, width); those of images.npy have 3,12,12." in output
    assert "--input-shape 1,28,28 brings a dataset or folder to it" in output
    assert run(*arguments, "--input-shape", "1,28,28")[0] == 0
    with pytest.raises(NetworkError, match=r"take images of shape 3,28,28 .*; those of demo have 1,28,28"):
        dubium.evaluate(make_networks(), "demo", ["grad"], scale="smoke")


def test_one_seed_has_no_interval_and_accuracies_stay_between_0_and_1(tmp_path):
    arguments = ("evaluate", "mitigation", "demo", *SMOKE, "--out", tmp_path / "one", "--seeds", "1")
    code, output = run(*arguments)
    assert code == 0
    assert "[" not in output
    assert "One seed has no interval. Train more: --seeds 5." in output
    page = (tmp_path / "one" / "index.html").read_text()
    assert re.search(r"<td>none</td><td>[\d.]+</td>", page)
    few = arm_measurements([{"accuracy": a, "nll": 0.0, "ece": 1.0} for a in (1.0, 0.5)], None)
    found = EvaluationSummary("mitigation", {}, {"seed": [0, 1]}, {"none": few}, few_runs=True).write(tmp_path)
    assert found["results"]["none"]["accuracy"] == {"value": 0.75, "low": 0.0, "high": 1.0}
    assert found["results"]["none"]["nll"]["low"] == 0


def test_clue_finds_the_vae_that_was_saved_with_the_networks(tmp_path):
    arguments = (
        "evaluate",
        "blurring",
        "demo",
        "--scale",
        "smoke",
        "--images",
        "1",
        "--step",
        "10",
        "--methods",
        "clue",
    )
    code, output = run(*arguments, "--out", tmp_path / "found")
    assert code == 0, output
    assert set(json.loads((tmp_path / "found" / "summary.json").read_text())["results"]) > {"clue"}
    found = dubium.evaluate("demo", "demo", ["clue"], scale="smoke", images=1, step=10.0)
    assert "clue" in found["results"]
    with pytest.raises(OptionError, match="or clue:vae=FOLDER where a method is named"):
        dubium.evaluate(make_networks(1), "demo", ["clue"], scale="smoke", images=1)


def test_causes_says_that_it_trains_its_own_networks(tmp_path):
    code, output = run("evaluate", "causes", "demo", "--dataset", "demo", "--out", tmp_path)
    assert code == 2
    assert "causes trains networks of its own" in output
    assert "Leave 'demo' out" in output


def test_explain_says_in_one_line_what_becomes_of_images_of_another_shape(here):
    code, output = run("explain", "demo", "--dataset", "photos", "--top", "1", "--out", "out")
    assert code == 0, output
    changed = "images are brought to the networks' size, 28 pixels high, 28 wide (--fit stretch)."
    assert f"images are colour and become grey: the networks take 1 channel. {changed}" in output


def test_all_protocols_have_one_page_with_a_table_and_links(tmp_path):
    chosen = ("--protocols", "anomaly,removal", "--out", tmp_path)
    code, output = run("evaluate", "all", "demo", *SMOKE, *chosen)
    assert code == 0, output
    assert f"Open {tmp_path}/index.html." in output.replace(" ", "").replace("Open", "Open ")
    page = (tmp_path / "index.html").read_text()
    for name in ("anomaly", "removal"):
        assert f'<a href="{name}/index.html">{name}</a>' in page
        assert (tmp_path / name / "index.html").is_file()
    overview = json.loads((tmp_path / "overview.json").read_text())
    assert page.count("<tr>") == 2 + len({(cell["protocol"], cell["metric"]) for cell in overview["cells"]})
    assert f"<td>mean rank</td><td>{overview['mean ranks']['grad']:.1f}</td>" in page
