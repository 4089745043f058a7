"""Networks written by hand, each with one habit that other people's networks have. Images are (B, 3, 16, 16)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tests.networks import Awkward, small_cnn

CLASSES = 10


class Trunk(nn.Module):
    """A convolution, what a function or module does with its features, and a dense layer at the end."""

    def __init__(self, middle, features=8, stem=None):
        super().__init__()
        self.stem = stem or nn.Conv2d(3, 8, 3, padding=1)
        self.middle, self.head = middle, nn.Linear(features, CLASSES)

    def forward(self, x):
        x = self.middle(self.stem(x))
        return self.head(x.mean((2, 3)) if x.ndim == 4 else x.mean(1) if x.ndim == 3 else x)


class Swish(torch.autograd.Function):
    """Without `setup_context`, as most Functions that are found in other people's code."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return gradient * (gate + x * gate * (1 - gate))


class MemoryEfficientSwish(nn.Module):
    def forward(self, x):
        return Swish.apply(x)


class Permute(nn.Module):
    """A module that moves axes, as in torchvision's ConvNeXt."""

    def __init__(self, *axes):
        super().__init__()
        self.axes = axes

    def forward(self, x):
        return x.permute(self.axes)


class ConvNeXtBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(
            *(nn.Conv2d(8, 8, 3, padding=1, groups=8), Permute(0, 2, 3, 1), nn.LayerNorm(8), nn.Linear(8, 12)),
            *(nn.GELU(), nn.Linear(12, 8), Permute(0, 3, 1, 2)),
        )
        self.scale = nn.Parameter(torch.ones(8, 1, 1))

    def forward(self, x):
        y = self.scale * self.block(x)
        y += x
        return y


class MixedWindows(nn.Module):
    """Windows are images first, but what each image gives to its windows is repeated windows first (timm's GCViT)."""

    def forward(self, x):
        windows = x.unflatten(2, (2, -1)).movedim(2, 1).flatten(0, 1)
        shared = x.mean((2, 3), keepdim=True).repeat(2, 1, 1, 1)
        return (windows * shared).unflatten(0, (-1, 2)).movedim(1, 2).flatten(2, 3)


class SqueezeAndExcite(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x):
        gate = F.silu(self.down(x.mean((2, 3), keepdim=True)))
        return x * self.up(gate).sigmoid()


class Tokens(nn.Module):
    """Tokens of feature maps, with or without a class token, batch first or sequence first, through a layer."""

    def __init__(self, layer, class_token=False, sequence_first=False):
        super().__init__()
        self.layer, self.sequence_first = layer, sequence_first
        self.first = nn.Parameter(torch.zeros(1, 1, 8)) if class_token else None
        self.places = nn.Parameter(torch.zeros(1, 64 + class_token, 8))
        self.pool = nn.AvgPool2d(2)

    def forward(self, x):
        x = self.pool(x).flatten(2).transpose(1, 2)
        if self.first is not None:
            x = torch.cat([self.first.expand(len(x), -1, -1), x], 1)
        x = x + self.places
        x = self.layer(x.transpose(0, 1)).transpose(0, 1) if self.sequence_first else self.layer(x)
        return x[:, 0] if self.first is not None else x


class MultiheadAttention(nn.Module):
    def __init__(self, need_weights):
        super().__init__()
        self.attention, self.need_weights = nn.MultiheadAttention(8, 2), need_weights

    def forward(self, x):
        return x + self.attention(x, x, x, need_weights=self.need_weights)[0]


