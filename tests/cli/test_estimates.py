"""`--estimate`: every command that may take long says what it will take, and writes nothing."""

import json

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import dubium.data
from dubium.cli import app
from dubium.evaluation.estimate import estimate_protocol
from dubium.evaluation.methods import parse_methods
from dubium.evaluation.protocols import Evaluation, run_protocol
from dubium.posteriors import load_posterior
from dubium.run import Settings, explain_dataset, open_work
from dubium.run.estimate import estimate_run
from dubium.run.sources import source_of
from dubium.training import train
from dubium.training.estimate import estimate_training
from dubium.training.train import plan_training
from tests import piles


class Clock:
    """Scripted seconds: what passes is what a network's passes are said to take, whatever the machine does."""

    seconds = 0.0

    def read(self):
        return self.seconds

    def since(self, run):
        before = self.seconds
        result = run()
        return result, self.seconds - before


CLOCK = Clock()
PASS = 0.01  # scripted seconds of a forward pass of one image


class ScriptedNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(144, 3))

    def forward(self, x):
        CLOCK.seconds += PASS * len(x)
        return self.layers(x)


@pytest.fixture
def clock(monkeypatch):
    for module in ("run", "evaluation", "training"):
        monkeypatch.setattr(f"dubium.{module}.estimate.perf_counter", CLOCK.read)
    return CLOCK


def scripted_networks():
    torch.manual_seed(0)
    return [ScriptedNetwork().eval() for _ in range(3)]


TINY = ["--scale", "smoke", "--methods", "grad"]


@pytest.mark.parametrize(
    ("command", "begins"),
    [
        ("uncertainty demo --out o", "64 images to score (320 forward passes), 0 to explain: about"),
        ("compare demo demo --methods grad,random --top 3", "(320 forward passes), 3 to explain; then 64 images"),
        ("evaluate blurring demo --scale smoke --methods grad --out o", "32 scores (160 forward passes), 4 images"),
        ("evaluate sanity demo --scale smoke --methods grad --out o --checks top", "24 scores (120 forward passes), 3"),
        ("evaluate anomaly demo --scale smoke --methods grad --out o", "48 scores (240 forward passes), 6 images"),
        ("evaluate causes --dataset demo --scale smoke --methods grad --out o", "2 networks to train on 24 images"),
        ("evaluate mitigation demo --scale smoke --methods grad --out o", "17 networks to train on 24 images"),
        ("reproduce single --scale smoke --out o", " jobs to do, "),
    ],
)
def test_a_command_estimates_and_writes_nothing(tmp_path, monkeypatch, command, begins):
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, [*command.split(), "--estimate"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    assert begins in found.output
    assert " MB on disk." in found.output
    assert not list(tmp_path.iterdir())


def test_scores_that_are_not_kept_take_nothing_on_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["uncertainty", "demo", "--estimate"], catch_exceptions=False)
    assert found.output.endswith(" and nothing on disk.\n")


def test_several_protocols_are_summed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["evaluate", "all", "demo", "--protocols", "blurring,anomaly", "--out", "o", *TINY, "--estimate"]
    found = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "32 scores" in found.output
    assert "\nanomaly: 48 scores" in found.output
    assert not list(tmp_path.iterdir())


