"""Forward passes beside the one that is explained, and what layers share: neither changes a map, or the networks."""

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dubium
from dubium import shares
from dubium.errors import DubiumWarning, NetworkStateError
from dubium.models import Normalized
from tests.networks import images, randomised


class Net(nn.Module):
    """A convolution, a function of the user's, and a head."""

    def __init__(self, between, **layers):
        super().__init__()
        self.conv, self.head, self.between = nn.Conv2d(1, 4, 3), nn.Linear(4, 3), between
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.head(self.between(self, self.conv(x)).mean((2, 3)))


def double(network, seed=0):
    return randomised(network, seed).double().eval()


def double_images(count=2):
    return images(count, 1, size=8, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:A part of the gradient is cut")
def test_the_first_network_is_explained_as_the_others_though_its_cut_is_looked_for():
    networks = [
        Normalized(double(Net(lambda _net, h: h / h.detach().amax((2, 3), keepdim=True)), seed), 0.5, 0.25).eval()
        for seed in (0, 1)
    ]
    forth, back = (dubium.explain(each, double_images()).maps["total"] for each in (networks, networks[::-1]))
    torch.testing.assert_close(forth, back, rtol=1e-9, atol=1e-12)


def masked_without_gradient(net, h):
    with torch.no_grad():
        h.mul_(torch.linspace(0, 1, h.shape[-1], dtype=h.dtype))
    return h.relu()


def test_a_feature_that_is_overwritten_without_gradient_is_warned_of():
    with pytest.warns(DubiumWarning, match="A part of the gradient is cut in network 0"):
        dubium.explain([double(Net(masked_without_gradient))], double_images(), kinds="total")


def test_a_weight_that_was_computed_before_is_a_constant():
    plain, sampled = (
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).double().eval() for _ in range(2)
    )
    sampled.load_state_dict(plain.state_dict())
    mean = sampled[0].weight
    del sampled[0].weight
    sampled[0].weight = computed = mean + 0.1
    with torch.no_grad():
        plain[0].weight += 0.1
    found, expected = (
        dubium.explain([network], double_images(), kinds="total").maps["total"] for network in (sampled, plain)
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    assert sampled[0].weight is computed
    assert computed.grad_fn is not None


class Tap(nn.Module):
    """Keeps features in a list that others have, too."""

    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    def forward(self, x):
        self.kept.append(x)
        return x.tanh()


def tapped(net, h):
    net.kept.clear()
    h = net.tap(h)
    return h * net.kept[-1]


def test_a_list_that_modules_share_stays_the_same_list():
    kept = []
    network = double(Net(tapped, tap=Tap(kept)))
    network.kept = kept
    x = double_images()
    expected = network(x).detach()
    assert dubium.fullgrad_completeness(network, x).max() < 1e-10
    dubium.explain([network], x, kinds="total")
    assert network.kept is network.tap.kept is kept
    torch.testing.assert_close(network(x).detach(), expected)


class Gate(nn.Module):
    """A layer in which every thread but one waits."""

    def __init__(self):
        super().__init__()
        self.owner, self.entered, self.opened = 0, threading.Event(), threading.Event()

    def forward(self, x):
        if threading.get_ident() != self.owner:
            self.entered.set()
            assert self.opened.wait(60)
        return x


def meanwhile(net, h):
    """While another thread is in a layer of the same network, in a pass of its own, do what has biases."""
    gate = net.gate
    if gate.owner not in (0, threading.get_ident()):
        return gate(h)
    other = threading.Thread(target=net.predict)
    if gate.owner:
        gate.entered.clear()
        gate.opened.clear()
        other.start()
        assert gate.entered.wait(60)
    h = F.silu(F.gelu(h) + 1.0)
    if gate.owner:
        gate.opened.set()
        other.join()
    return h


class Shared(Net):
    with_gradient = False

    def predict(self):
        with torch.set_grad_enabled(self.with_gradient):
            self(double_images(1))


@pytest.mark.parametrize("with_gradient", [False, True])
def test_another_thread_may_call_a_network_while_it_is_explained(with_gradient):
    networks = [double(Shared(meanwhile, gate=Gate()), seed) for seed in (0, 1)]
    expected = dubium.explain(networks, double_images())
    for network in networks:
        network.gate.owner, network.with_gradient = threading.get_ident(), with_gradient
    found = dubium.explain(networks, double_images())
    for kind in dubium.types.KINDS:
        torch.testing.assert_close(found.maps[kind], expected.maps[kind], rtol=1e-9, atol=1e-12)


def hyper_convolution(net, h):
    del net.mix.weight
    net.mix.weight = net.hyper(h.mean((2, 3))).mean(0).view(4, 4, 1, 1)
    h = net.mix(h)
    net.mix.weight = nn.Parameter(torch.zeros(4, 4, 1, 1, dtype=h.dtype))
    return h


def called_with_weights(net, h):
    weight = net.hyper(h.mean((2, 3))).mean(0).view(4, 4, 1, 1)
    return torch.func.functional_call(net.mix, {"weight": weight}, (h,))


@pytest.mark.parametrize("between", [hyper_convolution, called_with_weights])
def test_a_weight_that_is_computed_of_the_image_has_its_bias(between):
    network = double(Net(between, mix=nn.Conv2d(4, 4, 1, bias=False), hyper=nn.Linear(4, 16)))
    assert dubium.fullgrad_completeness(network, double_images(1)).max() < 1e-10


@dataclass
class Options:
    scale: float = 2.0
    later: Any = field(init=False)


class Configured(nn.Module):
    def __init__(self):
        super().__init__()
        self.options = Options()

    def forward(self, x):
        return self.options.scale * x.tanh()


def test_a_dataclass_that_is_not_filled_yet_is_no_error():
    network = double(Net(lambda net, h: net.scaled(h), scaled=Configured()))
    assert dubium.fullgrad_completeness(network, double_images()).max() < 1e-10


def test_each_network_is_compared_whose_layers_have_other_options():
    own, mixing = (
        nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.LogSoftmax(axis)).double().eval() for axis in (1, 0)
    )
    with pytest.raises(NetworkStateError, match="Network 1 mixes the images"):
        dubium.explain([own, mixing], double_images())


def rectify(_net, h):
    return h.relu()


def mix(_net, h):
    return h / h.amax()


def test_each_network_is_compared_that_is_given_another_function():
    networks = [double(Net(function), seed) for seed, function in enumerate((rectify, mix))]
    with pytest.raises(NetworkStateError, match="Network 1 mixes the images"):
        dubium.explain(networks, double_images())


@pytest.mark.filterwarnings("ignore:All networks give the same")
def test_networks_that_are_sure_of_one_class_have_no_doubt_where_logarithms_are_rounded_otherwise(monkeypatch):
    """torch's logarithm of the number of networks may be the next number above Python's."""
    log = shares.math.log
    monkeypatch.setattr(shares.math, "log", lambda number: log(number) * (1 - 2**-52))
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).eval()
    with torch.no_grad():
        network[1].weight.zero_()
        network[1].bias.copy_(torch.tensor([200.0, 0.0, 0.0]))
        network[1].weight[1, :8] = 0.1
    result = dubium.explain([network] * 5, images(1, 1, size=8))
    assert all((each >= 0).all() and each.isfinite().all() for each in result.maps.values())
