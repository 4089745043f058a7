"""A posterior may load one network after another into the same module; each of them is explained, not the last one."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import dubium

METHODS = ["ua-backprop", "grad", "auto", "ig", "grad-cam", "map-variance"]


def cnn():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)).eval()


def load_state(network, source):
    network.load_state_dict(source.state_dict())
    return network


def load_vector(network, source):
    vector_to_parameters(parameters_to_vector(source.parameters()), network.parameters())
    return network


def load_data(network, source):
    for parameter, value in zip(network.parameters(), source.parameters(), strict=True):
        parameter.data.copy_(value)
    return network


def load_wrapped(network, source):
    return nn.Sequential(load_state(network, source)).eval()


def load_data_wrapped(network, source):
    return nn.Sequential(load_data(network, source)).eval()


class Loading:
    """One network of the posterior at a time, in the same module."""

    def __init__(self, networks, load):
        self.networks, self.load, self.module = networks, load, cnn()

    def __len__(self):
        return len(self.networks)

    def __iter__(self):
        for network in self.networks:
            yield self.load(self.module, network)


class Heads:
    """One trunk, whose head is exchanged, in a wrapper that is made anew."""

    def __init__(self, heads):
        torch.manual_seed(5)
        self.heads, self.net = heads, nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), heads[0]).eval()

    def __len__(self):
        return len(self.heads)

    def __iter__(self):
        for head in self.heads:
            self.net[3] = head
            yield nn.Sequential(self.net).eval()


@pytest.mark.parametrize("method", METHODS)
def test_a_layer_that_is_exchanged_inside_is_that_of_each_network(x, method):
    posterior = Heads([nn.Linear(4 * 36, 3).eval() for _ in range(3)])
    expected = dubium.explain([copy.deepcopy(network) for network in posterior], x, method=method)
    result = dubium.explain(posterior, x, method=method)
    for kind in dubium.types.KINDS:
        assert torch.allclose(result.maps[kind], expected.maps[kind], rtol=1e-4, atol=1e-7)


@pytest.fixture
def networks():
    torch.manual_seed(0)
    return [cnn() for _ in range(3)]


@pytest.fixture
def x():
    return torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("load", [load_state, load_vector, load_data, load_wrapped, load_data_wrapped])
@pytest.mark.parametrize("method", METHODS)
def test_maps_are_those_of_the_networks_side_by_side(networks, x, method, load):
    expected = dubium.explain(networks, x, method=method)
    result = dubium.explain(Loading(copy.deepcopy(networks), load), x, method=method)
    for kind in dubium.types.KINDS:
        assert torch.equal(result.scores[kind], expected.scores[kind])
        assert torch.allclose(result.maps[kind], expected.maps[kind], rtol=1e-4, atol=1e-7)


def test_networks_that_share_weights_are_not_copied(networks, x):
    copies = []

    class Watched(nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.network, self.scale = networks[0], scale

        def forward(self, x):
            return self.scale * self.network(x)

        def __deepcopy__(self, memo):
            copies.append(self)
            return self

    class Scales:
        def __len__(self):
            return 2

        def __iter__(self):
            return iter([Watched(1.0).eval(), Watched(2.0).eval()])

    dubium.explain(Scales(), x)
    assert not copies
