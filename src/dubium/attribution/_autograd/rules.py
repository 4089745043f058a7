"""Rules for the commonest nodes: from the gradient at the output to those at the inputs.

Networks of one architecture go together: a rule is made of the same step of each of them, once for all targets, and is
None where it does not fit. Gradients are (targets, networks, *shape of the output). Features have their channels last,
those of all networks side by side: the layout in which oneDNN convolves fastest, with a group for each network.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv_transpose2d, pad

from dubium.attribution._autograd.graph import CONVOLUTION, Node, Step

Steps = Sequence[Step]
Rule = Callable[[Tensor], Sequence[Tensor]]

NORM, RELU, POOLING = "NativeBatchNormBackward0", "ReluBackward0", "MaxPool2DWithIndicesBackward0"

Rows = Tensor
"""(targets and images, channels of all networks, height, width)"""


def to_rows(gradient: Tensor) -> Rows:
    targets, networks, images, channels, height, width = gradient.shape
    flat = gradient.permute(0, 2, 4, 5, 1, 3).reshape(targets * images, height, width, networks * channels)
    return flat.permute(0, 3, 1, 2)


def from_rows(rows: Rows, targets: int, networks: int) -> Tensor:
    count, channels, height, width = rows.shape
    shape = targets, count // targets, height, width, networks, channels // networks
    return rows.permute(0, 2, 3, 1).reshape(shape).permute(0, 4, 1, 5, 2, 3)


def stacked(networks: Sequence[Tensor], axis: int) -> Tensor:
    """As `torch.stack`, but of one without a copy."""
    return torch.stack([*networks], axis) if len(networks) > 1 else networks[0].unsqueeze(axis)


def side_by_side(features: Sequence[Tensor]) -> Tensor:
    """The features of all networks as one, (networks, *shape)."""
    whole = stacked(features, 0)
    return whole.permute(1, 3, 4, 0, 2).contiguous().permute(3, 0, 4, 1, 2) if whole.ndim == 5 else whole


def same(steps: Steps) -> Rule:
    """Each input has the output's gradient."""
    return lambda gradient: [gradient] * len(steps[0].edges)


def added(steps: Steps) -> Rule | None:
    return same(steps) if steps[0].node._saved_alpha == 1 else None


def sliced(steps: Steps) -> Rule | None:
    """Only where nothing was left out."""
    return same(steps) if steps[0].shape == steps[0].node._saved_self_sym_sizes else None


def reshaped(steps: Steps) -> Rule:
    shape = steps[0].node._saved_self_sym_sizes
    return lambda gradient: [gradient.reshape(*gradient.shape[:2], *shape)]


def averaged(steps: Steps) -> Rule:
    shape = steps[0].node._saved_self_sym_sizes
    dims = steps[0].node._saved_dim or range(len(shape))
    axes = [range(len(shape))[dim if dim < 2**63 else dim - 2**64] for dim in dims]
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    count = math.prod(shape) / math.prod(kept)
    return lambda gradient: [(gradient.reshape(*gradient.shape[:2], *kept) / count).expand(-1, -1, *shape)]


def dense(steps: Steps) -> Rule | None:
    if steps[0].inputs != [1] or steps[0].node._saved_alpha != 1:
        return None
    weights = [step.node._saved_mat2.T for step in steps]
    if len(weights) == 1:
        return lambda gradient: [gradient @ weights[0]]
    halves = [weight.unflatten(1, (math.gcd(weight.shape[1], 2), -1)).movedim(1, 0) for weight in weights]

    def rule(gradient: Tensor) -> Sequence[Tensor]:
        """Rows are few, and few rows make one thread's work: halves of the weights are one for each of two."""
        rows = gradient.movedim(1, 0).flatten(1, 2)
        pulled = torch.stack([own.expand(len(half), -1, -1) @ half for own, half in zip(rows, halves, strict=True)])
        return [pulled.unflatten(2, (len(gradient), -1)).permute(2, 0, 3, 1, 4).flatten(3)]

    return rule


