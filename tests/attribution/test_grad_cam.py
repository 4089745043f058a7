"""Which layers Grad-CAM takes; `test_parity.py` compares its maps with Captum's."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import nn

import dubium
from dubium.attribution import grad_cam
from dubium.errors import OptionError
from tests.networks import Awkward, ensemble, images, randomised, small_cnn


def test_grad_cam_of_networks_that_share_layers_is_that_of_copies():
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Flatten())
    backbone, x = randomised(backbone).double(), images(2, 3, dtype=torch.float64)
    heads = [randomised(nn.Linear(500, 4), seed).double() for seed in range(3)]
    shared = [nn.Sequential(backbone, head).eval() for head in heads]
    apart = [nn.Sequential(deepcopy(backbone), head).eval() for head in heads]
    for networks, copies in ((shared, apart), ([*shared, shared[0]], [*apart, deepcopy(apart[0])])):
        exact = dubium.explain(copies, x, method="grad-cam")
        maps = dubium.explain(networks, x, method="grad-cam").maps
        for kind in maps:
            torch.testing.assert_close(maps[kind], exact.maps[kind], rtol=1e-9, atol=1e-12)


def test_grad_cam_refuses_a_layer_that_is_not_executed():
    network = randomised(small_cnn())
    network.unused = nn.Conv2d(1, 2, 3).eval()
    network.forward = lambda x: network[:8](x)
    with pytest.raises(OptionError, match="The layer Conv2d is not executed by Sequential"):
        grad_cam(network, images(), lambda z: z, layer="unused")


class ChannelAttention(nn.Module):
    """As in ECA-Net: a convolution along the channels, after global pooling."""

    def __init__(self):
        super().__init__()
        self.along = nn.Conv1d(1, 1, 3, padding=1)

    def forward(self, x):
        return x * self.along(x.mean((2, 3))[:, None]).sigmoid()[:, 0, :, None, None]


class Tokens(nn.Module):
    """Columns of the features as a batch of their own."""

    def __init__(self):
        super().__init__()
        self.column = nn.Conv2d(4, 4, (3, 1), padding=(1, 0))

    def forward(self, x):
        columns = x.movedim(3, 1).flatten(0, 1)[..., None]
        return self.column(columns).view(len(x), -1, *x.shape[1:3]).movedim(1, 3)


@pytest.mark.parametrize("block", [ChannelAttention, Tokens])
def test_grad_cam_passes_over_convolutions_that_are_not_of_the_image(block):
    def make():
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), block(), nn.Flatten(), nn.Linear(400, 4))

    networks, x = ensemble(make), images(2, 3)
    found, exact = (dubium.explain(networks, x, method="grad-cam", **layer).maps for layer in ({}, {"layer": "0"}))
    for kind in found:
        assert torch.equal(found[kind], exact[kind])


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("2.column", r"The layer Conv2d puts out \(20, 4, 10, 1\); .* feature maps \(B, C, h, w\) of the 2 images"),
        ("4", r"The layer Linear puts out \(2, 4\)"),
    ],
)
def test_grad_cam_refuses_a_layer_without_features_of_the_images(layer, message):
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), Tokens(), nn.Flatten(), nn.Linear(400, 4))
    with pytest.raises(OptionError, match=message):
        grad_cam(randomised(network), images(2, 3), lambda z: z, layer=layer)


def test_grad_cam_refuses_a_network_without_convolutions_of_images():
    network = nn.Sequential(nn.Flatten(2), nn.Conv1d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 142, 4))
    with pytest.raises(OptionError, match=r"Sequential executes no convolution of images \(B, C, H, W\)"):
        grad_cam(randomised(network), images(2, 3), lambda z: z)


def test_a_layer_has_the_same_name_where_log_probabilities_are_explained():
    networks, x = ensemble(partial(Awkward, 1)), images(2)
    named = {"relevance": "grad-cam", "layer": "twice"}
    result = dubium.explain(networks, x, of="log-probs", **named)
    by_hand = [nn.Sequential(network, nn.LogSoftmax(-1)).eval() for network in networks]
    expected = dubium.explain(by_hand, x, **{**named, "layer": "0.twice"})
    torch.testing.assert_close(result.maps, expected.maps)
    torch.testing.assert_close(result.scores, expected.scores)
