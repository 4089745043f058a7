"""Rules for convolution and the BatchNorm after it.

The gradient of a convolution at its input is a transposed convolution. Features have their channels last, those of all
networks side by side: the layout in which oneDNN convolves fastest, with one group of channels for each network.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv_transpose2d

from dubium.attribution._autograd.nodes import CONVOLUTION, Step

Rule = Callable[[Tensor], Sequence[Tensor]]
"""Gradient at a node's output, (T, S, *shape) -> gradients at its inputs that lead on, (T, S, *shape) each."""

BATCH_NORM = "NativeBatchNormBackward0"


class Axis(NamedTuple):
    """What a convolution does along one axis."""

    size: int
    out: int
    kernel: int
    stride: int
    padding: int
    dilation: int


def convolution_rule(steps: Sequence[Step]) -> Rule | None:
    step = steps[0]
    if not is_image_convolution(step):
        return None
    numbers = [list(step.saved(name)) for name in ("stride", "padding", "dilation")]
    stride, padding, dilation = (both * (2 // len(both)) for both in numbers)  # padding="valid" saves one number
    size, kernel = step.below[0].outputs[step.edges[0].output].shape[2:], step.saved("weight").shape[2:]
    axes = [Axis(*n) for n in zip(size, step.shape[2:], kernel, stride, padding, dilation, strict=True)]
    reach = [(a.out - 1) * a.stride + (a.kernel - 1) * a.dilation + 1 - 2 * a.padding for a in axes]
    unreached = [axis.size - far for axis, far in zip(axes, reach, strict=True)]  # pixels that the kernel never meets
    groups, networks = step.saved("groups"), len(steps)
    one_channel = step.saved("weight").shape[1] == groups == 1
    norms = [step.folded_norm for step in steps]
    slopes = [None if norm is None else batch_norm_slope(norm)[:, None, None, None] for norm in norms]
    step.below[0].may_overwrite = step.below[0].is_private
    weights_and_slopes = list(zip([step.saved("weight") for step in steps], slopes, strict=True))

    def rule(gradient: Tensor) -> Sequence[Tensor]:
        flat = gradient.permute(0, 2, 4, 5, 1, 3).reshape(-1, *gradient.shape[4:], networks * gradient.shape[3])
        rows = flat.permute(0, 3, 1, 2)  # (T * B, S * C, H, W), channels last
        weights = [weight if slope is None else weight * slope for weight, slope in weights_and_slopes]  # not kept
        if one_channel:
            return [one_channel_gradient(rows, weights, *axes).unflatten(1, (len(gradient), -1)).movedim(1, 0)]
        joint = torch.cat(weights) if networks > 1 else weights[0]
        rows = conv_transpose2d(rows, joint, None, stride, padding, unreached, networks * groups, dilation)
        shape = len(gradient), -1, *rows.shape[2:], networks, rows.shape[1] // networks
        return [rows.permute(0, 2, 3, 1).reshape(shape).permute(0, 4, 1, 5, 2, 3)]

    return rule


def one_channel_gradient(rows: Tensor, weights: Sequence[Tensor], vertical: Axis, horizontal: Axis) -> Tensor:
    """Gradient at an input of one channel, (S, rows, 1, H, W): oneDNN's kernels are made for many.

    A product of matrices gives every tap of the kernel; taps are added up down rows, then across columns.
    """
    pixels = rows.permute(0, 2, 3, 1).reshape(-1, len(weights), weights[0].shape[0])
    kernels = torch.stack([weight.flatten(1).T for weight in weights])
    taps = kernels @ pixels.permute(1, 2, 0)
    taps = taps.view(len(weights), vertical.kernel, horizontal.kernel, len(rows), vertical.out, horizontal.out)
    height, width = (axis.size + 2 * axis.padding for axis in (vertical, horizontal))
    down = rows.new_zeros(len(weights), horizontal.kernel, len(rows), height, horizontal.out)
    for tap in range(vertical.kernel):  # meets every `stride`th pixel of the padded input from its place on
        met = slice(tap * vertical.dilation, None, vertical.stride)
        down[..., met, :][..., : vertical.out, :].add_(taps[:, tap])
    across = rows.new_zeros(len(weights), len(rows), height, width)
    for tap in range(horizontal.kernel):
        met = slice(tap * horizontal.dilation, None, horizontal.stride)
        across[..., met][..., : horizontal.out].add_(down[:, tap])
    inside = (slice(axis.padding, axis.padding + axis.size) for axis in (vertical, horizontal))
    return across[:, :, None, *inside]


def is_image_convolution(step: Step) -> bool:
    """Whether this is a convolution of images by weights that do not depend on them."""
    if step.name != CONVOLUTION or step.inputs != [0]:
        return False
    return step.saved("weight").ndim == 4 and not step.saved("transposed")


def batch_norm_rule(steps: Sequence[Step]) -> Rule | None:
    """In eval mode: a factor for each channel, or nothing if it is all that a convolution leads to.

    Then the two are one convolution, of other weights.
    """
    step = steps[0]
    if step.saved("training") or step.inputs != [0]:
        return None
    if step.below[0].is_private and is_image_convolution(step.below[0]):
        for norm in steps:
            norm.below[0].folded_norm = norm
        return lambda gradient: [gradient]
    slopes = torch.stack([batch_norm_slope(step) for step in steps])
    slopes = slopes.view(len(steps), 1, -1, *[1] * (len(step.shape) - 2))
    return lambda gradient: [gradient * slopes]


def batch_norm_slope(step: Step) -> Tensor:
    slope: Tensor = (step.saved("running_var") + step.saved("eps")).rsqrt()
    weight = step.saved("weight")
    return slope if weight is None else slope * weight
