"""Biases are placed where they act in the image: also in flipped and turned features, along rows, at tokens."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

import dubium
from dubium.attribution import fullgrad
from dubium.models import Normalized


class Before(nn.Module):
    """A network behind a function of the image."""

    def __init__(self, change: Callable[[Tensor], Tensor], network: nn.Module) -> None:
        super().__init__()
        self.change, self.network = change, network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(self.change(x))


class Flip(nn.Module):
    """A flip as a layer of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flip(-1)


class BothWays(nn.Module):
    """A network's logits at an image and at its mirror image, as in test-time augmentation."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x) + self.network(x.flip(3))


class ChannelsLast(nn.Module):
    """A dense layer at every pixel, channels last, of an image that is flipped or transposed there."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.change, self.embed, self.mix = change, nn.Conv2d(2, 5, 1), nn.Linear(5, 5)
        self.head = nn.Linear(5 * 36, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.mix(self.change(self.embed(x).permute(0, 2, 3, 1))).relu().flatten(1))


def small_network(side: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * side * side, 3)).eval()


def maps_of(network: nn.Module, x: Tensor) -> Tensor:
    return fullgrad(network.eval(), x, lambda logits: logits, rescale="none")


CHANGES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "flip across": (lambda x: x.flip(3), lambda m: m.flip(-1)),
    "flip down": (lambda x: x.flip(-2), lambda m: m.flip(-2)),
    "layer that flips": (Flip(), lambda m: m.flip(-1)),
    "transpose": (lambda x: x.transpose(2, 3), lambda m: m.mT),
    "matrix transpose": (lambda x: x.mT, lambda m: m.mT),
    "permutation": (lambda x: x.permute(0, 1, 3, 2), lambda m: m.mT),
    "quarter turn": (lambda x: x.rot90(1, (2, 3)), lambda m: m.rot90(-1, (-2, -1))),
    "quarter turn back": (lambda x: x.rot90(-1, (-2, -1)), lambda m: m.rot90(1, (-2, -1))),
    "half turn": (lambda x: x.rot90(2, (2, 3)), lambda m: m.rot90(2, (-2, -1))),
    "turn, flip, transpose": (lambda x: x.rot90(1, (2, 3)).flip(3).mT, lambda m: m.mT.flip(-1).rot90(-1, (-2, -1))),
    "flip and back": (lambda x: x.flip(2).clone().flip(2), lambda m: m),
}


@pytest.mark.parametrize("name", CHANGES)
def test_maps_of_a_network_behind_a_flip_or_turn_are_its_own_flipped_or_turned_back(name: str) -> None:
    change, back = CHANGES[name]
    network, x = small_network(), torch.rand(2, 2, 6, 6)
    expected = back(maps_of(network, change(x)))
    assert not torch.allclose(expected, maps_of(network, change(x)), rtol=1e-2) or name == "flip and back"
    torch.testing.assert_close(maps_of(Before(change, network), x), expected, rtol=1e-5, atol=1e-8)


def test_the_default_method_is_right_behind_a_flip() -> None:
    network, x = small_network(), torch.rand(1, 2, 6, 6)
    mirrored = [Before(lambda x: x.flip(3), network).eval()] * 2
    found = dubium.explain(mirrored, x, kinds="total").maps["total"]
    expected = dubium.explain([network] * 2, x.flip(3), kinds="total").maps["total"].flip(2)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)


def test_of_an_image_and_its_mirror_image_each_bias_is_placed_where_it_acts() -> None:
    network, x = small_network(), torch.zeros(1, 2, 6, 6)  # no input term, in which both would meet
    expected = maps_of(network, x) + maps_of(network, x).flip(3)
    torch.testing.assert_close(maps_of(BothWays(network), x), expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("change", "back"),
    [
        (lambda h: h.flip(1), lambda m: m.flip(2)),
        (lambda h: h.flip(2), lambda m: m.flip(3)),
        (lambda h: h.transpose(1, 2), lambda m: m.mT),
    ],
)
def test_channels_that_come_last_are_turned_back_too(
    change: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]
) -> None:
    torch.manual_seed(1)
    moved = ChannelsLast(change)
    plain = ChannelsLast(lambda h: h)
    plain.load_state_dict(moved.state_dict())
    nn.init.zeros_(moved.embed.bias)  # acts before the move: it lies upright
    nn.init.zeros_(plain.embed.bias)
    x = torch.zeros(2, 2, 6, 6)
    torch.testing.assert_close(maps_of(moved, x), back(maps_of(plain, x)), rtol=1e-5, atol=1e-8)


