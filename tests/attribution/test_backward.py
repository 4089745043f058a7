"""Our own backward passes against autograd's, one target and one image at a time, in float64."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from dubium.attribution._autograd.graph import count_graph_elements
from dubium.attribution._gradients import gradients_at, pixel_gradients


class Flattened(nn.Module):
    def __init__(self, features: nn.Module, how) -> None:
        super().__init__()
        self.features, self.how = features, how

    def forward(self, x):
        return self.how(self.features(x))


class Twice(torch.autograd.Function):
    """A user's own."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Powers(torch.autograd.Function):
    """A user's own, with arguments that are no tensors, and two outputs."""

    @staticmethod
    def forward(ctx, run, exponent, constant, x):
        ctx.save_for_backward(x)
        ctx.exponent = exponent
        return run(x, exponent) + constant, x**2

    @staticmethod
    def backward(ctx, first, second):
        (x,) = ctx.saved_tensors
        return None, None, None, first * ctx.exponent * x ** (ctx.exponent - 1) + second * 2 * x


class Doubled(nn.Conv2d):
    """A subclass whose forward is not that of its parent."""

    def forward(self, x):
        return 2 * super().forward(x)


def normalised(channels: int, kind=nn.BatchNorm2d) -> nn.Module:
    layer = kind(channels)
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer


def branched(x):
    """Of a feature that has several readers, or is broadcast, every use counts."""
    rectified = x.relu()
    return torch.cat(
        [F.max_pool2d(rectified, 2).flatten(1), (rectified + x.mean((0, 2, 3))[:, None, None]).mean(1).flatten(1)], 1
    )


def several(x):
    """Nodes with several outputs, of which not all are used."""
    one, _, three = x.chunk(3, 1)
    return torch.add(one, three.detach() * three, alpha=2).flatten(1)[:, 1:]


def flat(x):
    return x.flatten(1)


def seen(x):
    return x.view(len(x), -1)


