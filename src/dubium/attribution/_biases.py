"""The biases of a forward pass: what each is, where in the graph it acts, and where in the image it lies.

Every layer is `f(v) = J_f(v) v + b`. For convolutions, BatchNorm and dense layers b is a parameter or follows from
some; for a layer that is not positively homogeneous (GELU, GroupNorm, ...) it is implicit: `b = f(v) - J_f(v) v`.
The input counts as a bias of its own: its term is gradient times input.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.attribution._autograd.nodes import is_copy, leads_around
from dubium.models.normalized import Normalise
from dubium.types import Images

PERMUTING = frozenset(["permute", "transpose", "movedim", "moveaxis", "swapaxes", "swapdims"])
RESHAPING = frozenset(
    [
        *("view", "reshape", "unflatten", "flatten", "expand", "unsqueeze", "squeeze", "__getitem__", "chunk", "split"),
        *("matmul", "bmm", "einsum", "scaled_dot_product_attention", "softmax", "dropout"),
    ]
)
DENSE, CHANNELS = "linear", "layer of channels"
CHANNELS_FIRST_ALWAYS = frozenset([CHANNELS, "conv2d", "batch_norm", "group_norm", "instance_norm"])


PREFIX_TOKENS = 5  # at most: a class token and four registers, or a class and a distillation token

Size = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Where the numbers of a feature (B, ...) lie in the image: the axes of its place, all others are channels.

    They are two axes, or one axis of tokens that make a grid, behind a prefix of tokens that have no place.
    """

    axes: tuple[int, ...]  # counted after the batch
    grid: Size | None = None
    prefix: int = 0


CHANNELS_FIRST, CHANNELS_LAST = Layout((1, 2)), Layout((0, 1))


def layout_of(shape: tuple[int, ...], *, channels_last: bool, sizes: Collection[Size]) -> Layout | None:
    """The layout of a feature (B, ...), given the sizes of the feature maps that the network has made so far.

    (B, C, h, w) and (B, h, w, C) are feature maps. (B, N, D), (B, heads, N, D) and (B, N, heads, D) are tokens if some
    feature map has N pixels, or up to five fewer: those in front are class tokens and registers. A matrix of attention,
    (B, heads, N, N), lies where its keys are: there the values are that it weighs.
    """
    if len(shape) == 4 and (channels_last or shape[2:] in sizes):
        return CHANNELS_LAST if channels_last else CHANNELS_FIRST
    for axis in {3: (1,), 4: (3, 2, 1) if shape[-1] == shape[-2] else (2, 1)}.get(len(shape), ()):
        for prefix in range(PREFIX_TOKENS + 1):
            for size in sizes:
                if size[0] * size[1] > 1 and shape[axis] == size[0] * size[1] + prefix:
                    return Layout((axis - 1,), size, prefix)
    return CHANNELS_FIRST if len(shape) == 4 else None


@dataclass(frozen=True)
class Bias:
    """A bias, at one execution of one layer or operation."""

    value: Tensor  # one number a channel, or as large as the output where it is implicit; of several networks, stacked
    channels: int  # the axis of the channels in the output
    layout: Layout | None  # where its numbers lie in the image, if they have a place there
    implicit: bool


class Standardised(NamedTuple):
    """An execution of a `Normalise` layer."""

    layer: Normalise
    given: Tensor
    out: Tensor


