"""Networks, images and methods of one's own in every command that takes a posterior."""

import json
import sys
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import dubium
import dubium.web
from dubium.cli import app
from dubium.data.fit import Preprocessing
from dubium.data.image_files import read_image
from dubium.evaluation import protocols
from dubium.models import Normalized
from dubium.run import open_results
from dubium.web.session import Choice, explain_item

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.pretrained_cfg = {"input_size": (3, 16, 16), "crop_pct": 0.8, "interpolation": "bicubic",
                               "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)}
        self.body = nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                                  nn.Linear(4 * width, 3))

    def forward(self, x):
        return {"features": x, "logits": self.body(x)}

def narrow():
    return Net(3)

def wide():
    return Net(5)

def brightness(network, x, target, *, power=1.0, channels=(0, 1, 2)):
    chosen = x[:, list(channels)].mean(1, keepdim=True)
    return chosen.pow(power).expand(-1, target(network(x)).shape[1], -1, -1)

def loud(network, x, target):
    open("loud", "w").close()
    return brightness(network, x, target)
"""
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
OWN = ("--posterior", "own_code:narrow", "--weights", "a.pt", "b.pt", "--network-output", "logits")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Code, weights and photos of different sizes."""
    path = tmp_path_factory.mktemp("own")
    (path / "own_code.py").write_text(CODE)
    names = {}
    exec(CODE, names)
    torch.manual_seed(0)
    for file, kind in (("a.pt", "narrow"), ("b.pt", "narrow"), ("c.pt", "wide"), ("d.pt", "wide")):
        torch.save(names[kind]().state_dict(), path / file)
    rng = np.random.default_rng(0)
    (path / "photos").mkdir()
    for index, size in enumerate([(30, 50), (60, 24), (20, 20)]):
        Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8)).save(path / "photos" / f"{index}.png")
    np.savez(path / "images.npz", images=rng.integers(0, 256, (6, 16, 16, 3), np.uint8), labels=np.arange(6) % 3)
    return path


@pytest.fixture(autouse=True)
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_code", raising=False)


def invoke(*words, code=0):
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == code, done.output
    return done.output


def networks(factory, *files, normalise=True):
    names = {}
    exec(CODE, names)
    found = []
    for file in files:
        network = names[factory]().eval()
        network.load_state_dict(torch.load(file, weights_only=True))
        found.append(Normalized(network, MEAN, STD).eval() if normalise else network)
    return found


def test_photos_of_different_sizes_are_refused_until_a_size_is_named():
    said = invoke("explain", *OWN, "--images", "photos", "--out", "refused", code=2)
    assert "differ in size" in said
    assert "--input-shape" in said


@pytest.mark.parametrize("way", ["options", "model", "file"])
def test_preprocessing_by_options_and_by_the_models_own_config_is_the_same(folder, way):
    words = {
        "options": "--input-shape 3,16,16 --fit crop --resize 20 --interpolation bicubic --mean 0.5,0.4,0.3 "
        "--std .2,.3,.4",
        "model": "--data-config model",
        "file": "--data-config config.json",
    }[way].split()
    (folder / "config.json").write_text(
        '{"pretrained_cfg": {"input_size": [3, 16, 16], "crop_pct": 0.8, "interpolation": "bicubic", '
        '"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}}'
    )
    out = f"prepared-{way}"
    invoke("explain", *OWN, "--images", "photos", *words, "--out", out, "--threads", 1)
    prepared, posterior = Preprocessing((3, 16, 16), "crop", 20, "bicubic"), networks("narrow", "a.pt", "b.pt")
    rows = list(open_results(out).rows())
    assert len(rows) == 3
    for row in rows:
        x = prepared.network_input(read_image(row.path))[None]
        expected = dubium.explain(posterior, x, output="logits")
        assert row.epistemic == pytest.approx(float(expected.scores["epistemic"]), rel=1e-4, abs=1e-7)
        np.testing.assert_allclose(row.map_epistemic, expected.maps["epistemic"][0], rtol=1e-3, atol=1e-8)
        assert (row.height, row.width) == (16, 16)
    invoke("uncertainty", *OWN, "--images", "photos", *words, "--out", f"{out}-scores", "--threads", 1)
    scores = {row.path: row.epistemic for row in open_results(f"{out}-scores").rows()}
    assert scores == pytest.approx({row.path: row.epistemic for row in rows}, rel=1e-4, abs=1e-7)


