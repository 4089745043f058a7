"""Networks whose graphs are walked together, against each by itself, in float64."""

import pytest
import torch
from torch import nn

from dubium.attribution.fullgrad import fullgrad, keep_passes, maps_in_one_walk
from tests.networks import Awkward, ensemble, images, randomised, small_cnn


def convolution(*args, **kwargs):
    return nn.Sequential(nn.Conv2d(2, 3, *args, **kwargs), nn.ReLU(), nn.Flatten(), nn.Linear(432, 4))


def deep(*args, **kwargs):
    """A convolution behind another, so that gradients go through it."""
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, *args, **kwargs), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


def smooth():
    layers = [nn.Conv2d(1, 4, 3), nn.GELU(), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(400, 3)]
    return nn.Sequential(*layers)


ALIKE = {
    "one channel": (lambda: small_cnn(1), 1),
    "colour": (lambda: small_cnn(3, inplace=True), 3),
    "awkward": (Awkward, 3),
    "without rules": (smooth, 1),
    "groups": (lambda: nn.Sequential(nn.Conv2d(4, 8, 3, groups=4), nn.ReLU(), nn.Flatten(), nn.Linear(800, 3)), 4),
    "few channels, dilated": (lambda: deep(5, (3, 2), padding=(1, 0), dilation=(2, 1)), 2),
    "few channels, padded by more than the kernel": (lambda: deep(4, 2, padding=(2, 1)), 2),
    "few channels, stride of one axis": (lambda: deep(4, 3, stride=(1, 2)), 2),
    "many channels": (lambda: deep(20, 3), 2),
    "odd": (lambda: nn.Sequential(nn.Conv2d(1, 3, 4), nn.ReLU(), nn.Flatten(), nn.Linear(243, 3)), 1),
}


def together(networks, x, rescale="reference"):
    passes = keep_passes(networks, x, 2**30)
    assert len(passes) == len(networks)
    return maps_in_one_walk(passes, rescale, 2**30)


@pytest.mark.parametrize("rescale", ["reference", "none"])
@pytest.mark.parametrize("name", ALIKE)
def test_maps_are_those_of_each_network(name, rescale):
    make, channels = ALIKE[name]
    networks = [randomised(network, seed).double() for seed, network in enumerate(ensemble(make))]
    x = images(2, channels, dtype=torch.float64)
    found = together(networks, x, rescale)
    for network, maps in zip(networks, found, strict=True):
        expected = fullgrad(network, x, lambda logits: logits, rescale=rescale)
        torch.testing.assert_close(maps, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (convolution(3, padding=1), convolution(1)),  # the same shapes, other weights
        (convolution(3, padding=1), convolution(3, padding=1, bias=False)),  # another number of biases
        (convolution(3, padding=2, dilation=2), convolution(3, padding=1)),  # only a setting differs
        (small_cnn(2), convolution(1)),
    ],
)
def test_networks_of_two_architectures_are_not_mixed(one, other):
    assert together([one.eval(), other.eval()], images(1, 2)) is None


def test_many_rows_go_network_by_network():
    networks = ensemble(small_cnn)
    assert together(networks, images(16)) is not None
    assert together(networks, images(17)) is None
