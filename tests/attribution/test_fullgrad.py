import copy
import operator

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dubium
from dubium.attribution import Context, fullgrad
from dubium.attribution.fullgrad import FullGradPass
from dubium.models import Normalized, cifar_resnet, cnn, resnet18
from dubium.models.normalized import Normalise
from dubium.posteriors import MCDropout
from tests.networks import Awkward, images, position_axes, randomised, small_cnn, token_grid
from tests.oracles import fullgrad_map, relative_l1
from tests.zoo.odd_networks import ODD


def all_logits(z):
    return z


@pytest.mark.parametrize("rescale", ["reference", "none"])
@pytest.mark.parametrize("channels", [1, 3])
def test_map_equals_a_loop_over_images_and_classes_in_float64(rescale, channels):
    network, x = randomised(small_cnn(channels)).double(), images(3, channels, dtype=torch.float64)
    maps = fullgrad(network, x, all_logits, rescale=rescale)
    for b in range(3):
        for k in range(4):
            exact = fullgrad_map(network, x[b], lambda z, k=k: z[0, k], rescale, ["0", "1", "3"])
            torch.testing.assert_close(maps[b, k], exact, rtol=1e-9, atol=1e-11)


PLAIN = {
    "cnn": (lambda: cnn(), (1, 28, 28)),
    "cifar_resnet": (lambda: cifar_resnet(depth=8), (3, 32, 32)),
    "resnet18": (lambda: resnet18(), (3, 16, 16)),
    "awkward": (lambda: Awkward(), (3, 12, 12)),
}


@pytest.mark.parametrize("rescale", ["reference", "none"])
@pytest.mark.parametrize("name", PLAIN)
def test_of_plain_networks_only_the_biases_of_convolutions_and_norms_are_terms(name, rescale):
    """What happens between layers has no bias there, and no rounding of it shows in the map."""
    build, shape = PLAIN[name]
    torch.manual_seed(0)
    network = randomised(build())
    x = torch.rand(1, *shape, generator=torch.Generator().manual_seed(0))
    layers = [
        name
        for name, layer in network.named_modules()
        if isinstance(layer, nn.BatchNorm2d) or (isinstance(layer, nn.Conv2d) and layer.bias is not None)
    ]
    exact = fullgrad_map(network, x[0], lambda z: z[0, 2], rescale, layers)
    for dtype, precision in ((torch.float64, 1e-6), (torch.float32, 1e-3)):
        found = fullgrad(network.to(dtype), x.to(dtype), all_logits, rescale=rescale)[0, 2]
        assert (found - exact).abs().max() < precision * exact.abs().max()


@pytest.mark.parametrize("rescale", ["reference", "none"])
def test_map_is_the_same_whatever_the_memory_allows_at_once(rescale):
    network, x = randomised(Awkward()), images(5, 3)
    whole = fullgrad(network, x, all_logits, rescale=rescale)
    pieces = fullgrad(network, x, all_logits, rescale=rescale, context=Context(memory=1))
    assert relative_l1(pieces, whole).max() < 1e-5


def test_in_place_activations_give_the_same_map_as_others():
    x = images(2)
    inplace, plain = (randomised(small_cnn(inplace=flag)) for flag in (True, False))
    before = x.clone()
    torch.testing.assert_close(fullgrad(inplace, x, all_logits), fullgrad(plain, x, all_logits))
    assert torch.equal(x, before)


@pytest.mark.filterwarnings("ignore:All networks give the same")  # one network twice on purpose
def test_a_first_layer_that_works_in_place_leaves_the_images_alone():
    network = nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 3)).eval()
    x = images(2) - 0.5
    before = x.clone()
    dubium.explain([network, copy.deepcopy(network)], x)
    dubium.explain([network, copy.deepcopy(network)], x, method="fullgrad")
    assert torch.equal(x, before)


class Head(nn.Module):
    """A layer between two convolutions, then pooling and a dense layer."""

    def __init__(self, layer, channels=6, channels_last=False, one_d=False):
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.layer, self.channels_last, self.one_d = layer, channels_last, one_d
        self.head = nn.Linear(channels, 4)

    def forward(self, x):
        x = self.first(x)
        if self.one_d:
            return self.head(F.relu(self.layer(x.flatten(2))).mean(2))
        if self.channels_last:
            return self.head(F.relu(self.layer(x.permute(0, 2, 3, 1))).mean((1, 2)))
        return self.head(F.relu(self.layer(x)).mean((2, 3)))


