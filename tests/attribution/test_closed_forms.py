"""Implicit biases in closed form, against forward mode in float64."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dubium
from dubium.attribution import _closed_forms, _operations
from dubium.attribution._closed_forms import LAYER_FORMS, layer_closed_form
from dubium.attribution._implicit import implicit_biases
from dubium.attribution._innermost_layers import layer_facts
from tests.networks import randomised

TORCHS_SIXTH = 1e-7
"""Torch's derivative of hardsigmoid is a sixth in single precision, in float64 too."""

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
    "sigmoid": (nn.Sigmoid, (2, 7)),
    "tanh": (nn.Tanh, (2, 7)),
    "softmax": (lambda: nn.Softmax(-1), (2, 7)),
    "hard swish": (nn.Hardswish, (9, 7)),
    "hard sigmoid": (nn.Hardsigmoid, (9, 7)),
    "hard tanh": (lambda: nn.Hardtanh(-0.5, 2.0), (9, 7)),
    "ReLU6": (nn.ReLU6, (9, 7)),
}


def closed_form_of(layer):
    known = layer_facts(layer).torch_class
    return None if known is None else layer_closed_form(known, layer)


@pytest.mark.parametrize("name", LAYERS)
def test_closed_forms_are_what_forward_mode_gives(name):
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer = make().double().requires_grad_(False)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    x = 3 * torch.randn(shape, dtype=torch.float64)
    (expected,) = implicit_biases(lambda value: (layer(value),), [x])
    precision = TORCHS_SIXTH if name == "hard sigmoid" else 1e-12
    torch.testing.assert_close(closed_form_of(layer)(layer(x), x), expected, rtol=precision, atol=0.1 * precision)


def test_every_layer_with_a_closed_form_is_compared():
    assert {type(make()) for make, _ in LAYERS.values()} == LAYER_FORMS.keys()


FUNCTIONS = {
    "layer_norm": lambda h: F.layer_norm(h, [5], torch.ones(5).to(h), eps=0.1),
    "group_norm": lambda h: F.group_norm(h, 2, None, torch.arange(4).to(h)),
    "batch_norm": lambda h: F.batch_norm(h, *statistics(h), torch.arange(4).to(h), bias=torch.arange(4).to(h)),
    "batch_norm in training": lambda h: F.batch_norm(h, *statistics(h), training=True),
    "batch_norm without statistics": lambda h: torch.batch_norm(h, None, None, *statistics(h), False, 0.1, 1e-5, False),
    "gelu": lambda h: F.gelu(h, approximate="tanh"),
    "silu": lambda h: F.silu(h, inplace=True),
    "silu by name": lambda h: F.silu(input=h),
    "hardswish": lambda h: F.hardswish(h, True),
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": lambda h: F.hardtanh(h, -0.5, 0.7),
    "relu6": lambda h: F.relu6(6 * h, inplace=True),
    "softmax": lambda h: F.softmax(h.masked_fill(h > 1, float("-inf")), dim=1),
    "softmax of torch": lambda h: torch.softmax(h, 1),
    "softmax of a tensor": lambda h: h.softmax(dim=1, dtype=h.dtype),
    "sigmoid": lambda h: torch.sigmoid(h) + h.sigmoid(),
    "sigmoid in place": lambda h: h.sigmoid_() * torch.sigmoid_(h * 1),
    "tanh": lambda h: torch.tanh(h) + h.tanh(),
    "tanh in place": lambda h: h.tanh_() + torch.tanh_(h * 1),
}


def statistics(h):
    return torch.linspace(-1, 1, 4).to(h), torch.linspace(0.5, 2, 4).to(h)


class Functional(nn.Module):
    """A function between two convolutions."""

    def __init__(self, function):
        super().__init__()
        self.function, self.first, self.last = function, nn.Conv2d(1, 4, 3), nn.Conv2d(4, 3, 5)

    def forward(self, x):
        return self.last(self.function(self.first(x))).flatten(1)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_complete_and_have_the_maps_of_forward_mode(name, monkeypatch):
    networks = [randomised(Functional(FUNCTIONS[name]), seed).double().eval() for seed in range(2)]
    x = torch.rand(1, 1, 7, 7, dtype=torch.float64)
    found = dubium.explain(networks, x, kinds="total").maps["total"]
    precision = TORCHS_SIXTH if name == "hardsigmoid" else 1e-12
    assert max(dubium.fullgrad_completeness(network, x).max() for network in networks) < precision
    monkeypatch.setattr(_operations, "FUNCTION_FORMS", {})
    by_forward_mode = dubium.explain(networks, x, kinds="total").maps["total"]
    torch.testing.assert_close(by_forward_mode, found, rtol=max(1e-9, precision), atol=precision)


def test_a_function_has_its_closed_form_and_no_forward_mode(monkeypatch):
    monkeypatch.setattr(_operations, "implicit_biases", None)
    others = {"batch_norm in training", "batch_norm without statistics", "silu by name", "softmax"}
    for name in FUNCTIONS.keys() - others:
        network = randomised(Functional(FUNCTIONS[name]), 0).eval()
        dubium.fullgrad_completeness(network, torch.rand(1, 1, 7, 7))


@pytest.mark.parametrize("layer", [nn.GELU(), nn.GELU("tanh"), nn.SiLU()], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_large_features_have_finite_biases_in_every_precision(layer, dtype):
    x = torch.tensor([-6e4, -300.0, -41.0, -2.0, 0.0, 2.0, 41.0, 300.0, 6e4], dtype=dtype)
    (expected,) = implicit_biases(lambda value: (layer(value),), [x.double()])
    found = closed_form_of(layer)(layer(x), x).double()
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
    monkeypatch.setattr(_closed_forms, "LAYER_FORMS", {})
    monkeypatch.setattr(_operations, "FUNCTION_FORMS", {})
    for kind, maps in dubium.explain(networks, x).maps.items():
        torch.testing.assert_close(found.maps[kind], maps, rtol=1e-9, atol=1e-12)


def test_only_torch_s_own_forward_has_a_closed_form():
    patched = nn.LayerNorm(4)
    patched.forward = lambda x: x
    assert closed_form_of(nn.LayerNorm(4)) is not None
    for layer in (Halved(4), patched, nn.Softplus()):
        assert closed_form_of(layer) is None
