"""Whole runs: kinds, kills, divergence, processes, the command."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from dubium.cli import app
from dubium.cli.train import describe_training
from dubium.data import Dataset
from dubium.errors import DivergedError, NetworkStateError, OptionError, UnknownNameError
from dubium.models import load_vae
from dubium.posteriors import load_posterior, posterior_record
from dubium.training import samplers, train, train_vae
from dubium.training.train import measure_predictions
from tests.posteriors.third_party import imported

TINY = {"options": {"filters": 2, "units": 8}, "epochs": 3, "batch_size": 16, "images": 64}


def outputs(folder, x):
    with torch.no_grad():
        return torch.stack([network(x) for network in load_posterior(folder)])


@pytest.mark.parametrize("kind", ["ensemble", "snapshot", "hyper-ensemble", "mc-dropout", "swag"])
def test_every_kind_is_trained_saved_and_has_distinct_members(kind, digits, tmp_path):
    record = train("mnist", tmp_path / "run", posterior=kind, members=3, scale="smoke", changes=TINY, threads=1)
    found = outputs(tmp_path / "run", torch.rand(4, 1, 28, 28))
    assert found.shape == (3, 4, 10)
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[1], found[2])
    saved = posterior_record(tmp_path / "run")
    assert (saved.kind, saved.input_shape, len(saved.classes)) == (kind, [1, 28, 28], 10)
    assert len(record["test"]["members"]) == 3
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["test"] == record["test"] == saved.training["test"]
    assert lines[0]["epoch"] == 1
    assert not (tmp_path / "run" / "training").exists()


def test_a_finished_run_is_not_trained_again_and_other_settings_are_refused(digits, tmp_path):
    first = train("mnist", tmp_path / "run", members=1, scale="smoke", changes=TINY, threads=1)
    before = (tmp_path / "run" / "member-0.safetensors").stat().st_mtime_ns
    assert train("mnist", tmp_path / "run", members=1, scale="smoke", changes=TINY) == first
    assert (tmp_path / "run" / "member-0.safetensors").stat().st_mtime_ns == before
    with pytest.raises(OptionError, match=r"recipe\.lr is 0\.05 there, 0\.5 here"):
        train("mnist", tmp_path / "run", members=1, scale="smoke", changes={**TINY, "lr": 0.5})


def test_what_would_fail_after_training_fails_before_it(digits, tmp_path):
    record = train(
        "mnist", tmp_path / "a", posterior="mc-dropout", members=2, scale="smoke", threads=1,
        changes={"architecture": "cifar-resnet", "options": {"depth": 8, "width": 2}, "epochs": 1, "images": 16},
    )  # fmt: skip
    assert record["recipe"]["options"]["dropout"] == 0.2
    with pytest.raises(NetworkStateError, match="no dropout layer"):
        train("mnist", tmp_path / "b", posterior="mc-dropout", scale="smoke", changes={"options": {"dropout": 0.0}})
    assert not (tmp_path / "b").exists()
    (tmp_path / "a" / "training.json").unlink()
    with pytest.raises(OptionError, match="not trained there"):
        train("mnist", tmp_path / "a", scale="smoke")


def test_killed_at_any_moment_the_same_command_ends_with_the_same_bytes(digits, tmp_path):
    options = ["--dataset", "mnist", "--scale", "smoke", "--members", "2", "--threads", "1", "--epochs", "16"]
    command = [sys.executable, "-c", "from dubium.cli import app; app()", "train", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def run(name):
        return subprocess.Popen([*command, "--out", str(tmp_path / name)], env=environment, stdout=subprocess.DEVNULL)

    train("mnist", tmp_path / "whole", scale="smoke", members=2, threads=1, changes={"epochs": 16})
    for kill in range(2):
        process = run("killed")
        metrics = tmp_path / "killed" / "metrics.jsonl"
        wanted = 3 + 16 * kill  # once in the first member, once in the second
        while process.poll() is None and (not metrics.exists() or metrics.read_text().count("\n") < wanted):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not (tmp_path / "killed" / "posterior.json").exists()
    assert run("killed").wait() == 0
    for name in ("member-0.safetensors", "member-1.safetensors"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    lines = [json.loads(line) for line in (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()]
    assert [(n["member"], n["epoch"]) for n in lines[:-1]] == [(m, e) for m in range(2) for e in range(1, 17)]


def test_members_trained_in_processes_are_those_trained_in_turn(digits, tmp_path):
    for name, jobs in (("one", 1), ("two", 2)):
        train("mnist", tmp_path / name, members=2, scale="smoke", changes=TINY, threads=1, jobs=jobs)
    for member in ("member-0.safetensors", "member-1.safetensors"):
        assert (tmp_path / "one" / member).read_bytes() == (tmp_path / "two" / member).read_bytes()


def test_a_member_that_diverges_is_left_out_and_says_why(digits, tmp_path, monkeypatch):
    from dubium.training import trainers

    monkeypatch.setattr(
        trainers, "vary_recipe", lambda recipe, _seed, index: recipe.changed(lr=1e30) if index == 1 else recipe
    )
    events = []
    options = {"posterior": "hyper-ensemble", "members": 3, "scale": "smoke", "changes": TINY, "threads": 1}
    record = train("mnist", tmp_path / "run", **options, report=events.append)
    assert list(record["diverged"]) == ["1"]
    assert "Try a lower learning rate" in record["diverged"]["1"]
    assert any("diverged" in event for event in events)
    assert len(load_posterior(tmp_path / "run")) == 2


def test_when_all_diverge_nothing_is_saved(digits, tmp_path):
    with pytest.raises(DivergedError, match="No network is left"):
        train("mnist", tmp_path / "run", members=1, scale="smoke", changes={**TINY, "lr": 1e30})
    assert not (tmp_path / "run" / "posterior.json").exists()


def test_a_vae_is_trained_resumed_and_loaded(digits, tmp_path):
    changes = {"options": {"hidden": [16], "latent": 3}, "epochs": 2, "batch_size": 20}
    record = train_vae("mnist", tmp_path / "vae", changes=changes, threads=1)
    vae = load_vae(tmp_path / "vae")
    assert vae.latent == 3
    assert vae.decode(torch.zeros(2, 3)).shape == (2, 1, 28, 28)
    assert record["test_loss"] > 0
    assert train_vae("mnist", tmp_path / "vae", changes=changes) == record


def test_the_command_prints_the_accuracy_and_unknown_values_in_a_sentence(digits, tmp_path):
    run = CliRunner().invoke
    options = ["--dataset", "mnist", "--scale", "smoke", "--members", "1", "--out", str(tmp_path / "run")]
    done = run(app, ["train", *options, "--epochs", "1", "--option", "filters=2", "--milestones", "1", "--cycles", "0"])
    assert done.exit_code == 0, done.output
    assert "of 40 test images together" in done.output
    wrong = run(app, ["train", "--dataset", "mnist", "--posterior", "ensembel", "--out", str(tmp_path / "b")])
    assert wrong.exit_code == 2
    assert "Did you mean 'ensemble'" in wrong.output
    vae = run(app, ["train-vae", "--dataset", "mnist", "--hidden", "8", "--epochs", "1", "--out", str(tmp_path / "v")])
    assert "nats per test image" in vae.output


@pytest.mark.parametrize(
    ("given", "said"),
    [("unitz=3", "Did you mean 'units'? Available: channels, classes, filters, units"), ("units=-3", "units': -3")],
)
@pytest.mark.parametrize("kind", ["ensemble", "mc-dropout"])
def test_an_option_that_the_network_does_not_have_is_refused_before_anything_is_written(
    given, said, kind, digits, tmp_path
):
    words = ["train", "--dataset", "mnist", "--scale", "smoke", "--kind", kind, "--option", given]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert not (tmp_path / "run").exists()


def test_a_vae_has_the_options_of_a_vae(digits, tmp_path):
    with pytest.raises(
        OptionError, match=r"option of 'vae-dense' called 'units'\. Available: channels, size, hidden, latent"
    ):
        train_vae("mnist", tmp_path / "vae", changes={"options": {"units": 3}})
    assert not (tmp_path / "vae").exists()


def test_of_a_training_that_learnt_nothing_it_is_said():
    test = {"images": 50, "members": [0.2, 0.22], "accuracy": 0.22, "nll": 2.3, "guess": 0.22}
    record = {"diverged": {}, "posterior": "ensemble", "members": 2, "test": test}
    said = "22.00% of 50 test images together, 20.00% to 22.00% each"
    advice = "Nothing was learnt: always the most frequent class is as good. Try more --epochs or another --lr"
    assert describe_training(record) == f"{said}. {advice}"
    assert describe_training({**record, "test": {**test, "guess": 0.2}}) == said
    assert describe_training({**record, "test": {n: v for n, v in test.items() if n != "guess"}}) == said


def test_the_guess_is_the_share_of_the_most_frequent_label():
    data = Dataset(torch.zeros(5, 1, 4, 4), torch.tensor([0, 2, 2, 1, 2]), ("a", "b", "c"), "five", "test")
    found = measure_predictions([nn.Sequential(nn.Flatten(), nn.Linear(16, 3))], data)
    assert found["guess"] == 0.6


def test_images_without_labels_cannot_be_trained_on(digits, tmp_path):
    with pytest.raises(UnknownNameError, match="No posterior called"):
        train("mnist", tmp_path / "run", posterior="x")
    import numpy as np

    np.save(tmp_path / "a.npy", np.zeros((3, 28, 28), np.uint8))
    with pytest.raises(OptionError, match="no labels"):
        train(str(tmp_path / "a.npy"), tmp_path / "run")


@pytest.mark.parametrize(("kind", "library"), [("laplace", "laplace"), ("sghmc", "posteriors"), ("vi", "posteriors")])
def test_kinds_of_other_libraries_are_trained_saved_and_distinct(kind, library, digits, tmp_path):
    imported(library)
    train("mnist", tmp_path / "run", posterior=kind, members=2, scale="smoke", changes=TINY, threads=1)
    found = outputs(tmp_path / "run", torch.rand(4, 1, 28, 28))
    assert found.shape == (2, 4, 10)
    assert not torch.equal(found[0], found[1])


@pytest.mark.parametrize("kind", ["sghmc", "vi"])
def test_a_sampler_that_is_cut_goes_on_to_the_same_weights(kind, digits, tmp_path, monkeypatch):
    imported("posteriors")
    options = {"posterior": kind, "members": 2, "scale": "smoke", "changes": TINY, "threads": 1}
    train("mnist", tmp_path / "whole", **options)
    write = samplers.write_checkpoint

    def failing(path, tensors, header):
        write(path, tensors, header)
        if path.name == "sampler.safetensors" and header["epochs"] == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(samplers, "write_checkpoint", failing)
    with pytest.raises(KeyboardInterrupt):
        train("mnist", tmp_path / "cut", **options)
    monkeypatch.undo()
    monkeypatch.setenv("DUBIUM_DATA", str(digits))
    train("mnist", tmp_path / "cut", **options)
    for file in (tmp_path / "whole").glob("*.safetensors"):
        assert file.read_bytes() == (tmp_path / "cut" / file.name).read_bytes()
