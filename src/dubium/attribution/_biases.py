"""The biases of a network, found by running it.

Every layer is `f(v) = J_f(v) v + b`. For convolutions, BatchNorm and dense layers b is a parameter or follows from
some; for a layer that is not positively homogeneous (GELU, GroupNorm, ...) it is implicit: `b = f(v) - J_f(v) v`.
The input counts as a bias of its own: its term is gradient times input.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from dubium.attribution._autograd.nodes import is_copy, leads_around
from dubium.attribution._implicit import Call, NoForwardModeError, flatten_tensors, implicit_biases, replace_tensors
from dubium.attribution._layers import LINEAR, batch_norm_shift, closed_layers, has_known_bias, normalises_last_axis
from dubium.attribution._layout import CHANNELS_FIRST, Layout, Size, layout_of
from dubium.attribution._operations import OperationRecorder
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


@dataclass(frozen=True)
class Bias:
    """A bias, at one execution of one layer or operation."""

    value: Tensor  # one number a channel, or as large as the output where it is implicit; of several networks, stacked
    channels: int  # the axis of the channels in the output
    layout: Layout | None  # where its numbers lie in the image, if they have a place there
    implicit: bool

    @classmethod
    def of_networks(cls, biases: Sequence["Bias"]) -> "Bias":
        """The same bias in several networks."""
        return replace(biases[0], value=torch.stack([bias.value for bias in biases]))


class Standardised(NamedTuple):
    """An execution of a `Normalise` layer."""

    layer: Normalise
    given: Tensor
    out: Tensor


class RecordedBiases:
    """The biases of a forward pass, in order of execution, and where in the graph each acts.

    With `spatial`, only those that have a place in the image; otherwise all, and the pass is of one image.
    """

    def __init__(self, images: int, *, spatial: bool) -> None:
        self.images, self.spatial = images, spatial
        self.terms: list[tuple[GradientEdge, Bias]] = []
        self.standardised: list[Standardised] = []
        self.sizes: dict[Size, None] = {}  # of feature maps, the latest first
        self.channels_last: dict[int, Tensor] = {}  # by identity; kept alive, so that identity means identity

    def layout(self, out: Tensor) -> Layout | None:
        if out.ndim < 3 or len(out) != self.images:
            return None
        return layout_of(tuple(out.shape), channels_last=self.is_channels_last(out), sizes=self.sizes)

    def is_channels_last(self, out: Tensor) -> bool:
        return id(out) in self.channels_last

    def is_wanted(self, out: Tensor) -> bool:
        return out.is_floating_point() and (not self.spatial or self.layout(out) is not None)

    def add(self, out: Tensor, value: Tensor, *, last: bool = False) -> None:
        """A bias that acts at a tensor of the graph: of its channels, or of its shape."""
        if last and out.ndim == 4:
            self.channels_last[id(out)] = out
        if out.requires_grad and self.is_wanted(out):
            implicit = value.shape == out.shape and value.ndim > 1
            bias = Bias(value, -1 if last else 1, self.layout(out), implicit)
            self.terms.append((get_gradient_edge(out), bias))

    def follow(self, name: str, inputs: Sequence[Any], out: Any) -> None:
        """Note what an operation or layer does to the axes: the sizes of feature maps, and where channels come last."""
        if not isinstance(out, Tensor) or out.ndim != 4 or len(out) != self.images:
            return
        given = next((value for value in inputs if isinstance(value, Tensor) and value.ndim == 4), None)
        if given is None or name in RESHAPING:
            return
        permutes = name in PERMUTING or is_permutation(given, out)
        if permutes:
            moves_last = given.shape[1] == out.shape[3] and given.shape[2:] == out.shape[1:3]
            last = moves_last and given.shape[2:] in self.sizes and not self.is_channels_last(given)
        else:
            last = self.is_channels_last(given) and name not in CHANNELS_FIRST_ALWAYS
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
    """Whether a tensor is another one with its axes in another order, as of a module that permutes."""
    axes, moved = (tuple(zip(value.stride(), value.shape, strict=True)) for value in (given, out))
    return axes != moved and sorted(axes) == sorted(moved) and given.data_ptr() == out.data_ptr()


@contextmanager
def record_biases(network: nn.Module, images: int, *, spatial: bool) -> Iterator[RecordedBiases]:
    """Within the block, a forward pass of the network records each bias with the place of its gradient.

    Layers whose function is known, and innermost modules of any kind, have one bias each. What happens outside of them
    is recorded operation by operation.
    """
    recorded = RecordedBiases(images, spatial=spatial)
    operations = OperationRecorder(recorded.is_wanted, recorded.add, recorded.follow)
    pending: dict[nn.Module, list[Tensor | None] | list[Tensor]] = {}

    def before_known(_layer: nn.Module, _args: Any) -> None:
        operations.pause()

    def after_known(layer: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        record_known(layer, args, out)
        operations.resume()

    def record_known(layer: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        if isinstance(layer, Normalise):
            if out.requires_grad and len(out) == images:
                recorded.standardised.append(Standardised(layer, args[0], out))
            return
        dense, has_channels = isinstance(layer, nn.Linear), isinstance(layer, (*LINEAR, _BatchNorm))
        recorded.follow(DENSE if dense else CHANNELS if has_channels else "layer", args, out)
        if has_channels:
            value = batch_norm_shift(layer) if isinstance(layer, _BatchNorm) else layer.bias
            if isinstance(value, Tensor):
                recorded.add(out, value.detach(), last=dense)

    def before_other(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operations.pause()
        dependent = [value for value in flatten_tensors((args, kwargs)) if value.requires_grad]
        call = Call(layer.forward, args, kwargs, dependent, returns_nothing=False)  # not layer(): it has hooks
        try:  # now: a layer that works in place overwrites its input
            values = [value.detach() for value in dependent]
            pending[layer] = implicit_biases(call, values) if dependent else []
        except NoForwardModeError:
            views = [value.view_as(value) for value in dependent]
            pending[layer] = views
            return replace_tensors((args, kwargs), call.places, views)
        return None

    def after_other(layer: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        recorded.follow("layer", args, out)
        found, outputs = pending.pop(layer), flatten_tensors(out)
        if any(value is not None and value.requires_grad for value in found):  # views of the inputs: no forward mode
            terms = [(value, value.detach()) for value in outputs] + [(v, -v.detach()) for v in found if v is not None]
        else:
            terms = [(value, bias) for value, bias in zip(outputs, found, strict=False) if bias is not None]
        for value, bias in terms:
            recorded.add(value, bias, last=recorded.is_channels_last(value) or normalises_last_axis(layer))
        operations.resume()

    handles: list[RemovableHandle] = []
    closed, has_operations = closed_layers(network)
    for layer in closed:
        if has_known_bias(type(layer)):  # type: ignore[arg-type]  # mypy takes the class for an instance
            handles.append(layer.register_forward_pre_hook(before_known))
            handles.append(layer.register_forward_hook(after_known))
        else:
            handles.append(layer.register_forward_pre_hook(before_other, with_kwargs=True))
            handles.append(layer.register_forward_hook(after_other))
    try:
        if has_operations:
            operations.start()
        yield recorded
    finally:
        operations.stop()
        for handle in handles:
            handle.remove()
