"""Variances over networks, against plain loops with autograd."""

from importlib import import_module

import pytest
import torch
from torch import nn

import dubium
from dubium.attribution import effect_variance, map_variance
from dubium.attribution._blur import blurred_copies
from dubium.attribution._context import Context
from dubium.errors import OptionError
from dubium.posteriors import stack
from dubium.shares import UncertaintyTarget
from tests.networks import ensemble

BLUR = import_module("dubium.attribution.effect_variance")  # the package exports the function of that name
X = torch.rand(2, 3, 8, 8, dtype=torch.float64)
KINDS = UncertaintyTarget(("total", "epistemic"))


def networks():
    def make():
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 5))

    return [network.double() for network in ensemble(make)]


def effects(members, x, detail):
    """(S, B, K, H, W), one product at a time."""
    found = torch.zeros(len(members), len(x), 5, 8, 8, dtype=torch.float64)
    for s, member in enumerate(members):
        for b in range(len(x)):
            for k in range(5):
                at = x[b : b + 1].clone().requires_grad_()
                member(at).softmax(-1)[0, k].backward()
                found[s, b, k] = (at.grad[0] * detail[b]).sum(0)
    return found


def test_map_variance_is_that_of_gradient_times_input():
    exact = effects(networks(), X, X).var(0, correction=0).sum(1)
    torch.testing.assert_close(map_variance(stack(networks()), X, KINDS), exact[:, None].expand(-1, 2, -1, -1))


def test_effect_variance_is_the_second_order_form_of_the_mutual_information():
    members = networks()
    found = effects(members, X, X - blurred_copies(X).mean(0))
    means = torch.stack([member(X).softmax(-1) for member in members]).mean(0).detach()
    exact = (found.var(0, correction=0) / (2 * means[:, :, None, None])).sum(1)
    torch.testing.assert_close(effect_variance(stack(members), X, KINDS)[:, 1], exact)


@pytest.mark.parametrize("method", [map_variance, effect_variance])
def test_images_are_taken_as_the_memory_allows_and_maps_carry_no_graph(method, monkeypatch):
    rows, members, x = [], networks(), torch.rand(60, 3, 8, 8, dtype=torch.float64)
    blur_rows = []
    monkeypatch.setattr(BLUR, "blurred_copies", lambda x: blur_rows.append(len(x)) or blurred_copies(x))
    for member in members:
        member[0].register_forward_hook(lambda _layer, args, _out: rows.append(len(args[0])))
    exact = method(stack(members), x, KINDS)
    assert not exact.requires_grad
    rows.clear()
    blur_rows.clear()
    found = method(stack(members), x, KINDS, context=Context(memory=200 * 2**10))
    assert max(rows + blur_rows) < 10
    torch.testing.assert_close(found, exact)


@pytest.mark.parametrize("method", ["map-variance", "effect-variance"])
def test_large_images_need_the_memory_of_one_network_and_not_of_all(method):
    def make():
        return nn.Sequential(nn.Conv2d(1, 8, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))

    members, x = ensemble(make, 6), torch.rand(1, 1, 256, 256, generator=torch.Generator().manual_seed(0))
    found = [dubium.explain(members, x, method=method, memory=memory).maps["total"] for memory in ("50MiB", "1GiB")]
    torch.testing.assert_close(*found, rtol=1e-4, atol=0)
    with pytest.raises(OptionError, match="memory is 50 MiB"):
        dubium.explain(members, x, method="grad", memory="50MiB")


def test_one_network_differs_from_none():
    result = dubium.explain(networks()[:1], X, method="effect-variance", kinds="total")
    assert torch.equal(result.maps["total"], torch.zeros(2, 8, 8, dtype=torch.float64))