def test_an_evaluation_writes_about_as_many_bytes_as_was_said(tmp_path):
    data = dubium.data.load("demo")
    methods = parse_methods(["grad", "ua-backprop"], 1)
    evaluation = Evaluation(load_posterior("demo"), data, methods, ("epistemic",), tmp_path / "out")
    expected = estimate_protocol("blurring", evaluation, scale="smoke", images=12)
    assert not (tmp_path / "out").exists()
    assert (expected.images, expected.explained, expected.passes) == (32, 12, 160)
    run_protocol("blurring", evaluation, scale="smoke", images=12)
    written = sum(file.stat().st_size for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert written / 3 < expected.bytes < 3 * written


def test_a_training_counts_networks_epochs_and_weights(tmp_path):
    state = torch.get_rng_state()
    name = str(piles.arrays(tmp_path / "images.npz"))
    settings = {
        "posterior": "ensemble", "members": 3, "scale": "smoke", "seed": 0, "jobs": 1, "threads": 1, "device": "cpu",
        "changes": {"epochs": 2},
    }  # fmt: skip
    expected = estimate_training(*plan_training(name, **settings))
    assert torch.equal(state, torch.get_rng_state())
    train(name, tmp_path / "run", **settings)
    written = sum(file.stat().st_size for file in (tmp_path / "run").rglob("*.safetensors"))
    assert written / 1.5 < expected.bytes < 1.5 * written
    assert expected.passes == 3 * 2 * expected.images
    assert expected.sentence().startswith(f"3 networks to train on {expected.images} images for 2 epochs")


def test_the_commands_that_train_estimate_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = str(piles.arrays(tmp_path / "images.npz"))
    found = CliRunner().invoke(app, ["train", "--dataset", name, "--scale", "smoke", "--kind", "vi", "--estimate"])
    assert "1 network to train" in found.output, found.output
    found = CliRunner().invoke(app, ["train-vae", "--dataset", name, "--epochs", "2", "--estimate"])
    assert "1 network to train" in found.output, found.output
    assert [path.name for path in tmp_path.iterdir()] == ["images.npz"]


def test_an_estimate_as_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["uncertainty", "demo", "--out", "o", "--estimate", "--json"])
    facts = json.loads(found.output)
    assert (facts["images"], facts["passes"], facts["explained"]) == (64, 320, 0)
    assert facts["seconds"] > 0
    assert facts["bytes"] > 0


def scripted_run(tmp_path, count, **changes):
    x = torch.rand(count, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    settings = Settings({"given": "3 networks"}, {"given": "Tensor"}, method="ig:steps=10", threads=1, **changes)
    return open_work(settings, source_of(x), scripted_networks())


@pytest.mark.parametrize("top", [None, 4, 0])
def test_seconds_of_a_run_are_those_that_it_then_takes(tmp_path, clock, top):
    work = scripted_run(tmp_path, 24, top=top)
    expected = estimate_run(work)
    _, taken = clock.since(lambda: explain_dataset(work, tmp_path / "out"))
    assert expected.seconds == pytest.approx(taken, rel=0.2)


def test_seconds_of_a_run_go_with_the_images(tmp_path, clock):
    few, many = (estimate_run(scripted_run(tmp_path, count)).seconds for count in (10, 40))
    assert many == pytest.approx(4 * few)


@pytest.mark.parametrize("protocol", ["blurring", "removal"])
def test_seconds_of_an_evaluation_are_those_that_it_then_takes(tmp_path, clock, protocol):
    images = torch.rand(64, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    data = dubium.data.Dataset(images, torch.arange(64) % 3, ("a", "b", "c"), "mine", "all")
    methods = parse_methods(["grad", "ig:steps=5"], 1)
    evaluation = Evaluation(scripted_networks(), data, methods, ("epistemic",), tmp_path / "out")
    expected = [estimate_protocol(protocol, evaluation, scale="smoke", images=count) for count in (6, 12)]
    _, taken = clock.since(lambda: run_protocol(protocol, evaluation, scale="smoke", images=12))
    assert taken / 2 < expected[1].seconds < 2 * taken
    assert expected[0].seconds < expected[1].seconds


def test_seconds_of_a_training_are_those_of_its_images_epochs_and_networks(tmp_path, monkeypatch, clock):
    def scripted_epoch(task, _epoch, _on_step):
        clock.seconds += 0.5 * len(task.data)

    monkeypatch.setattr("dubium.training.estimate.train_epoch", scripted_epoch)
    name = str(piles.arrays(tmp_path / "images.npz", count=40))
    settings = {
        "posterior": "ensemble", "members": 3, "scale": "smoke", "seed": 0, "threads": 1, "device": "cpu",
        "changes": {"epochs": 2, "batch_size": 8},
    }  # fmt: skip
    plan = plan_training(name, jobs=1, **settings)
    expected = estimate_training(*plan)
    assert expected.seconds == pytest.approx(0.5 * expected.images * 2 * 3)
    assert estimate_training(*plan, jobs=3).seconds == pytest.approx(expected.seconds / 3)