LAYERS = {
    "convolution": lambda: nn.Conv2d(6, 6, 3),
    "no bias": lambda: nn.Conv2d(6, 6, 3, bias=False),
    "grouped": lambda: nn.Conv2d(6, 6, 3, groups=3),
    "dilated": lambda: nn.Conv2d(6, 6, 3, dilation=2),
    "transposed": lambda: nn.ConvTranspose2d(6, 6, 3, stride=2),
    "batch norm": lambda: nn.BatchNorm2d(6),
    "batch norm, not affine": lambda: nn.BatchNorm2d(6, affine=False),
    "group norm": lambda: nn.GroupNorm(2, 6),
    "instance norm": lambda: nn.InstanceNorm2d(6, affine=True),
    "instance norm with statistics": lambda: nn.InstanceNorm2d(6, affine=True, track_running_stats=True),
    "layer norm": lambda: nn.LayerNorm([6, 12, 12]),
    "local response norm": lambda: nn.LocalResponseNorm(3),
    "GELU": nn.GELU,
    "SiLU": nn.SiLU,
    "SiLU in place": lambda: nn.SiLU(inplace=True),
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "softplus": nn.Softplus,
    "ELU": nn.ELU,
    "ELU in place": lambda: nn.ELU(inplace=True),
    "ReLU6": nn.ReLU6,
    "ReLU6 in place": lambda: nn.ReLU6(inplace=True),
    "Hardtanh": nn.Hardtanh,
    "Hardswish": nn.Hardswish,
    "Hardswish in place": lambda: nn.Hardswish(inplace=True),
    "Hardsigmoid": nn.Hardsigmoid,
    "leaky": lambda: nn.LeakyReLU(0.1),
    "PReLU": nn.PReLU,
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Conv2d(6, 6, 3)),
    "upsampling": lambda: nn.Upsample(scale_factor=2),
    "constant padding": lambda: nn.ConstantPad2d(1, 0.7),
    "softmax": lambda: nn.Softmax(1),
}


@pytest.mark.parametrize("name", LAYERS)
def test_terms_add_up_to_the_logits(name):
    network, x = randomised(Head(LAYERS[name]())).double(), images(3, 3, dtype=torch.float64)
    assert dubium.fullgrad_completeness(network, x).max() < 1e-8


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_gives_a_map_that_does_not_depend_on_the_other_images(name):
    network, x = randomised(Head(LAYERS[name]())), images(3, 3)
    together = fullgrad(network, x, all_logits)
    alone = torch.cat([fullgrad(network, x[b : b + 1], all_logits) for b in range(3)])
    assert relative_l1(together, alone).max() < 1e-5


@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.LayerNorm(6),
        lambda: nn.Linear(6, 6),
        lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6), nn.GELU()),
    ],
)
def test_channels_last_layers_add_up_and_equal_their_channels_first_twin(layer):
    network, x = randomised(Head(layer(), channels_last=True)).double(), images(2, 3, dtype=torch.float64)
    assert dubium.fullgrad_completeness(network, x).max() < 1e-8
    maps = fullgrad(network, x, all_logits, rescale="none")
    assert maps.isfinite().all()


def test_a_channels_last_dense_layer_equals_a_one_by_one_convolution():
    last, first = randomised(Head(nn.Linear(6, 6), channels_last=True)), randomised(Head(nn.Conv2d(6, 6, 1)))
    first.load_state_dict(last.state_dict() | {"layer.weight": last.layer.weight[:, :, None, None]})
    # not square, so that an axis taken for another would show
    x = torch.rand(2, 3, 9, 14, generator=torch.Generator().manual_seed(0))
    for rescale in ("reference", "none"):
        ours, twin = (fullgrad(net, x, all_logits, rescale=rescale) for net in (last, first))
        torch.testing.assert_close(ours, twin, rtol=1e-4, atol=1e-6)


