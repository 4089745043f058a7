"""Our own backward passes against autograd's, one target and one image at a time, in float64."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dubium.attribution._backward import SUITS, faster, own_backward
from dubium.attribution._vjp import batched_vjp


class Flattened(nn.Module):
    def __init__(self, features: nn.Module, how) -> None:
        super().__init__()
        self.features, self.how = features, how

    def forward(self, x):
        return self.how(self.features(x))


class Doubled(nn.Conv2d):
    """A subclass whose forward is not that of its parent."""

    def forward(self, x):
        return 2 * super().forward(x)


def normalised(channels: int) -> nn.BatchNorm2d:
    layer = nn.BatchNorm2d(channels)
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer


def flat(x):
    return x.flatten(1)


def seen(x):
    return x.view(len(x), -1)


NETWORKS = {
    "one channel": (1, [nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 2, dilation=2)], flat),
    "strides": (3, [nn.Conv2d(3, 4, (3, 2), stride=(2, 3), padding=(1, 0)), nn.ReLU(), nn.Conv2d(4, 2, 2)], flat),
    "groups": (4, [nn.Conv2d(4, 8, 3, groups=4), nn.ReLU(), nn.Conv2d(8, 2, 3, groups=2, stride=2)], flat),
    "other padding": (2, [nn.Conv2d(2, 3, 3, padding="same"), nn.Conv2d(3, 2, 3, 1, 1, padding_mode="reflect")], flat),
    "normalised": (2, [nn.Conv2d(2, 4, 3, bias=False), normalised(4), nn.ReLU(), nn.Conv2d(4, 2, 3)], flat),
    "normalised after": (2, [nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), normalised(4), nn.Conv2d(4, 2, 3)], flat),
    "pooled": (2, [nn.Conv2d(2, 4, 2), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(4, 2, 2), nn.MaxPool2d(2)], flat),
    "pooled, cut": (2, [nn.Conv2d(2, 4, 3, padding=1), nn.MaxPool2d(4), nn.Conv2d(4, 2, 1)], flat),
    "overlapping": (2, [nn.Conv2d(2, 4, 2), nn.MaxPool2d(3, 2, 1), nn.ReLU(), nn.AvgPool2d(2)], flat),
    "in place": (2, [nn.Conv2d(2, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.ReLU(inplace=True)], flat),
    "subclass": (2, [Doubled(2, 4, 2), nn.ReLU(), nn.Conv2d(4, 2, 2)], flat),
    "view": (2, [nn.Conv2d(2, 4, 2), nn.ReLU()], seen),
    "group norm": (2, [nn.Conv2d(2, 4, 2), nn.GroupNorm(2, 4)], flat),
    "functional": (2, [nn.Conv2d(2, 4, 2)], lambda x: F.relu(F.group_norm(x, 2)).mean((2, 3))),
}  # fmt: skip


def network_and_images(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    channels, layers, how = NETWORKS[name]
    return Flattened(nn.Sequential(*layers), how).double().eval(), torch.randn(3, channels, 10, 11, dtype=torch.float64)


@pytest.mark.parametrize("name", NETWORKS)
def test_slopes_are_those_of_autograd(name):
    network, x = network_and_images(name)
    with torch.no_grad():
        slopes = batched_vjp(network, x, lambda logits: logits)
    for image, found in zip(x, slopes, strict=True):
        at = image[None].clone().requires_grad_()
        for target, slope in zip(network(at.clone())[0], found, strict=True):
            (expected,) = torch.autograd.grad(target, at, retain_graph=True)
            torch.testing.assert_close(slope, expected[0], rtol=1e-10, atol=1e-12)


def test_of_equal_maxima_the_first_is_meant():
    network = nn.Sequential(nn.MaxPool2d(2), nn.Flatten()).eval()
    slopes = batched_vjp(network, torch.zeros(1, 1, 4, 4), lambda logits: logits)
    assert slopes[0, 0, 0].nonzero().tolist() == [[0, 0]]


@pytest.mark.parametrize(("name", "suits"), [("pooled", True), ("view", False), ("group norm", False)])
def test_networks_that_need_their_own_layout_are_left_alone(name, suits):
    network, x = network_and_images(name)
    with faster(network, x):
        out = network(x.clone().requires_grad_())
    assert SUITS[network] is suits
    torch.testing.assert_close(out, network(x), rtol=0, atol=1e-12)


def test_no_hook_stays():
    network, x = network_and_images("normalised")
    with own_backward(network), pytest.raises(RuntimeError):
        network(x[:, :1])
    assert not any(layer._forward_hooks for layer in network.modules())
