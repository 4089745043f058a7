"""Gaussian kernels as matrices: a blur along one axis of an image is then one matrix product.

Methods integrate over sigma, so their kernels have one radius for all sigmas and a derivative. Protocols compare with
scipy, so theirs end where scipy's do, at a radius of each sigma's own.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from dubium.errors import OptionError

TRUNCATE = 4.0  # scipy's kernels end after so many standard deviations


def fold_kernels(kernels: Float[Tensor, "n taps"], size: int) -> Float[Tensor, "n size size"]:
    """Matrices that convolve a line of `size` pixels with each kernel, reflected at both ends.

    Args:
        kernels: an odd number of taps each, the middle one at offset 0.
        size: pixels in the line.

    Returns:
        Row i holds the weight of each pixel in the result at pixel i. A row sums to what its kernel sums to.

    Example:
        >>> fold_kernels(torch.tensor([[0.25, 0.5, 0.25]]), 3)
        tensor([[[0.7500, 0.2500, 0.0000],
                 [0.2500, 0.5000, 0.2500],
                 [0.0000, 0.2500, 0.7500]]])
    """
    taps = kernels.shape[1]
    offsets = torch.arange(taps, device=kernels.device) - taps // 2
    place = (torch.arange(size, device=kernels.device)[:, None] + offsets) % (2 * size)
    place = torch.where(place < size, place, 2 * size - 1 - place)  # reflect: ... 1 0 | 0 1 2 ... size-1 | size-1 ...
    shape = (len(kernels), size, taps)
    return kernels.new_zeros(len(kernels), size, size).scatter_add_(
        2, place.expand(shape), kernels[:, None].expand(shape)
    )


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


def truncated_blur_matrices(size: int, sigmas: Sequence[float]) -> Float[Tensor, "N size size"]:
    """One matrix for each sigma that blurs a line of `size` pixels, in float64; that of sigma 0 is the identity."""
    if not sigmas or not all(0 <= sigma < float("inf") for sigma in sigmas):
        raise OptionError(f"sigmas are {list(sigmas)}; at least one, and each finite and not below 0, is needed.")
    sigma = torch.tensor([float(sigma) for sigma in sigmas], dtype=torch.float64)
    radius = (TRUNCATE * sigma + 0.5).floor()
    reach = int(radius.max())
    offsets = torch.arange(-reach, reach + 1)
    kernels = torch.exp(-0.5 * (offsets / sigma.clamp_min(1e-15)[:, None]) ** 2)
    kernels = torch.where(offsets.abs() <= radius[:, None], kernels, 0)
    return fold_kernels(kernels / kernels.sum(1, keepdim=True), size)