class AlongRows(nn.Module):
    """Dense layers along the rows and columns of a feature map, whose biases act in one column and row alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 3, 3, padding=1, bias=False), nn.Linear(3, 3, bias=False)
        self.along_row, self.along_column = nn.Linear(6, 6), nn.Linear(6, 6)
        for layer, index in ((self.along_row, 4), (self.along_column, 1)):
            nn.init.zeros_(layer.bias).data[index] = 1
            nn.init.eye_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        features = self.conv(x)
        rows, columns = self.along_row(features), self.along_column(features.transpose(2, 3)).transpose(2, 3)
        return self.head((rows + columns).mean((2, 3)))


def test_a_dense_layer_along_rows_or_columns_is_placed_there() -> None:
    torch.manual_seed(0)
    found = maps_of(AlongRows(), torch.zeros(1, 1, 6, 6))[0, 0]
    expected = torch.zeros(6, 6)
    expected[:, 4] += 1
    expected[1, :] += 1
    torch.testing.assert_close(found / found.sum(), expected / expected.sum(), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("make", [lambda: nn.Conv1d(16, 16, 1), lambda: nn.BatchNorm1d(16)], ids=["conv", "norm"])
@pytest.mark.parametrize("width", [5, 16])
def test_a_bias_for_each_token_is_placed_at_that_token(make: Callable[[], nn.Module], width: int) -> None:
    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.mix = nn.Conv2d(1, width, 1, bias=False), make()
            self.head = nn.Linear(width, 3, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.mix(self.embed(x).flatten(2).transpose(1, 2)).mean(1))

    torch.manual_seed(0)
    network = Mixer()
    with torch.no_grad():
        network.mix.bias.copy_(torch.arange(16.0))
    found = maps_of(network, torch.zeros(2, 1, 4, 4))[:, 0]
    expected = (torch.arange(16.0) / 120).view(4, 4).expand(2, 4, 4)
    torch.testing.assert_close(found / found.sum((1, 2), keepdim=True), expected, rtol=1e-5, atol=1e-8)
    dubium.explain([Mixer().eval(), Mixer().eval()], torch.rand(2, 1, 4, 4))


def test_the_output_of_attention_with_one_query_has_no_place() -> None:
    class ClassAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.query = nn.Conv2d(1, 32, 4, 4, bias=False), nn.Parameter(torch.randn(1, 2, 1, 16))
            self.keys_values, self.head = nn.Linear(32, 64, bias=False), nn.Linear(32, 3)

        def forward(self, x: Tensor) -> Tensor:
            tokens = self.embed(x).flatten(2).transpose(1, 2)
            keys, values = self.keys_values(tokens).view(len(x), -1, 2, 2, 16).permute(2, 0, 3, 1, 4)
            query = self.query.expand(len(x), -1, -1, -1)
            return self.head(scaled_dot_product_attention(query, keys, values).transpose(1, 2).flatten(1))

    torch.manual_seed(0)
    network, x = ClassAttention().eval(), torch.rand(1, 1, 16, 16)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(network(leaf)[0, 0], leaf)
    torch.testing.assert_close(maps_of(network, x)[0, 0], (x * gradient).abs()[0, 0], rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("prefix", [0, 2])
def test_tokens_in_reverse_order_are_turned_back(prefix: int) -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.mix = nn.Conv2d(1, 6, 1, bias=False), nn.Conv1d(16 + prefix, 16 + prefix, 1)
            self.first, self.head = nn.Parameter(torch.zeros(1, prefix, 6)), nn.Linear(6, 3, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            tokens = self.embed(x).flatten(2).transpose(1, 2)
            tokens = torch.cat([self.first.expand(len(x), -1, -1), tokens], 1).flip(1)
            return self.head(self.mix(tokens).mean(1))

    torch.manual_seed(0)
    network = Backwards()
    with torch.no_grad():
        network.mix.bias.copy_(torch.arange(16.0 + prefix))  # the last of them act at what has no place
    found = maps_of(network, torch.zeros(1, 1, 4, 4))[0, 0]
    expected = torch.arange(16.0).flip(0).view(4, 4) / 120
    torch.testing.assert_close(found / found.sum(), expected, rtol=1e-5, atol=1e-8)


def test_a_map_does_not_depend_on_how_large_the_numbers_of_its_neighbours_are() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.Linear(4, 3, bias=False)
            self.shift = nn.Parameter(3e-4 * torch.randn(1, 4, 8, 8))

        def forward(self, x: Tensor) -> Tensor:
            return self.head((self.conv(x) + self.shift).relu().mean((2, 3)))

    torch.manual_seed(0)
    networks, x = [Shifted().eval(), Shifted().eval()], torch.rand(1, 1, 8, 8)
    alone = dubium.explain(networks, x, kinds="total").maps["total"][0]
    beside = dubium.explain(networks, torch.cat([x, 1000 * torch.rand_like(x)]), kinds="total").maps["total"][0]
    torch.testing.assert_close(beside, alone, rtol=1e-5, atol=1e-8)


class NormLastInside(nn.LayerNorm):
    """A layer that permutes axes and back, as torchvision's LayerNorm2d does."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NormLastCopied(NormLastInside):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).contiguous()


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.dense(x.mean((2, 3))).sigmoid()[:, :, None, None]


