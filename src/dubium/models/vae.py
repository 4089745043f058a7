"""Variational autoencoders (Kingma and Welling, 2014, arXiv:1312.6114) behind the CLUE methods.

Layer sizes follow the public code that the UA-Backprop paper cites, with a sigmoid output.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from dubium.errors import OptionError


class VAE(nn.Module):
    """`encode(x) -> (mean, logvar)`, `decode(z) -> images in [0, 1]`; the noise is drawn in training mode only.

    Args:
        encoder: from images to (B, features).
        decoder: from codes (B, latent) to images.

    >>> vae = VAE(nn.Flatten(), 4, nn.Sequential(nn.Linear(2, 4), nn.Sigmoid(), nn.Unflatten(1, (1, 2, 2))), 2).eval()
    >>> mean, logvar = vae.encode(torch.rand(3, 1, 2, 2))
    >>> mean.shape, vae.decode(mean).shape
    (torch.Size([3, 2]), torch.Size([3, 1, 2, 2]))
    """

    def __init__(self, encoder: nn.Module, features: int, decoder: nn.Module, latent: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.mean = nn.Linear(features, latent)
        self.logvar = nn.Linear(features, latent)
        self.decoder = decoder
        self.latent = latent

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(x)
        return self.mean(features), self.logvar(features)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """(C, H, W) of the images that it makes."""
        with torch.no_grad():
            return tuple(self.decode(torch.zeros(1, self.latent).to(self.mean.weight)).shape[1:])

    def decode(self, z: Tensor) -> Tensor:
        out: Tensor = self.decoder(z)
        return out

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The reconstruction, and the mean and log variance of its code."""
        mean, logvar = self.encode(x)
        z = mean + (0.5 * logvar).exp() * torch.randn_like(mean) if self.training else mean
        return self.decode(z), mean, logvar


def vae_dense(channels: int = 1, *, size: int = 28, hidden: Sequence[int] = (512, 256), latent: int = 2) -> VAE:
    """A dense VAE for small grey images: 784-512-256 and a latent of 2 are the paper's.

    >>> vae_dense(size=8).decode(torch.zeros(1, 2)).shape
    torch.Size([1, 1, 8, 8])
    """
    if not hidden or latent < 1:
        raise OptionError(f"hidden is {list(hidden)}, latent {latent}; give a hidden width and a latent of 1 or more.")
    shape = (channels, size, size)
    widths = [math.prod(shape), *hidden]
    up = [latent, *reversed(hidden)]
    decoder = nn.Sequential(*_dense(up), nn.Linear(up[-1], widths[0]), nn.Sigmoid(), nn.Unflatten(1, shape))
    return VAE(nn.Sequential(nn.Flatten(), *_dense(widths)), widths[-1], decoder, latent)


def vae_conv(channels: int = 3, *, size: int = 32, kernels: int = 128, latent: int = 128) -> VAE:
    """A convolutional VAE that halves the image three times; 128 kernels and a latent of 128 are the paper's.

    >>> vae_conv(size=16, kernels=8, latent=4).decode(torch.zeros(1, 4)).shape
    torch.Size([1, 3, 16, 16])
    """
    if size % 8 or kernels % 4:
        raise OptionError(f"size is {size}, kernels {kernels}; they must be multiples of 8 and of 4.")
    if latent < 1:
        raise OptionError(f"latent is {latent}; give a latent of 1 or more.")
    widths = [channels, kernels // 4, kernels // 2, kernels]
    side = size // 8
    down: list[nn.Module] = []
    for before, after in pairwise(widths):
        down += [nn.Conv2d(before, after, 4, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
    up: list[nn.Module] = [nn.Linear(latent, kernels * side**2), nn.Unflatten(1, (kernels, side, side))]
    for before, after in zip(widths[:1:-1], widths[-2:0:-1], strict=True):
        up += [nn.ConvTranspose2d(before, after, 4, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
    up += [nn.ConvTranspose2d(widths[1], channels, 4, 2, 1), nn.Sigmoid()]
    return VAE(nn.Sequential(*down, nn.Flatten()), kernels * side**2, nn.Sequential(*up), latent)


def _dense(widths: Sequence[int]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers
