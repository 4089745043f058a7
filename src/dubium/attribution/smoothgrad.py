"""SmoothGrad (Smilkov et al., 2017, arXiv:1706.03825)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dubium.attribution._paths import slopes_along
from dubium.attribution._vjp import DEFAULT_MEMORY
from dubium.checks import check_number, silent
from dubium.types import Images, Maps, Progress, Target


def smoothgrad(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    samples: int = 50,
    sigma: float = 0.1,
    seed: int = 0,
    memory: int = DEFAULT_MEMORY,
    progress: Progress = silent,
) -> Maps:
    """Credit each pixel with the mean steepness of each target around x."""
    check_number("samples", samples, whole=True)
    check_number("sigma", sigma)
    shifts = sigma * noise(x, samples, seed)

    def path(images: slice, some: Int[Tensor, " n"]) -> Float[Tensor, "n b C H W"]:
        return x[images] + shifts[some][:, None]

    total: list[Tensor] = []
    for _, some, slopes in slopes_along(network, x, target, path, samples, memory=memory, progress=progress):
        if some[0] == 0:
            total.append(torch.zeros_like(slopes[0, :, :, 0]))
        total[-1] += slopes.abs_().mean(3).sum(0)
    return torch.cat(total) / samples


def noise(x: Images, samples: int, seed: int) -> Float[Tensor, "samples C H W"]:
    """The same draws for every image: a map then depends on its image alone, not on its place in the batch."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, *x.shape[1:], generator=generator, dtype=torch.float64).to(x)