def test_a_channels_last_activation_equals_its_channels_first_twin():
    last = randomised(Head(nn.Sequential(nn.Linear(6, 6), nn.GELU()), channels_last=True))
    first = randomised(Head(nn.Sequential(nn.Conv2d(6, 6, 1), nn.GELU())))
    first.load_state_dict(last.state_dict() | {"layer.0.weight": last.layer[0].weight[:, :, None, None]})
    x = torch.rand(2, 3, 9, 14, generator=torch.Generator().manual_seed(0))
    ours, twin = (fullgrad(net, x, all_logits) for net in (last, first))
    torch.testing.assert_close(ours, twin, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "layer", [lambda: nn.Conv1d(6, 6, 3), lambda: nn.BatchNorm1d(6), lambda: nn.ConvTranspose1d(6, 6, 3)]
)
def test_one_dimensional_layers_count_in_completeness(layer):
    network, x = randomised(Head(layer(), one_d=True)).double(), images(2, 3, dtype=torch.float64)
    assert dubium.fullgrad_completeness(network, x).max() < 1e-8


def test_reuse_residuals_and_any_order_of_execution_are_complete():
    network, x = randomised(Awkward()).double(), images(3, 3, dtype=torch.float64)
    assert dubium.fullgrad_completeness(network, x).max() < 1e-8


def shift(x):
    """By a function of torch.func that uses x without being given it: nothing sees that."""
    return torch.vmap(lambda number: x + number)(torch.ones(1).to(x))[0]


class Functional(nn.Module):
    def __init__(self, shift):
        super().__init__()
        self.conv, self.shift = nn.Conv2d(3, 4, 3), shift

    def forward(self, x):
        return self.shift(F.relu(self.conv(x)).mean((2, 3)))


def test_a_bias_left_out_shows_in_completeness():
    network, x = randomised(Functional(shift)).double(), images(2, 3, dtype=torch.float64)
    assert dubium.fullgrad_completeness(network, x).min() > 0.1


OPERATIONS = {
    "added parameter": lambda x: x + torch.ones(4, 1, 1).to(x),
    "added in place": lambda x: x.add_(0.7),
    "operator in place": lambda x: operator.iadd(x, 0.7),
    "product": lambda x: x * x.mean((2, 3), keepdim=True),
    "gate": lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)),
    "gelu": F.gelu,
    "silu in place": lambda x: F.silu(x, inplace=True),
    "one minus": lambda x: 1 - x,
    "quotient": lambda x: x / (1 + x.abs()),
    "constant over": lambda x: 1 / (1 + x.abs()),
    "softmax": lambda x: x.softmax(1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "batch norm": lambda x: F.batch_norm(x, torch.full((4,), 0.3).to(x), torch.full((4,), 0.5).to(x)),
    "matrix product": lambda x: x.flatten(2) @ x.flatten(2).mT,
    "einsum": lambda x: torch.einsum("bchw,bdhw->bcd", x, x),
    "attention": lambda x: F.scaled_dot_product_attention(x.flatten(2), x.flatten(2), x.flatten(2)),
    "masked": lambda x: x.masked_fill(torch.eye(10).bool(), -torch.inf).softmax(-1),
    "set item": lambda x: set_item(x),
    "clamped": lambda x: x.clamp(0.1, 0.4),
    "maximum": lambda x: torch.maximum(x, x.mean((2, 3), keepdim=True)),
    "power": lambda x: x**3,
    "root mean square": lambda x: x * (x.pow(2).mean(1, keepdim=True) + 1e-3).rsqrt(),
    "where": lambda x: torch.where(x > 0.2, x, 0.3),
    "concatenated": lambda x: torch.cat([x, torch.ones_like(x)], 1),
    "concatenated by name": lambda x: torch.cat(tensors=[x, torch.ones_like(x)], dim=1),
    "added by name": lambda x: torch.add(x, other=torch.ones_like(x)),
    "divided by name": lambda x: torch.div(input=x, other=torch.full_like(x.detach(), 2.0)),
    "padded by a constant": lambda x: F.pad(x, (1, 1, 1, 1), value=0.5),
    "two outputs": lambda x: torch.var_mean(x, (2, 3))[0],
    "ops": lambda x: torch.ops.aten.gelu(x),
}


def set_item(x):
    x = x.clone()
    x[:, 0] = 0.4
    return x


