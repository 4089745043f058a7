"""Removal of pixels: linear imputation against a dense solver, and a gain that random orders do not have."""

import json

import pytest
import torch
from typer.testing import CliRunner

from dubium.cli import app
from dubium.data import Dataset
from dubium.errors import OptionError
from dubium.evaluation.methods import parse_methods
from dubium.evaluation.metrics.removal import (
    REMOVALS,
    STENCIL,
    impute_linearly,
    relevance_gain,
    removal_curves,
    removal_order,
    remover,
)
from dubium.evaluation.metrics.truth import truth_columns
from dubium.evaluation.protocols import Evaluation
from dubium.evaluation.protocols.removal import RemovalOptions, evaluate_removal
from dubium.registry import CONTROL_NAMES
from tests.evaluation.handmade import quarrel


def dense_imputation(image, gone):
    """One channel, one equation for each removed pixel."""
    height, width = image.shape
    places = gone.nonzero().tolist()
    index = {tuple(place): n for n, place in enumerate(places)}
    matrix = torch.zeros(len(places), len(places), dtype=torch.float64)
    right = torch.zeros(len(places), dtype=torch.float64)
    for n, (row, column) in enumerate(places):
        for down in (-1, 0, 1):
            for across in (-1, 0, 1):
                at = (row + down, column + across)
                if not (0 <= at[0] < height and 0 <= at[1] < width):
                    continue
                weight = STENCIL[down + 1][across + 1]
                matrix[n, n] += weight
                if at in index:
                    matrix[n, index[at]] -= weight
                else:
                    right[n] += weight * image[at]
    full = image.clone()
    full[gone] = torch.linalg.solve(matrix, right)
    return full


@pytest.mark.parametrize("part", [0.1, 0.5, 0.95])
def test_linear_imputation_solves_the_equations_of_its_paper(part):
    draws = torch.Generator().manual_seed(0)
    x = torch.rand(2, 3, 9, 11, generator=draws, dtype=torch.float64)
    gone = torch.rand(2, 9, 11, generator=draws) < part
    found = impute_linearly(x, gone, noise=0.0)
    for b in range(2):
        for c in range(3):
            torch.testing.assert_close(found[b, c], dense_imputation(x[b, c], gone[b]), rtol=0, atol=2e-3)


def test_linear_imputation_of_everything_is_the_mean_and_of_nothing_the_image():
    x = torch.rand(1, 3, 6, 6)
    everything = torch.ones(1, 6, 6, dtype=torch.bool)
    torch.testing.assert_close(impute_linearly(x, everything, noise=0.0), x.mean((2, 3), keepdim=True).expand_as(x))
    assert torch.equal(impute_linearly(x, ~everything), x)


def test_an_image_that_is_solved_at_once_stays_so_while_others_are_not():
    x = torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    gone = torch.ones(2, 12, 12, dtype=torch.bool)
    gone[1, 3:6, 2:7] = False
    found = impute_linearly(x, gone, noise=0.0)
    torch.testing.assert_close(found[0], x[0].mean().expand(1, 12, 12))
    torch.testing.assert_close(found[1], impute_linearly(x[1:], gone[1:], noise=0.0)[0])


def test_several_masks_of_each_image_are_removed_as_one_by_one():
    x = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    order = removal_order(x[:, 0])
    for removal in REMOVALS:
        one_by_one = [removal_curves(brightness, x, order, removal, [count]) for count in (3, 40, 64)]
        together = removal_curves(brightness, x, order, removal, [3, 40, 64])
        torch.testing.assert_close(together, torch.cat(one_by_one, 1), rtol=0, atol=1e-3)


@pytest.mark.parametrize("removal", REMOVALS)
def test_pixels_that_are_not_removed_stay(removal):
    x = torch.rand(2, 1, 8, 8)
    gone = torch.rand(2, 8, 8) < 0.5
    removed = remover(removal, x)(gone)
    assert torch.equal(removed[:, 0][~gone], x[:, 0][~gone])
    assert not torch.equal(removed[:, 0][gone], x[:, 0][gone])


