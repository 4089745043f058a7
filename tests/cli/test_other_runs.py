"""Results of one run are not taken for those of another."""

import functools
import json

import pytest
import torch
from typer.testing import CliRunner

import dubium
from dubium.cli import app
from dubium.errors import FileFormatError, NetworkError, OptionError
from tests.networks import ensemble, images, small_cnn


@pytest.fixture
def own_data(tmp_path, monkeypatch):
    """A module with two datasets, as the user's working folder has it."""
    (tmp_path / "own_images.py").write_text(
        "import torch\n"
        "def one(): return torch.full((3, 1, 28, 28), .1)\n"
        "def two(): return torch.full((4, 1, 28, 28), .9)\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, [*words])


def test_a_dataset_of_ones_own_is_not_taken_for_another_one(own_data):
    command = ("explain", "demo", "--method", "grad", "--top", "1", "--out", "out", "--json", "--dataset")
    assert json.loads(run(*command, "own_images:one").stdout)["images"] == 3
    refused = run(*command, "own_images:two")
    assert refused.exit_code == 2
    assert "'own_images:one' there, 'own_images:two' here" in " ".join(refused.output.split())
    assert "cannot be imported" in run(*command, "no_module:images").output
    assert json.loads(run(*command, "own_images:two", "--fresh").stdout)["images"] == 4


def test_the_demo_replaces_no_other_run(own_data):
    assert run("explain", "demo", "--dataset", "own_images:one", "--method", "grad", "--out", "out").exit_code == 0
    refused = run("demo", "--out", "out")
    assert refused.exit_code == 2
    assert "results of other networks or images" in " ".join(refused.output.split())
    assert json.loads((own_data / "out" / "run.json").read_text())["settings"]["images"] == {
        "factory": "own_images:one"
    }


def brightness(network, x, target, *, power=1.0):
    return x.abs().pow(power).mean(1, keepdim=True).expand(-1, target(network(x)).shape[1], -1, -1)


def darkness(network, x, target):
    return (1 - x).mean(1, keepdim=True).expand(-1, target(network(x)).shape[1], -1, -1)


def scaled(factor):
    def scale(network, x, target):
        return factor * darkness(network, x, target)

    return scale


@pytest.mark.parametrize(
    ("method", "other"),
    [
        (brightness, darkness),
        (scaled(1.0), scaled(2.0)),
        (functools.partial(brightness, power=1.0), functools.partial(brightness, power=3.0)),
    ],
)
def test_a_registered_name_that_stands_for_another_function_is_noticed(method, other, tmp_path):
    networks, x = ensemble(small_cnn), images(3)
    dubium.register_method("mine-twice", method, replace=True)
    first = dubium.explain_dataset(networks, x, tmp_path / "run", method="mine-twice", kinds="epistemic")
    assert len(list(first.rows())) == 3
    dubium.register_method("mine-twice", method, replace=True)
    dubium.explain_dataset(networks, x, tmp_path / "run", method="mine-twice", kinds="epistemic")
    dubium.register_method("mine-twice", other, replace=True)
    with pytest.raises((OptionError, FileFormatError), match="mine-twice"):
        dubium.explain_dataset(networks, x, tmp_path / "run", method="mine-twice", kinds="epistemic")


def test_a_function_of_the_same_name_is_another_method_in_an_evaluation(tmp_path):
    networks, x = ensemble(small_cnn), images(4)
    given = {"protocol": "removal", "scale": "smoke", "out": tmp_path / "out"}
    dubium.evaluate(networks, x, [scaled(1.0)], **given)
    with pytest.raises((OptionError, FileFormatError), match="scale"):
        dubium.evaluate(networks, x, [scaled(-1.0)], **given)


def test_a_digest_of_a_function_is_the_same_in_every_process():
    from dubium.fingerprint import function_digest

    assert function_digest(scaled(1.0)) == function_digest(scaled(1.0)) != function_digest(scaled(2.0))
    held = torch.ones(2)
    assert function_digest(functools.partial(brightness, power=held)) == function_digest(
        functools.partial(brightness, power=torch.ones(2))
    )


def test_a_size_that_is_not_known_is_not_advised():
    networks = ensemble(small_cnn)  # with a dense layer: 12 x 12 pixels alone
    with pytest.raises(NetworkError, match=r"of shape 1,H,W .*have 3,20,20.*trained with"):
        dubium.evaluate(networks, torch.rand(4, 3, 20, 20), ["grad"], protocol="removal", scale="smoke")