def rectified(steps: Steps) -> Rule:
    if any(hides_relu(above) for above in steps[0].above):
        return same(steps)
    out = side_by_side([step.node._saved_result for step in steps])
    if serves_only_one(steps[0]) and is_convolution(steps[0].above[0]):  # its gradient is new, and nobody else's
        return lambda gradient: [torch.ops.aten.threshold_backward(gradient, out, 0, grad_input=gradient)]
    return lambda gradient: [torch.ops.aten.threshold_backward(gradient, out, 0)]


def normalised(steps: Steps) -> Rule | None:
    step = steps[0]
    if step.node._saved_training or step.inputs != [0]:
        return None
    if is_folded(step):
        return same(steps)
    slopes = torch.stack([slope_of(step.node) for step in steps])
    slopes = slopes.view(len(steps), 1, -1, *[1] * (len(step.shape) - 2))
    return lambda gradient: [gradient * slopes]


def is_folded(step: Step) -> bool:
    """Whether this is a BatchNorm, and all that a convolution leads to: they make one, of other weights."""
    if step.name != NORM or step.node._saved_training or step.inputs != [0]:
        return False
    return is_convolution(step.below[0]) and serves_only_one(step.below[0])


def is_convolution(step: Step) -> bool:
    """Of images, by weights that do not depend on them."""
    if step.name != CONVOLUTION or step.inputs != [0]:
        return False
    return step.node._saved_weight.ndim == 4 and not step.node._saved_transposed


def slope_of(norm: Node) -> Tensor:
    slope: Tensor = (norm._saved_running_var + norm._saved_eps).rsqrt()
    return slope if norm._saved_weight is None else slope * norm._saved_weight


def convolved(steps: Steps) -> Rule | None:
    """The gradient of a convolution at its input is a transposed convolution."""
    step, node = steps[0], steps[0].node
    if not is_convolution(step):
        return None
    ((_, below, place),) = step.edges
    axes = [
        Axis(*numbers)
        for numbers in zip(
            below._input_metadata[place].shape[2:], step.shape[2:], node._saved_weight.shape[2:],
            node._saved_stride, node._saved_padding, node._saved_dilation, strict=True,
        )
    ]  # fmt: skip
    rest, groups = [axis.size - axis.reach for axis in axes], node._saved_groups
    one_channel = node._saved_weight.shape[1] == groups == 1
    weights_and_slopes = [(step.node._saved_weight, slope_above(step)) for step in steps]

    def rule(gradient: Tensor) -> Sequence[Tensor]:
        rows = to_rows(gradient)
        weights = [weight if slope is None else weight * slope for weight, slope in weights_and_slopes]  # not kept
        if one_channel:
            return [to_one_channel(rows, weights, *axes).unflatten(1, (len(gradient), -1)).movedim(1, 0)]
        weight = torch.cat(weights) if len(weights) > 1 else weights[0]
        numbers = node._saved_stride, node._saved_padding, rest, len(steps) * groups, node._saved_dilation
        return [from_rows(conv_transpose2d(rows, weight, None, *numbers), len(gradient), len(steps))]

    return rule


def slope_above(convolution: Step) -> Tensor | None:
    """That of the BatchNorm which makes one with it, for its weights."""
    (above, *_) = convolution.above
    return slope_of(above.node)[:, None, None, None] if is_folded(above) else None


class Axis(NamedTuple):
    """What a convolution does along one axis."""

    size: int
    out: int
    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def reach(self) -> int:
        """How far the kernel comes, from the first pixel."""
        return (self.out - 1) * self.stride + (self.kernel - 1) * self.dilation + 1 - 2 * self.padding

    def meets(self, tap: int) -> slice:
        """The pixels of the padded input that one tap of the kernel meets."""
        first = tap * self.dilation
        return slice(first, first + (self.out - 1) * self.stride + 1, self.stride)

    @property
    def padded(self) -> int:
        return self.size + 2 * self.padding

    @property
    def inside(self) -> slice:
        return slice(self.padding, self.padding + self.size)


