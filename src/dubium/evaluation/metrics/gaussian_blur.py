"""Gaussian blur at many strengths at once. Along one axis it is a matrix, so a whole grid is two batched products."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from dubium.errors import OptionError
from dubium.gaussian_kernel import fold_kernels
from dubium.types import Images

TRUNCATE = 4.0  # kernels end after so many standard deviations


def gaussian_blur(x: Images, sigmas: Sequence[float]) -> Float[Tensor, "N B C H W"]:
    """Blur every image at every sigma, each channel by itself.

    Args:
        x: images.
        sigmas: standard deviations in pixels; 0 leaves the image as it is.

    Returns:
        What `scipy.ndimage.gaussian_filter` gives with `mode="reflect", truncate=4`, for the N sigmas.

    Example:
        >>> gaussian_blur(torch.ones(2, 3, 8, 8), [0.0, 1.5]).shape
        torch.Size([2, 2, 3, 8, 8])
    """
    down = truncated_blur_matrices(x.shape[2], sigmas).to(x)  # (N, H, H)
    across = truncated_blur_matrices(x.shape[3], sigmas).to(x)  # (N, W, W)
    images, channels, height, width = x.shape
    blurred = (down.flatten(0, 1) @ x).view(images, channels, len(sigmas), height, width)
    rows = blurred.permute(2, 0, 1, 3, 4).reshape(len(sigmas), -1, width)
    return (rows @ across.mT).view(len(sigmas), images, channels, height, width)


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
