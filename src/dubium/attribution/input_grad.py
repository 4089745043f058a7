"""Gradient times input (Shrikumar et al., 2016, arXiv:1605.01713)."""

from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._gradients import pixel_gradients
from dubium.types import Images, Maps, Target


def input_grad(network: nn.Module, x: Images, target: Target, *, context: Context = DEFAULT_CONTEXT) -> Maps:
    """Credit each pixel with its value times the slope of each target there."""

    def mean_product(slopes: Float[Tensor, "b T C H W"], images: Images) -> Maps:
        return slopes.mul_(images[:, None]).abs_().mean(2)

    return pixel_gradients(network, x, target, memory=context.memory, finish=mean_product)