def to_one_channel(rows: Rows, weights: Sequence[Tensor], vertical: Axis, horizontal: Axis) -> Tensor:
    """(networks, rows, 1, height, width): products of matrices, added up down rows, then across columns.

    oneDNN's kernels want many channels.
    """
    pixels = rows.permute(0, 2, 3, 1).reshape(-1, len(weights), weights[0].shape[0])
    taps = stacked([weight.flatten(1).T for weight in weights], 0) @ pixels.permute(1, 2, 0)
    taps = taps.view(len(weights), vertical.kernel, horizontal.kernel, len(rows), vertical.out, horizontal.out)
    down = rows.new_zeros(len(weights), horizontal.kernel, len(rows), vertical.padded, horizontal.out)
    for tap in range(vertical.kernel):
        down[..., vertical.meets(tap), :].add_(taps[:, tap])
    across = rows.new_zeros(len(weights), len(rows), vertical.padded, horizontal.padded)
    for tap in range(horizontal.kernel):
        across[..., horizontal.meets(tap)].add_(down[:, tap])
    return across[:, :, None, vertical.inside, horizontal.inside]


def pooled(steps: Steps) -> Rule | None:
    """Maxima of squares that do not overlap: where each was found is known once for all targets."""
    node = steps[0].node
    if not has_squares(node):
        return None
    size, shape, out = node._saved_kernel_size[0], node._saved_self.shape, steps[0].shape
    height, width = (n * size for n in out[2:])
    where = winners(steps)[..., :height, :width].permute(1, 3, 4, 0, 2)
    where = where.contiguous().unflatten(1, (-1, size)).flatten(3)  # image, row, row, all else
    rest = (0, shape[3] - width, 0, shape[2] - height)

    def rule(gradient: Tensor) -> Sequence[Tensor]:
        # across columns by a copy, then down rows by the product: its inner loop runs over whole rows
        across = gradient.permute(0, 2, 4, 5, 1, 3)[:, :, :, :, None].expand(*[-1] * 4, size, -1, -1).flatten(3)
        pulled = (across[:, :, :, None] * where).view(*across.shape[:2], height, width, len(steps), shape[1])
        pulled = pulled.permute(0, 4, 1, 5, 2, 3)
        return [pad(pulled, rest) if any(rest) else pulled]

    return rule


def winners(steps: Steps) -> Tensor:
    """(networks, *features): 1 at the maxima, unless a ReLU is to hide them."""
    features = stacked([step.node._saved_self for step in steps], 0)
    places = stacked([step.node._saved_result1 for step in steps], 0).flatten(3)
    values = features.flatten(3)
    seen = (values.gather(3, places) > 0).to(values.dtype) if hides_relu(steps[0]) else values.new_ones(())
    found = torch.zeros_like(values).scatter_(3, places, seen.expand_as(places))
    return found.view_as(features)


def has_squares(pooling: Node) -> bool:
    size = pooling._saved_kernel_size
    if pooling._saved_self.ndim != 4:
        return False
    touching = size[0] == size[1] and pooling._saved_stride in ((), size) and not pooling._saved_ceil_mode
    return touching and (*pooling._saved_padding, *pooling._saved_dilation) == (0, 0, 1, 1)


def hides_relu(step: Step) -> bool:
    """Whether this pools squares, and is all that a ReLU leads to: its rule then hides what that would."""
    if step.name != POOLING or not has_squares(step.node):
        return False
    return step.below[0].name == RELU and serves_only_one(step.below[0])


def serves_only_one(step: Step) -> bool:
    """Whether the gradient here is of use only to those below, which may find it half done."""
    return len(step.above) == 1 and not step.wanted


SETTINGS = {
    CONVOLUTION: ("stride", "padding", "dilation", "groups", "transposed"),
    NORM: ("training",),
    POOLING: ("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "AddmmBackward0": ("alpha",),
    "AddBackward0": ("alpha",),
    "MeanBackward1": ("dim",),
}
"""What a rule takes from the first network for all."""

RULES: dict[str, Callable[[Steps], Rule | None]] = {
    CONVOLUTION: convolved,
    NORM: normalised,
    RELU: rectified,
    POOLING: pooled,
    "AddmmBackward0": dense,
    "AddBackward0": added,
    "MeanBackward1": averaged,
    "SliceBackward0": sliced,
    **dict.fromkeys(("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0"), reshaped),
    **dict.fromkeys(("AliasBackward0", "CloneBackward0"), same),
}
