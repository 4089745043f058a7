"""A term of FullGrad, gradient times bias, as a map of the image; and the sum of all terms' maps."""

from collections.abc import Callable, Sequence
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from dubium.attribution._biases import Bias
from dubium.types import Images

EPS = 1e-6  # of the reference code

TermMap = Callable[[Bias, Tensor], Tensor]
"""A bias and the gradients of all targets at its layer's output, (t, S, B, ...) -> the term's map, (t, S, B, h, w)."""


def term_sum(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S"]:
    """The sum of all numbers of a term."""
    return sum_numbers(term_product(bias, gradient))


def term_abs_sum(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S"]:
    """The sum of the absolute numbers of a term."""
    return sum_numbers(term_product(bias, gradient).abs())


def sum_numbers(product: Float[Tensor, "t S ..."]) -> Float[Tensor, "t S"]:
    return product.reshape(*product.shape[:2], -1).sum(2)


def term_product(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S ..."]:
    """The numbers of a term, with a sign: gradient times bias."""
    value = bias.value
    if not bias.is_full_size:
        gradient = gradient if bias.channel_axis == -1 else gradient.movedim(3, -1)
        value = value.view(len(value), *[1] * (gradient.ndim - 3), -1)
    return (gradient.conj() * value).real


def mean_term(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S B h w"]:
    """Equation 10: the channel mean of the absolute term."""
    return absolute_term(bias, gradient).mean(-1).movedim(4, 1)


def rescaled_term(bias: Bias, gradient: Tensor) -> Float[Tensor, "t S B h w"]:
    """The absolute term in [0, 1] over channels and pixels together, summed over channels.

    Its numbers are not rescaled one by one: their channel sum is `(sum - C lo) / (hi - lo + eps)`.
    """
    term = absolute_term(bias, gradient)
    channel_sum, value_range = term.sum(-1), extreme_value(term, torch.amax)
    # if the first two rows have a 0, as most have after a ReLU, the minimum is 0 and need not be computed; on a GPU,
    # asking would wait for the device
    if not term.is_cpu or extreme_value(term[:, :, :2], torch.amin).any():
        low = extreme_value(term, torch.amin)
        channel_sum, value_range = channel_sum - term.shape[-1] * low, value_range - low
    return (channel_sum / (value_range + EPS)).movedim(4, 1)


def absolute_term(bias: Bias, gradient: Tensor) -> Float[Tensor, "t B h w S C"]:
    """The absolute product of gradient and bias, channels last."""
    assert bias.place is not None, "only biases that have a place in the image make maps"
    if bias.is_full_size:
        return bias.place.to_maps(gradient * bias.value).abs().contiguous()
    maps = bias.place.to_maps(gradient).contiguous()
    repeated_bias = bias.value.flatten().expand(maps.shape[3], -1).flatten()  # one long inner loop, not many short ones
    return (maps.flatten(3) * repeated_bias).abs_().view_as(maps)


def extreme_value(term: Float[Tensor, "t B h w S C"], reduce_axis: Callable[..., Tensor]) -> Float[Tensor, "t B 1 1 S"]:
    """Minimum or maximum of each network's term; with several networks rows are reduced first, for long inner loops."""
    if term.shape[4] == 1:
        return reduce_axis(term.flatten(2), 2)[:, :, None, None, None]
    by_column = reduce_axis(term.flatten(3), 2).unflatten(2, (term.shape[3], -1))
    return reduce_axis(reduce_axis(by_column, 2).unflatten(2, term.shape[4:]), 3)[:, :, None, None]


def sum_layers(maps: Sequence[Tensor], x: Images) -> Float[Tensor, "t S B H W"]:
    """The sum of all terms' maps, upsampled bilinearly; maps of one size are added before, which gives the same."""
    by_size: dict[tuple[int, ...], Tensor] = {}
    for term in maps:
        size = tuple(term.shape[3:])
        by_size[size] = by_size[size] + term if size in by_size else term
    image_size, at_image_size = tuple(x.shape[2:]), list[Tensor]()
    for size, term in by_size.items():
        if size != image_size:  # maps become channels, so that weights of interpolation are computed once a pixel
            rows = term.permute(2, 3, 4, 0, 1).flatten(3).permute(0, 3, 1, 2)
            larger = interpolate(rows, size=image_size, mode="bilinear", align_corners=True)
            term = larger.view(len(rows), *term.shape[:2], *image_size).movedim(0, 2)
        at_image_size.append(term)
    return reduce(torch.add, at_image_size).contiguous()  # several networks' numbers alternate in memory


TERM_MAPS: dict[str, TermMap] = {"reference": rescaled_term, "none": mean_term}
