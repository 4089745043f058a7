"""Networks as people write them, against autograd in float64: right, or refused with advice."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint_sequential

import dubium
from dubium.attribution import grad
from dubium.attribution._target import ALL_LOGITS
from dubium.errors import NetworkError, NetworkStateError
from dubium.networks.borrow import borrow_networks
from tests.networks import images

CHANNELS, CLASSES = 6, 4


class Written(nn.Module):
    """A convolution, what a habit does with its features (B, 6, 8, 8), their mean, and a dense layer.

    Args:
        between: a function of the network and the features.
        parts: layers, parameters and buffers that it uses, by name.
    """

    def __init__(self, between, **parts):
        super().__init__()
        self.stem, self.head, self.between = nn.Conv2d(1, CHANNELS, 3, padding=1), nn.Linear(CHANNELS, CLASSES), between
        for name, part in parts.items():
            is_buffer = isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter)
            self.register_buffer(name, part) if is_buffer else setattr(self, name, part)

    def forward(self, x):
        x = self.between(self, self.stem(x))
        return self.head({4: lambda: x.mean((2, 3)), 3: lambda: x.mean(1), 2: lambda: x}[x.ndim]())


def conv(before=CHANNELS, after=CHANNELS, size=3, **options):
    return nn.Conv2d(before, after, size, padding=size // 2, **options)


def tokens(x):
    return x.flatten(2).mT


def attend(make):
    """Attention whose queries, keys and values a function changes, or weighs itself."""
    return Written(lambda net, x: make(*net.qkv(tokens(x)).chunk(3, -1)), qkv=nn.Linear(CHANNELS, 3 * CHANNELS))


def rotate(x):
    angles = torch.outer(torch.arange(64.0), 10.0 ** -torch.arange(3.0)).to(x)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def causal(q, k, v):
    hidden = torch.full((64, 64), -torch.inf, dtype=q.dtype).triu(1)
    return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], attn_mask=hidden)[:, 0]


def linear_attention(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    return (q @ (k.mT @ v)) / (q @ k.sum(1, keepdim=True).mT)


def route(net, x):
    """A mixture of experts: two of three for each token."""
    flat = tokens(x).reshape(-1, CHANNELS)
    weights, chosen = net.gate(flat).softmax(-1).topk(2, -1)
    out = torch.zeros_like(flat)
    for number, expert in enumerate(net.experts):
        rows, slot = (chosen == number).nonzero(as_tuple=True)
        out.index_add_(0, rows, weights[rows, slot, None] * expert(flat[rows]))
    return out.view(len(x), -1, CHANNELS)


def capsules(net, x):
    votes = torch.einsum("bni,jnik->bjnk", F.adaptive_avg_pool2d(x, 2).flatten(2).mT, net.weight)
    agreement = torch.zeros_like(votes[..., 0])
    for _ in range(3):
        out = (agreement.softmax(1)[..., None] * votes).sum(2)
        length = out.norm(dim=-1, keepdim=True)
        out = length / (1 + length**2) * out
        agreement = agreement + (votes * out[:, :, None]).sum(-1)
    return out.norm(dim=-1)


def scan(net, x):
    """A state space, step by step."""
    state, out = 0, []
    for token in tokens(x)[:, ::8].unbind(1):
        state = net.decay.exp() * state + net.inner(token) * F.softplus(token)
        out.append(state * state.sigmoid())
    return torch.stack(out, 1)


def packed(net, x):
    rows = nn.utils.rnn.pack_padded_sequence(tokens(x), torch.full((len(x),), 50), batch_first=True)
    return nn.utils.rnn.pad_packed_sequence(net.layer(rows)[0], batch_first=True)[0]


def write_in_place(_net, x):
    out = x.masked_fill(x < -0.5, -0.5).clone()
    out[:, 0, ::2] = 1.0
    out[:, :, 3] += x[:, :, 4]
    return out.index_add_(1, torch.tensor([0, 1]), x[:, 2:4])


def deform(net, x):
    plain = F.affine_grid(torch.eye(2, 3, dtype=x.dtype).expand(len(x), 2, 3), x.shape, align_corners=False)
    shift = 0.1 * net.layer(x).permute(0, 2, 3, 1).tanh()
    return F.grid_sample(x, plain + shift, align_corners=False, padding_mode="border")


def patches(_net, x):
    around = F.unfold(x, 3, padding=1).unflatten(1, (CHANNELS, 9)).unflatten(3, x.shape[2:])
    return ((around * x[:, :, None]).sum(1, keepdim=True).softmax(2) * around).sum(2)


def nearest(net, x):
    """Vector quantisation, with the gradient passed straight through."""
    flat = x.movedim(1, -1)
    codes = net.codes[torch.cdist(flat.reshape(-1, CHANNELS), net.codes).argmin(-1)].view_as(flat)
    return (flat + (codes - flat).detach()).movedim(-1, 1)


def solve(_net, x):
    gram = x.flatten(2) @ tokens(x) / 64 + torch.eye(CHANNELS, dtype=x.dtype)
    triangle = torch.linalg.cholesky(gram)
    return (
        torch.linalg.solve_triangular(triangle, x.mean((2, 3))[..., None], upper=False)[..., 0] + gram.logdet()[:, None]
    )


def vmapped_members(net, x):
    states = [dict(member.named_parameters()) for member in net.members]
    stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}

    def call_member(state, x):
        return torch.func.functional_call(net.members[0], state, (x,))

    return torch.vmap(call_member, in_dims=(0, None))(stacked, x).mean(0)


class Symmetric(nn.Module):
    def forward(self, weight):
        return (weight + weight.mT) / 2


def symmetric_layer():
    layer = nn.Linear(CHANNELS, CHANNELS)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    parametrize.register_parametrization(layer, "bias", nn.Tanh())
    return layer


def hooked_layer():
    layer = conv()
    layer.register_forward_hook(lambda _layer, _args, out: out * 2 + 1)
    layer.register_forward_pre_hook(lambda _layer, args: (args[0] + 0.5,))
    return layer


def random(*shape):
    return nn.Parameter(torch.randn(*shape))


def applied(layer, function=F.relu):
    return Written(lambda net, x: function(net.layer(x)), layer=layer)


HABITS = {
    "weight norm": lambda: applied(parametrizations.weight_norm(conv())),
    "spectral norm": lambda: applied(parametrizations.spectral_norm(conv()), F.elu),
    "weight and bias parametrized": lambda: Written(
        lambda net, x: net.layer(x.movedim(1, -1)).movedim(-1, 1).relu(), layer=symmetric_layer()
    ),
    "one block three times": lambda: Written(
        lambda net, x: net.block(net.block(net.block(x))),
        block=nn.Sequential(conv(), nn.GroupNorm(2, CHANNELS), nn.SiLU()),
    ),
    "buffers in maths": lambda: Written(
        lambda net, x: torch.addcmul(net.shift, x, net.mask) + torch.lerp(x, net.places, 0.3),
        shift=torch.randn(CHANNELS, 1, 1), mask=torch.rand(CHANNELS, 1, 1), places=torch.randn(1, CHANNELS, 8, 8),
    ),
    "a filter of complex numbers": lambda: Written(
        lambda net, x: torch.fft.irfft2(torch.fft.rfft2(x) * torch.view_as_complex(net.weight)) + x,
        weight=random(CHANNELS, 8, 5, 2),
    ),
    "a state space": lambda: Written(scan, decay=random(CHANNELS), inner=nn.Linear(CHANNELS, CHANNELS)),
    "sums along an axis": lambda: Written(
        lambda _, x: x.cumsum(-1) / 10 + torch.cumprod(1 + 0.1 * x.tanh(), 2) + torch.logcumsumexp(x, -1)
    ),
    "torch.where": lambda: Written(lambda _, x: torch.where(x > 0, x * x, 0.1 * x) + torch.where(x.abs() > 9, x, 1.0)),
    "numbers written in place": lambda: Written(write_in_place),
    "channels last": lambda: Written(
        lambda net, x: net.norm(net.layer(x.contiguous(memory_format=torch.channels_last))).relu().contiguous(),
        layer=conv(), norm=nn.BatchNorm2d(CHANNELS),
    ),
    "a dict of layers": lambda: Written(
        lambda net, x: net.layers["b"](x).relu(), layers=nn.ModuleDict({"a": conv(), "b": conv()})
    ),
    "hooks that change values": lambda: applied(hooked_layer()),
    "gates by halves": lambda: applied(nn.Conv2d(CHANNELS, 2 * CHANNELS, 1), lambda x: F.glu(x, 1) * x[:, :CHANNELS]),
    "deformed sampling": lambda: Written(deform, layer=conv(after=2)),
    "attention to patches": lambda: Written(patches),
    "pixels shuffled": lambda: Written(
        lambda net, x: F.pixel_shuffle(F.gelu(net.layer(F.pixel_unshuffle(x, 2))), 2), layer=conv(24, 24, 1)
    ),
    "a pyramid": lambda: Written(
        lambda net, x: F.interpolate(net.layer(F.interpolate(x, size=4, mode="bilinear")), size=8, mode="bicubic"),
        layer=conv(),
    ),
    "a causal mask of infinity": lambda: attend(causal),
    "rotated queries": lambda: attend(lambda q, k, v: (rotate(q) @ rotate(k).mT).softmax(-1) @ v),
    "linear attention": lambda: attend(linear_attention),
    "splines": lambda: Written(
        lambda net, x: torch.einsum("bchwk,ck->bchw", F.relu(1 - (x[..., None] - net.knots).abs()), net.weight),
        knots=torch.linspace(-2, 2, 5), weight=random(CHANNELS, 5),
    ),
    "a packed sequence": lambda: Written(packed, layer=nn.LSTM(CHANNELS, CHANNELS, batch_first=True)),
    "a mixture of experts": lambda: Written(
        route, gate=nn.Linear(CHANNELS, 3),
        experts=nn.ModuleList([nn.Sequential(nn.Linear(CHANNELS, CHANNELS), nn.GELU()) for _ in range(3)]),
    ),
    "capsules": lambda: Written(capsules, weight=random(CHANNELS, 4, CHANNELS, 3)),
    "torch.fx": lambda: torch.fx.symbolic_trace(
        nn.Sequential(conv(1), nn.GELU(), nn.Flatten(), nn.Linear(384, CLASSES))
    ),
    "DataParallel": lambda: nn.DataParallel(applied(conv())),
    "an averaged network": lambda: torch.optim.swa_utils.AveragedModel(applied(conv())),
    "members inside": lambda: Written(vmapped_members, members=nn.ModuleList([conv() for _ in range(3)])),
    "checkpoints in a row": lambda: Written(
        lambda net, x: checkpoint_sequential(net.layers, 2, x, use_reentrant=False),
        layers=nn.Sequential(conv(), nn.GELU(), conv(), nn.ReLU()),
    ),
    "weights of another layer": lambda: Written(
        lambda net, x: F.conv2d(x, net.maker(net.code).view(CHANNELS, CHANNELS, 3, 3), padding=1).relu(),
        maker=nn.Linear(4, CHANNELS**2 * 9), code=random(4),
    ),
    "sorted and counted": lambda: Written(
        lambda _, x: (f := x.flatten(2)).topk(8, -1).values.mean(-1) * f.sort(-1).values[..., 9] + f.median(-1).values
    ),
    "a mean of powers": lambda: Written(
        lambda net, x: F.avg_pool2d(x.clamp(min=0.01).pow(net.power), 8).pow(1 / net.power).flatten(1),
        power=nn.Parameter(torch.tensor(3.0)),
    ),
    "nearest codes": lambda: Written(nearest, codes=random(12, CHANNELS)),
    "maxima undone": lambda: Written(
        lambda _, x: F.max_unpool2d(F.max_pool2d(x, 2) + 1, F.max_pool2d(x, 2, return_indices=True)[1], 2)
    ),
    "a solved system": lambda: Written(solve),
    "a sparse matrix": lambda: Written(
        lambda net, x: torch.stack([net.graph @ own for own in tokens(x)]).relu(),
        graph=(torch.rand(64, 64) < 0.1).double().to_sparse(),
    ),
    "a loop that depends on values": lambda: Written(
        lambda net, x: net.layer(net.layer(x)) if x.abs().mean() > 0 else net.layer(x), layer=conv()
    ),
}  # fmt: skip


def network_with(habit, seed=0):
    torch.manual_seed(seed)
    return HABITS[habit]().double().eval()


@pytest.mark.parametrize("habit", HABITS)
def test_gradients_maps_and_completeness_are_right_and_the_network_is_as_before(habit):
    networks, x = [network_with(habit, seed) for seed in range(2)], images(2, size=8, dtype=torch.float64)
    before = {name: value.clone() for name, value in networks[0].state_dict().items()}
    both = dubium.explain(networks, x)
    alone = dubium.explain(networks, x[1:])
    for kind, maps in both.maps.items():
        torch.testing.assert_close(maps[1], alone.maps[kind][0], rtol=1e-7, atol=1e-12)
        torch.testing.assert_close(maps.sum((1, 2)), both.scores[kind], rtol=1e-9, atol=1e-12)
    assert dubium.fullgrad_completeness(networks[0], x).max() < 1e-10
    with borrow_networks([networks[0]], x) as (borrowed, images_of_call):
        (own,) = borrowed
        found = grad(own, images_of_call, ALL_LOGITS)
    for image, maps in zip(x, found, strict=True):
        leaf = image[None].clone().requires_grad_()
        for logit, own_map in zip(networks[0](leaf)[0], maps, strict=True):
            (slope,) = torch.autograd.grad(logit, leaf, retain_graph=True)
            torch.testing.assert_close(own_map, slope[0].abs().mean(0), rtol=1e-8, atol=1e-12)
    after = networks[0].state_dict()
    assert all((after[name].to_dense() == value.to_dense()).all() for name, value in before.items())
    assert all(parameter.requires_grad for parameter in networks[0].parameters())


def overwrite(net, x):
    y = F.relu(net.layer(x), inplace=True)
    y += x
    return y * y


@pytest.mark.parametrize(
    "between", [overwrite, lambda net, x: net.layer(x).sigmoid_().add_(1.0)], ids=["relu", "sigmoid"]
)
def test_what_autograd_needs_and_the_network_overwrites_is_told(between):
    network = Written(between, layer=conv()).eval()
    with pytest.raises(NetworkError, match=r"cannot differentiate .*What it needs was overwritten: write y = y \+ x"):
        dubium.explain([network], images(1, size=8), kinds="total")


def divide_by_the_largest(_net, x):
    return x / x.abs().amax()


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("method", ["ua-backprop", "grad", "random"])
def test_a_batch_that_is_divided_by_its_largest_number_is_refused_whichever_image_has_it(largest, method):
    x = images(2, size=8)
    x[1 - largest] *= 0.1
    with pytest.raises(NetworkStateError, match="mixes the images"):
        dubium.explain([Written(divide_by_the_largest).eval()], x, kinds="total", method=method)


def cut_by_a_hook(sequence):
    sequence[0].register_forward_hook(lambda _layer, _args, out: out * out.detach())


def cut_by_a_new_forward(sequence):
    before = sequence[1].forward
    sequence[1].forward = lambda x: before(x) * x.detach()


@pytest.mark.parametrize("cut", [cut_by_a_hook, cut_by_a_new_forward])
def test_a_cut_is_told_though_all_layers_are_of_torch(cut):
    network = nn.Sequential(conv(1), nn.ReLU(), nn.Flatten(), nn.Linear(384, CLASSES)).eval()
    cut(network)
    with pytest.warns(UserWarning, match="A part of the gradient is cut in network 0"):
        dubium.explain([network], images(1, size=8), kinds="total")


def test_values_that_go_through_numpy_are_told():
    network = Written(lambda _, x: x.relu() + torch.from_numpy(np.square(x.detach().numpy()))).eval()
    with pytest.warns(UserWarning, match=r"A part of the gradient is cut in network 0, .*\.numpy\(\)"):
        dubium.explain([network], images(1, size=8), kinds="total")


def test_a_hook_at_a_tensor_changes_training_and_no_map():
    def between(net, x):
        y = net.layer(x)
        if net.has_hook and y.requires_grad:
            y.register_hook(lambda gradient: 2 * gradient)
        return y.relu()

    network, x = Written(between, layer=conv(), has_hook=False).eval(), images(2, size=8)
    plain = dubium.explain([network], x, kinds="total", method="grad").maps["total"]
    network.has_hook = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(dubium.explain([network], x, kinds="total", method="grad").maps["total"], plain)