@dataclass
class RecordedBiases:
    """The biases of a forward pass, in order of execution, and where in the graph each acts.

    With `spatial`, only those that have a place in the image; otherwise all, and the pass is of one image.
    """

    images: int
    spatial: bool
    terms: list[tuple[GradientEdge, Bias]] = field(default_factory=list)
    standardised: list[Standardised] = field(default_factory=list)
    sizes: dict[Size, None] = field(default_factory=dict)  # of feature maps, the latest first
    channels_last: dict[int, Tensor] = field(default_factory=dict)  # by identity; kept alive, so that it is identity

    def layout(self, out: Tensor) -> Layout | None:
        if out.ndim < 3 or len(out) != self.images:
            return None
        return layout_of(tuple(out.shape), channels_last=id(out) in self.channels_last, sizes=self.sizes)

    def is_wanted(self, out: Tensor) -> bool:
        return out.is_floating_point() and (not self.spatial or self.layout(out) is not None)

    def add(self, out: Tensor, value: Tensor, *, last: bool = False) -> None:
        """A bias that acts at a tensor of the graph: of its channels, or of its shape."""
        if last and out.ndim == 4:
            self.channels_last[id(out)] = out
        if out.requires_grad and out.is_floating_point():
            layout, implicit = self.layout(out), value.shape == out.shape and value.ndim > 1
            if layout is not None or not self.spatial:
                self.terms.append((get_gradient_edge(out), Bias(value, -1 if last else 1, layout, implicit)))

    def follow(self, name: str, inputs: Sequence[Any], out: Any) -> None:
        """Note what an operation or layer does to the axes: the sizes of feature maps, and where channels come last."""
        if not isinstance(out, Tensor) or out.ndim != 4 or len(out) != self.images:
            return
        given = next((value for value in inputs if isinstance(value, Tensor) and value.ndim == 4), None)
        if given is None or name in RESHAPING:
            return
        permutes = name in PERMUTING or (given.data_ptr() == out.data_ptr() and is_permutation(given, out))
        if permutes:
            moves_last = given.shape[1] == out.shape[3] and given.shape[2:] == out.shape[1:3]
            last = moves_last and given.shape[2:] in self.sizes and id(given) not in self.channels_last
        else:
            last = id(given) in self.channels_last and name not in CHANNELS_FIRST_ALWAYS
        if last:
            self.channels_last[id(out)] = out
        elif not permutes and name != DENSE:
            size = (out.shape[2], out.shape[3])
            if next(iter(self.sizes), None) != size:
                self.sizes.pop(size, None)
                self.sizes = {size: None, **self.sizes}

    def with_input(self, leaf: Images, output: Any) -> list[tuple[GradientEdge, Bias]]:
        """All biases, and first the images as the network itself sees them: after a normalisation of ours.

        That is where every way from the image leads through `Normalise` layers that are alike, however deep in wrappers
        they stand; otherwise they are layers like any other.
        """
        if not self.standardised or not self._begins_standardised(leaf, output):
            shifts = [
                (get_gradient_edge(s.out), Bias(s.layer.shift(s.given), 1, CHANNELS_FIRST, False))
                for s in self.standardised
            ]
            return [(get_gradient_edge(leaf), Bias(leaf.detach(), 1, CHANNELS_FIRST, True)), *shifts, *self.terms]
        if len(self.standardised) == 1:
            out = self.standardised[0].out
            return [(get_gradient_edge(out), Bias(out.detach(), 1, CHANNELS_FIRST, True)), *self.terms]
        # of several networks: gradients meet at the image, where the factor 1 / std is in them already
        centred = leaf.detach() - self.standardised[0].layer.mean
        return [(get_gradient_edge(leaf), Bias(centred, 1, CHANNELS_FIRST, True)), *self.terms]

    def _begins_standardised(self, leaf: Images, output: Any) -> bool:
        first = self.standardised[0].layer
        if not isinstance(output, Tensor) or not all(
            first.is_like(s.layer) and is_copy(s.given, leaf) for s in self.standardised
        ):
            return False
        return not leads_around(output, leaf, [s.out for s in self.standardised])


def is_permutation(given: Tensor, out: Tensor) -> bool:
    """Whether of two tensors in one place the second has the first's axes in another order, as of a module that
    permutes."""
    axes, moved = (tuple(zip(value.stride(), value.shape, strict=True)) for value in (given, out))
    return axes != moved and sorted(axes) == sorted(moved)