class Operation(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.conv, self.function, self.head = nn.Conv2d(3, 4, 3), function, nn.LazyLinear(3)

    def forward(self, x):
        return self.head(self.function(self.conv(x)).flatten(1))


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_outside_of_modules_are_complete(name):
    network, x = Operation(OPERATIONS[name]).double(), images(2, 3, dtype=torch.float64)
    network(x)  # the last layer learns its size
    assert dubium.fullgrad_completeness(randomised(network), x).max() < 1e-8
    maps = fullgrad(network, x, all_logits)
    assert maps.isfinite().all()
    alone = torch.cat([fullgrad(network, x[b : b + 1], all_logits) for b in range(2)])
    assert relative_l1(maps, alone).max() < 1e-8


def test_an_activation_by_function_equals_its_module():
    function, module = Operation(F.gelu), Operation(nn.GELU())
    x = images(2, 3)
    function(x), module(x)
    function, module = randomised(function), randomised(module)
    torch.testing.assert_close(fullgrad(function, x, all_logits), fullgrad(module, x, all_logits))


class Tolerant(Operation):
    """Tries a layer that does not fit, and goes on without it."""

    def __init__(self, layer):
        super().__init__(F.gelu)
        self.misfit = layer

    def forward(self, x):
        try:
            x = self.misfit(x)
        except RuntimeError:
            x = x + 0.1
        return super().forward(x) + 0.3


class Cautious(Tolerant):
    """Tells by a hook of its own that it does not fit."""

    def __init__(self, layer):
        super().__init__(layer)
        layer.register_forward_pre_hook(refuse)


def refuse(_layer, _args):
    raise RuntimeError


@pytest.mark.parametrize("make", [Tolerant, Cautious])
@pytest.mark.parametrize("layer", [nn.Linear(7, 4), nn.GroupNorm(2, 8)], ids=["known bias", "implicit bias"])
def test_an_error_that_a_network_catches_leaves_nothing_unrecorded(make, layer):
    network, x = make(copy.deepcopy(layer)).double(), images(2, 3, dtype=torch.float64)
    network(x)
    assert dubium.fullgrad_completeness(randomised(network), x).max() < 1e-8


class Dropping(Operation):
    def __init__(self, how):
        super().__init__(F.gelu)
        self.how, self.drop, self.norm = how, nn.Dropout(0.3), nn.GroupNorm(1, 3)

    def forward(self, x):
        x = self.norm(x)
        return super().forward(self.drop(x) if self.how == "layer" else F.dropout(x, 0.3, self.training)) + 0.3


@pytest.mark.parametrize("how", ["layer", "function"])
def test_the_first_pass_of_a_dropout_sample_records_what_later_passes_do(how):
    network, x = Dropping(how), images(3, 3)
    network(x)  # the last layer learns its size
    posterior = MCDropout(randomised(network), samples=2)
    first, second = (dubium.explain(posterior, x).maps["total"] for _ in range(2))
    assert torch.equal(first, second)
    for sample in MCDropout(
        network.double(), samples=2
    ):  # masks of each are fixed in its first pass, which is recorded
        assert dubium.fullgrad_completeness(sample, x.double()).max() < 1e-8


class NormAct(nn.BatchNorm2d):
    """Normalisation and activation in one, as timm has it: what a module computes counts, not its base class."""

    def __init__(self, channels, children):
        super().__init__(channels)
        if children:
            self.act = nn.ReLU()

    def forward(self, x):
        x = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return F.relu(x)


@pytest.mark.parametrize("children", [False, True])
def test_normalisation_and_activation_in_one_module_are_complete(children):
    network, x = randomised(Head(NormAct(6, children))).double(), images(2, 3, dtype=torch.float64)
    assert dubium.fullgrad_completeness(network, x).max() < 1e-8


class Tokens(nn.Module):
    """A small ViT with class token, positional embedding, attention and GELU, by functions."""

    def __init__(self, prefix=1, attention="by hand"):
        super().__init__()
        self.prefix, self.attention = prefix, attention
        self.patches, self.qkv, self.out = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 24), nn.Linear(8, 8)
        self.norm, self.up, self.down, self.head = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 3)
        self.place = nn.Parameter(torch.randn(1, 12 + prefix, 8))
        self.register_buffer("first", torch.randn(1, prefix, 8))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.place
        q, k, v = self.qkv(self.norm(x)).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        if self.attention == "by hand":
            mixed = (q @ k.mT / 2).softmax(-1) @ v
        else:
            mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        x = x + self.down(F.gelu(self.up(x)))
        return self.head(x[:, 0] if self.prefix else x.mean(1))


