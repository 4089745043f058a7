"""The biases of a forward pass: which modules have one, what it is, and where in the graph it acts.

Every layer is `f(v) = J_f(v) v + b`. For convolutions, BatchNorm and dense layers b is a parameter or follows from
some; for a layer that is not positively homogeneous (GELU, GroupNorm, ...) it is implicit: `b = f(v) - J_f(v) v`.
The input counts as a bias of its own: its term is gradient times input.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.modules.batchnorm import _BatchNorm

from dubium.attribution._autograd.graph import bypasses, graph_nodes, is_copy
from dubium.attribution._autograd.nodes import whole_tensor
from dubium.attribution._closed_forms import batch_norm_shift
from dubium.attribution._layouts import Layout
from dubium.attribution._places import Place, find_place
from dubium.models.normalized import Normalise
from dubium.types import Images


@dataclass(frozen=True)
class Bias:
    """A bias, at one execution of one layer or operation."""

    value: Tensor  # one number a channel, or as large as the output; of several networks, stacked
    channel_axis: int  # the axis of the channels in the output
    place: Place | None  # where its numbers lie in the image, if they have a place there
    is_full_size: bool  # as large as the output: of the input, and where it is implicit


class RecordedBias(NamedTuple):
    """A bias, and where it acts: at a tensor of the graph."""

    edge: GradientEdge
    shape: torch.Size  # of that tensor
    value: Tensor
    channel_axis: int  # if the bias has one number for each channel: the second or the last
    layout_edge: GradientEdge  # whose layout places the bias: `edge`, but for the ones of `InputOutputTerms`


class NormaliseCall(NamedTuple):
    """An execution of a `Normalise` layer, kept as it was: the network may overwrite the output."""

    layer: Normalise
    input_edge: GradientEdge
    output_edge: GradientEdge
    out: Tensor


@dataclass
class RecordedBiases:
    """The biases of a forward pass, in order of execution, and where in the graph each acts.

    With `only_spatial`, only those that may have a place in the image; otherwise all, and the pass is of one image.
    """

    only_spatial: bool
    entries: list[RecordedBias] = field(default_factory=list)
    normalise_calls: list[NormaliseCall] = field(default_factory=list)

    def needs_bias_of(self, out: Tensor) -> bool:
        """Whether the bias of such an output is of any use: with `only_spatial`, frequencies have none."""
        return not self.only_spatial or (out.ndim > 1 and not out.is_complex())

    def add(
        self,
        tensor: Tensor,
        bias: Tensor,
        *,
        on_last_axis: bool = False,
        layout_from: Tensor | None = None,
        in_place: bool = False,
    ) -> None:
        """Record a bias at a tensor of the graph.

        Args:
            bias: of the tensor's shape, or one number for each index of its second axis, or of its last.
            layout_from: the tensor whose layout places the bias, if that is another.
            in_place: whether the tensor was overwritten; it may be a part of a larger one.
        """
        if in_place:
            whole, bias = bias_of_whole(tensor, bias)
            tensor, layout_from = whole, None if layout_from is tensor else layout_from
        if tensor.requires_grad and self.needs_bias_of(tensor):
            edge = get_gradient_edge(tensor)
            layout_edge = edge if layout_from is None else get_gradient_edge(layout_from)
            self.entries.append(RecordedBias(edge, tensor.shape, bias, -1 if on_last_axis else 1, layout_edge))

    def add_layer(self, layer: nn.Module, x: Tensor, out: Tensor) -> None:
        """Record the bias of a convolution, a dense layer or a BatchNorm, given input and output; of a `Normalise`
        note the call."""
        if isinstance(layer, Normalise):
            if out.requires_grad:
                edges = get_gradient_edge(x), get_gradient_edge(out)
                self.normalise_calls.append(NormaliseCall(layer, *edges, out.detach().clone()))
            return
        if isinstance(layer, _BatchNorm):
            value: Any = batch_norm_shift(layer.running_mean, layer.running_var, layer.weight, layer.bias, layer.eps)
            self.add(out, value.detach())
        elif isinstance(value := layer.bias, Tensor):
            is_dense = isinstance(layer, nn.Linear)
            has_batch = is_dense or out.ndim == layer.weight.ndim
            value = value if has_batch else value.view(-1, *[1] * (out.ndim - 1)).expand_as(out)
            self.add(out, value.detach(), on_last_axis=is_dense)

    def all_entries(self, leaf: Images, output: Any) -> list[RecordedBias]:
        """All biases after the forward pass, the input first, which counts as one.

        If every path from x leads through equal `Normalise` layers, however deep in wrappers, the input is their
        output. Otherwise it is x, and a `Normalise` layer has an ordinary bias.
        """
        calls = self.normalise_calls
        if len(calls) > 1 and isinstance(output, Tensor):  # passes made for a check have other graphs
            nodes = graph_nodes(get_gradient_edge(output).node)
            calls = [call for call in calls if call.output_edge.node in nodes]
        input_edge, value, shifts = get_gradient_edge(leaf), leaf.detach(), list[RecordedBias]()
        if not (calls and begin_with_normalise(calls, leaf, output)):
            shifts = [
                RecordedBias(call.output_edge, call.out.shape, call.layer.shift(call.out), 1, call.output_edge)
                for call in calls
            ]
        elif len(calls) == 1:
            input_edge, value = calls[0].output_edge, calls[0].out
        else:  # several calls: the gradient is taken at x, where it contains 1 / std, so the value is x - mean
            value = value - calls[0].layer.mean
        return [RecordedBias(input_edge, leaf.shape, value, 1, get_gradient_edge(leaf)), *shifts, *self.entries]


def begin_with_normalise(calls: Sequence[NormaliseCall], leaf: Images, output: Any) -> bool:
    """Whether every way from the images to the output leads through one of these calls, of layers that are alike."""
    first = calls[0].layer
    if not isinstance(output, Tensor) or not all(
        first.is_like(call.layer) and is_copy(call.input_edge, leaf) for call in calls
    ):
        return False
    return not bypasses(output, leaf, [call.output_edge for call in calls])


def place_bias(entry: RecordedBias, layout: Layout | None, image_count: int) -> Bias:
    """A recorded bias, with its place in the image."""
    value, is_full_size = entry.value, entry.value.shape == entry.shape
    place = None if layout is None or value.is_complex() else find_place(layout, image_count)
    axis_count = len(entry.shape)
    if place is not None and not is_full_size and not place.has_channels_on(entry.channel_axis % axis_count):
        own_shape = [1] * axis_count  # a number for each row, column, token or head
        own_shape[entry.channel_axis] = len(value)
        value, is_full_size = value.view(own_shape).expand(entry.shape), True
    return Bias(value, entry.channel_axis, place, is_full_size)


def bias_of_whole(part: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The tensor of which a part was overwritten, `y = h[:, 1:].add_(1)`, and its bias: 0 but for that part.

    Later uses of `h` and of `y` both reach the bias through the node of `h`.
    """
    whole = whole_tensor(part)
    if whole is part or whole.dtype != bias.dtype or bias.shape != part.shape:
        return part, bias
    whole_bias = torch.empty_strided(whole.shape, whole.stride(), dtype=bias.dtype, device=bias.device).zero_()
    whole_bias.as_strided(part.shape, part.stride(), part.storage_offset() - whole.storage_offset()).copy_(bias)
    return whole, whole_bias


def first_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The input of a layer that has one, which a caller may name."""
    given: Tensor = args[0] if args else next(iter(kwargs.values()))
    return given
