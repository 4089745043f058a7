"""The same function, written in another way, has the same FullGrad maps."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dubium
from tests.attribution.test_operations import MemoryEfficientSwish, Swish
from tests.networks import images, randomised


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features):
        ctx.save_for_backward(features)
        return features.relu()

    @staticmethod
    def backward(ctx, gradient):
        (features,) = ctx.saved_tensors
        return gradient * (features > 0)


class ReluInPlace(Relu):
    @staticmethod
    def forward(ctx, features):
        ctx.mark_dirty(features.relu_())
        ctx.save_for_backward(features)
        return features


def torch_relu(features):
    return torch.relu(features)


def scripted_relu():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about torch.jit
        return torch.jit.script(torch_relu)


class TwoLayers(nn.Module):
    def __init__(self, activation, run=lambda function, x: function(x)):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.head, self.activation, self.run = nn.Linear(4 * 8 * 8, 3), activation, run

    def body(self, x):
        return self.activation(self.second(self.activation(self.first(x))))

    def forward(self, x):
        return self.head(self.run(self.body, x).flatten(1))


def hooked_relu():
    relu = nn.ReLU()
    relu.register_full_backward_hook(lambda _layer, gradients, _outputs: tuple(0 * each for each in gradients))
    relu.register_full_backward_pre_hook(lambda _layer, _gradients: pytest.fail("a hook on gradients was called"))
    return relu


WAYS = {
    "relu, a Function": (nn.ReLU(), lambda: TwoLayers(Relu.apply)),
    "relu, a function of torch.jit": (nn.ReLU(), lambda: TwoLayers(scripted_relu())),
    "relu, hooks on its gradients": (nn.ReLU(), lambda: TwoLayers(hooked_relu())),
    "relu, a reentrant checkpoint": (
        nn.ReLU(),
        lambda: TwoLayers(nn.ReLU(), lambda function, x: checkpoint(function, x, use_reentrant=True)),
    ),
    "swish, a Function": (nn.SiLU(), lambda: TwoLayers(Swish.apply)),
    "swish, a layer of a Function": (nn.SiLU(), lambda: TwoLayers(MemoryEfficientSwish())),
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # what torch says of reentrant checkpoints
@pytest.mark.parametrize("rescale", ["reference", "none"])
@pytest.mark.parametrize("name", WAYS)
def test_maps_are_those_of_the_layers_it_could_be_written_with(name, rescale):
    activation, make = WAYS[name]
    x = images(3, size=8)
    expected = dubium.explain([randomised(TwoLayers(activation), seed) for seed in range(2)], x, rescale=rescale)
    found = dubium.explain([randomised(make(), seed) for seed in range(2)], x, rescale=rescale)
    for kind, maps in expected.maps.items():
        torch.testing.assert_close(found.maps[kind], maps, rtol=1e-4, atol=1e-5 * maps.max().item())


@pytest.mark.parametrize("method", ["ua-backprop", "grad", "auto", "guided-ig"])
def test_hooks_on_gradients_are_not_called_and_are_handed_back(method):
    networks = [randomised(TwoLayers(hooked_relu()), seed) for seed in range(2)]
    plain = [randomised(TwoLayers(nn.ReLU()), seed) for seed in range(2)]
    hooks = [dict(network.activation._backward_hooks) for network in networks]
    x, options = images(2, size=8), {"steps": 3} if method == "guided-ig" else {}
    found = dubium.explain(networks, x, method=method, **options).maps["total"]
    torch.testing.assert_close(found, dubium.explain(plain, x, method=method, **options).maps["total"])
    assert [dict(network.activation._backward_hooks) for network in networks] == hooks
    assert all(network.activation._backward_pre_hooks for network in networks)


def test_a_function_that_overwrites_its_input_is_complete():
    network = randomised(TwoLayers(ReluInPlace.apply), 0).double()
    assert dubium.fullgrad_completeness(network, images(2, size=8).double()).max() < 1e-10


class Spectrum(nn.Module):
    """A dense layer of complex weights, as a layer, as a product of matrices, or as a sum of products."""

    def __init__(self, way):
        super().__init__()
        self.dense = nn.Linear(64, 8, bias=way == "layer with bias", dtype=torch.complex128)
        self.head, self.way = nn.Linear(8, 3, dtype=torch.float64), way

    def forward(self, x):
        waves = torch.fft.fft(x.flatten(1))
        if self.way.startswith("layer"):
            features = self.dense(waves)
        elif self.way == "product":
            features = waves @ self.dense.weight.T
        else:
            features = (waves[:, None] * self.dense.weight).sum(-1)
        return self.head(features.abs())


@pytest.mark.parametrize("method", ["ua-backprop", "grad", "auto"])
@pytest.mark.parametrize("way", ["layer", "layer with bias", "product"])
def test_complex_weights_have_the_gradients_of_autograd(way, method):
    torch.manual_seed(0)
    networks = [Spectrum(way).eval() for _ in range(2)]
    assert all(network.dense.weight.imag.any() for network in networks)
    plain = [Spectrum("sum").eval() for _ in networks]
    for network, other in zip(networks, plain, strict=True):
        other.load_state_dict(network.state_dict(), strict=False)
        if way == "layer with bias":
            nn.init.zeros_(network.dense.bias)
    x = images(2, size=8).double()
    found, expected = (dubium.explain(each, x, method=method).maps["total"] for each in (networks, plain))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
