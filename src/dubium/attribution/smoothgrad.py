"""SmoothGrad (Smilkov et al., 2017, arXiv:1706.03825)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._paths import sum_along_path
from dubium.checks import check_number
from dubium.types import Images, Maps, Target


def smoothgrad(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    samples: int = 50,
    sigma: float = 0.1,
    context: Context = DEFAULT_CONTEXT,
) -> Maps:
    """Credit each pixel with the mean steepness of each target around x.

    Args:
        samples: copies of x with noise.
        sigma: standard deviation of the noise, in units of the pixels.
    """
    check_number("samples", samples, whole=True)
    check_number("sigma", sigma)
    shifts = sigma * gaussian_noise(x, samples, context.seed)

    def points(images: slice, steps: Int[Tensor, " n"]) -> tuple[Float[Tensor, "n b C H W"], None]:
        return x[images] + shifts[steps][:, None], None

    def steepness(gradients: Float[Tensor, "n b T C H W"], *_: object) -> Float[Tensor, "b T H W"]:
        return gradients.abs_().mean(3).sum(0)

    return sum_along_path(network, x, target, points, samples, steepness, context) / samples


def gaussian_noise(x: Images, samples: int, seed: int) -> Float[Tensor, "samples C H W"]:
    """The same draws for every image: a map then depends on its image alone, not on its place in the batch."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, *x.shape[1:], generator=generator, dtype=torch.float64).to(x)