class Windows(nn.Module):
    """Attention within shifted windows of 4 x 4."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        shifted = torch.roll(self.norm(x), (-2, -2), (1, 2))
        windows = shifted.view(len(x), 4, 4, 4, 4, 8).transpose(2, 3).reshape(-1, 16, 8)
        q, k, v = self.qkv(windows).view(-1, 16, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mixed = self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, 16, 8))
        mixed = mixed.view(len(x), 4, 4, 4, 4, 8).transpose(2, 3).reshape(x.shape)
        return (x + torch.roll(mixed, (2, 2), (1, 2))).permute(0, 3, 1, 2)


class DynamicConvolution(nn.Module):
    """The kernel is mixed from several by the image itself: one convolution with a group for each image."""

    def __init__(self):
        super().__init__()
        self.kernels, self.mix = nn.Parameter(torch.randn(3, 8, 8, 3, 3) / 8), nn.Linear(8, 3)

    def forward(self, x):
        shares = self.mix(x.mean((2, 3))).softmax(1)
        kernels = torch.einsum("bn,noikl->boikl", shares, self.kernels).flatten(0, 1)
        return F.conv2d(x.reshape(1, -1, *x.shape[2:]), kernels, padding=1, groups=len(x)).view_as(x)


class SpatialTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.pose = nn.Linear(8, 6)

    def forward(self, x):
        pose = torch.eye(2, 3).to(x) + 0.1 * self.pose(x.mean((2, 3))).view(-1, 2, 3).tanh()
        grid = F.affine_grid(pose, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)


class FourierMixer(nn.Module):
    """A learned filter in the frequency domain, as in GFNet."""

    def __init__(self):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(8, 16, 9, 2))

    def forward(self, x):
        frequencies = torch.fft.rfft2(x, norm="ortho") * torch.view_as_complex(self.filter)
        return F.gelu(torch.fft.irfft2(frequencies, s=x.shape[2:], norm="ortho"))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = kind(8, 8, batch_first=True)

    def forward(self, x):
        return self.layer(x.flatten(2).transpose(1, 2)[:, ::16])[0]


class Prototypes(nn.Module):
    """Negative distances to learned points."""

    def __init__(self):
        super().__init__()
        self.points = nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        return -torch.cdist(x.mean((2, 3)), self.points)


class Cosine(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        return 10 * F.linear(F.normalize(x.mean((2, 3))), F.normalize(self.weight))


class StandardisedConvolution(nn.Conv2d):
    """Its weights have mean 0 and variance 1: a subclass with a forward of its own."""

    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        weight = weight / (weight.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(x, weight, self.bias, padding=1)


class LayerNormOfChannels(nn.LayerNorm):
    """As in timm and ConvNeXt: LayerNorm that moves the axes itself."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class TwoOutputs(nn.Module):
    """A layer that gives features and a gate, without layers inside."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(8, 1, 1))

    def forward(self, x):
        return F.gelu(x) + self.shift, torch.sigmoid(x - self.shift)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.both = TwoOutputs()

    def forward(self, x):
        features, gate = self.both(x)
        return features * gate


class UnfoldedPatches(nn.Module):
    """Patches by reshaping, no feature map on the way; the tokens are mixed by dense layers."""

    def __init__(self):
        super().__init__()
        self.embed, self.tokens, self.channels = nn.Linear(48, 8), nn.Linear(16, 16), nn.Linear(8, 8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
        x = self.embed(x)
        x = x + F.gelu(self.tokens(x.transpose(1, 2))).transpose(1, 2)
        return self.head((x + F.gelu(self.channels(x))).mean(1))


class AttentionPooling(nn.Module):
    """A learned query looks at all pixels."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = nn.Parameter(torch.randn(1, 1, 8)), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        pixels = x.flatten(2).mT
        shares = (self.query @ self.key(pixels).mT / 8**0.5).softmax(-1)
        return (shares @ self.value(pixels)).squeeze(1)


class SecondOrder(nn.Module):
    """Bilinear pooling with signed square roots and normalisation."""

    def forward(self, x):
        pixels = x.flatten(2)
        products = (pixels @ pixels.mT / pixels.shape[2]).flatten(1)
        return F.normalize(products.sign() * (products.abs() + 1e-3).sqrt())


class Equilibrium(nn.Module):
    """The same layer again and again."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        z = torch.zeros_like(x)
        for _ in range(5):
            z = torch.tanh(self.layer(z) + x)
        return z


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.layers, self.reentrant = nn.Sequential(nn.Conv2d(8, 8, 3), nn.SiLU(), nn.Conv2d(8, 8, 3)), reentrant

    def forward(self, x):
        return checkpoint(self.layers, x, use_reentrant=self.reentrant)


class ShapeChanges(nn.Module):
    """Pixels to channels and back, halves, slices that leave out, concatenations, an added parameter."""

    def __init__(self):
        super().__init__()
        self.places, self.mix = nn.Parameter(torch.zeros(1, 8, 16, 16)), nn.Conv2d(32, 32, 1)

    def forward(self, x):
        small = self.mix(F.pixel_unshuffle(x + self.places, 2))
        a, b = F.pixel_shuffle(small, 2).chunk(2, 1)
        return torch.cat([a[:, :, 1:-1, ::2], (b * a.sigmoid())[:, :, 1:-1, ::2]], 1)


class FrozenMask(nn.Module):
    """A part is computed without gradient: the mask of a straight-through gate."""

    def forward(self, x):
        soft = x.sigmoid()
        return x * (soft + ((soft > 0.5).to(x) - soft).detach())


class Normalised(nn.Module):
    """Mean and deviation by constants, inside the network, by hand."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))

    def forward(self, x):
        return self.network((x - self.mean) / self.std)


