import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import dubium
from dubium.data import Dataset
from dubium.errors import OptionError
from dubium.evaluation.methods import parse_methods
from dubium.evaluation.metrics.calibration import calibration_error, predictive_metrics
from dubium.evaluation.metrics.randomisation import Randomised, randomise, unused_layers
from dubium.evaluation.metrics.sanity import (
    area_left,
    effective_pixels,
    entropy_rise,
    halves,
    histogram_entropy,
    rank_agreement,
    redrawn,
    top_overlap,
    uncertainty_curves,
)
from dubium.evaluation.metrics.scoring import scorer
from dubium.evaluation.protocols import Evaluation, run_protocol
from tests.evaluation.handmade import quarrel
from tests.networks import ensemble, images, small_cnn


def test_rank_agreement_is_scipys_spearman():
    a, b = torch.randn(4, 5, 6).round(), torch.randn(4, 5, 6).round()  # with ties
    expected = [stats.spearmanr(p.flatten(), q.flatten()).statistic for p, q in zip(a, b, strict=True)]
    np.testing.assert_allclose(rank_agreement(a, b).numpy(), expected)


def test_a_flat_map_agrees_with_nothing():
    assert rank_agreement(torch.ones(1, 3, 3), torch.rand(1, 3, 3)).item() == 0.0


def test_effective_pixels_counts_equal_pixels():
    maps = torch.zeros(3, 4, 4)
    maps[0, 0, 0], maps[1, 0] = 7.0, -2.0
    np.testing.assert_allclose(effective_pixels(maps).numpy(), [1, 4, 16])


def test_randomising_changes_the_last_layers_first_and_leaves_the_network_alone():
    network = small_cnn().eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    half = randomise(network, 0.25).state_dict()
    assert torch.equal(half["0.weight"], before["0.weight"])
    assert not torch.equal(half["7.weight"], before["7.weight"])
    everything = randomise(network, 1.0)
    assert all(not torch.equal(new, before[name]) for name, new in everything.named_parameters() if new.ndim > 1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert randomise(network, 0.0).state_dict().keys() == before.keys()


class Tempered(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.linear, self.temperature = nn.Linear(64, 3), nn.Parameter(torch.full(shape, 2.0))

    def forward(self, x):
        return self.linear(x.flatten(1)) / self.temperature


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_parameter_of_one_number_keeps_its_value(shape):
    network = Tempered(shape).eval()
    changed = randomise(network, 1.0)
    assert torch.equal(changed.temperature, network.temperature)
    assert not torch.equal(changed.linear.weight, network.linear.weight)
    networks = [network, Tempered(shape).eval()]
    found = dubium.evaluate(networks, torch.rand(4, 1, 8, 8), ["grad"], "sanity", scale="smoke")
    assert all(math.isfinite(metric["value"]) for metric in found["results"]["grad"].values())


class WithUnusedHead(nn.Module):
    """A head that is declared last and never called, and features whose gradient is cut."""

    def __init__(self):
        super().__init__()
        self.detached, self.network, self.aux = nn.Linear(144, 4), small_cnn(), nn.Linear(4, 4)

    def forward(self, x):
        return self.network(x) + 0.1 * self.detached(x.flatten(1)).detach()


def test_layers_that_the_logits_do_not_depend_on_are_told_from_those_whose_gradient_is_cut():
    network = WithUnusedHead().eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    assert unused_layers(network, torch.rand(1, 1, 12, 12)) == {"aux"}
    assert unused_layers(small_cnn().eval().requires_grad_(False), torch.rand(1, 1, 12, 12)) == set()
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    last = randomise(network, 0.25, unused={"aux"})
    assert torch.equal(last.aux.weight, network.aux.weight)
    assert not torch.equal(last.network[7].weight, network.network[7].weight)


class AuxiliaryHead(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network, self.aux = network, nn.Linear(4, 4)

    def forward(self, x):
        return self.network(x)


def test_an_unused_head_declared_last_does_not_change_the_cascade():
    plain = ensemble(small_cnn)
    found = [
        dubium.evaluate(networks, images(), ["grad"], "sanity", scale="smoke", checks=("top", "bottom"))["results"]
        for networks in (plain, [AuxiliaryHead(network).eval() for network in plain])
    ]
    assert found[0]["grad"]["cascade@25%"]["value"] < 0.99
    assert found[0] == found[1]


def test_a_randomised_posterior_repeats_itself_and_its_members_differ():
    posterior = Randomised(ensemble(small_cnn), 1.0)
    first, again = ([network[7].weight for network in posterior] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], first[1])
    assert len(posterior) == 3


def test_randomising_weights_changes_ua_backprops_map():
    posterior, x = ensemble(small_cnn), images()
    maps = [dubium.explain(p, x).maps["epistemic"] for p in (posterior, Randomised(posterior, 1.0))]
    assert rank_agreement(*maps).max() < 0.95
    assert torch.allclose(rank_agreement(maps[0], maps[0]), torch.ones(3, dtype=torch.float64))


def test_halves_have_every_network_once():
    networks = ensemble(small_cnn, 5)
    first, second = halves(networks)
    assert (len(first), len(second)) == (3, 2)
    assert {id(n) for n in (*first, *second)} == {id(n) for n in networks}
    with pytest.raises(OptionError, match="two"):
        halves(networks[:1])


def test_networks_drawn_anew_are_never_all_the_same():
    networks = ensemble(small_cnn, 2)
    for seed in range(20):
        assert len({id(network) for network in redrawn(networks, seed)}) == 2


def test_mc_dropout_is_drawn_anew_with_another_seed():
    network = torch.nn.Sequential(torch.nn.Dropout(0.5), small_cnn()).eval()
    posterior = dubium.posteriors.MCDropout(network, 3, seed=5)
    assert redrawn(posterior, 0).seed == 6


def test_deleting_the_harmful_pixel_takes_all_uncertainty_and_inserting_it_brings_all():
    x = torch.zeros(1, 1, 8, 8)
    x[..., 2, 3] = 1.0
    uncertainty, fractions = scorer(quarrel()), [0.0, 1 / 64, 1.0]
    full = uncertainty(x).item()
    deleted = uncertainty_curves(uncertainty, x, x[:, 0], fractions)
    inserted = uncertainty_curves(uncertainty, x, x[:, 0], fractions, insert=True)
    assert deleted.tolist() == [[full, 0, 0]]
    assert inserted.tolist() == [[0, full, full]]
    assert area_left(deleted.numpy(), np.array([full])).tolist() == [pytest.approx(1 / 3)]


def test_calibration_error_by_hand():
    probs = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 1])
    assert calibration_error(probs, labels) == pytest.approx((abs(1 - 1.8) + 0.4) / 3)
    found = predictive_metrics(probs.log(), labels)
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["nll"] == pytest.approx(-np.log([0.9, 0.1, 0.6]).mean())


