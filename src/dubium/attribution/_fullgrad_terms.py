"""The terms of FullGrad, gradient times bias, as maps: of each layer, and of all layers together."""

from collections.abc import Callable, Sequence
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from dubium.attribution._biases import Bias, Layout
from dubium.types import Images

EPS = 1e-6  # of the reference code

TermMap = Callable[[Bias, Tensor], Tensor]
"""A bias and the gradients of all targets at its layer's output, (t, S, B, ...) -> the term's map, (t, S, B, h, w)."""

LayerSum = Callable[[Sequence[Tensor], Images], Float[Tensor, "t S B H W"]]
"""The maps of all terms -> one map of the images' size."""


def term_sum(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S"]:
    """The sum of all numbers of a term."""
    value = bias.value
    if not bias.implicit:
        gradient = gradient if bias.channels == -1 else gradient.movedim(3, -1)
        value = value.view(len(value), *[1] * (gradient.ndim - 3), -1)
    return (gradient * value).flatten(2).sum(2)


def mean_term(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S B h w"]:
    """Equation 10: the channel mean of the absolute term."""
    return absolute_term(bias, gradient).mean(-1).movedim(4, 1)


def rescaled_term(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S B h w"]:
    """The absolute term in [0, 1] over channels and pixels together, summed over channels.

    Its numbers are not rescaled one by one: their channel sum is `(sum - C lo) / (hi - lo + eps)`.
    """
    term = absolute_term(bias, gradient)
    whole, high = term.sum(-1), extreme(term, torch.amax)
    # most terms have a 0, of a feature that is off, and it is seen in two rows; a GPU would have to wait for the answer
    if not term.is_cpu or extreme(term[:, :, :2], torch.amin).any():
        low = extreme(term, torch.amin)
        whole, high = whole - term.shape[-1] * low, high - low
    return (whole / (high + EPS)).movedim(4, 1)


def absolute_term(bias: Bias, gradient: Tensor) -> Float[Tensor, "t B h w S C"]:
    """The absolute product of gradient and bias, channels last."""
    assert bias.layout is not None, "only biases that have a place in the image make maps"
    if bias.implicit:
        return as_maps(gradient * bias.value, bias.layout).abs().contiguous()
    rows = as_maps(gradient, bias.layout).contiguous()
    by_row = bias.value.flatten().expand(rows.shape[3], -1).flatten()  # one long inner loop instead of many short ones
    return (rows.flatten(3) * by_row).abs_().view_as(rows)


def as_maps(gradient: Tensor, layout: Layout) -> Float[Tensor, "t B h w S C"]:
    """A gradient (t, S, B, ...), channels last; tokens without a place in the image are left out."""
    channels = [3 + axis for axis in range(gradient.ndim - 3) if axis not in layout.axes]
    maps = gradient.permute(0, 2, *[3 + axis for axis in layout.axes], 1, *channels)
    if layout.grid is not None:
        maps = maps[:, :, layout.prefix :].unflatten(2, layout.grid)
    return maps.flatten(5) if len(channels) > 1 else maps


def extreme(term: Float[Tensor, "t B h w S C"], of: Callable[..., Tensor]) -> Float[Tensor, "t B 1 1 S"]:
    """The least or largest number of each network's term. Of several, rows go first: their inner loops are long."""
    if term.shape[4] == 1:
        return of(term.flatten(2), 2)[:, :, None, None, None]
    by_column = of(term.flatten(3), 2).unflatten(2, (term.shape[3], -1))
    return of(of(by_column, 2).unflatten(2, term.shape[4:]), 3)[:, :, None, None]


def sum_layers(maps: Sequence[Tensor], x: Images) -> Float[Tensor, "t S B H W"]:
    """The sum of all terms' maps. Those of one size are summed before they are upsampled, which is linear."""
    by_size: dict[tuple[int, ...], Tensor] = {}
    for term in maps:
        size = tuple(term.shape[3:])
        by_size[size] = by_size[size] + term if size in by_size else term
    image_size = tuple(x.shape[2:])
    return reduce(torch.add, [m if size == image_size else upsample(m, image_size) for size, m in by_size.items()])


def upsample(maps: Float[Tensor, "t S B h w"], size: Sequence[int]) -> Float[Tensor, "t S B H W"]:
    """Bilinear interpolation. Maps go as channels, side by side: each pixel's weights serve for all of them."""
    rows = maps.permute(2, 3, 4, 0, 1).flatten(3).permute(0, 3, 1, 2)
    larger: Tensor = interpolate(rows, size=size, mode="bilinear", align_corners=True)
    return larger.view(len(rows), *maps.shape[:2], *size).movedim(0, 2)


def sum_layers_rescaled(maps: Sequence[Tensor], x: Images) -> Float[Tensor, "t S B H W"]:
    """The sum of all terms' maps, in [0, 1]."""
    whole = sum_layers(maps, x)
    low, high = whole.amin((3, 4), keepdim=True), whole.amax((3, 4), keepdim=True)
    return (whole - low) / (high - low + EPS)


RESCALE: dict[str, tuple[TermMap, LayerSum]] = {
    "reference": (rescaled_term, sum_layers_rescaled),
    "none": (mean_term, sum_layers),
}
