"""Gaussian blur as two matrix products, with its exact derivative in sigma."""

import torch
from jaxtyping import Float
from torch import Tensor

from dubium.gaussian_kernel import fold_kernels
from dubium.types import Images


def blur_matrices(
    size: int, sigmas: Float[Tensor, " n"], radius: int
) -> tuple[Float[Tensor, "n size size"], Float[Tensor, "n size size"]]:
    """For one axis with reflecting ends: the blur at each sigma > 0, and how it changes with sigma.

    One kernel radius for all sigmas: were it to grow with sigma, the blur would jump, and its integral not converge.
    """
    offsets = torch.arange(-radius, radius + 1, dtype=sigmas.dtype, device=sigmas.device)
    kernels = (-0.5 * (offsets / sigmas[:, None]) ** 2).softmax(-1)  # (n, 2 radius + 1)
    square = offsets**2
    changes = kernels * (square - (kernels * square).sum(-1, keepdim=True)) / sigmas[:, None] ** 3
    return fold_kernels(kernels, size), fold_kernels(changes, size)


def blur_with_derivative(
    x: Images, sigmas: Float[Tensor, " n"], radius: int
) -> tuple[Float[Tensor, "n B C H W"], Float[Tensor, "n B C H W"]]:
    """Every image blurred at every sigma, and the derivative of that in sigma."""
    (down, d_down), (across, d_across) = (blur_matrices(size, sigmas, radius) for size in x.shape[2:])
    down, d_down = down[:, None, None], d_down[:, None, None]
    across, d_across = across.mT[:, None, None], d_across.mT[:, None, None]
    half = x @ across
    return down @ half, d_down @ half + down @ (x @ d_across)