def test_the_top_of_maps_is_compared_pixel_by_pixel():
    a, b = torch.zeros(2, 2, 10, 10)
    a[:, 0, :5], b[0, 0, :5], b[1, 0, 2:7] = 1, 1, 1  # of 100 pixels the top is five: all of them, or three
    assert top_overlap(a, b).tolist() == [1.0, 0.6]


def test_maps_that_share_nothing_but_zeros_share_no_top():
    zeros = torch.zeros(400, 20, 20)
    assert top_overlap(zeros, zeros).mean().item() == pytest.approx(0.05, abs=0.01)  # chance


def test_maps_with_the_same_ties_share_all_of_their_top():
    maps = torch.randint(0, 3, (20, 10, 10), generator=torch.Generator().manual_seed(0)).float()
    maps[0] = 0
    maps[0, 4, 4] = 1  # of five pixels of the top, four are ties of zeros
    assert top_overlap(maps, maps).tolist() == [1.0] * 20
    assert top_overlap(maps, 2 * maps).tolist() == [1.0] * 20


def test_entropy_of_a_histogram_is_scipys_and_its_rise_is_relative():
    maps = torch.rand(3, 9, 9, generator=torch.Generator().manual_seed(0))
    counts = [np.histogram(m.double().numpy(), 100, (float(m.min()), float(m.max())))[0] for m in maps]
    np.testing.assert_allclose(histogram_entropy(maps).numpy(), [stats.entropy(c) for c in counts])
    spot = torch.zeros(3, 9, 9)
    spot[:, 0, 0] = 1
    before = stats.entropy([80, 1])
    exact = [(stats.entropy(c) - before) / before for c in counts]
    np.testing.assert_allclose(entropy_rise(spot, maps).numpy(), exact)
    assert histogram_entropy(torch.ones(1, 3, 3)).item() == 0.0


def test_layers_lose_their_weights_from_the_bottom_too():
    network = small_cnn().eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    half = randomise(network, 0.25, side="bottom").state_dict()
    assert not torch.equal(half["0.weight"], before["0.weight"])
    assert torch.equal(half["7.weight"], before["7.weight"])
    everything = [randomise(network, 1.0, side=side).state_dict() for side in ("top", "bottom")]
    assert all(torch.equal(a, b) for a, b in zip(everything[0].values(), everything[1].values(), strict=True))


def test_checks_can_be_chosen_and_controls_have_kinds_that_are_alike(tmp_path):
    x = torch.rand(6, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    data = Dataset(x, None, (), "noise", "test")
    methods = parse_methods(["grad"], 1)
    evaluation = Evaluation(list(ensemble(small_cnn)), data, methods, ("epistemic",), tmp_path)
    found = run_protocol("sanity", evaluation, images=4, checks=("kinds",))
    assert set(found["results"]["grad"]) == {"kinds", "kinds-top5"}
    assert found["results"]["edges"]["kinds"]["value"] == pytest.approx(1)
    assert found["results"]["edges"]["kinds-top5"]["value"] == 1.0
    assert found["results"]["grad"]["kinds"]["value"] < 0.99