MEAN, VAR = torch.randn(4).double(), torch.rand(4).double() + 0.5
NETWORKS = {
    "one channel": (1, [nn.Conv2d(1, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 2, dilation=2)], flat),
    "strides": (3, [nn.Conv2d(3, 4, (3, 2), stride=(2, 3), padding=(1, 0)), nn.ReLU(), nn.Conv2d(4, 2, 2)], flat),
    "groups": (4, [nn.Conv2d(4, 8, 3, groups=4), nn.ReLU(), nn.Conv2d(8, 2, 3, groups=2, stride=2)], flat),
    "other padding": (2, [nn.Conv2d(2, 3, 3, padding="same"), nn.Conv2d(3, 2, 3, 1, 1, padding_mode="reflect")], flat),
    "normalised": (2, [nn.Conv2d(2, 4, 3, bias=False), normalised(4), nn.ReLU(), nn.Conv2d(4, 2, 3)], flat),
    "normalised after": (2, [nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), normalised(4), nn.Conv2d(4, 2, 3)], flat),
    "pooled": (2, [nn.Conv2d(2, 4, 2), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(4, 2, 2), nn.MaxPool2d(2)], flat),
    "pooled, cut": (2, [nn.Conv2d(2, 4, 3, padding=1), nn.MaxPool2d(4), nn.Conv2d(4, 2, 1)], flat),
    "pooled by lists": (2, [nn.Conv2d(2, 4, 2), nn.MaxPool2d([2], [2], [0], [1]), nn.MaxPool2d(2, [2], [1])], flat),
    "averaged by lists": (2, [nn.Conv2d(2, 4, 2), nn.AvgPool2d([2], [2], [1]), nn.ReLU(), nn.AvgPool2d((2,))], flat),
    "overlapping": (2, [nn.Conv2d(2, 4, 2), nn.MaxPool2d(3, 2, 1), nn.ReLU(), nn.AvgPool2d(2)], flat),
    "in place": (2, [nn.Conv2d(2, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.ReLU(inplace=True)], flat),
    "subclass": (2, [Doubled(2, 4, 2), nn.ReLU(), nn.Conv2d(4, 2, 2)], flat),
    "view": (2, [nn.Conv2d(2, 4, 2), nn.ReLU()], seen),
    "group norm": (2, [nn.Conv2d(2, 4, 2), nn.GroupNorm(2, 4)], flat),
    "relu of two readers": (2, [nn.Conv2d(2, 4, 2)], branched),
    "norm of two readers": (2, [nn.Conv2d(2, 4, 2)], lambda x: (F.batch_norm(x, MEAN, VAR) + x).mean((-1, -2))),
    "norm without weight": (2, [nn.Conv2d(2, 4, 2)], lambda x: F.batch_norm(x, MEAN, VAR).flatten(1)),
    "norm after a norm": (2, [nn.Conv2d(2, 4, 2), normalised(4), normalised(4), nn.ReLU()], flat),
    "outputs": (2, [nn.Conv2d(2, 6, 2)], several),
    "norm in one dimension": (2, [nn.Flatten(2), nn.Conv1d(2, 3, 4), normalised(3, nn.BatchNorm1d), nn.ReLU()], flat),
    "norm after transposed": (2, [nn.ConvTranspose2d(2, 3, 3, stride=2), normalised(3)], lambda x: x.mean((2, 3))),
    "one channel, normalised": (1, [nn.Conv2d(1, 3, (3, 2), (1, 2), (0, 1), (2, 3)), normalised(3), nn.ReLU()], flat),
    "transposed": (2, [nn.ConvTranspose2d(2, 3, 3, stride=2), nn.ReLU()], lambda x: x.mean((2, 3))),
    "a Function": (2, [nn.Conv2d(2, 4, 2)], lambda x: Twice.apply(x).mean((2, 3), keepdim=True).flatten(1)),
    "Function of anything": (2, [nn.Conv2d(2, 4, 2)], lambda x: Powers.apply(torch.pow, 3, MEAN[0], x)[0].mean((2, 3))),
    "checkpoint": (2, [nn.Conv2d(2, 4, 2)], lambda x: checkpoint(torch.sin, x, use_reentrant=False).mean((2, 3))),
    "no batching rule": (2, [nn.Conv2d(2, 4, 2), nn.Mish()], flat),
    "dense": (2, [nn.Flatten(), nn.Linear(220, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3, bias=False)], flat),
    "one dimension": (2, [nn.Flatten(2), nn.Conv1d(2, 3, 4), nn.ReLU(), nn.MaxPool1d(2)], flat),
    "mean of all": (2, [nn.Conv2d(2, 4, 2)], lambda x: torch.stack([one.mean(()) * one.mean() for one in x])[:, None]),
    "images one by one": (2, [nn.ReLU()], lambda x: torch.stack([F.max_pool2d(one, 2) for one in x]).flatten(1)),
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
        slopes = pixel_gradients(network, x, lambda logits: logits)
    for image, found in zip(x, slopes, strict=True):
        at = image[None].clone().requires_grad_()
        for target, slope in zip(network(at.clone())[0], found, strict=True):
            (expected,) = torch.autograd.grad(target, at, retain_graph=True)
            torch.testing.assert_close(slope, expected[0], rtol=1e-10, atol=1e-12)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # torch's, in every pass without a graph
def test_slopes_of_a_reentrant_checkpoint_are_those_of_autograd():
    inside, x = nn.Sequential(nn.Conv2d(2, 4, 2), nn.Tanh()).double(), torch.randn(2, 2, 5, 5, dtype=torch.float64)
    network = Flattened(nn.Identity(), lambda x: checkpoint(inside, x, use_reentrant=True).mean((2, 3))).eval()
    at = x.clone().requires_grad_()
    for k, slope in enumerate(pixel_gradients(network, x, lambda logits: logits).movedim(1, 0)):
        at.grad = None
        network(at)[:, k].sum().backward()  # torch allows no `grad` here
        torch.testing.assert_close(slope, at.grad, rtol=1e-10, atol=1e-12)


def test_of_equal_maxima_the_first_is_meant():
    network = nn.Sequential(nn.MaxPool2d(2), nn.Flatten()).eval()
    slopes = pixel_gradients(network, torch.zeros(1, 1, 4, 4), lambda logits: logits)
    assert slopes[0, 0, 0].nonzero().tolist() == [[0, 0]]


def test_a_leaf_without_a_way_to_it_has_no_slope():
    x, other = torch.randn(2, 3, requires_grad=True), torch.randn(4, requires_grad=True)
    (found,) = gradients_at(x * x, [other, x], 2**20)
    assert found[0].shape == (3, 4)
    assert not found[0].any()
    torch.testing.assert_close(found[1], torch.diag_embed(2 * x.detach()).movedim(1, 0))


@pytest.mark.parametrize(
    "function", [lambda x: F.conv2d(x, x[:, :, :2, :2]), lambda x: torch.addmm(x[0, 0], x[0, 0], x[0, 1])]
)
def test_weights_that_depend_on_x_count(function):
    x = torch.randn(1, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    out = function(x)
    (expected,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
    (found,) = gradients_at(out.flatten()[None], [x], 2**20)
    torch.testing.assert_close(found[0].sum(0), expected)


def test_slopes_that_were_taken_stay_as_they_are():
    """The rule of a ReLU works in place where it may."""
    x = torch.randn(1, 2, 6, 6, dtype=torch.float64, requires_grad=True)
    features = x.relu()
    out = F.conv2d(features, torch.randn(3, 2, 3, 3, dtype=torch.float64)).flatten(1)
    expected = torch.autograd.grad(out.sum(), [features, x], retain_graph=True)
    (found,) = gradients_at(out, [features, x], 2**20)
    torch.testing.assert_close([slope.sum(0) for slope in found], [*expected])


def test_slopes_have_the_type_of_what_they_are_at():
    weight, x = torch.randn(2, 2, 3, 3), torch.randn(1, 2, 6, 6, dtype=torch.float64, requires_grad=True)
    out = (F.conv2d(x.float(), weight) + x[..., 1:-1, 1:-1]).flatten(1)  # a sum of two types
    (found,) = gradients_at(out, [x], 2**20)
    (expected,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(found[0].sum(0), expected, rtol=1e-5, atol=1e-5)


def test_targets_taken_in_parts_find_the_same_slopes():
    """What a rule prepares serves every part."""
    network, x = network_and_images("pooled")
    with torch.no_grad():
        torch.testing.assert_close(
            pixel_gradients(network, x, flat), pixel_gradients(network, x, flat, memory=1), rtol=1e-12, atol=0
        )


def test_what_is_held_counts_every_output_and_the_weights_of_convolutions():
    x = torch.randn(1, 2, 6, 6, requires_grad=True)
    out = F.linear(F.conv2d(x, torch.randn(3, 2, 3, 3)).relu().flatten(1), torch.randn(5, 48))
    assert count_graph_elements(out) == x.numel() + 3 * 48 + 5 + 54