def test_a_layer_that_permutes_axes_and_back_moves_nothing() -> None:
    found = []
    for norm in (NormLastInside, NormLastCopied):
        network = small_network()
        found.append(maps_of(nn.Sequential(network[0], norm(4), *network[1:]), torch.rand(1, 2, 6, 6).fill_(0.3)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-8)


def test_what_stands_between_a_flip_and_the_layers_does_not_hide_it() -> None:
    plain, x = small_network(), torch.rand(1, 2, 6, 6)
    gated = nn.Sequential(*plain[:2], Gate(), *plain[2:])
    for network in (Normalized(plain, 0.3, 0.5), gated):
        expected = maps_of(Before(lambda x: x, network), x.flip(3)).flip(3)
        if network is not gated:  # behind a flip the shift is a bias of its own: it is no part of the input
            expected = maps_of(Before(lambda x: (x - 0.3) / 0.5, plain), x.flip(3)).flip(3)
        found = maps_of(Before(lambda x: x.flip(3), network), x)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)


class InPlace(nn.Module):
    """A bias at one pixel of a feature of which a view was changed in place: then torch shows strides alone."""

    def __init__(self, change: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.change, self.conv = change, nn.Conv2d(1, 4, 1, bias=False)
        self.shift, self.head = nn.Parameter(torch.zeros(4, 5, 6)), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        features = self.conv(x) * 2
        self.change(features)
        return self.head((features + self.shift).mean((2, 3)))


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h[:, 1:3].relu_(),
        lambda h: h.view_as(h).relu_(),
        lambda h: h.flatten(2).relu_(),
        lambda h: h[:, :, 1:].add_(h[:, :, 1:]),
    ],
    ids=["channels", "all", "flat", "rows"],
)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_feature_of_which_a_view_was_changed_in_place_keeps_its_place(
    change: Callable[[Tensor], None], memory_format: torch.memory_format
) -> None:
    torch.manual_seed(0)
    network = InPlace(change).to(memory_format=memory_format)
    with torch.no_grad():
        network.shift[:, 3, 2] = 1
    x = torch.zeros(2, 1, 5, 6).contiguous(memory_format=memory_format)
    found = maps_of(network, x)[0, 0]
    assert found.nonzero().tolist() == [[3, 2]]


def test_a_view_that_is_changed_in_place_and_used_on_lies_where_its_numbers_do() -> None:
    class Halves(nn.Module):
        def __init__(self, transposes: bool) -> None:
            super().__init__()
            self.transposes, self.conv = transposes, nn.Conv2d(1, 4, 1, bias=False)
            self.shift, self.head = nn.Parameter(torch.zeros(2, 6, 6)), nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            half = (self.conv(x) * 2)[:, 1:3]
            half = half.mT if self.transposes else half
            half.relu_()
            return self.head((half + self.shift).mean((2, 3)))

    for transposes in (False, True):
        torch.manual_seed(0)
        network = Halves(transposes)
        with torch.no_grad():
            network.shift[:, 4, 1] = 1
        found = maps_of(network, torch.zeros(2, 1, 6, 6))[0, 0]
        assert found.nonzero().tolist() == ([] if transposes else [[4, 1]])  # transposed: torch does not show how


class TokensFirst(nn.Module):
    """Attention pooling of tokens (N, B, C): scores (N, B) are no vectors of N images."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.score, self.head = nn.Conv2d(1, 4, 4, 4), nn.Linear(4, 1), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).tanh().flatten(2).permute(2, 0, 1)
        weights = self.score(tokens).squeeze(-1).softmax(0)
        return self.head((tokens * weights[..., None]).sum(0))


class OneByOne(nn.Module):
    """Images one after another, tokens (N, C)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.dense, self.head = nn.Conv2d(1, 4, 4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        return torch.stack([self.head(self.dense(image).relu().mean(0)) for image in tokens])


@pytest.mark.parametrize("make", [TokensFirst, OneByOne])
def test_a_map_is_the_same_beside_as_many_images_as_there_are_tokens(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    network, x = make(), torch.rand(17, 1, 16, 16)
    alone = maps_of(network, x[:1])
    for count in (15, 16, 17):
        torch.testing.assert_close(maps_of(network, x[:count])[:1], alone, rtol=1e-4, atol=1e-8)