def test_an_unknown_removal_is_refused():
    with pytest.raises(OptionError, match="blur, mean, linear"):
        remover("black", torch.rand(1, 1, 8, 8))


def test_ties_are_broken_at_random_and_alike():
    maps = torch.zeros(2, 6, 6)
    maps[:, 2, 3] = 1
    order = removal_order(maps, seed=3)
    assert (order[:, 2, 3] == 0).all()
    assert torch.equal(order, removal_order(2 * maps, seed=3))
    assert not torch.equal(order, removal_order(maps, seed=4))
    assert torch.equal(order.flatten(1).sort(1).values, torch.arange(36).expand(2, -1))


def brightness(x):
    """An uncertainty that a known pixel alone causes."""
    return 1 + x[:, 0, 4, 4].double()


def test_the_gain_is_that_of_the_one_pixel_that_counts():
    x = torch.zeros(1, 1, 10, 10)
    x[0, 0, 4, 4] = 1
    right, wrong = torch.zeros(2, 1, 10, 10)
    right[0, 4, 4], wrong[0, 4, 4] = 1, -1
    least_last = 0.99 * 2 + 0.01 * 1.01  # it goes at the last of 100 steps
    exact = (least_last - 1.01) / 2
    torch.testing.assert_close(relevance_gain(brightness, x, right, "mean"), torch.tensor([exact]).double())
    torch.testing.assert_close(relevance_gain(brightness, x, wrong, "mean"), torch.tensor([-exact]).double())
    curve = removal_curves(brightness, x, removal_order(right), "mean", [0, 1, 100])
    torch.testing.assert_close(curve, torch.tensor([[2.0, 1.01, 1.01]]).double())


def test_truth_is_told_beside_doubt():
    probs = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.2, 0.5, 0.3]])
    found = truth_columns(probs, torch.tensor([0, 2]))  # two copies of two images
    assert found.tolist() == torch.tensor([[1, 0.5], [0, 0.3], [0, 0.2], [0, 0.3]]).tolist()


def test_the_protocol_gives_the_gain_of_the_one_pixel_that_counts(tmp_path):
    x = torch.zeros(3, 1, 10, 10)
    x[:, 0, 2, 3] = torch.tensor([0.8, 1.0, 0.0])  # the last has no uncertainty
    data = Dataset(x, torch.tensor([0, 1, 1]), ("a", "b"), "quarrel", "test")
    evaluation = Evaluation(quarrel(), data, parse_methods(["grad"], 1), ("epistemic",), tmp_path)
    found = evaluate_removal(evaluation, RemovalOptions(images=3))
    assert found["notes"] == [
        "1 images with no epistemic uncertainty are left out.",
        "Of the images with epistemic uncertainty, 50% are classified rightly before anything is removed: "
        "accuracy@... begins there.",  # of two equal classes the first
    ]
    for removal in REMOVALS:
        assert found["results"]["grad"][f"srg/{removal}"]["value"] == pytest.approx(0.99)  # all of U, all but 1 of 100
        assert found["results"]["grad"][f"accuracy@2%/{removal}"]["value"] == 0.5
        assert found["results"]["grad"][f"true-probability@2%/{removal}"]["value"] == 0.5
        left = found["curves"]["grad"][f"left/{removal}"]["value"]
        assert len(left) == 101
        assert left[0] == 1
        assert max(left[1:]) == 0
    assert list(found["results"]) == ["grad", *CONTROL_NAMES]


@pytest.mark.parametrize("words", [["--remove", "mean,blur"], ["--remove", "mean", "--remove", "blur"]])
def test_ways_to_remove_are_named_together_or_one_by_one(own, tmp_path, words):
    arguments = [str(own / "posterior"), "--dataset", str(own / "images.npz"), "--scale", "smoke", "--methods", "grad"]
    found = CliRunner().invoke(
        app, ["evaluate", "removal", *arguments, "--out", str(tmp_path), "--threads", "1", *words]
    )
    assert found.exit_code == 0, found.output
    metrics = json.loads((tmp_path / "summary.json").read_text())["results"]["grad"]
    assert {"srg/mean", "srg/blur"} <= metrics.keys()
    assert "srg/linear" not in metrics
