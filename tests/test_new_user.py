"""What a new user found: each is done, or answered with what to do."""

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import dubium
from dubium.cli import app
from dubium.errors import OptionError
from dubium.evaluation.shards import ShardStore, method_shard, score_shard
from dubium.posteriors import load_posterior, posterior_record
from dubium.report.overview import write_overview_page
from dubium.training.loop import check_architecture_options
from dubium.training.recipe import Recipe
from tests import piles

SMOKE = ("--scale", "smoke", "--methods", "grad", "--threads", "1")


def run(*arguments, code=0):
    """The output, in one line, of a command."""
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert found.exit_code == code, (found.output, found.exception)
    return re.sub(r"\s+", " ", re.sub("[│╭╮╰╯─]", " ", found.output))


@pytest.mark.filterwarnings("ignore:The posterior has one network")
@pytest.mark.parametrize("protocol", ["blurring", "removal", "sanity", "anomaly", "mitigation"])
def test_epistemic_maps_of_one_network_are_refused_before_anything_is_written(protocol, tmp_path):
    one, images = piles.posterior(tmp_path / "one", 1), piles.arrays(tmp_path / "images.npz")
    command = ("evaluate", protocol, one, "--dataset", images, *SMOKE, "--out", tmp_path / "out")
    said = run(*command, code=2)
    assert "one network, which cannot disagree with itself" in said
    assert "--kinds total (kinds='total' in Python)" in said
    assert not (tmp_path / "out").exists()
    assert "--kinds total" in run(*command, "--estimate", code=2)


@pytest.mark.filterwarnings("ignore:The posterior has one network")
def test_one_network_is_evaluated_by_its_total_uncertainty_in_the_same_folder(tmp_path):
    x = torch.rand(6, 1, 12, 12)
    with pytest.raises(OptionError, match="kinds='total' in Python"):
        dubium.evaluate(piles.networks(1), x, ["grad"], out=tmp_path, scale="smoke")
    found = dubium.evaluate(piles.networks(1), x, ["grad"], out=tmp_path, scale="smoke", kinds="total")
    assert "murr@2%/total" in found["results"]["grad"]


def test_a_folder_without_measurements_is_begun_anew_and_one_with_some_is_kept(tmp_path):
    store = ShardStore.open(tmp_path, {"seed": 0, "methods": {"grad": 1}})
    store.compute_tensors(score_shard("total", 0), lambda: {"total": torch.zeros(2)})
    assert ShardStore.open(tmp_path, {"seed": 0, "methods": {"grad": 1}}).has_tensors(score_shard("total", 0))
    store = ShardStore.open(tmp_path, {"seed": 1, "methods": {"grad": 1}})
    assert not store.has_tensors(score_shard("total", 0))
    store.compute_tensors(method_shard("grad", 0), lambda: {"total": torch.zeros(2)})
    with pytest.raises(OptionError, match="seed is 1 there, 2 here"):
        ShardStore.open(tmp_path, {"seed": 2, "methods": {"grad": 1}})


def test_evaluate_masks_says_which_command_it_is(tmp_path):
    said = run("evaluate", "masks", "demo", "--masks", "m.npy", "--out", tmp_path / "out", code=2)
    assert "dubium evaluate anomaly RUN --dataset DATA --masks masks.npy" in said
    assert "masks" not in run("evaluate", "--help").partition("Commands")[2].split("anomaly")[0]


def test_an_estimate_counts_the_pictures():
    command = ("explain", "demo", "--method", "grad", "--top", "40", "--threads", "1", "--estimate", "--json")
    plain, drawn = json.loads(run(*command)), json.loads(run(*command, "--png"))
    assert drawn["bytes"] - plain["bytes"] >= 40 * 10_000
    assert drawn["task"] == "64 images to score (320 forward passes), 40 to explain and to draw"
    assert drawn["seconds"] > 40 * 0.1


