"""SmoothGrad (Smilkov et al., 2017, arXiv:1706.03825)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._paths import MOST_STEPS, sum_along_path
from dubium.checks import check_number
from dubium.types import Images, Maps, Target

MOST_SIGMA = 1_000_000  # in units of the pixels: of larger numbers, logits overflow


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
    check_number("samples", samples, most=MOST_STEPS, whole=True)
    check_number("sigma", sigma, most=MOST_SIGMA)
    noise = GaussianNoise(x, samples, context.seed)

    def points(image_slice: slice, steps: Int[Tensor, " n"]) -> tuple[Float[Tensor, "n b C H W"], None]:
        return x[image_slice] + sigma * noise.draw(steps)[:, None], None

    def steepness(gradients: Float[Tensor, "n b T C H W"], *_: object) -> Float[Tensor, "b T H W"]:
        return gradients.abs_().mean(3).sum(0)

    return sum_along_path(network, x, target, points, samples, steepness, context) / samples


class GaussianNoise:
    """Standard normal numbers, (samples, C, H, W), drawn when they are asked for, and not kept.

    What is kept is a state of the generator (5 kB) for each block of samples, in most cases for each sample.

    They are the same for every image: a map then depends on its image alone, not on its place in the batch.
    """

    def __init__(self, x: Images, samples: int, seed: int) -> None:
        self.x, self.samples, self.generator = x, samples, torch.Generator().manual_seed(seed)
        # torch.randn fills 16 numbers at a time: blocks of so many samples have the numbers of one large draw
        self.block = 16 // math.gcd(16, x[0].numel())
        self.states: list[Tensor] = []
        for block in range(math.ceil(samples / self.block)):
            self.states.append(self.generator.get_state())
            self.draw_block(block)

    def draw_block(self, block: int) -> Float[Tensor, "n C H W"]:
        """The samples of a block. Blocks that are drawn in another order need their state first."""
        count = min(self.block, self.samples - block * self.block)
        return torch.randn(count, *self.x.shape[1:], generator=self.generator, dtype=torch.float64).to(self.x)

    def draw(self, samples: Int[Tensor, " n"]) -> Float[Tensor, "n C H W"]:
        """The samples of these numbers."""
        drawn: dict[int, Tensor] = {}
        for block in dict.fromkeys((samples // self.block).tolist()):
            self.generator.set_state(self.states[block])
            drawn[block] = self.draw_block(block)
        return torch.stack([drawn[number // self.block][number % self.block] for number in samples.tolist()])
