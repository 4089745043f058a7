"""Networks whose maps would be silently wrong: random ones, and those that cut the gradient."""

import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dubium
from dubium.attribution import _completeness
from dubium.attribution._budget import measure_cost
from dubium.errors import NetworkError, NetworkStateError
from dubium.models import Normalized, SvhnCnn, cifar_resnet, cnn3, resnet18
from dubium.networks.borrow import borrow_networks
from tests.networks import Awkward, images, randomised, small_cnn


class Odd(nn.Module):
    """Two convolutions and a head, with a function of the user's between."""

    def __init__(self, between):
        super().__init__()
        self.backbone, self.branch = nn.Conv2d(1, 5, 3), nn.Conv2d(5, 5, 3, padding=1)
        self.head, self.between = nn.Linear(5, 4), between

    def forward(self, x):
        return self.head(self.between(self, x).mean((2, 3)))


def odd(between, members=2):
    return [randomised(Odd(between), seed) for seed in range(members)]


def frozen_backbone(self, x):
    with torch.no_grad():
        return self.branch(self.backbone(x))


CUT = {
    "no_grad": frozen_backbone,
    "detach": lambda self, x: self.branch(self.backbone(x)).detach(),
    "data": lambda self, x: self.branch(self.backbone(x).data),
    "numpy": lambda self, x: self.backbone(torch.from_numpy(x.detach().numpy().copy())),
}


@pytest.mark.filterwarnings("ignore:All networks give the same")
@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("method", ["ua-backprop", "grad", "ig"])
def test_logits_without_a_gradient_are_refused(name, batch, method):
    networks = [*odd(lambda self, x: self.branch(self.backbone(x)), 1), odd(CUT[name])[1]]
    with pytest.raises(NetworkStateError, match="logits of network 1 have no gradient"):
        dubium.explain(networks, images(batch), method=method, **({"steps": 2} if method == "ig" else {}))
    dubium.uncertainty(networks, images(batch))  # needs no gradient


def test_methods_without_gradients_take_networks_without_gradients():
    networks = odd(frozen_backbone)
    dubium.explain(networks, images(2), method="random")
    dubium.explain(networks, images(2), method=lambda network, x, target: target(network(x))[:, :, None, None] + 0 * x)


def no_grad_branch(self, x):
    features = self.backbone(x)
    with torch.no_grad():
        gate = self.branch(features).sigmoid()
    return features * gate


