"""Networks and images as people bring them: compiled, with hooks, subclasses of tensors, axes in any order."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dubium
from dubium.errors import DeviceError, ImagesTypeError, NetworkError, NetworkStateError, OutputError
from tests.networks import images, randomised, small_cnn

COMPLETE = 1e-4


class Between(nn.Module):
    """A function of the user's between two convolutions."""

    def __init__(self, function):
        super().__init__()
        self.first, self.activation, self.second = nn.Conv2d(1, 6, 3, stride=2), nn.SiLU(), nn.Conv2d(6, 5, 3)
        self.head, self.function = nn.Linear(5, 4), function

    def forward(self, x):
        features = self.second(self.function(self.activation(self.first(x))))
        return self.head(features.relu().mean((2, 3)))


def between(function, members=2):
    return [randomised(Between(function), seed) for seed in range(members)]


def assert_maps_equal(result, expected, rtol=1e-4):
    for kind, maps in expected.maps.items():
        torch.testing.assert_close(result.maps[kind], maps, rtol=rtol, atol=rtol * float(maps.max()))


def assert_maps_do_not_depend_on_the_batch(networks, x):
    together = dubium.explain(networks, x)
    for index in (0, len(x) - 1):
        alone = dubium.explain(networks, x[index : index + 1])
        maps = {kind: maps[index : index + 1] for kind, maps in together.maps.items()}
        assert_maps_equal(alone, dubium.Explanation(**{**vars(together), "maps": maps}))


class Pictures(torch.Tensor):
    """As of libraries whose images carry more than pixels."""


def test_images_of_a_subclass_of_tensors_are_explained_as_the_plain_ones():
    networks, x = between(torch.sigmoid), images()
    assert_maps_equal(dubium.explain(networks, x.as_subclass(Pictures)), dubium.explain(networks, x))


@pytest.mark.parametrize("x", [images().to("meta"), images().to_sparse()], ids=["meta", "sparse"])
def test_images_without_values_or_dense_layout_are_refused(x):
    with pytest.raises(ImagesTypeError, match="dense tensor with values"):
        dubium.explain(between(torch.sigmoid), x)


WEIGHTLESS = [(nn.Sequential(nn.LazyConv2d(4, 3)), NetworkStateError), (small_cnn().to("meta"), DeviceError)]


@pytest.mark.parametrize(("network", "error"), WEIGHTLESS, ids=["lazy", "meta"])
def test_networks_without_weights_are_refused(network, error):
    with pytest.raises(error, match="Without weights: network 0, layer '0'"):
        dubium.explain([network.eval()], images(), kinds="total")


class InPlace(nn.Module):
    """A network that normalises the images it is given where they are."""

    def __init__(self):
        super().__init__()
        self.network = small_cnn()

    def forward(self, x):
        return self.network(x.sub_(0.5).mul_(3))


@pytest.mark.parametrize("method", ["ua-backprop", "grad", "blur-path"])
def test_networks_that_normalise_in_place_see_each_image_as_it_is(method):
    networks, x = [randomised(InPlace(), seed) for seed in range(2)], images(batch=4)
    expected = torch.stack([network(x.clone()) for network in networks]).softmax(-1).mean(0)
    torch.testing.assert_close(dubium.explain(networks, x, method=method).probs, expected)


HOOKS = {
    "after a convolution": lambda net: net.first.register_forward_hook(lambda _layer, _args, out: 2 * out + 0.3),
    "before a convolution": lambda net: net.second.register_forward_pre_hook(lambda _layer, args: (args[0].tanh(),)),
    "before an activation": lambda net: net.activation.register_forward_pre_hook(lambda _layer, args: (args[0] + 1,)),
    "after an activation": lambda net: net.activation.register_forward_hook(lambda _layer, _args, out: out.tanh()),
    "after the network": lambda net: net.register_forward_hook(lambda _layer, _args, out: out.tanh() + out),
}


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_of_the_user_count_in_fullgrad(name):
    network, x = between(torch.sigmoid, 1)[0], images()
    HOOKS[name](network)
    assert dubium.fullgrad_completeness(network, x).max() < COMPLETE


def test_a_users_hook_in_a_network_of_layers_in_a_row_counts():
    network, x = randomised(small_cnn()), images()
    network[0].register_forward_hook(lambda _layer, _args, out: out.sigmoid())
    assert dubium.fullgrad_completeness(network, x).max() < COMPLETE


def compile_in_place(network):
    network.compile(backend="eager")
    return network


