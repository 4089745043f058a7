"""What the lists of docs/architecture.md promise; run by `test_architecture.py` where they have been followed."""

import torch
from typer.testing import CliRunner

import dubium
from dubium.attribution import RELEVANCES
from dubium.cli import app
from tests.data.official import write_idx
from tests.networks import ensemble, images, small_cnn


def call(*args):
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == 0, result.output
    return result.output


def test_power_grad_takes_its_option_and_is_no_relevance():
    x, networks = images(2), ensemble(small_cnn)
    first_power = dubium.explain(networks, x, method="power-grad", power=1.0)
    torch.testing.assert_close(first_power.maps, dubium.explain(networks, x, method="grad").maps)
    assert "power-grad" not in RELEVANCES


def test_root_grad_prepared_is_root_grad_by_calls():
    from dubium.attribution.root_grad import root_grad

    def by_calls(network, x, target):
        return root_grad(network, x, target)

    x, networks = images(2), ensemble(small_cnn)
    prepared, plain = (dubium.explain(networks, x, relevance=relevance) for relevance in ("root-grad", by_calls))
    torch.testing.assert_close(prepared.maps, plain.maps)


def test_scaled_is_trained_saved_and_loaded(tmp_path):
    record = dubium.training.train("demo", tmp_path, posterior="scaled", members=2, scale="smoke", threads=1)
    assert record["posterior"] == "scaled"
    assert dubium.posteriors.posterior_record(tmp_path).kind == "scaled"
    assert len(dubium.load_posterior(tmp_path)) == 2


def test_letters_are_loaded_listed_and_have_a_recipe(tmp_path, monkeypatch):
    monkeypatch.setenv("DUBIUM_DATA", str(tmp_path))
    write_idx(tmp_path / "letters", "t10k", count=5)
    data = dubium.data.load("letters")
    assert (len(data), data.classes[0]) == (5, "a")
    assert "letters" in call("data", "list")
    assert dubium.training.recipe_for(data, "cpu", {}).epochs == 3


def test_peak_is_a_command_and_continues(tmp_path):
    words = ("evaluate", "peak", "demo", "--scale", "smoke", "--methods", "grad", "--out", str(tmp_path))
    assert "peak" in call(*words)
    before = (tmp_path / "summary.json").read_bytes()
    call(*words)
    assert (tmp_path / "summary.json").read_bytes() == before


def test_tally_is_a_command():
    assert call("tally", "demo").strip() == str(len(dubium.data.load("demo")))