PARTS = {
    "no_grad": (no_grad_branch, "'branch' (Conv2d)"),
    "detach": (lambda self, x: self.backbone(x) * self.branch(self.backbone(x)).detach(), "the network itself (Odd)"),
    "added": (lambda self, x: self.backbone(x) + self.branch(self.backbone(x)).detach(), "the network itself (Odd)"),
    "data": (
        lambda self, x: torch.cat([self.backbone(x), self.backbone(x.data)])[: len(x)],
        "the network itself (Odd)",
    ),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("batch", [1, 3])
def test_one_warning_names_the_place_where_a_part_is_cut(name, batch):
    between, place = PARTS[name]
    with pytest.warns(UserWarning, match="part of the gradient is cut in network 0") as caught:
        dubium.explain(odd(between), images(batch), relevance="grad")
    assert len(caught) == 1
    assert place in str(caught[0].message)
    assert caught[0].filename == __file__


def rounded(self, x):
    features = self.backbone(x)
    return features + (features.round() - features).detach()


def rounded_without_graph(self, x):
    features = self.backbone(x)
    with torch.no_grad():
        step = features.round() - features
    return features + step


def gumbel(self, x):
    soft = self.backbone(x).softmax(1)
    hard = torch.zeros_like(soft).scatter_(1, soft.argmax(1, keepdim=True), 1.0)
    return hard - soft.detach() + soft


def stable_softmax(self, x):
    features = self.backbone(x)
    return (features - features.amax((1, 2, 3), keepdim=True).detach()).exp()


HARMLESS = {
    "straight through": rounded,
    "straight through, no_grad": rounded_without_graph,
    "gumbel": gumbel,
    "stable softmax": stable_softmax,
    "shape alone": lambda self, x: self.backbone(x) * torch.ones_like(self.backbone(x)) + x.new_zeros(1),
    "control flow": lambda self, x: self.backbone(x) if float(x.detach().sum()) > 0 else self.backbone(2 * x),
    "a mask": lambda self, x: self.backbone(x) * (self.backbone(x).detach() > 0).to(x),
    "unused": lambda self, x: (self.branch(self.backbone(x).detach()), self.backbone(x))[1],
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_hides_nothing_is_not_warned_about(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dubium.explain(odd(HARMLESS[name]), images(2), relevance="grad")


RANDOM = {
    "functional dropout": lambda self, x: F.dropout(self.backbone(x)),
    "fractional pooling": lambda self, x: F.fractional_max_pool2d(self.backbone(x), 2, output_ratio=(0.6, 0.6)),
    "noise": lambda self, x: self.backbone(x + 0.1 * torch.randn_like(x)),
}
UNSEEN = {
    "numpy": lambda self, x: self.backbone(x) * (1 + NUMPY.random()),
    "random": lambda self, x: self.backbone(x) * (1 + PYTHON.random()),
    "a generator": lambda self, x: self.backbone(x + torch.randn(x.shape, generator=OWN)),
}
NUMPY, PYTHON, OWN = np.random.default_rng(0), random.Random(0), torch.Generator().manual_seed(0)


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "call", [dubium.explain, dubium.uncertainty, lambda *args: dubium.explain(*args, method="random")]
)
def test_a_network_that_is_random_in_eval_is_refused(name, batch, call):
    with pytest.raises(NetworkStateError, match=r"Network 0 is random.*MCDropout"):
        call(odd(RANDOM[name]), images(batch))


@pytest.mark.parametrize("name", UNSEEN)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("method", ["ua-backprop", "grad", "auto"])
def test_random_numbers_that_are_not_torchs_are_noticed(name, batch, method):
    with pytest.raises(NetworkStateError, match="Network 0 is random"):
        dubium.explain(odd(UNSEEN[name]), images(batch), method=method)


def test_random_numbers_without_effect_are_fine():
    def drawn(self, x):
        torch.rand(3)
        return self.backbone(x)

    dubium.explain(odd(drawn), images(2))


def test_the_networks_are_untouched_after_a_check_fails():
    networks = odd(frozen_backbone)
    with pytest.raises(NetworkStateError):
        dubium.explain(networks, images(2))
    for network in networks:
        assert all(parameter.requires_grad for parameter in network.parameters())
        assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in network.modules())


def test_a_warning_names_the_line_of_the_user():
    with pytest.warns(UserWarning, match="one network") as caught:
        dubium.explain([randomised(small_cnn())], images(1))
    assert caught[0].filename == __file__


def hidden(x):
    """x² + 5, by a function that is not given x."""
    return torch.vmap(lambda number: x**2 + number)(torch.full((1,), 5.0))[0]


@pytest.mark.parametrize("options", [{}, {"method": "fullgrad"}])
@pytest.mark.parametrize("batch", [1, 2])
def test_fullgrad_says_once_that_it_misses_much(options, batch):
    networks = odd(lambda self, x: hidden(self.backbone(x)))
    assert dubium.fullgrad_completeness(networks[0], images(batch)).median() > 0.05
    with pytest.warns(UserWarning, match=r"FullGrad misses [\d.]+% of the logits of network 0.*'input-grad'") as caught:
        dubium.explain(networks, images(batch), **options)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    dubium.explain(networks, images(batch), relevance="grad")
    dubium.explain(odd(lambda self, x: self.backbone(x) ** 2 + 5), images(batch), **options)


def test_completeness_is_not_measured_where_it_is_known(monkeypatch):
    monkeypatch.setattr("dubium.attribution._completeness.FullGradPass", None)
    dubium.explain([randomised(small_cnn(), seed) for seed in range(2)], images(2))


@pytest.mark.parametrize(
    "make",
    [lambda: Awkward(1), lambda: Odd(lambda self, x: self.branch(self.backbone(x)).tanh() + x.mean((1, 2, 3), True))],
)
def test_a_first_pass_that_is_watched_gives_the_maps_of_one_that_is_not(make):
    networks, x = [randomised(make(), seed) for seed in range(2)], images(2)
    together = dubium.explain(networks, x)  # the first pass is of one image alone, before FullGrad's
    alone = dubium.explain(networks, x[:1])  # FullGrad's pass is the first
    torch.testing.assert_close(alone.maps["total"], together.maps["total"][:1], rtol=1e-4, atol=1e-7)


def test_masks_of_functional_dropout_do_not_disturb_fullgrad():
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.head = nn.Conv2d(1, 6, 3), nn.GroupNorm(2, 6), nn.Linear(6, 4)

        def forward(self, x):
            features = F.dropout(F.gelu(self.norm(self.first(x))) + x[:, :, 1:-1, 1:-1], 0.3, self.training)
            return self.head(features.mean((2, 3)).tanh())

    posterior, x = dubium.posteriors.MCDropout(randomised(Root()), 2), images(2)
    assert max(dubium.fullgrad_completeness(sample, x).max() for sample in posterior) < 1e-4
    together, alone = dubium.explain(posterior, x), dubium.explain(posterior, x[:1])
    torch.testing.assert_close(alone.maps["total"], together.maps["total"][:1], rtol=1e-4, atol=1e-7)


def test_a_chunk_costs_the_same_at_a_first_pass_which_repeats_the_network_for_its_checks():
    with borrow_networks(odd(lambda self, x: self.branch(self.backbone(x)).relu()), images(2)) as (networks, x):
        for network in networks:
            assert measure_cost(network, x) == measure_cost(network, x)


class MeanOfBatch(nn.Module):
    """Adds the mean of the batch's images to each: logits depend on the neighbours."""

    def forward(self, x):
        return x + x.mean(0)


def mixing_networks():
    by_own_code = nn.Sequential(MeanOfBatch(), nn.Flatten(), nn.Linear(64, 4))
    attention = nn.TransformerEncoderLayer(64, 2, 32, dropout=0.0)  # batch_first=False: tokens are taken for images
    by_layers_of_torch = nn.Sequential(nn.Flatten(2), attention, nn.Flatten(), nn.Linear(64, 4))
    by_softmax = nn.Sequential(nn.Flatten(), nn.Softmax(0), nn.Linear(64, 4))
    return {"own code": by_own_code, "torch.nn": by_layers_of_torch, "softmax over the batch": by_softmax}


def brightness(_network, x, target):
    return x.mean(1, keepdim=True).expand(-1, 3, -1, -1)


@pytest.mark.parametrize("name", mixing_networks())
@pytest.mark.parametrize("batch", [2, 3, 12])
@pytest.mark.parametrize("call", ["ua-backprop", "grad", "auto", brightness, "uncertainty"])
def test_networks_that_mix_the_images_of_a_batch_are_refused(name, batch, call):
    networks = [randomised(mixing_networks()[name], seed) for seed in range(2)]
    x = images(batch, size=8)
    with pytest.raises(NetworkStateError, match="Network 0 mixes the images of a batch"):
        dubium.uncertainty(networks, x) if call == "uncertainty" else dubium.explain(networks, x, method=call)


def test_an_image_alone_has_no_neighbours_to_be_mixed_with():
    networks = [randomised(mixing_networks()["own code"], seed) for seed in range(2)]
    dubium.explain(networks, images(1, size=8))


def test_wrappers_of_one_class_are_checked_by_what_is_inside():
    plain = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
    networks = [randomised(nn.Sequential(plain), 0), randomised(nn.Sequential(mixing_networks()["own code"]), 1)]
    with pytest.raises(NetworkStateError, match="Network 1 mixes the images"):
        dubium.explain(networks, images(3, size=8))


def test_networks_of_one_class_are_checked_by_their_flags_too():
    class Flagged(Odd):
        def __init__(self, mixes):
            super().__init__(lambda self, x: self.backbone(x) - self.backbone(x).mean(0) * self.mixes)
            self.mixes = mixes

    networks = [randomised(Flagged(mixes), 0) for mixes in (False, True)]
    with pytest.raises(NetworkStateError, match="Network 1 mixes the images of a batch"):
        dubium.explain(networks, images(2))


def test_a_lack_of_memory_in_a_network_is_told_as_such():
    def fail(self, x):
        raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError, match="no room"):
        dubium.explain(odd(fail), images(2))


