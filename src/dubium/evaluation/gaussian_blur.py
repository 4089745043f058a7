"""Gaussian blur at many strengths at once. Along one axis it is a matrix, so a whole grid is two batched products."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from dubium.errors import OptionError
from dubium.types import Images

TRUNCATE = 4.0  # kernels end after so many standard deviations


def gaussian_blur(x: Images, sigmas: Sequence[float]) -> Float[Tensor, "N B C H W"]:
    """Every image at every sigma, as `scipy.ndimage.gaussian_filter` has it (reflect, truncate 4); channels apart."""
    down = blur_matrices(x.shape[2], sigmas).to(x)  # (N, H, H)
    across = blur_matrices(x.shape[3], sigmas).to(x)  # (N, W, W)
    images, channels, height, width = x.shape
    blurred = (down.flatten(0, 1) @ x).view(images, channels, len(sigmas), height, width)
    rows = blurred.permute(2, 0, 1, 3, 4).reshape(len(sigmas), -1, width)
    return (rows @ across.mT).view(len(sigmas), images, channels, height, width)


def blur_matrices(size: int, sigmas: Sequence[float]) -> Float[Tensor, "N size size"]:
    """One matrix a sigma that blurs a line of `size` pixels, in float64; 0 is the identity."""
    if not sigmas or not all(0 <= sigma < float("inf") for sigma in sigmas):
        raise OptionError(f"sigmas are {list(sigmas)}; at least one, and each finite and not below 0, is needed.")
    sigma = torch.tensor([float(sigma) for sigma in sigmas], dtype=torch.float64)
    radius = (TRUNCATE * sigma + 0.5).floor()
    reach = int(radius.max())
    offsets = torch.arange(-reach, reach + 1)
    weights = torch.exp(-0.5 * (offsets / sigma.clamp_min(1e-15)[:, None]) ** 2)
    weights = torch.where(offsets.abs() <= radius[:, None], weights, 0)
    weights = weights / weights.sum(1, keepdim=True)
    source = (torch.arange(size)[:, None] + offsets) % (2 * size)  # the line and its mirror image, over and over
    source = torch.where(source < size, source, 2 * size - 1 - source)
    empty = torch.zeros(len(sigma), size, size, dtype=torch.float64)
    shape = (len(sigma), size, len(offsets))
    return empty.scatter_add(2, source.expand(shape), weights[:, None].expand(shape))
