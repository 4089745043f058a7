"""Rules for the commonest nodes: from the gradient at the output, (targets, *its shape), to those at the inputs.

Features have their channels last, the layout in which oneDNN convolves fastest. A rule is made once for all targets; it
is None where it does not fit.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv_transpose2d, pad

from dubium.attribution._graph import Node, Step

Rule = Callable[[Tensor], Sequence[Tensor]]

CONVOLUTION, NORM = "ConvolutionBackward0", "NativeBatchNormBackward0"
RELU, POOLING = "ReluBackward0", "MaxPool2DWithIndicesBackward0"


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def same(step: Step) -> Rule:
    """Each input has the output's gradient."""
    return lambda gradient: [gradient] * len(step.edges)


def added(step: Step) -> Rule | None:
    return same(step) if step.node._saved_alpha == 1 else None


def sliced(step: Step) -> Rule | None:
    """Only where nothing was left out."""
    return same(step) if step.shape == step.node._saved_self_sym_sizes else None


def reshaped(step: Step) -> Rule:
    shape = step.node._saved_self_sym_sizes
    return lambda gradient: [gradient.reshape(-1, *shape)]


def averaged(step: Step) -> Rule:
    shape = step.node._saved_self_sym_sizes
    dims = step.node._saved_dim or range(len(shape))
    axes = [range(len(shape))[dim if dim < 2**63 else dim - 2**64] for dim in dims]
    kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
    count = math.prod(shape) / math.prod(kept)
    return lambda gradient: [(gradient.reshape(-1, *kept) / count).expand(-1, *shape)]


def dense(step: Step) -> Rule | None:
    weight = step.node._saved_mat2
    return None if step.inputs != [1] or step.node._saved_alpha != 1 else lambda gradient: [gradient @ weight.T]


def rectified(step: Step) -> Rule:
    if any(hides_relu(above) for above in step.above):
        return same(step)
    out = channels_last(step.node._saved_result)
    return lambda gradient: [torch.ops.aten.threshold_backward(gradient, out, 0)]


def normalised(step: Step) -> Rule | None:
    if step.node._saved_training or step.inputs != [0]:
        return None
    if is_folded(step):
        return same(step)
    slope = slope_of(step.node).view(-1, *[1] * (len(step.shape) - 2))
    return lambda gradient: [gradient * slope]


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


def convolved(step: Step) -> Rule | None:
    """The gradient of a convolution at its input is a transposed convolution."""
    if not is_convolution(step):
        return None
    node, weight, groups = step.node, step.node._saved_weight, step.node._saved_groups
    slope = slope_of(step.above[0].node) if is_folded(step.above[0]) else None
    ((_, below, place),) = step.edges
    axes = [
        Axis(*numbers)
        for numbers in zip(
            below._input_metadata[place].shape[2:], step.shape[2:], weight.shape[2:],
            node._saved_stride, node._saved_padding, node._saved_dilation, strict=True,
        )
    ]  # fmt: skip

    def rule(gradient: Tensor) -> Sequence[Tensor]:
        rows = channels_last(gradient.flatten(0, 1))
        folded = weight if slope is None else weight * slope[:, None, None, None]  # anew each time: it is a copy
        if weight.shape[1] == groups == 1:
            pulled = to_one_channel(rows, folded[:, 0], *axes)
        else:
            rest = [axis.size - axis.reach for axis in axes]
            pulled = conv_transpose2d(
                rows, folded, None, node._saved_stride, node._saved_padding, rest, groups, node._saved_dilation
            )
        return [pulled.unflatten(0, gradient.shape[:2])]

    return rule


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


def to_one_channel(rows: Tensor, weight: Tensor, vertical: Axis, horizontal: Axis) -> Tensor:
    """A product of matrices, added up across columns, then down rows: oneDNN's kernels want many channels."""
    taps = (weight.flatten(1).T @ rows.flatten(2)).view(-1, *weight.shape[1:], *rows.shape[2:])
    across = rows.new_zeros(len(rows), vertical.kernel, vertical.out, horizontal.padded)
    for tap in range(horizontal.kernel):
        across[..., horizontal.meets(tap)].add_(taps[:, :, tap])
    down = rows.new_zeros(len(rows), vertical.padded, horizontal.padded)
    for tap in range(vertical.kernel):
        down[:, vertical.meets(tap)].add_(across[:, tap])
    return down[:, None, vertical.inside, horizontal.inside]


def pooled(step: Step) -> Rule | None:
    """Maxima of squares that do not overlap: where each was found is known once for all targets."""
    if not has_squares(step.node):
        return None
    x, found, size = step.node._saved_self, step.node._saved_result1, step.node._saved_kernel_size[0]
    height, width = (n * size for n in found.shape[2:])
    where = step.node(x.new_ones(found.shape))
    if hides_relu(step):
        where = torch.ops.aten.threshold_backward(where, x, 0)
    where = where[:, :, :height, :width].movedim(1, -1).unflatten(1, (-1, size)).flatten(3).contiguous()
    rest = (0, x.shape[3] - width, 0, x.shape[2] - height)

    def rule(gradient: Tensor) -> Sequence[Tensor]:
        # across columns by a copy, then down rows by the product: its inner loop runs over whole rows
        across = gradient.movedim(2, -1)[..., None, :].expand(*[-1] * 4, size, -1).flatten(3)
        pulled = (across[:, :, :, None] * where).flatten(2, 3).unflatten(3, (-1, x.shape[1])).movedim(-1, 2)
        return [pad(pulled, rest) if any(rest) else pulled]

    return rule


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


RULES: dict[str, Callable[[Step], Rule | None]] = {
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