def test_each_side_of_a_comparison_has_its_own_networks():
    ways = {
        "names": "own_code:narrow@a.pt,b.pt own_code:wide@c.pt,d.pt",
        "options": "--posterior own_code:narrow --weights a.pt b.pt --posterior-b own_code:wide --weights-b c.pt d.pt",
        "both": "own_code:narrow@a.pt,b.pt --posterior own_code:wide --weights c.pt d.pt",
        "weights": "own_code:narrow own_code:wide --weights a.pt b.pt --weights-b c.pt d.pt",
    }
    members = {}
    for way, words in ways.items():
        out = f"compared-{way}"
        invoke(
            "compare", *words.split(), "--network-output", "logits", "--dataset", "images.npz", "--out", out, "--top", 2
        )
        sides = [{row.id: row.members for row in open_results(f"{out}/{side}").rows()} for side in "ab"]
        members[way] = [np.stack([side[index] for index in range(6)]) for side in sides]
    x = dubium.data.load("images.npz").batch(slice(None))
    for place, (kind, files) in enumerate((("narrow", ("a.pt", "b.pt")), ("wide", ("c.pt", "d.pt")))):
        expected = dubium.uncertainty(networks(kind, *files, normalise=False), x, output="logits").members
        for found in members.values():
            np.testing.assert_allclose(found[place], expected.transpose(0, 1), rtol=1e-5, atol=1e-7)


def test_a_mistake_on_the_second_side_is_said_before_the_first_is_run(folder):
    sides = ("own_code:narrow@a.pt,b.pt", "own_code:wide@a.pt")
    said = invoke("compare", *sides, "--dataset", "images.npz", "--out", "early", code=2)
    assert "a.pt" in said
    assert not (folder / "early").exists()


def test_methods_of_ones_own_with_options_in_explain_compare_and_evaluate(folder):
    method = "own_code:brightness:power=2"
    expected = dubium.data.load("images.npz").batch(slice(None)).mean(1).pow(2)
    run = ["own_code:narrow@a.pt,b.pt", "--network-output", "logits", "--dataset", "images.npz"]
    invoke("explain", *run, "--method", method, "--out", "method")
    invoke("compare", run[0], *run, "--methods", f"{method},own_code:brightness:channels=[0,2]", "--out", "methods")
    for out in ("method", "methods/a"):
        for row in open_results(out).rows():
            np.testing.assert_allclose(row.map_epistemic, expected[row.id], rtol=1e-5)
    two = dubium.data.load("images.npz").batch(slice(None))[:, [0, 2]].mean(1)
    for row in open_results("methods/b").rows():
        np.testing.assert_allclose(row.map_epistemic, two[row.id], rtol=1e-5)
    words = ["--methods", method, "--scale", "smoke", "--images", 2, "--step", 10, "--out", "evaluated"]
    invoke("evaluate", "blurring", *run, *words)
    assert method in json.loads((folder / "evaluated" / "summary.json").read_text())["results"]
    assert "nobody" in invoke("compare", *run[:1], *run, "--methods", "nobody", "--out", "typo", code=2)


def test_too_few_names_of_classes_are_refused_before_maps_are_made(folder):
    images = ("--images", "photos", "--input-shape", "3,16,16")
    run = ("own_code:narrow@a.pt,b.pt", "--network-output", "logits", *images, "--method", "own_code:loud")
    assert "2 names of classes for 3" in invoke("explain", *run, "--names", "cat,dog", "--out", "few", code=2)
    assert not (folder / "loud").exists()
    invoke("explain", *run, "--names", "cat,dog,emu", "--out", "few")
    assert (folder / "loud").exists()


@pytest.mark.parametrize("way", ["options", "model"])
def test_evaluate_prepares_photos_of_different_sizes_as_explain_does(folder, monkeypatch, way):
    words = {
        "options": "--input-shape 3,16,16 --fit crop --resize 20 --interpolation bicubic "
        "--mean .5,.4,.3 --std .2,.3,.4",
        "model": "--data-config model",
    }[way].split()
    used, run = [], protocols.run_protocol
    monkeypatch.setattr(protocols, "run_protocol", lambda *a, **k: (used.append(a[1]), run(*a, **k))[1])
    own = (
        "blurring",
        *OWN,
        "--dataset",
        "photos",
        "--methods",
        "grad",
        "--scale",
        "smoke",
        "--images",
        2,
        "--step",
        10,
    )
    said = " ".join(invoke("evaluate", *own, "--out", f"evaluated-{way}", code=2).split())
    assert "--input-shape" in said
    invoke("evaluate", *own, *words, "--out", f"evaluated-{way}")
    prepared, posterior = Preprocessing((3, 16, 16), "crop", 20, "bicubic"), networks("narrow", "a.pt", "b.pt")
    x = torch.stack([prepared.network_input(read_image(f"photos/{index}.png")) for index in range(3)])
    torch.testing.assert_close(used[0].data.batch(slice(None)), x)
    expected = dubium.uncertainty(posterior, x, output="logits").members
    torch.testing.assert_close(dubium.uncertainty(used[0].posterior, x).members, expected)