OUR_NETWORKS = {
    "cnn3": lambda: cnn3(size=16),
    "svhn-cnn": lambda: SvhnCnn(1, size=16, units=8),
    "resnet": lambda: cifar_resnet(1, depth=8, width=4),
    "resnet, padded": lambda: cifar_resnet(1, depth=8, width=4, shortcut="pad"),
    "normalized": lambda: Normalized(resnet18(1, width=4), 0.4, 0.3),
}


@pytest.mark.parametrize("name", OUR_NETWORKS)
def test_convolutional_networks_are_complete_without_being_measured(name, monkeypatch):
    networks, x = [randomised(OUR_NETWORKS[name](), seed) for seed in range(2)], images(2, size=16)
    monkeypatch.setattr(_completeness, "relative_gap", lambda *_: pytest.fail("measured"))
    dubium.explain(networks, x)  # a warning would be an error
    monkeypatch.undo()
    assert dubium.fullgrad_completeness(networks[0].double(), x.double()).max() < 1e-10


def test_a_network_with_other_operations_is_measured(monkeypatch):
    measured = []
    monkeypatch.setattr(_completeness, "relative_gap", lambda *given: measured.append(1) or torch.zeros(1))
    dubium.explain(odd(lambda self, x: self.backbone(x.erf())), images(2))
    assert measured


