"""Gaussian blur at many strengths at once. Along one axis it is a matrix, so a whole grid is two batched products."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from dubium.gaussian_kernel import truncated_blur_matrices
from dubium.types import Images


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
