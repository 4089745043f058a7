"""Where joined features lie is found in any type of numbers and at any size; parameters may depend on the image."""

import pytest
import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.functional import conv2d, gelu, layer_norm, pad

import dubium
from dubium.attribution import _bias_free
from dubium.attribution._autograd.graph import Graph
from dubium.attribution._layout_rules import follow_layouts
from tests.networks import randomised

TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def layout_of(leaf, feature):
    edge = get_gradient_edge(feature)
    graph = Graph([edge], {get_gradient_edge(leaf).node})
    return follow_layouts(graph, leaf).get(graph.find_output(edge))


def token_behind(tokens):
    return torch.cat([tokens, torch.ones_like(tokens[:, :1])], 1)


def lines_between(h):
    out = torch.zeros(*h.shape[:2], h.shape[2] + 3, h.shape[3] + 2, dtype=h.dtype)
    out[:, :, 2:-1, 1:-1] = h
    return out


def a_transposed_view(h):
    out = torch.zeros(len(h), h.shape[1] + 1, *h.shape[2:], dtype=h.dtype)
    out.transpose(2, 3)[:, 1:] = h
    return out


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("side", [3, 20, 70])
def test_the_place_of_a_block_does_not_depend_on_the_type_of_numbers(side, dtype):
    leaf = torch.zeros(2, 2, side, side, dtype=dtype, requires_grad=True)
    exact = torch.zeros(2, 2, side, side, dtype=torch.float64, requires_grad=True)
    for join in (lines_between, lambda h: token_behind(h.flatten(2).mT), lambda h: pad(h, (1, 1, 1, 1), "circular")):
        layout = layout_of(leaf, join(leaf * 2))
        assert layout is not None
        assert layout == layout_of(exact, join(exact * 2))


def test_more_numbers_than_float32_counts():
    leaf = torch.zeros(2, 1, 2900, 2900, requires_grad=True)
    small = torch.zeros(2, 1, 29, 29, requires_grad=True)
    large_layout, layout = (layout_of(x, lines_between(x)) for x in (leaf, small))
    assert layout is not None
    assert [axis[0].skipped for axis in large_layout.axes[2:]] == [axis[0].skipped for axis in layout.axes[2:]]


def test_what_was_exchanged_while_it_was_copied_has_no_place():
    leaf = torch.zeros(2, 3, 5, 5, requires_grad=True)
    assert layout_of(leaf, a_transposed_view(leaf * 2)) is None


class SmallViT(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.patches, self.token = dtype, nn.Conv2d(1, 8, 4, 4), nn.Parameter(torch.zeros(1, 1, 8))
        self.layer, self.head = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), nn.Linear(8, 4)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            tokens = self.patches(x).flatten(2).mT
            tokens = torch.cat([self.token.expand(len(x), -1, -1).to(tokens.dtype), gelu(tokens)], 1)
            return self.head(self.layer(tokens)[:, 0]).float()


def test_maps_under_autocast_are_nearly_those_without():
    x = torch.rand(2, 1, 64, 64, generator=torch.Generator().manual_seed(0))
    maps = []
    for dtype in (torch.float32, torch.bfloat16):
        networks = [randomised(SmallViT(dtype), seed).eval() for seed in range(2)]
        maps.append(dubium.explain(networks, x, kinds="total", rescale="none").maps["total"].flatten())
    assert torch.corrcoef(torch.stack(maps))[0, 1] > 0.98


class GivenParameters(nn.Module):
    """A layer whose parameters are computed of the image, as a hypernetwork's are."""

    def __init__(self, layer):
        super().__init__()
        self.first, self.layer, self.hyper, self.head = nn.Conv2d(1, 4, 3), layer, nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = self.first(x).relu()
        factor = self.hyper(h.mean((2, 3))).sigmoid()[0]
        given = {name: value.T.mul(factor).T for name, value in self.layer.named_parameters()}
        is_dense = isinstance(self.layer, nn.Linear | nn.LayerNorm)
        out = torch.func.functional_call(self.layer, given, (h.mean((2, 3)) if is_dense else h,))
        return self.head(out if is_dense else out.mean((2, 3)))


@pytest.mark.filterwarnings("ignore:The use of `x.T`")
@pytest.mark.parametrize(
    "layer", [nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.BatchNorm2d(4), nn.Linear(4, 4), nn.Conv2d(4, 4, 1)], ids=str
)
def test_parameters_that_depend_on_the_image_count(layer):
    network = randomised(GivenParameters(layer), 0).double().eval()
    x = torch.rand(1, 1, 8, 8, dtype=torch.float64)
    assert dubium.fullgrad_completeness(network, x).max() < 1e-12


class Padded(nn.Module):
    """A network that pads by torch's own function, with arguments by position."""

    def __init__(self):
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.zeros(4, 1, 3, 3)), nn.Linear(4, 3)

    def forward(self, x):
        x = torch._C._nn.pad(x, (1, 1, 1, 1), "constant", 5.0)
        return self.head(conv2d(x, self.weight).relu().mean((2, 3)))


def test_a_pad_of_a_number_that_is_given_by_position_has_a_bias():
    network = randomised(Padded(), 0).double().eval()
    assert dubium.fullgrad_completeness(network, torch.rand(1, 1, 8, 8, dtype=torch.float64)).max() < 1e-12


class Hidden(nn.Module):
    """A network with a bias that is not recorded, and one on a single number."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.Parameter(torch.ones(4)), nn.Linear(4, 3)

    def forward(self, x):
        h = self.first(x).permute(0, 2, 3, 1)
        h = layer_norm(h, [4], self.norm, 1 + self.norm)
        return self.head((h * h.mean().sigmoid()).mean((1, 2)))


def test_an_incomplete_network_with_a_bias_on_a_single_number_is_warned_of(monkeypatch):
    monkeypatch.setattr("dubium.attribution._operations.HOMOGENEOUS_FUNCTIONS", {"layer_norm"} | OTHERS)
    networks = [randomised(Hidden(), seed).eval() for seed in range(2)]
    with pytest.warns(UserWarning, match="FullGrad misses"):
        dubium.explain(networks, torch.rand(1, 1, 8, 8))


OTHERS = _bias_free.HOMOGENEOUS_FUNCTIONS


class Overwrites(nn.Module):
    """A network whose indices are changed after use."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 3)

    def forward(self, x):
        h, index = self.first(x), torch.arange(2)
        h = h[:, :, index]
        index.add_(0)
        return self.head(h.mean((2, 3)))


def test_an_overwritten_index_is_told_as_autograd_s_error():
    networks = [randomised(Overwrites(), seed).eval() for seed in range(2)]
    with pytest.raises(dubium.errors.NetworkError, match="overwritten"):
        dubium.explain(networks, torch.rand(1, 1, 8, 8))