@pytest.fixture
def photos(tmp_path):
    """Photos of two classes that differ in size, and one file that is none."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 12), ("test", 4)):
        for index in range(count):
            folder = tmp_path / "photos" / split / ("cat", "dog")[index % 2]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (12 + index % 3, 16, 3), np.uint8)).save(folder / f"{index}.png")
    (tmp_path / "photos" / "train" / "cat" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    return tmp_path / "photos"


@pytest.mark.parametrize("jobs", [1, 2])
def test_train_brings_photos_to_a_shape_and_explain_takes_it_from_the_run(photos, tmp_path, jobs):
    out = tmp_path / "run"
    command = ("train", "--dataset", photos, "--out", out, "--scale", "smoke", "--members", 2, "--epochs", 1)
    command = (*command, "--threads", 1, "--jobs", jobs)
    assert "--input-shape" in run(*command, code=2)
    shaped = (*command, "--input-shape", "3,12,12")
    assert "2 networks to train on 12 images" in run(*shaped, "--estimate")
    run(*shaped, code=1)  # a file was skipped
    record = posterior_record(out)
    assert tuple(record.input_shape) == (3, 12, 12)
    assert record.training["input_shape"] == [3, 12, 12]
    assert record.training["test"]["images"] == 4
    assert next(iter(load_posterior(out)))(torch.rand(1, 3, 12, 12)).shape == (1, 2)
    run(*shaped, code=1)  # goes on where nothing is left to do
    said = run(*command, "--input-shape", "3,10,10", code=2)
    assert "belongs to a run with other settings" in said
    explained = ("explain", out, "--dataset", f"{photos}:test", "--method", "grad", "--out", tmp_path / "explained")
    assert "brought to the networks' size, 12 pixels high, 12 wide" in run(*explained, "--threads", 1)


def test_networks_of_colour_images_are_checked_before_they_are_trained():
    """Those that standardise their input could not be built without memory, so that no training of them began."""
    check_architecture_options(Recipe("cnn", {"channels": 3, "filters": 2}, mean=(0.5,) * 3, std=(0.5,) * 3))


def test_the_page_of_all_says_scale_and_images_and_why_a_protocol_has_no_row(tmp_path):
    images = piles.arrays(tmp_path / "images.npz")
    command = ("evaluate", "all", piles.posterior(tmp_path / "run"), "--dataset", images, *SMOKE)
    run(*command, "--protocols", "anomaly,causes", "--images", 3, "--out", tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text()
    assert f"Images of {images}. Scale smoke." in page
    assert "Is a patch found that was pasted into the image? 3 images." in page
    assert "causes has no row below" in page
    assert "On 0 images the mark raises aleatoric and the patch epistemic uncertainty" in page
    assert "anomaly has no row" not in page
    overview = json.loads((tmp_path / "out" / "overview.json").read_text())
    assert overview["scale"] == "smoke"
    assert overview["images"]["anomaly"] == 3


def test_a_table_of_an_earlier_version_still_has_its_page(tmp_path):
    write_overview_page(tmp_path, {"cells": [], "mean ranks": {}, "notes": {}}, ["anomaly"])
    assert "anomaly has no row below" in (tmp_path / "index.html").read_text()


def test_compare_needs_two_and_says_when_they_are_one(tmp_path):
    said = run("compare", "demo", code=2)
    assert "Two are needed to compare, and 'demo' is the only one" in said
    assert "No posterior was named" not in said
    options = ("--top", 2, "--threads", 1, "--estimate")
    same = "both sides are the same: something is compared with itself"
    assert same in run("compare", "demo", "demo", "--methods", "grad", *options)
    assert same not in run("compare", "demo", "demo", "--methods", "grad,input-grad", *options)
    assert same not in run("compare", "demo", "demo", "--methods", "ig:steps=2,ig:steps=3", *options)


@pytest.mark.parametrize("smooth", [-1, float("nan")])
def test_smooth_may_be_zero_and_says_so(smooth):
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()
    x = torch.rand(1, 1, 4, 4)
    result = dubium.explain([network, nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()], x, method="grad")
    with pytest.raises(OptionError, match=r"0 \(as it is\) or more") as error:
        result.plot(x, smooth=smooth)
    assert "greater than 0" not in str(error.value)
    result.plot(x, smooth=0)
