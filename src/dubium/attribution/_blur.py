"""Gaussian blur as two matrix products, with its exact derivative in sigma."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from dubium.gaussian_kernel import blur_matrices
from dubium.types import Images

WIDTHS = (1 / 32, 1 / 16, 1 / 8, 1 / 4)
"""Blurs that paths start from: each sigma as a part of the image's shorter side, 1, 2, 4 and 8 pixels of 32."""


def blur_with_derivative(
    x: Images, sigmas: Float[Tensor, " n"], radius: int
) -> tuple[Float[Tensor, "n B C H W"], Float[Tensor, "n B C H W"]]:
    """Every image blurred at every sigma, and the derivative of that in sigma."""
    (down, d_down), (across, d_across) = (blur_matrices(size, sigmas, radius) for size in x.shape[2:])
    down, d_down = down[:, None, None], d_down[:, None, None]
    across, d_across = across.mT[:, None, None], d_across.mT[:, None, None]
    half = x @ across
    return down @ half, d_down @ half + down @ (x @ d_across)


def blur_images(x: Images, sigmas: Sequence[float]) -> Float[Tensor, "n B C H W"]:
    """Every image blurred at every sigma. What is the same everywhere in an image stays exactly as it is."""
    return _blur_each(x[None], sigmas)


def blurred_copies(x: Images) -> Float[Tensor, "n B C H W"]:
    """Each image as blurred as paths start from: in proportion to its size."""
    return blur_images(x, path_sigmas(x))


def blur_at_widths(x: Float[Tensor, "n B C H W"]) -> Float[Tensor, "n B C H W"]:
    """x[i] blurred with the sigma of WIDTHS[i]; n is at most `len(WIDTHS)`."""
    return _blur_each(x, path_sigmas(x)[: len(x)])


def path_sigmas(x: Float[Tensor, "*n B C H W"]) -> list[float]:
    """The blurs that paths start from, in pixels."""
    return [width * min(x.shape[-2:]) for width in WIDTHS]


def _blur_each(x: Float[Tensor, "m B C H W"], sigmas: Sequence[float]) -> Float[Tensor, "n B C H W"]:
    """The images of each sigma, m = n, or the same for all, m = 1."""
    radius = math.ceil(4 * max(sigmas))
    strengths = torch.tensor(sigmas, dtype=x.dtype, device=x.device)
    down, across = (blur_matrices(size, strengths, radius)[0][:, None, None] for size in x.shape[-2:])
    level = x[..., :1, :1]  # rounding must not turn a constant image into one with a little contrast
    return level + down @ (x - level) @ across.mT
