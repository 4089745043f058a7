"""Where terms of attention lie in the image does not depend on how the same attention is written."""

import pytest
import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

import dubium
from dubium.attribution._fullgrad_terms import absolute_term, term_product
from dubium.attribution._target import ALL_LOGITS
from dubium.attribution.fullgrad import FullGradPass, reduce_at_biases
from tests.networks import position_axes, token_grid

TOKENS, HEADS, WIDTH = 64, 4, 8
SCALINGS = ["queries", "matrix", "division"]


class Attention(nn.Module):
    def __init__(self, scaling):
        super().__init__()
        self.scaling = scaling
        self.embed = nn.Conv2d(3, HEADS * WIDTH, 4, 4)
        self.qkv, self.out = nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH), nn.Linear(HEADS * WIDTH, 5)
        self.norm = nn.LayerNorm(WIDTH) if scaling == "norm" else nn.Identity()
        self.dense = nn.Linear(WIDTH, WIDTH) if scaling == "dense" else nn.Identity()

    def forward(self, x):
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        shape = (len(x), TOKENS, 3, HEADS, WIDTH)
        q, k, v = self.qkv(tokens).reshape(shape).permute(2, 0, 3, 1, 4).unbind(0)
        q = self.dense(self.norm(q * WIDTH**-0.5 if self.scaling == "queries" else q))
        matrix = q @ k.transpose(-2, -1)
        matrix = matrix * WIDTH**-0.5 if self.scaling == "matrix" else matrix
        matrix = matrix / WIDTH**0.5 if self.scaling == "division" else matrix
        tokens = tokens + (matrix.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.out(tokens.mean(1))


def attention(scaling):
    torch.manual_seed(0)
    return Attention(scaling).eval()


@pytest.fixture
def x():
    return torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("scaling", SCALINGS[1:])
def test_attention_scaled_elsewhere_has_the_same_map(x, scaling):
    one, other = ([attention(way), attention(way)] for way in (SCALINGS[0], scaling))
    assert torch.allclose(one[0](x), other[0](x), atol=1e-5)
    kinds = {"kinds": "total"}
    expected, maps = (dubium.explain(networks, x, **kinds).maps["total"] for networks in (one, other))
    assert (maps - expected).abs().sum() < 1e-4 * expected.sum()


@pytest.mark.parametrize("scaling", [*SCALINGS, "norm", "dense"])
def test_terms_of_attention_lie_at_its_tokens(x, scaling):
    biases = FullGradPass(attention(scaling), x).biases
    matrices = [bias.place for bias in biases if bias.value.shape == (2, HEADS, TOKENS, TOKENS)]
    values = [bias.place for bias in biases if bias.value.shape == (2, HEADS, TOKENS, WIDTH)]
    assert {(position_axes(matrix), token_grid(matrix)) for matrix in matrices} == {((3,), (8, 8))}  # the keys'
    assert {(position_axes(value), token_grid(value)) for value in values} == {((2,), (8, 8))}
    assert len(values) == 1 + (scaling in ("norm", "dense"))  # and the bias of that layer, on one axis of two


class AsManyChannelsAsTokens(nn.Module):
    """64 tokens of 64 numbers each: shapes alone do not tell which axis is which."""

    def __init__(self, how):
        super().__init__()
        self.how, self.embed, self.out = how, nn.Conv2d(3, 64, 4, 4), nn.Linear(64, 5)
        self.deepen = nn.Conv2d(64, 64, 1)  # a second feature map of the same size
        self.values, self.mix, self.back = nn.Linear(64, 64), nn.Linear(64, 32), nn.Linear(32, 64)

    def forward(self, x):
        tokens = self.deepen(self.embed(x)).flatten(2).transpose(1, 2)
        if self.how == "mixer":
            return self.out(tokens.mean(1) + self.back(gelu(self.mix(tokens.mT))).mT.mean(1))
        values = self.values(tokens)
        if self.how == "heads":
            return self.out(
                scaled_dot_product_attention(tokens[:, None], tokens[:, None], values[:, None])[:, 0].mean(1)
            )
        return self.out(((tokens @ tokens.mT).softmax(-1) @ values).mean(1))


@pytest.mark.parametrize("how", ["heads", "no heads", "mixer"])
def test_tokens_are_told_from_as_many_channels(x, how):
    torch.manual_seed(0)
    biases = FullGradPass(AsManyChannelsAsTokens(how).eval(), x).biases[3:]  # behind the input and the convolutions
    places = [(tuple(bias.value.shape), position_axes(bias.place)) for bias in biases]
    expected = {
        "heads": [((64,), (1,)), ((2, 1, 64, 64), (2,))],
        "no heads": [((64,), (1,)), ((2, 64, 64), (2,)), ((2, 64, 64), (2,)), ((2, 64, 64), (1,))],
        "mixer": [],  # where each channel of a mixing layer belongs is not known
    }
    assert places == expected[how]


def test_a_map_with_channels_last_of_a_new_size_stays_a_map():
    class Merging(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.merge, self.out = nn.Conv2d(3, 6, 2, 2), nn.Linear(24, 6), nn.Linear(6, 5)

        def forward(self, x):
            rows = self.embed(x).permute(0, 2, 3, 1)
            parts = [rows[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]
            return self.out(self.merge(torch.cat(parts, -1)).relu().mean((1, 2)))

    places = [bias.place for bias in FullGradPass(Merging().eval(), torch.rand(2, 3, 16, 16)).biases]
    assert [position_axes(place) for place in places] == [(2, 3), (2, 3), (1, 2)]


@pytest.mark.parametrize("method", ["ua-backprop", "fullgrad", "grad", "auto"])
def test_a_network_may_compute_in_double_precision_inside(method):
    class Precise(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.out = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(256, 3)

        def forward(self, x):
            return self.out((self.conv(x).relu().double() + 1).to(x.dtype).flatten(1))

    networks, x = [Precise().eval() for _ in range(2)], torch.rand(2, 1, 8, 8)
    result = dubium.explain(networks, x, method=method, kinds="total")
    exact = dubium.explain([network.double() for network in networks], x.double(), method=method, kinds="total")
    assert torch.allclose(result.maps["total"].double(), exact.maps["total"], rtol=1e-3, atol=1e-5)


class TalkingHeads(nn.Module):
    """A number for each head is added to attention's matrices, one for each channel to the values of all heads."""

    def __init__(self):
        super().__init__()
        self.embed, self.values = nn.Conv2d(3, HEADS * WIDTH, 4, 4), nn.Linear(WIDTH, WIDTH)
        self.mix, self.scale = nn.Conv2d(HEADS, HEADS, 1), nn.BatchNorm2d(HEADS)
        self.along, self.out = nn.Conv1d(HEADS * TOKENS, HEADS * TOKENS, 1), nn.Linear(HEADS * WIDTH, 5)

    def forward(self, x):
        tokens = self.embed(x).flatten(2).unflatten(1, (HEADS, WIDTH)).mT  # (B, heads, N, D)
        matrix = self.scale(self.mix(tokens @ tokens.mT)).softmax(-1)
        mixed = self.along((matrix @ self.values(tokens)).flatten(1, 2)).unflatten(1, (HEADS, TOKENS))
        return self.out(mixed.transpose(1, 2).flatten(2).mean(1))


def test_a_bias_on_another_axis_than_the_only_one_of_channels_is_placed_whole(x):
    torch.manual_seed(0)
    network = TalkingHeads().eval()
    nn.init.normal_(network.scale.bias)

    def placed_and_all(bias, gradient):
        return torch.stack([absolute_term(bias, gradient).sum(), term_product(bias, gradient).abs().sum()])

    forward_pass = FullGradPass(network, x)
    assert len(forward_pass.biases) >= 8
    for sums in reduce_at_biases([forward_pass], ALL_LOGITS, placed_and_all, 2**30):
        placed, expected = torch.stack([*sums]).T
        torch.testing.assert_close(placed, expected)
    maps = dubium.explain([network, TalkingHeads().eval()], x, kinds="total").maps["total"]
    assert maps.isfinite().all()
