"""Networks with habits that hide something from hooks and modes: FullGrad is complete, and batches change nothing."""

import operator
import warnings
from collections import OrderedDict
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import dubium
from dubium.attribution import _gradients
from dubium.attribution._autograd.nodes import MissingAttributeError
from dubium.attribution.fullgrad import fullgrad_passes
from dubium.networks.borrow import borrow_networks
from tests.networks import images

CHANNELS = 4

pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # a checkpoint's, by torch


class Around(nn.Module):
    """A convolution, what a module does with its features (B, 4, 8, 8), and a dense layer at the end."""

    def __init__(self, middle):
        super().__init__()
        self.stem, self.middle, self.head = nn.Conv2d(1, CHANNELS, 3, padding=1), middle, nn.Linear(CHANNELS, 3)

    def forward(self, x):
        x = self.middle(self.stem(x))
        return self.head(x.mean((2, 3)) if x.ndim == 4 else x)


class Calls(nn.Module):
    """A function of features and of a layer; the layer is closed, the function is operations outside of it."""

    def __init__(self, function, layer=None):
        super().__init__()
        self.function, self.layer = function, layer or nn.Identity()

    def forward(self, x):
        return self.function(self.layer, x)


def conv():
    return nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)


class DoubledConvolution(nn.Conv2d):
    """Another function by the way in: torch's `forward` calls it."""

    def _conv_forward(self, x, weight, bias):
        return 2 * super()._conv_forward(x, weight, bias) + 0.3


def patch_forward(layer):
    """As accelerate and other libraries do it: an object's forward, not its class's."""
    before = layer.forward
    layer.forward = lambda x: 2 * before(x) + 0.3
    return layer