class InPlace(nn.Module):
    """Writes into its features in every way that autograd allows."""

    def __init__(self):
        super().__init__()
        self.conv, self.shift = nn.Conv2d(8, 8, 3, padding=1), nn.Parameter(torch.zeros(8, 1, 1))

    def forward(self, x):
        x += self.shift
        y = self.conv(x).mul_(0.5).add_(x)
        y[:, 0] = y[:, 1] * 2 + 0.1
        return F.silu(y, inplace=True)


class TensorOps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = torch.ops.aten.gelu(x, approximate="tanh")
        return torch.ops.aten.addcmul(x, x, x.sigmoid())


def encoder(norm_first):
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first, activation="gelu")


ODD = {
    "small CNN": lambda: small_cnn(3, CLASSES, 16),
    "reused layers, in place, residual": lambda: Awkward(3, CLASSES),
    "normalised by hand": lambda: Normalised(Trunk(nn.Sequential(nn.GELU(), nn.Conv2d(8, 8, 3)))),
    "squeeze and excite": lambda: Trunk(SqueezeAndExcite()),
    "memory-efficient swish (autograd.Function)": lambda: Trunk(MemoryEfficientSwish()),
    "CrossMapLRN2d": lambda: Trunk(nn.CrossMapLRN2d(3, alpha=0.1)),
    "padding='valid', 'same', reflected": lambda: Trunk(
        nn.Sequential(nn.Conv2d(8, 8, 3, padding="valid"), nn.Conv2d(8, 8, 3, padding="same", padding_mode="reflect"))
    ),
    "GroupNorm, channels last": lambda: Trunk(nn.GroupNorm(2, 8)).to(memory_format=torch.channels_last),
    "standardised convolution": lambda: Trunk(nn.Sequential(StandardisedConvolution(8, 8, 3), nn.ReLU6())),
    "LayerNorm of channels": lambda: Trunk(nn.Sequential(LayerNormOfChannels(8), nn.Conv2d(8, 8, 1), nn.Mish())),
    "modules that permute": lambda: Trunk(nn.Sequential(ConvNeXtBlock(), ConvNeXtBlock(), nn.Conv2d(8, 8, 2, 2))),
    "dynamic convolution": lambda: Trunk(DynamicConvolution()),
    "spatial transformer": lambda: Trunk(SpatialTransformer()),
    "Fourier filter": lambda: Trunk(FourierMixer()),
    "two outputs of a layer": lambda: Trunk(Gated()),
    "checkpoint, reentrant": lambda: Trunk(Checkpointed(True)),
    "checkpoint, not reentrant": lambda: Trunk(Checkpointed(False)),
    "shape changes": lambda: Trunk(ShapeChanges()),
    "straight-through mask": lambda: Trunk(FrozenMask()),
    "in place": lambda: Trunk(InPlace()),
    "torch.ops": lambda: Trunk(TensorOps()),
    "equilibrium": lambda: Trunk(Equilibrium()),
    "prototypes (cdist)": lambda: Trunk(Prototypes()),
    "cosine classifier": lambda: Trunk(Cosine()),
    "second-order pooling": lambda: Trunk(SecondOrder(), 64),
}
"""By name, a network without attention."""

ODD_WITH_ATTENTION = {
    "TransformerEncoder, class token": lambda: Trunk(Tokens(encoder(True), class_token=True)),
    "TransformerEncoder, norm last": lambda: Trunk(Tokens(encoder(False))),
    "attention, sequence first": lambda: Trunk(Tokens(MultiheadAttention(False), sequence_first=True)),
    "attention with weights, sequence first": lambda: Trunk(Tokens(MultiheadAttention(True), sequence_first=True)),
    "attention in shifted windows": lambda: Trunk(Windows()),
    "attention pooling": lambda: Trunk(AttentionPooling()),
    "patches by unfolding": UnfoldedPatches,
    "LSTM": lambda: Trunk(Recurrent(nn.LSTM)),
    "GRU": lambda: Trunk(Recurrent(nn.GRU)),
}
"""By name, a network with attention, tokens or recurrence."""