def test_evaluate_takes_the_size_that_a_saved_posterior_says(folder):
    posterior = networks("narrow", "a.pt", "b.pt", normalise=False)
    dubium.save_posterior(posterior, folder / "saved", input_shape=(3, 16, 16))
    words = ("--methods", "grad", "--scale", "smoke", "--images", 2, "--step", 10, "--out", "evaluated-saved")
    saved = ("saved", "--posterior", "own_code:narrow", "--network-output", "logits", "--dataset", "photos")
    invoke("evaluate", "blurring", *saved, *words)
    assert json.loads((folder / "evaluated-saved" / "summary.json").read_text())["results"]


def test_the_explorer_takes_them_too(monkeypatch):
    opened = []
    monkeypatch.setattr(dubium.web, "serve", lambda session, **_: opened.append(session))
    invoke("serve", *OWN, "--images", "photos", "--data-config", "model", "--methods", "own_code:brightness:power=2")
    (session,) = opened
    item = session.pictures[0]
    x = Preprocessing((3, 16, 16), "crop", 20, "bicubic").network_input(item.image)[None]
    found = explain_item(session, item, Choice("own_code:brightness:power=2"))
    np.testing.assert_allclose(found.maps["epistemic"][0], x.mean(1)[0].pow(2), rtol=1e-5)
    expected = dubium.uncertainty(networks("narrow", "a.pt", "b.pt"), x, output="logits").scores["epistemic"]
    assert float(found.scores["epistemic"]) == pytest.approx(float(expected), rel=1e-4, abs=1e-7)
    with pytest.raises(dubium.errors.DubiumError, match="own_code:narrow"):
        explain_item(session, item, Choice("own_code:narrow"))  # what a visitor names is never imported


def test_the_explorer_says_nothing_of_sound_and_other_warnings_stay(monkeypatch):
    def warn(*_args, **_options):
        warnings.warn(
            "Couldn't find ffmpeg or avconv - defaulting to ffmpeg, but may not work", RuntimeWarning, stacklevel=1
        )
        warnings.warn("Couldn't find the other", RuntimeWarning, stacklevel=1)

    monkeypatch.setattr(dubium.web, "serve", warn)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RuntimeWarning)
        before = [*warnings.filters]
        invoke("serve", "demo")
        assert warnings.filters == before
    assert [str(warning.message) for warning in said] == ["Couldn't find the other"]


def test_weights_of_a_function_may_follow_its_name_or_the_option():
    run = ("--network-output", "logits", "--dataset", "images.npz", "--json")
    options = invoke("uncertainty", "own_code:narrow", *run, "--weights", "a.pt", "b.pt")
    assert options == invoke("uncertainty", "own_code:narrow@a.pt,b.pt", *run)
    assert options == invoke("uncertainty", *OWN[:-2], *run)
    for files in (["a.pt,b.pt"], ["[ab].pt"], ["a.pt", "b*.pt"]):
        assert options == invoke("uncertainty", "own_code:narrow", *run, "--weights", *files)
    assert "called like 'z*'" in invoke("uncertainty", "own_code:narrow", *run, "--weights", "z*", code=2)
    said = invoke("uncertainty", "own_code:narrow", *run, code=2)
    assert "--weights a.pt b.pt" in said
    assert "own_code:narrow@a.pt,b.pt" in said
    twice = invoke("uncertainty", "own_code:narrow@a.pt", *run, "--weights", "b.pt", code=2)
    assert "names its weight files already" in twice
    assert "named twice" in invoke("uncertainty", "own_code:narrow", *run, "--posterior", "own_code:wide", code=2)


def test_weights_beside_a_saved_run_are_refused():
    assert "has its own weights" in invoke("explain", "demo", "--weights", "a.pt", code=2)


GREY = """
from torch import nn

def grey():
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 10))
"""


def test_the_papers_tables_are_measured_on_networks_of_ones_own(folder, monkeypatch):
    (folder / "own_grey.py").write_text(GREY)
    names = {}
    exec(GREY, names)
    for file in ("e.pt", "f.pt"):
        torch.save(names["grey"]().state_dict(), folder / file)
    own = ("--posterior", "own_grey:grey", "--weights", "e.pt", "f.pt")
    words = ("reproduce", "blurring", "--scale", "smoke", *own, "--out", "again")
    assert "--dataset" in invoke(*words, code=2)  # these networks are for one dataset
    assert "blurring-mnist: " in invoke(*words, "--dataset", "mnist")
    (result,) = (folder / "again" / "smoke").glob("own-*/results/blurring-mnist.json")
    posterior = json.loads(result.read_text())["settings"]["posterior"]
    assert posterior == {"kind": result.parents[1].name, "members": 2}
    assert "blurring-mnist" not in invoke(*words, "--dataset", "mnist")  # it is there already
    assert "None of these" in invoke("reproduce", "strategies", *words[2:], "--dataset", "mnist", code=2)