class StepScale(nn.Module):
    """Another factor at each call, counted by the layer itself, in a number and in a buffer."""

    def __init__(self):
        super().__init__()
        self.scales, self.calls = nn.Parameter(torch.tensor([0.5, 1.5, -0.7, 0.2])), 0
        self.register_buffer("total", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        scale = self.scales[self.calls % 4] + self.scales[int(self.total) % 4]
        self.calls += 1
        self.total += 1
        return F.gelu(x * scale)


def three_steps(layer, x):
    layer.calls = 0
    layer.total.zero_()
    return layer(layer(layer(x)))


@dataclass
class Features:
    features: Tensor
    gate: Tensor | None = None


class OfDataclass(nn.Module):
    def forward(self, given):
        return Features(F.gelu(given.features + 0.2), given.features.sigmoid())


class Named(OrderedDict):
    """As the outputs of Hugging Face: a dict with attributes."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class OfNamed(nn.Module):
    def forward(self, given):
        return Named(features=F.gelu(given.features + 0.2))


class Twice(nn.Module):
    """The same tensor as both outputs."""

    def forward(self, x):
        out = F.gelu(x)
        return out, out


def run_cell(cell, x):
    state = memory = x.new_zeros(len(x), CHANNELS)
    for pixel in x.flatten(2).permute(2, 0, 1)[::16]:
        state, memory = cell(pixel, (state, memory))
    return state


def sum_both(layer, x):
    first, second = layer(x)
    return first + second.tanh()


def with_bias_of_the_image(layer, x):
    bias = 1 + x.mean((2, 3))[0]
    return (
        torch.func.functional_call(layer, {"bias": bias}, (x[:1],))
        if len(x) == 1
        else image_by_image(lambda part: with_bias_of_the_image(layer, part), x)
    )


def image_by_image(function, x):
    return torch.cat([function(image[None]) for image in x])


def branch(layer, x):
    return torch.stack([layer(image[None])[0] if image.mean() > 0 else F.gelu(image) + 1 for image in x])


def add_in_frequencies(_layer, x):
    return (
        torch.fft.fft2(x, norm="ortho") + torch.complex(torch.tensor(0.3), torch.tensor(-0.8)).to(torch.cdouble)
    ).abs()


def multiply_complex(_layer, x):
    z = torch.complex(x, x.roll(1, 1))
    return (z * z.conj() * z).real + torch.angle(z + 3)


class Counts(nn.Module):
    """Counts its calls in a tensor that is no buffer."""

    def __init__(self):
        super().__init__()
        self.calls = torch.zeros((), dtype=torch.float64)

    def forward(self, x):
        self.calls += 1
        return F.gelu(x + self.calls)


def count_from_zero(layer, x):
    layer.calls.zero_()
    return layer(layer(x))


class Keeps(nn.Module):
    """A leaf that keeps features of one call, in a dict and in a buffer, and uses them in the next."""

    def __init__(self):
        super().__init__()
        self.seen, self.shift = {}, nn.Parameter(torch.randn(CHANNELS, 1, 1))
        self.register_buffer("gate", None)

    def forward(self, x):
        if self.gate is None:
            self.seen["features"] = F.gelu(x + self.shift)
            self.gate = self.seen["features"].tanh() + 0.2
            return x.sigmoid()
        out = F.softplus(self.seen["features"] + self.gate * x) * self.seen["features"]
        self.gate, self.seen = None, {}
        return out


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid() + 0.1

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.sigmoid() + x * x.sigmoid() * (1 - x.sigmoid()))


swish = Swish.apply


class DoubleInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2).add_(0.3)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class KeepsAll(nn.Module):
    """Keeps the features of all calls; what it does with them has no forward mode."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(F.softplus(x))
        return Swish.apply(sum(self.seen))


def call_three_times(layer, x):
    layer.seen = []
    layer(x)
    layer(x.tanh())
    return layer(x + 1)


def double_and_ignore_what_it_returns(layer, x):
    out = 1.5 * layer(x)
    DoubleInPlace.apply(out)
    return out


def add_little(x: Tensor) -> Tensor:
    return torch.relu(x + 0.02)


def script(function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(function)


HABITS = {
    "a layer that counts in a tensor": lambda: Calls(count_from_zero, Counts()),
    "a layer that keeps features": lambda: Calls(lambda layer, x: layer(x) + layer(x.tanh()), Keeps()),
    "a layer that keeps all features": lambda: Calls(call_three_times, KeepsAll()),
    "a Function outside of modules": lambda: Calls(lambda layer, x: Swish.apply(layer(x)), conv()),
    "a Function's apply under another name": lambda: Calls(lambda layer, x: swish(layer(x)), conv()),
    "a Function in place": lambda: Calls(lambda layer, x: DoubleInPlace.apply(layer(x)), conv()),
    "a Function in place, its output ignored": lambda: Calls(double_and_ignore_what_it_returns, conv()),
    "a function of torch.jit": lambda: Calls(lambda layer, x: (script(add_little))(layer(x)), conv()),
    "torch.vmap": lambda: Calls(
        lambda layer, x: torch.vmap(lambda image: F.gelu(image) * image + 0.3)(layer(x)), conv()
    ),
    "torch.vmap around a layer": lambda: Calls(
        lambda layer, x: torch.vmap(lambda image: layer(image).sigmoid() + 0.3)(x), conv()
    ),
    "reentrant checkpoint": lambda: Calls(
        lambda layer, x: checkpoint(lambda given: F.gelu(layer(given)) * given, x, use_reentrant=True), conv()
    ),
    "_conv_forward of its own": lambda: DoubledConvolution(CHANNELS, CHANNELS, 3, padding=1),
    "a convolution's forward replaced": lambda: patch_forward(conv()),
    "a ReLU's forward replaced": lambda: patch_forward(nn.ReLU()),
    "a layer that counts its calls": lambda: Calls(three_steps, StepScale()),
    "dataclasses between layers": lambda: Calls(
        lambda layer, x: (out := layer(Features(x))).features * out.gate, OfDataclass()
    ),
    "dicts with attributes between layers": lambda: Calls(
        lambda layer, x: layer(Named(features=x)).features, OfNamed()
    ),
    "an output on another's way": lambda: Calls(run_cell, nn.LSTMCell(CHANNELS, CHANNELS)),
    "an output given twice": lambda: Calls(sum_both, Twice()),
    "LSTM, output and state": lambda: Calls(
        lambda layer, x: (out := layer(x.flatten(2).mT[:, ::16]))[0].sum(1) + out[1][0][0],
        nn.LSTM(4, 4, batch_first=True),
    ),
    "a bias that the image gives": lambda: Calls(with_bias_of_the_image, conv()),
    "image by image": lambda: Calls(lambda layer, x: image_by_image(lambda part: F.gelu(layer(part)), x), conv()),
    "images without a batch": lambda: Calls(
        lambda layer, x: torch.stack([layer(image).sigmoid() * image for image in x]), conv()
    ),
    "a branch for each image": lambda: Calls(branch, conv()),
    "complex numbers added": lambda: Calls(add_in_frequencies),
    "complex numbers multiplied": lambda: Calls(multiply_complex),
}


def network_with(habit, seed=0):
    torch.manual_seed(seed)
    return Around(HABITS[habit]()).double().eval()


def double_images():
    return images(2, size=8, dtype=torch.float64)


@pytest.mark.parametrize("habit", HABITS)
def test_fullgrad_is_complete_and_quiet(habit):
    assert dubium.fullgrad_completeness(network_with(habit), double_images()).max() < 1e-10


@pytest.mark.parametrize("options", [{"rescale": "none"}, {"method": "fullgrad"}], ids=["ua-backprop", "fullgrad"])
@pytest.mark.parametrize("habit", HABITS)
def test_each_image_has_its_map_whatever_is_beside_it(habit, options):
    networks, x = [network_with(habit, seed) for seed in range(2)], double_images()
    together = dubium.explain(networks, x, **options)
    for image, own in enumerate(x):
        alone = dubium.explain(networks, own[None], **options)
        for kind in ("total", "epistemic"):
            torch.testing.assert_close(together.maps[kind][image], alone.maps[kind][0], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("habit", HABITS)
def test_gradients_are_those_of_autograd(habit):
    network, x = network_with(habit), double_images()
    found = dubium.attribution.grad(network, x, lambda logits: logits)
    leaf = x.clone().requires_grad_()
    for target in range(3):
        leaf.grad = None
        network(leaf)[:, target].sum().backward()
        torch.testing.assert_close(found[:, target], leaf.grad.abs().mean(1), rtol=1e-9, atol=1e-12)


def test_a_layers_own_state_is_that_of_one_call():
    network = network_with("a layer that counts its calls")
    dubium.explain([network], double_images(), kinds="total")
    assert network.middle.layer.calls == network.middle.layer.total == 3


class Squeezing(nn.Module):
    """`squeeze` takes the batch of one image, too."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(F.gelu(self.conv(x)), 1).squeeze())


@pytest.mark.parametrize("count", [1, 3, 65])
def test_a_network_that_squeezes_its_batch_away_is_explained(count):
    torch.manual_seed(0)
    network, x = Squeezing().double().eval(), images(count, size=8, dtype=torch.float64)
    assert dubium.fullgrad_completeness(network, x[:2]).max() < 1e-10
    expected = network(x).view(count, 3).softmax(-1)
    torch.testing.assert_close(dubium.uncertainty([network], x, kinds="total").probs, expected)
    torch.testing.assert_close(dubium.explain([network], x, kinds="total").probs, expected)


def convolve(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.relu(F.conv2d(x, weight, bias, padding=1))


def test_a_bias_inside_of_torch_jit_counts_though_all_nodes_have_rules():
    torch.manual_seed(0)
    compiled = script(convolve)
    network = Around(Calls(lambda layer, x: compiled(x, layer.weight, 3 + layer.bias), conv())).double().eval()
    assert dubium.fullgrad_completeness(network, double_images()).max() < 1e-10


class Looks(nn.Module):
    """A layer that looks at features that it is not given."""

    def __init__(self, shelf):
        super().__init__()
        self.look = lambda: shelf["features"]

    def forward(self, x):
        return F.relu(x) + self.look()


class Shelf(nn.Module):
    def __init__(self):
        super().__init__()
        shelf = {}
        self.conv, self.looks, self.put = conv(), Looks(shelf), shelf.update

    def forward(self, x):
        self.put(features=0.3 * self.conv(x))
        return self.looks(x)


def multiply_by_closure(layer, x):
    return torch.vmap(lambda factor: F.gelu(layer(x) * factor), out_dims=1)(torch.arange(2).to(x)).mean(1)


def test_what_a_function_uses_without_being_given_it_is_told_with_the_layer():
    torch.manual_seed(0)
    network = Around(Calls(multiply_by_closure, conv())).double().eval()
    assert 1e-3 < dubium.fullgrad_completeness(network, double_images())[0].median() < 0.05
    with pytest.warns(UserWarning, match=r"FullGrad misses .* in or before layer 'middle' \(Calls\)"):
        dubium.explain([network], double_images(), kinds="total")


def test_what_a_layer_looks_at_without_being_given_it_is_told():
    """All nodes of such a graph have rules."""
    torch.manual_seed(0)
    network = Around(Shelf()).double().eval()
    assert 1e-3 < dubium.fullgrad_completeness(network, double_images())[0].median() < 0.05
    with pytest.warns(UserWarning, match="FullGrad misses"):
        dubium.explain([network], double_images(), kinds="total")


def test_rounding_is_no_missing_bias():
    """Terms of 1e6 that cancel: float32 cannot tell their sum to a thousandth, and no bias is missing."""
    torch.manual_seed(0)
    shift = 1e6 + 1e6 * torch.rand(CHANNELS, 1, 1)
    network = Around(Calls(lambda layer, x: F.softplus(layer(x) + shift).sub(shift), conv())).eval()
    assert dubium.fullgrad_completeness(network, images(2, size=8))[0].median() > 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dubium.explain([network], images(2, size=8), kinds="total")


def test_hidden_calls_are_hidden_again():
    before = [
        torch.autograd.Function.apply.__func__,
        torch.jit.ScriptFunction.__call__,
        torch.vmap.__globals__["vmap_impl"],
    ]
    dubium.explain([network_with("torch.vmap")], double_images(), kinds="total")
    after = [
        torch.autograd.Function.apply.__func__,
        torch.jit.ScriptFunction.__call__,
        torch.vmap.__globals__["vmap_impl"],
    ]
    assert all(map(operator.is_, before, after))
    assert "apply" not in vars(torch.autograd.Function.__mro__[1])


def test_a_network_of_torch_export_is_explained_or_told_how_to_export():
    torch.manual_seed(0)
    network, x = (
        Around(nn.Sequential(nn.BatchNorm2d(CHANNELS), nn.GELU(), nn.Dropout())).double().eval(),
        double_images(),
    )
    exported = torch.export.export(network, (x,), dynamic_shapes={"x": {0: torch.export.Dim.AUTO}}).module()
    expected = dubium.explain([network], x, kinds="total")
    torch.testing.assert_close(dubium.explain([exported], x, kinds="total").maps, expected.maps, rtol=1e-8, atol=1e-12)
    assert dubium.fullgrad_completeness(exported, x).max() < 1e-10
    with pytest.raises(dubium.errors.NetworkError, match=r"fixes the batch size unless dynamic_shapes say \{0: "):
        dubium.explain([torch.export.export(network, (x,)).module()], x, kinds="total")


def test_gradients_inside_of_a_network_are_explained_and_what_is_missed_is_told():
    class Energy(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(64, 3)

        def forward(self, x):
            with torch.enable_grad():
                x = x if x.requires_grad else x.detach().requires_grad_()
                (slopes,) = torch.autograd.grad(F.softplus(self.conv(x)).sum(), x, create_graph=True)
            return self.head(slopes.flatten(1))

    torch.manual_seed(0)
    network = Energy().double().eval()
    with pytest.warns(UserWarning, match="FullGrad misses"):
        dubium.explain([network], double_images(), kinds="total")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dubium.explain([network], double_images(), method="grad", kinds="total")


@pytest.mark.parametrize("habit", ["an output on another's way", "complex numbers multiplied"])
def test_a_way_that_leads_nowhere_has_zeros_where_torch_does_not_show_its_graph(habit, monkeypatch):
    networks, x = [network_with(habit, seed) for seed in range(2)], double_images()
    expected = dubium.explain(networks, x).maps["total"]

    def hide(*_args):
        raise MissingAttributeError

    monkeypatch.setattr(_gradients, "Backward", hide)
    torch.testing.assert_close(dubium.explain(networks, x).maps["total"], expected, rtol=1e-8, atol=1e-12)


class OfFunctions(nn.Module):
    """Parameters and functions, no layer."""

    def __init__(self, layers):
        super().__init__()
        conv, head = layers[0], layers[-1]
        self.kernels, self.shifts, self.weights, self.biases = conv.weight, conv.bias, head.weight, head.bias

    def forward(self, x):
        return F.linear(F.relu(F.conv2d(x, self.kernels, self.shifts)).flatten(1), self.weights, self.biases)


class Wrapper(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(x)


@pytest.mark.parametrize("options", [{"rescale": "none"}, {"method": "fullgrad", "rescale": "none"}])
@pytest.mark.parametrize("wrap", [OfFunctions, lambda layers: Wrapper(Wrapper(OfFunctions(layers)))])
def test_a_network_of_functions_has_the_maps_of_its_layers_also_inside_of_wrappers(wrap, options):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).double() for _ in range(2)]
    x = double_images()
    expected = dubium.explain([network.eval() for network in layers], x, **options)
    found = dubium.explain([wrap(network).eval() for network in layers], x, **options)
    for kind, maps in expected.maps.items():
        torch.testing.assert_close(found.maps[kind], maps, rtol=1e-8, atol=1e-12)


def test_a_recurrent_layers_state_does_not_take_the_batch_apart():
    """It is (1, B, D). Image by image, everything would take longer."""
    network, x = network_with("LSTM, output and state"), double_images()
    with borrow_networks([network], x) as (networks, x):
        assert [images for images, _ in fullgrad_passes(next(iter(networks)), x, 2)] == [slice(0, 2)]
    split = network_with("image by image")
    with borrow_networks([split], x) as (networks, x):
        assert [images for images, _ in fullgrad_passes(next(iter(networks)), x, 2)] == [slice(0, 1), slice(1, 2)]


class Attends(nn.Module):
    """Queries go through a layer that changes nothing, as timm has it where they are not normed."""

    def __init__(self, layer):
        super().__init__()
        self.qkv, self.layer = nn.Linear(8, 24), layer

    def forward(self, x):
        tokens = x.flatten(2).mT
        q, k, v = self.qkv(tokens).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(self.layer(q), k, v)
        return out.transpose(1, 2).flatten(2).mean(1)


class Multiplies(nn.Module):
    def forward(self, x):
        return 1.0 * x


def maps_of_attention(make_layer):
    networks = []
    for seed in range(2):
        torch.manual_seed(seed)
        layers = [nn.Conv2d(1, 8, 4, stride=2), Attends(make_layer()), nn.Linear(8, 3)]
        networks.append(nn.Sequential(*layers).double().eval())
    return dubium.explain(networks, double_images(), rescale="none").maps["total"]


@pytest.mark.parametrize("layer", [nn.Identity, nn.Dropout, Multiplies, lambda: Tensor.clone])
def test_a_layer_for_queries_makes_no_feature_map_of_them(layer):
    """(B, heads, N, D) stays tokens: the map is that of the network without the layer."""
    torch.testing.assert_close(maps_of_attention(layer), maps_of_attention(lambda: lambda x: x), rtol=1e-8, atol=1e-12)