class Choosy(nn.Module):
    """Raises an error of the pixels below 0, or of a batch of more than so many images."""

    def __init__(self, error=ValueError, most=None):
        super().__init__()
        self.body, self.error, self.most = small_cnn(), error, most

    def forward(self, x):
        if x.min() < 0:
            raise self.error("pixels must be in [0, 1]")
        if self.most is not None and len(x) > self.most:
            raise self.error("too many")
        return self.body(x)


@pytest.mark.parametrize("error", [ValueError, AssertionError, KeyError, ZeroDivisionError])
@pytest.mark.parametrize(
    "options",
    [
        {"method": "smoothgrad", "samples": 3, "sigma": 1.0},
        {"relevance": "smoothgrad", "samples": 3, "sigma": 1.0},
        {"method": "smoothgrad", "samples": 3, "sigma": 1.0, "pair": (0, 1)},
        {"method": "ig", "steps": 3, "start": -torch.ones(1, 12, 12)},
    ],
)
def test_what_a_network_raises_at_images_of_the_method_is_said(options, error):
    networks = [randomised(small_cnn()), randomised(Choosy(error))]
    words = r"Network 1 cannot take images that the method made of x.*must be in \[0, 1\].*smaller sigma.*'grad'"
    with pytest.raises(NetworkError, match=words) as refused:
        dubium.explain(networks, images(2), **options)
    assert type(refused.value.__cause__) is error


def test_what_a_network_raises_at_the_images_themselves_is_not_blamed_on_the_method():
    networks = [randomised(Choosy(most=2)), randomised(Choosy(most=2))]
    for options in ({}, {"method": "grad"}, {"method": "map-variance"}):
        with pytest.raises(NetworkError, match=r"Network 0 cannot take images of shape \(4, .*ValueError: too many"):
            dubium.explain(networks, images(4), **options)


def test_what_networks_did_not_raise_is_left_as_it_is():
    def stop(_done, _all):
        raise ValueError("enough")

    with pytest.raises(ValueError, match=r"^enough$") as raised:
        dubium.explain([randomised(small_cnn())], images(2), method="smoothgrad", kinds="total", progress=stop)
    assert type(raised.value) is ValueError


def test_a_network_that_fails_late_is_handed_back_as_it_was():
    network = randomised(Choosy())
    with pytest.raises(NetworkError):
        dubium.explain([network], images(2), method="smoothgrad", sigma=1.0, kinds="total")
    assert all(parameter.requires_grad for parameter in network.parameters())
