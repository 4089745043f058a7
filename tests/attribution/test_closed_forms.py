"""Implicit biases in closed form, against forward mode in float64."""

import pytest
import torch
from torch import nn

import dubium
from dubium.attribution import _biases
from dubium.attribution._biases import closed_form_of
from dubium.attribution._closed_forms import CLOSED_FORMS
from dubium.attribution._implicit import implicit_biases
from tests.networks import randomised

LAYERS = {
    "last axis": (lambda: nn.LayerNorm(5), (2, 3, 5)),
    "two axes": (lambda: nn.LayerNorm((3, 5), elementwise_affine=False), (2, 3, 5)),
    "without shift": (lambda: nn.LayerNorm(5, bias=False, eps=0.1), (2, 5)),
    "groups": (lambda: nn.GroupNorm(2, 4), (2, 4, 3, 3)),
    "groups of one": (lambda: nn.GroupNorm(4, 4, affine=False), (3, 4, 2)),
    "one group": (lambda: nn.GroupNorm(1, 4, eps=0.5), (3, 4)),
    "GELU": (nn.GELU, (2, 7)),
    "GELU by tanh": (lambda: nn.GELU("tanh"), (2, 7)),
    "SiLU": (nn.SiLU, (2, 7)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_closed_forms_are_what_forward_mode_gives(name):
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer = make().double().requires_grad_(False)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    x = 2 * torch.randn(shape, dtype=torch.float64)
    (expected,) = implicit_biases(lambda value: (layer(value),), [x])
    torch.testing.assert_close(CLOSED_FORMS[type(layer)](layer, x, layer(x)), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("layer", [nn.GELU(), nn.GELU("tanh"), nn.SiLU()], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_large_features_have_finite_biases_in_every_precision(layer, dtype):
    x = torch.tensor([-6e4, -300.0, -41.0, -2.0, 0.0, 2.0, 41.0, 300.0, 6e4], dtype=dtype)
    (expected,) = implicit_biases(lambda value: (layer(value),), [x.double()])
    found = CLOSED_FORMS[type(layer)](layer, x, layer(x)).double()
    torch.testing.assert_close(found, expected, rtol=4 * torch.finfo(dtype).eps, atol=1e-6)


class Halved(nn.LayerNorm):
    """A layer of another function than its base."""

    def forward(self, x):
        return super().forward(x) / 2


class ByName(nn.Module):
    """A network that calls its layers by the name of their argument."""

    def __init__(self):
        super().__init__()
        self.before, self.norm, self.smooth = nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.GELU()
        self.last, self.head = Halved([4]), nn.Linear(4, 3)

    def forward(self, x):
        x = self.smooth(input=self.norm(input=self.before(x)))
        return self.head(self.last(nn.functional.silu(x.mean((2, 3)), inplace=True)))


def test_maps_are_the_same_by_forward_mode(monkeypatch):
    networks = [randomised(ByName(), seed).double().eval() for seed in range(2)]
    x = torch.rand(2, 1, 7, 7, dtype=torch.float64)
    found = dubium.explain(networks, x)
    gaps = [dubium.fullgrad_completeness(network, x) for network in networks]
    assert max(gap.max().item() for gap in gaps) < 1e-12
    monkeypatch.setattr(_biases, "CLOSED_FORMS", {})
    for kind, maps in dubium.explain(networks, x).maps.items():
        torch.testing.assert_close(found.maps[kind], maps, rtol=1e-9, atol=1e-12)


def test_only_torch_s_own_forward_has_a_closed_form():
    patched = nn.LayerNorm(4)
    patched.forward = lambda x: x
    assert closed_form_of(nn.LayerNorm(4)) is not None
    for layer in (Halved(4), patched, nn.SiLU(inplace=True), nn.Softplus()):
        assert closed_form_of(layer) is None
