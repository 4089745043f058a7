"""Rules for the commonest nodes: from the gradient at a node's output to those at its inputs, for all targets at once.

A rule factory takes the same node of S graphs, of networks of one architecture, and returns a function, the rule; or
None: autograd then does that node. Gradients are (T, S, *shape of the output); in memory, features are
(T * B, H, W, S * C): the layout in which oneDNN convolves fastest, with one group of channels for each network.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d, conv_transpose2d, pad

from dubium.attribution._autograd.nodes import (
    ADDITION,
    BATCH_NORM,
    CONVOLUTION,
    DENSE,
    MAX_POOLING,
    MEAN,
    PRODUCT,
    RELU,
    RESHAPES,
    SLICE,
    BackwardNode,
    refuse_operation,
    signed_number,
)

NARROW = 16
"""Up to how many output channels of a network oneDNN's convolutions in groups are much faster than transposed ones:
1.4 to 2 times."""

GradientRule = Callable[[Tensor], Sequence[Tensor]]
"""Gradient at a node's output, (T, S, *shape) -> gradients at its inputs that lead on, (T, S, *shape) each."""


def stack_or_unsqueeze(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """As `torch.stack`, without a copy if there is but one."""
    return torch.stack([*tensors], axis) if len(tensors) > 1 else tensors[0].unsqueeze(axis)


def input_numbers(node: BackwardNode) -> list[int]:
    """Which of its inputs lead to the image."""
    return [each.input_nr for each in node.inputs]


def identity_rule(nodes: Sequence[BackwardNode]) -> GradientRule:
    """Each input has the output's gradient."""
    inputs = len(nodes[0].inputs)
    return lambda gradient: [gradient] * inputs


def addition_rule(nodes: Sequence[BackwardNode]) -> GradientRule | None:
    return identity_rule(nodes) if nodes[0].saved["alpha"] == 1 else None


def slice_rule(nodes: Sequence[BackwardNode]) -> GradientRule | None:
    """Only where the slice leaves nothing out."""
    return identity_rule(nodes) if nodes[0].shape == tuple(nodes[0].saved["self_sym_sizes"]) else None


def reshape_rule(nodes: Sequence[BackwardNode]) -> GradientRule:
    shape = nodes[0].saved["self_sym_sizes"]
    return lambda gradient: [gradient.reshape(*gradient.shape[:2], *shape)]


def mean_rule(nodes: Sequence[BackwardNode]) -> GradientRule:
    shape = nodes[0].saved["self_sym_sizes"]
    dims = nodes[0].saved["dim"] or range(len(shape))
    axes = [range(len(shape))[signed_number(dim)] for dim in dims]
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    count = math.prod(shape) / math.prod(kept)
    return lambda gradient: [(gradient.reshape(*gradient.shape[:2], *kept) / count).expand(-1, -1, *shape)]


def dense_rule(nodes: Sequence[BackwardNode]) -> GradientRule | None:
    if input_numbers(nodes[0]) != [1] or nodes[0].saved["alpha"] != 1:
        return None
    weights = [node.saved["mat2"].mH for node in nodes]
    if len(weights) == 1:
        return lambda gradient: [gradient @ weights[0]]
    # with few rows MKL uses one thread; as two half products it uses two
    halves = [weight.unflatten(1, (math.gcd(weight.shape[1], 2), -1)).movedim(1, 0) for weight in weights]

    def rule(gradient: Tensor) -> Sequence[Tensor]:
        by_network = gradient.movedim(1, 0).flatten(1, 2)
        product = torch.stack([g.expand(len(half), -1, -1) @ half for g, half in zip(by_network, halves, strict=True)])
        return [product.unflatten(2, (len(gradient), -1)).permute(2, 0, 3, 1, 4).flatten(3)]

    return rule


def product_rule(nodes: Sequence[BackwardNode]) -> GradientRule | None:
    """A product of matrices of which the second is a weight."""
    if input_numbers(nodes[0]) != [0]:
        return None
    weights = [node.saved["mat2"].mH for node in nodes]
    return lambda gradient: [stack_or_unsqueeze([gradient[:, s] @ weight for s, weight in enumerate(weights)], 1)]


def activation_rule(nodes: Sequence[BackwardNode]) -> GradientRule | None:
    """A function of each number by itself: autograd gives its slopes, once for all targets."""
    ones = torch.ones((), dtype=nodes[0].outputs[0].dtype, device=nodes[0].outputs[0].device)

    def rule(gradient: Tensor) -> Sequence[Tensor]:
        try:
            slopes = stack_or_unsqueeze(
                [node.autograd_node(ones.expand(node.shape)) for node in nodes], 0
            )  # in every call: kept, they would take memory
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # what it saved was overwritten
            refuse_operation(f"the networks ({nodes[0].name})", error)
        return [gradient * to_channels_last(slopes)]

    return rule


def to_channels_last(features: Tensor) -> Tensor:
    """Features (S, B, C, H, W) in the memory layout of convolutions' gradients; others as they are."""
    if features.ndim != 5:
        return features
    return features.permute(1, 3, 4, 0, 2).contiguous().permute(3, 0, 4, 1, 2)


def relu_rule(nodes: Sequence[BackwardNode]) -> GradientRule:
    if nodes[0].is_absorbed:
        return lambda gradient: [gradient]
    out = to_channels_last(stack_or_unsqueeze([node.saved["result"] for node in nodes], 0))
    if nodes[0].may_overwrite:
        return lambda gradient: [torch.ops.aten.threshold_backward(gradient, out, 0, grad_input=gradient)]
    return lambda gradient: [torch.ops.aten.threshold_backward(gradient, out, 0)]


def max_pooling_rule(nodes: Sequence[BackwardNode]) -> GradientRule | None:
    """Max pooling of squares, with stride = kernel, no padding and dilation 1: one mask of maxima for all targets.

    Where a ReLU leads to nothing else, its rule is done here too: a maximum passes if it is above 0.
    """
    node, producer = nodes[0], nodes[0].producers[0]
    kernel, stride, padding, dilation = both_axes(node, "kernel_size", "stride", "padding", "dilation")
    is_tiling = kernel[0] == kernel[1] and stride in ([], kernel) and padding == [0, 0] and dilation == [1, 1]
    if not is_tiling or node.saved["ceil_mode"] or node.saved["self"].ndim != 4:
        return None
    features = stack_or_unsqueeze([node.saved["self"] for node in nodes], 0)
    max_indices = stack_or_unsqueeze([node.saved["result1"] for node in nodes], 0).flatten(3)
    values = features.flatten(3)
    producer.is_absorbed = producer.name == RELU and producer.may_be_fused
    passes_relu = (values.gather(3, max_indices) > 0).to(values.dtype) if producer.is_absorbed else values.new_ones(())
    is_maximum = torch.zeros_like(values).scatter_(3, max_indices, passes_relu.expand_as(max_indices)).view_as(features)
    size, shape = kernel[0], features.shape[1:]
    height, width = node.shape[2] * size, node.shape[3] * size
    is_maximum = is_maximum[..., :height, :width].permute(1, 3, 4, 0, 2)
    is_maximum = is_maximum.contiguous().unflatten(1, (-1, size)).flatten(3)  # image, row of squares, row, all else
    cut_off = (0, shape[3] - width, 0, shape[2] - height)

    def rule(gradient: Tensor) -> Sequence[Tensor]:
        # repeated along columns by a copy, along rows by broadcasting: the inner loop of the product is over whole rows
        across = gradient.permute(0, 2, 4, 5, 1, 3)[:, :, :, :, None].expand(*[-1] * 4, size, -1, -1).flatten(3)
        product = (across[:, :, :, None] * is_maximum).view(*across.shape[:2], height, width, len(nodes), shape[1])
        product = product.permute(0, 4, 1, 5, 2, 3)
        return [pad(product, cut_off) if any(cut_off) else product]

    return rule


def both_axes(node: BackwardNode, *names: str) -> Iterator[list[int]]:
    """What a node has saved under these names, for both axes; one number stands for two, as with padding="valid"."""
    values = (list(node.saved[name]) for name in names)
    return (value * 2 if len(value) == 1 else value for value in values)


class ConvolutionAxis(NamedTuple):
    """What a convolution does along one axis."""

    size: int
    out: int
    kernel: int
    stride: int
    padding: int
    dilation: int


def convolution_rule(nodes: Sequence[BackwardNode]) -> GradientRule | None:
    node = nodes[0]
    if not is_image_convolution(node):
        return None
    stride, padding, dilation = both_axes(node, "stride", "padding", "dilation")
    size, kernel = node.producers[0].outputs[node.inputs[0].output_nr].shape[2:], node.saved["weight"].shape[2:]
    axes = [ConvolutionAxis(*n) for n in zip(size, node.shape[2:], kernel, stride, padding, dilation, strict=True)]
    reach = [(a.out - 1) * a.stride + (a.kernel - 1) * a.dilation + 1 - 2 * a.padding for a in axes]
    output_padding = [axis.size - far for axis, far in zip(axes, reach, strict=True)]
    groups, networks = node.saved["groups"], len(nodes)
    one_channel = node.saved["weight"].shape[1] == groups == 1
    flipped_padding = [a.dilation * (a.kernel - 1) - a.padding for a in axes]
    is_narrow = networks > 1 == groups == stride[0] == stride[1] and node.saved["weight"].shape[0] <= NARROW
    as_grouped_convolution = is_narrow and min(flipped_padding) >= 0
    norms = [node.absorbed_batch_norm for node in nodes]
    slopes = [None if saved is None else batch_norm_slope(saved)[:, None, None, None] for saved in norms]
    node.producers[0].may_overwrite = node.producers[0].may_be_fused
    weights_and_slopes = list(zip([node.saved["weight"] for node in nodes], slopes, strict=True))

    def rule(gradient: Tensor) -> Sequence[Tensor]:
        flat = gradient.permute(0, 2, 4, 5, 1, 3).reshape(-1, *gradient.shape[4:], networks * gradient.shape[3])
        batch = flat.permute(0, 3, 1, 2)  # (T * B, S * C, H, W), channels last
        weights = [weight if slope is None else weight * slope for weight, slope in weights_and_slopes]  # in every call
        if one_channel:
            return [one_channel_gradient(batch, weights, *axes).unflatten(1, (len(gradient), -1)).movedim(1, 0)]
        if as_grouped_convolution:
            joint = torch.cat([weight.flip(2, 3).transpose(0, 1) for weight in weights])
            batch = conv2d(batch, joint, None, stride, flipped_padding, dilation, networks)
        else:
            joint = torch.cat(weights) if networks > 1 else weights[0]
            batch = conv_transpose2d(batch, joint, None, stride, padding, output_padding, networks * groups, dilation)
        shape = len(gradient), -1, *batch.shape[2:], networks, batch.shape[1] // networks
        return [batch.permute(0, 2, 3, 1).reshape(shape).permute(0, 4, 1, 5, 2, 3)]

    return rule


def one_channel_gradient(
    batch: Tensor, weights: Sequence[Tensor], vertical: ConvolutionAxis, horizontal: ConvolutionAxis
) -> Tensor:
    """Gradient at an input of one channel, (S, T * B, 1, H, W): oneDNN's kernels are made for many.

    A product of matrices gives every tap of the kernel; taps are added up down rows, then across columns.
    """
    pixels = batch.permute(0, 2, 3, 1).reshape(-1, len(weights), weights[0].shape[0])
    kernels = torch.stack([weight.flatten(1).T for weight in weights])
    taps = kernels @ pixels.permute(1, 2, 0)
    taps = taps.view(len(weights), vertical.kernel, horizontal.kernel, len(batch), vertical.out, horizontal.out)
    height, width = (axis.size + 2 * axis.padding for axis in (vertical, horizontal))
    down = batch.new_zeros(len(weights), horizontal.kernel, len(batch), height, horizontal.out)
    for tap in range(vertical.kernel):  # touches every `stride`th pixel of the padded input, from tap * dilation on
        met = slice(tap * vertical.dilation, None, vertical.stride)
        down[..., met, :][..., : vertical.out, :].add_(taps[:, tap])
    across = batch.new_zeros(len(weights), len(batch), height, width)
    for tap in range(horizontal.kernel):
        met = slice(tap * horizontal.dilation, None, horizontal.stride)
        across[..., met][..., : horizontal.out].add_(down[:, tap])
    inside = (slice(axis.padding, axis.padding + axis.size) for axis in (vertical, horizontal))
    return across[:, :, None, *inside]


def is_image_convolution(node: BackwardNode) -> bool:
    """Whether this is a convolution of images by weights that do not depend on them."""
    if node.name != CONVOLUTION or input_numbers(node) != [0] or not node.is_readable:
        return False
    return node.saved["weight"].ndim == 4 and not node.saved["transposed"]


def batch_norm_rule(nodes: Sequence[BackwardNode]) -> GradientRule | None:
    """In eval mode: multiply by a factor for each channel.

    If the BatchNorm is all that a convolution leads to, the factors go into that convolution's weights instead.
    """
    node = nodes[0]
    if node.saved["training"] or input_numbers(node) != [0]:
        return None
    convolution = node.producers[0]
    same_type = node.saved["running_var"].dtype == convolution.outputs[0].dtype  # they differ under autocast
    if same_type and convolution.may_be_fused and is_image_convolution(convolution):
        for norm in nodes:
            norm.producers[0].absorbed_batch_norm = norm.saved
        return lambda gradient: [gradient]
    slopes = torch.stack([batch_norm_slope(node.saved) for node in nodes])
    slopes = slopes.view(len(nodes), 1, -1, *[1] * (len(node.shape) - 2))
    return lambda gradient: [gradient * slopes]


def batch_norm_slope(saved: Mapping[str, Any]) -> Tensor:
    slope: Tensor = (saved["running_var"] + saved["eps"]).rsqrt()
    weight = saved["weight"]
    return slope if weight is None else slope * weight


ACTIVATIONS = (
    *("EluBackward0", "GeluBackward0", "HardsigmoidBackward0", "HardswishBackward0", "HardtanhBackward0"),
    *("LeakyReluBackward0", "MishBackward0", "SigmoidBackward0", "SiluBackward0", "SoftplusBackward0", "TanhBackward0"),
)

GRADIENT_RULES: dict[str, Callable[[Sequence[BackwardNode]], GradientRule | None]] = {
    CONVOLUTION: convolution_rule,
    BATCH_NORM: batch_norm_rule,
    RELU: relu_rule,
    MAX_POOLING: max_pooling_rule,
    DENSE: dense_rule,
    PRODUCT: product_rule,
    ADDITION: addition_rule,
    MEAN: mean_rule,
    SLICE: slice_rule,
    **dict.fromkeys(RESHAPES, reshape_rule),
    **dict.fromkeys(("AliasBackward0", "CloneBackward0"), identity_rule),
    **dict.fromkeys(ACTIVATIONS, activation_rule),
}