@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("attention", ["by hand", "scaled_dot_product_attention"])
def test_tokens_are_complete_and_have_a_place(prefix, attention):
    network = randomised(Tokens(prefix, attention)).double()
    x = torch.rand(2, 3, 12, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert dubium.fullgrad_completeness(network, x).max() < 1e-8
    biases = FullGradPass(network, x).biases
    at_tokens = [bias.place for bias in biases if len(position_axes(bias.place)) == 1]
    assert len(at_tokens) >= 8
    assert {token_grid(place) for place in at_tokens} == {(3, 4)}
    assert {skipped for place in at_tokens for _, skipped, _ in place.token_splits} == ({prefix} if prefix else set())


def test_a_term_on_tokens_lies_where_its_patch_is():
    """A bias that acts on one token is seen in the map over that token's patch alone."""
    biases = FullGradPass(randomised(Tokens()), torch.rand(2, 3, 12, 16)).biases
    place = next(bias.place for bias in biases if bias.value.shape == (2, 13, 8))
    gradient = torch.zeros(1, 1, 2, 13, 8)
    gradient[0, 0, 1, 1 + 4 * 2 + 3, 5] = 1  # row 2, column 3
    assert place.to_maps(gradient)[0, 1, :, :, 0].sum(-1).nonzero().tolist() == [[2, 3]]


def test_a_users_own_activation_module_is_seen():
    class Swish(nn.Module):
        def forward(self, x):
            return x * torch.sigmoid(x)

    network = randomised(Head(Swish())).double()
    twin = randomised(Head(nn.SiLU())).double()
    x = images(2, 3, dtype=torch.float64)
    assert dubium.fullgrad_completeness(network, x).max() < 1e-8
    torch.testing.assert_close(fullgrad(network, x, all_logits), fullgrad(twin, x, all_logits))


def test_a_users_own_homogeneous_module_adds_no_term():
    class Negate(nn.Module):
        def forward(self, x):
            return -x

    network, twin, x = randomised(Head(Negate())), randomised(Head(nn.Identity())), images(2, 3)
    with torch.no_grad():
        for parameter in twin.first.parameters():
            parameter.neg_()
    torch.testing.assert_close(fullgrad(network, x, all_logits), fullgrad(twin, x, all_logits))


def test_a_layer_with_two_inputs_is_complete():
    class Gate(nn.Module):
        def forward(self, a, b):
            return a * torch.sigmoid(b)

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.gate, self.head = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3), Gate(), nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.gate(self.a(x), self.b(x)).mean((2, 3)))

    assert dubium.fullgrad_completeness(randomised(Gated()).double(), images(2, 3, dtype=torch.float64)).max() < 1e-8


@pytest.mark.parametrize("rescale", ["reference", "none"])
def test_the_input_term_is_taken_after_normalisation(rescale):
    plain = [randomised(small_cnn(3), seed) for seed in range(3)]
    wrapped = [Normalized(network, [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]).eval() for network in plain]
    x = images(2, 3)
    seen = wrapped[0].normalise(x)
    torch.testing.assert_close(
        fullgrad(wrapped[0], x, all_logits, rescale=rescale), fullgrad(plain[0], seen, all_logits, rescale=rescale)
    )
    for method in ("ua-backprop", "fullgrad"):
        ours, exact = (dubium.explain(p, at, method=method, rescale=rescale) for p, at in ((wrapped, x), (plain, seen)))
        torch.testing.assert_close(ours.maps["epistemic"], exact.maps["epistemic"])
    inside = nn.Sequential(wrapped[0]).double().eval()
    for network in (wrapped[0].double(), inside):
        assert dubium.fullgrad_completeness(network, x.double()).max() < 1e-8


