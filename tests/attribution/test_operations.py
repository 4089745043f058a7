"""All targets at once against finite differences and plain autograd, operation by operation, in float64."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dubium
from dubium.attribution import _gradients
from dubium.attribution._gradients import gradients_at
from tests.attribution.operations import OPERATIONS
from tests.networks import images, randomised

TARGETS = 7


def gradients_of(function, x):
    """Gradients (T, B, C, H, W) of the first outputs, all at once; no warning may come with them."""
    leaf = x.clone().requires_grad_()
    out = function(leaf).flatten(1)[:, :TARGETS]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        return leaf, out, torch.cat([chunk for (chunk,) in gradients_at(out, [leaf], 2**20)])


@pytest.mark.parametrize("name", OPERATIONS)
def test_gradients_of_all_targets_at_once_are_right(name):
    function, rng = OPERATIONS[name], torch.Generator().manual_seed(3)
    x, way = torch.randn(2, 2, 3, 4, 4, generator=rng, dtype=torch.float64)
    leaf, out, found = gradients_of(function, x)
    with torch.no_grad():
        slopes = (function(x + 1e-6 * way) - function(x - 1e-6 * way)).flatten(1)[:, :TARGETS] / 2e-6
    torch.testing.assert_close((found * way).flatten(2).sum(2).T, slopes, rtol=1e-5, atol=1e-6)
    for target, gradient in zip(out.T, found, strict=True):
        (expected,) = torch.autograd.grad(target.sum(), leaf, retain_graph=True)
        torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)


def test_a_wrong_batching_rule_of_torchs_would_be_seen(monkeypatch):
    monkeypatch.setattr(_gradients, "ONE_BY_ONE", frozenset())
    with pytest.raises(AssertionError):
        test_gradients_of_all_targets_at_once_are_right("cdist")


class Swish(torch.autograd.Function):
    """As in memory-efficient EfficientNets: a Function in the old style, without `setup_context`."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        slope = x.sigmoid()
        return gradient * (slope * (1 + x * (1 - slope)))


class MemoryEfficientSwish(nn.Module):
    def forward(self, x):
        return Swish.apply(x)


class Checkpointed(nn.Sequential):
    reentrant = False

    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=self.reentrant)


class Reentrant(Checkpointed):
    reentrant = True


def block(*layers):
    return randomised(nn.Sequential(nn.Conv2d(1, 4, 3), *layers, nn.Flatten(), nn.Linear(400, 3))).double()


def make_in_inference_mode():
    with torch.inference_mode():
        return block(nn.BatchNorm2d(4), nn.GELU())


NORM = nn.GroupNorm(2, 4)
ODD = {  # the network, and one that computes the same in a plain way
    "a Function in the old style": (lambda: block(MemoryEfficientSwish()), lambda: block(nn.SiLU())),
    "CrossMapLRN2d": (lambda: block(nn.CrossMapLRN2d(3)),) * 2,
    "channels last": (lambda: block(NORM).to(memory_format=torch.channels_last), lambda: block(NORM)),
    "reentrant checkpointing": (lambda: block(Reentrant(NORM, nn.GELU())), lambda: block(NORM, nn.GELU())),
    "checkpointing": (lambda: block(Checkpointed(NORM, nn.GELU())), lambda: block(NORM, nn.GELU())),
    "inference mode": (make_in_inference_mode, lambda: block(nn.BatchNorm2d(4), nn.GELU())),
    "valid padding": (lambda: block(nn.Conv2d(4, 4, 1, padding="valid")), lambda: block(nn.Conv2d(4, 4, 1))),
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # what torch says of reentrant checkpoints
@pytest.mark.filterwarnings("ignore:All networks give the same")
@pytest.mark.filterwarnings("ignore:FullGrad misses")
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("batch", [1, 3])
def test_odd_networks_have_the_gradients_of_plain_autograd(name, batch):
    odd, plain = (make() for make in ODD[name])
    x = images(batch, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    seen = []

    def relevance(network, x, target):
        seen.append(dubium.attribution.grad(network, x, target))
        return seen[-1]

    dubium.explain([odd] * 2, x, relevance=relevance)
    for image, found in zip(x, seen[0], strict=True):
        at = image[None].clone().requires_grad_()
        for logit, slope in zip(plain(at)[0], found, strict=True):
            (expected,) = torch.autograd.grad(logit, at, retain_graph=True)
            torch.testing.assert_close(slope, expected[0].abs().mean(0), rtol=1e-9, atol=1e-12)
    maps = dubium.explain([odd] * 2, x).maps["total"]
    if "reentrant" not in name:  # its layers run without a graph, so that FullGrad sees nothing of them
        assert dubium.fullgrad_completeness(odd, x).max() < 1e-9
    if "reentrant" not in name and "Function" not in name:  # which has no forward mode, so that its terms are others
        torch.testing.assert_close(maps, dubium.explain([plain] * 2, x).maps["total"], rtol=1e-9, atol=1e-12)
    assert all(parameter.grad is None and parameter.requires_grad for parameter in odd.parameters())


@pytest.mark.parametrize("kind", ["add", "index_add", "setitem"])
def test_what_is_added_to_a_constant_in_place_is_added_once(kind):
    class Gathered(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 3)

        def forward(self, x):
            features = self.conv(x)
            sums = torch.zeros_like(features)
            if kind == "add":
                sums += features * features + 1
            elif kind == "index_add":
                sums.index_add_(1, torch.arange(4), features)
            else:
                sums[:, 1:] = features[:, 1:].sigmoid()
            return self.head(sums.mean((2, 3)))

    network, x = randomised(Gathered()).double(), images(2, dtype=torch.float64)
    expected = network(x).softmax(-1)
    torch.testing.assert_close(dubium.explain([network, randomised(Gathered(), 1).double()], x).members[0], expected)
    assert dubium.fullgrad_completeness(network, x).max() < 1e-8