def compile_a_layer(network):
    network.activation = torch.compile(network.activation, backend="eager")
    return network


@pytest.mark.parametrize("how", [compile_in_place, compile_a_layer, lambda net: torch.compile(net, backend="eager")])
def test_compiled_networks_are_explained_as_they_were_written(how):
    x, expected = images(), dubium.explain(between(torch.sigmoid), images())
    networks = [how(network) for network in between(torch.sigmoid)]
    assert_maps_equal(dubium.explain(networks, x), expected, rtol=1e-6)
    assert dubium.fullgrad_completeness(networks[0], x).max() < COMPLETE


class SequenceFirst(nn.Module):
    """Tokens of a 4 x 4 grid with their axes in the order (N, B, D), as torch's attention takes them by default."""

    def __init__(self):
        super().__init__()
        self.patches, self.attention = nn.Conv2d(1, 8, 3, 3), nn.MultiheadAttention(8, 2)
        self.dense, self.norm, self.head = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).permute(2, 0, 1)
        tokens = tokens + self.attention(tokens, tokens, tokens)[0]
        tokens = tokens + self.norm(F.gelu(self.dense(tokens)))
        return self.head(tokens.transpose(0, 1).tanh().mean(1))


@pytest.mark.parametrize("batch", [16, 5])
def test_as_many_images_as_tokens_do_not_change_the_maps(batch):
    x = images(batch, size=12)
    assert_maps_do_not_depend_on_the_batch([randomised(SequenceFirst(), seed) for seed in range(2)], x)


def mix_channels_as_a_matrix(features):
    """The batch goes to the second axis and back, by way of a matrix (C, B * H * W)."""
    channels, batch, *size = features.transpose(0, 1).shape
    matrix = torch.linspace(-1, 1, channels * channels).view(channels, -1) @ features.transpose(0, 1).flatten(1)
    return matrix.view(channels, batch, *size).transpose(0, 1).tanh()


def test_a_batch_that_comes_back_to_the_first_axis_has_its_place():
    assert_maps_do_not_depend_on_the_batch(between(mix_channels_as_a_matrix), images(batch=2))


def weights_of_its_own(features):
    """A convolution of each image by weights that depend on it: all images are channels of one."""
    batch, channels, *size = features.shape
    weights = features.mean((2, 3)).reshape(-1, 1, 1, 1).repeat(1, 1, 3, 3)
    return F.conv2d(features.reshape(1, -1, *size), weights, groups=batch * channels, padding=1).view_as(features)


def test_convolutions_by_weights_of_each_image_have_their_place():
    networks, x = between(weights_of_its_own), images(batch=3)
    assert dubium.fullgrad_completeness(networks[0], x).max() < COMPLETE
    assert_maps_do_not_depend_on_the_batch(networks, x)


def test_division_that_rounds_is_not_linear():
    network = between(lambda features: torch.div(features, 0.3, rounding_mode="floor") + features, 1)[0]
    assert dubium.fullgrad_completeness(network, images()).max() < COMPLETE


def test_one_probability_an_image_is_complete():
    networks = [nn.Sequential(network, nn.Flatten(0)).eval() for network in between(torch.sigmoid)]
    for network in networks:
        network[0].head = nn.Sequential(nn.Linear(5, 1), nn.Sigmoid())
    dubium.explain([network.eval() for network in networks], images(), output="probabilities")


@pytest.mark.parametrize("method", ["ua-backprop", "grad"])
def test_what_autograd_cannot_differentiate_is_said(method):
    with pytest.raises(NetworkError, match="derivative for aten::floor_divide"):
        dubium.explain(between(lambda features: features + features // 0.3), images(), method=method)


@pytest.mark.parametrize("method", ["ua-backprop", "grad", "ig"])
def test_maps_that_are_not_finite_are_refused(method):
    def divided_by_zero(features):
        return torch.nan_to_num(features / features.relu(), nan=0.5, posinf=1.0, neginf=-1.0) + features

    with pytest.raises(OutputError, match="NaN or infinite for image 0"):
        dubium.explain(between(divided_by_zero), images(), method=method)


def test_a_network_that_cannot_be_copied_is_refused_with_the_reason():
    networks = [network.bfloat16() for network in between(nn.Identity())]
    networks[0].features = networks[0](images().bfloat16())  # as a forward pass may keep them
    with pytest.raises(NetworkError, match="Network 0 cannot be copied"):
        dubium.explain(networks, images().bfloat16())
