"""FullGrad of networks that overwrite features, or parts of them: every bias counts once, where it acted."""

import pytest
import torch
from torch import nn
from torch.nn.functional import silu

import dubium
from dubium.models import Normalized
from tests.networks import images, randomised


class Changed(nn.Module):
    """A network with something done to the images, and something to the features of a convolution."""

    def __init__(self, to_images, to_features):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4 * 6 * 6, 3)
        self.to_images, self.to_features = to_images, to_features
        self.elu, self.silu = nn.ELU(inplace=True), nn.SiLU(inplace=True)

    def forward(self, x):
        self.to_images(self, x)
        features = self.first(x)
        self.to_features(self, features)
        return self.last(features.relu().flatten(1))


def nothing(_network, _tensor):
    pass


def write_constants(_network, features):
    features[:, :2][..., 0] = 3.0


TO_IMAGES = {
    "nothing": nothing,
    "subtracted": lambda _network, x: x.sub_(0.5),
    "function": lambda _network, x: silu(x, inplace=True),
    "layer": lambda network, x: network.silu(x),
}
TO_FEATURES = {
    "nothing": nothing,
    "added to a part": lambda _network, h: h[:, :1].add_(1.0),
    "function of a part": lambda _network, h: h[:, 1:3, 2:].sigmoid_(),
    "product of a part": lambda _network, h: h.flatten(2)[:, :2].mul_(h[:, :2].flatten(2).tanh()),
    "constants": write_constants,
    "closed form of a part": lambda network, h: network.silu(h[:, :2]),
    "layer on a part": lambda network, h: network.elu(h[:, :2]),
}


@pytest.mark.parametrize("is_normalised", [False, True])
@pytest.mark.parametrize("to_images", TO_IMAGES)
@pytest.mark.parametrize("to_features", TO_FEATURES)
def test_fullgrad_is_complete_where_a_network_overwrites(to_images, to_features, is_normalised):
    network = randomised(Changed(TO_IMAGES[to_images], TO_FEATURES[to_features]))
    network = Normalized(network, [0.5, 0.4, 0.3], 0.25) if is_normalised else network
    x = images(2, 3, size=8, dtype=torch.float64)
    assert dubium.fullgrad_completeness(network.double().eval(), x).max() < 1e-10


def test_a_normalisation_of_a_joined_batch_has_its_bias():
    class Both(nn.Module):
        """Images and their mirror images in one batch."""

        def __init__(self):
            super().__init__()
            self.normalise = Normalized(nn.Identity(), 0.5, 0.25).normalise
            self.first, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4 * 6 * 6, 3)

        def forward(self, x):
            upright, mirrored = self.first(self.normalise(torch.cat([x, x.flip(3)]))).chunk(2)
            return self.last((upright * mirrored).relu().flatten(1))

    network, x = randomised(Both()).double().eval(), images(2, 3, size=8, dtype=torch.float64)
    assert dubium.fullgrad_completeness(network, x).max() < 1e-10


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_a_softmax_layer_without_an_axis_has_its_bias():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Softmax(), nn.Flatten(), nn.Linear(4 * 6 * 6, 3))
    x = images(2, 3, size=8, dtype=torch.float64)
    assert dubium.fullgrad_completeness(randomised(network).double().eval(), x).max() < 1e-10