class Wrapper(nn.Module):
    """A wrapper of the user's own, which no type tells apart from a network."""

    def __init__(self, network):
        super().__init__()
        self.inner = network

    def forward(self, x):
        return self.inner(x.clone())


@pytest.mark.parametrize("rescale", ["reference", "none"])
@pytest.mark.parametrize("method", ["ua-backprop", "fullgrad"])
@pytest.mark.parametrize("wrap", [nn.Sequential, Wrapper, lambda network: Wrapper(nn.Sequential(Wrapper(network)))])
def test_maps_do_not_depend_on_how_deep_the_normalisation_is_wrapped(wrap, method, rescale):
    plain = [Normalized(randomised(small_cnn(3), seed), [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]).eval() for seed in range(3)]
    wrapped, x = [wrap(network).eval() for network in plain], images(2, 3)
    ours, exact = (dubium.explain(p, x, method=method, rescale=rescale).maps for p in (wrapped, plain))
    torch.testing.assert_close(ours, exact)


def test_mc_dropout_of_a_normalised_network_sees_its_input_normalised():
    network = nn.Sequential(*small_cnn(3)[:5], nn.Dropout(0.5), *small_cnn(3)[5:])
    members = MCDropout(Normalized(randomised(network), 0.5, 0.2).eval(), samples=3)
    x = images(2, 3)
    seen = members.network.normalise(x)
    ours = dubium.explain(members, x).maps
    exact = dubium.explain(MCDropout(members.network.network, samples=3, seed=members.seed), seen).maps
    torch.testing.assert_close(ours, exact)


class Branches(nn.Module):
    """The image itself and the image normalised, or normalised in two ways, or features normalised."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.head = kind, nn.Linear(6, 4)
        self.one, self.other = nn.Conv2d(3, 6, 3), nn.Conv2d(3, 6, 3)
        self.normalise, self.differently = Normalise([0.5], [0.2]), Normalise([0.3], [0.4])

    def forward(self, x):
        if self.kind == "features":
            return self.head(F.relu(self.normalise(self.one(x))).mean((2, 3)))
        second = x if self.kind == "image" else self.differently(x)
        return self.head((F.relu(self.one(self.normalise(x))) + F.relu(self.other(second))).mean((2, 3)))


@pytest.mark.parametrize("kind", ["image", "two ways", "features"])
def test_a_normalisation_that_not_all_of_the_image_takes_is_a_layer_like_any_other(kind):
    network, x = randomised(Branches(kind)).double(), images(2, 3, dtype=torch.float64)
    assert dubium.fullgrad_completeness(network, x).max() < 1e-8
    swapped, seen = copy.deepcopy(network), fullgrad(network, x, all_logits, rescale="none")
    for name in ("normalise", "differently"):
        layer = getattr(swapped, name)
        twin = nn.BatchNorm2d(6 if kind == "features" else 3, eps=0, affine=False).double().eval()
        twin.running_mean.copy_(layer.mean.flatten().expand(twin.num_features))
        twin.running_var.copy_(layer.std.flatten().expand(twin.num_features) ** 2)
        setattr(swapped, name, twin)
    torch.testing.assert_close(seen, fullgrad(swapped, x, all_logits, rescale="none"))


def test_modules_that_permute_are_followed():
    """A convolution behind them has its channels first, and a dense layer between them last."""
    network = ODD["modules that permute"]().eval().requires_grad_(False)
    biases = FullGradPass(network, torch.rand(2, 3, 16, 16), only_spatial=True).biases
    axes = [position_axes(bias.place) for bias in biases if not bias.is_full_size]
    block = [(2, 3), (1, 2), (1, 2)]  # a convolution, two dense layers
    assert axes == [(2, 3), *block, *block, (2, 3)]


def test_a_bias_on_a_single_number_counts_in_the_completeness():
    class OneNumber(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head, self.scale = nn.Conv2d(1, 3, 3), nn.Linear(3, 4), nn.Parameter(torch.ones(()))

        def forward(self, x):
            rows = [self.head(h.mean((1, 2))) * (h.mean((0, 1, 2)) + self.scale) for h in self.conv(x)]
            return torch.stack(rows)

    network, x = randomised(OneNumber()).double(), images(2, dtype=torch.float64)
    assert dubium.fullgrad_completeness(network, x).max() < 1e-8
