"""The biases of a forward pass: which modules have one, what it is, and where in the graph it acts.

Every layer is `f(v) = J_f(v) v + b`. For convolutions, BatchNorm and dense layers b is a parameter or follows from
some; for a layer that is not positively homogeneous (GELU, GroupNorm, ...) it is implicit: `b = f(v) - J_f(v) v`.
The input counts as a bias of its own: its term is gradient times input.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from dubium.attribution._autograd.nodes import disable_torch_function, is_copy, leads_around
from dubium.attribution._bias_free import ELEMENTWISE_LAYERS, HOMOGENEOUS_LAYERS, LINEAR_LAYERS
from dubium.attribution._implicit import ImplicitBiases
from dubium.attribution._layouts import CHANNEL_LAYER, CHANNELS_FIRST, DENSE_LAYER, OTHER_LAYER, Layout, LayoutTracker
from dubium.attribution._operations import OperationRecorder
from dubium.models.normalized import Normalise
from dubium.posteriors.mc_dropout import FixedDropout
from dubium.posteriors.stack import Stack
from dubium.types import Images

KNOWN_BIAS_LAYERS = (*LINEAR_LAYERS, _BatchNorm)


@dataclass(frozen=True)
class Bias:
    """A bias, at one execution of one layer or operation."""

    value: Tensor  # one number a channel, or as large as the output; of several networks, stacked
    channel_axis: int  # the axis of the channels in the output
    layout: Layout | None  # where its numbers lie in the image, if they have a place there
    is_full_size: bool  # as large as the output: of the input, and where it is implicit


class NormaliseCall(NamedTuple):
    """An execution of a `Normalise` layer."""

    layer: Normalise
    input: Tensor
    out: Tensor


@dataclass
class RecordedBiases:
    """The biases of a forward pass, in order of execution, and where in the graph each acts.

    With `only_spatial`, only those that have a place in the image; otherwise all, and the pass is of one image.
    """

    layouts: LayoutTracker
    only_spatial: bool
    biases_at_edges: list[tuple[GradientEdge, Bias]] = field(default_factory=list)
    normalise_calls: list[NormaliseCall] = field(default_factory=list)
    network_splits_batch: bool = False  # it takes the images of a batch apart: where each lies is then not known

    def find_layout(self, out: Tensor) -> Layout | None:
        self.network_splits_batch |= self.layouts.is_split_off(out)
        return self.layouts.find(out)

    def is_wanted(self, out: Tensor) -> bool:
        return not self.only_spatial or self.find_layout(out) is not None

    def add(self, out: Tensor, value: Tensor, *, on_last_axis: bool = False) -> None:
        """A bias that acts at a tensor of the graph: of its shape, or one number for each index of its second axis, or
        of its last."""
        if not out.requires_grad:
            return
        layout, axis, is_full_size = self.find_layout(out), -1 if on_last_axis else 1, value.shape == out.shape
        if layout is not None and not is_full_size and axis % out.ndim - 1 in layout.axes:  # a number for each pixel
            shape = [1] * out.ndim
            shape[axis] = len(value)
            value, is_full_size = value.view(shape).expand_as(out), True
        if layout is not None or not self.only_spatial:
            self.biases_at_edges.append((get_gradient_edge(out), Bias(value, axis, layout, is_full_size)))

    def record_layer(self, layer: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        """Forward hook. Convolution, dense layer, BatchNorm: record the bias. `Normalise`: note the call. Others: only
        follow the layout."""
        if not torch.is_grad_enabled():  # a pass that is made for a check: its outputs are on no path to the logits
            return
        with disable_torch_function():
            if not isinstance(layer, KNOWN_BIAS_LAYERS):
                if not isinstance(layer, Normalise):
                    self.layouts.follow(OTHER_LAYER, args, out)
                elif out.requires_grad and len(out) == self.layouts.image_count:
                    self.layouts.follow_orientation(args, out)
                    self.normalise_calls.append(NormaliseCall(layer, args[0], out))
                return
            dense, is_norm = isinstance(layer, nn.Linear), isinstance(layer, _BatchNorm)
            if dense:
                self.layouts.note_last_axis(args, out)
            self.layouts.follow(DENSE_LAYER if dense else CHANNEL_LAYER, args, out)
            value = batch_norm_shift(layer) if is_norm else layer.bias
            if isinstance(value, Tensor) and not value.requires_grad:  # one that depends on the image is no constant
                has_batch = dense or is_norm or out.ndim == layer.weight.ndim
                value = value if has_batch else value.view(-1, *[1] * (out.ndim - 1)).expand_as(out)
                self.add(out, value.detach(), on_last_axis=dense)

    def biases_with_input(self, leaf: Images, output: Any) -> list[tuple[GradientEdge, Bias]]:
        """All biases, after the input, which counts as one.

        If every path from x leads through equal `Normalise` layers, however deep in wrappers, the input is their
        output. Otherwise it is x, and a `Normalise` layer has an ordinary bias.
        """
        if not self.normalise_calls or not self._begins_with_normalise(leaf, output):
            shifts = [
                (
                    get_gradient_edge(call.out),
                    Bias(call.layer.shift(call.input), 1, self.layouts.orient(CHANNELS_FIRST, call.out), False),
                )
                for call in self.normalise_calls
            ]
            return [
                (get_gradient_edge(leaf), Bias(leaf.detach(), 1, CHANNELS_FIRST, True)),
                *shifts,
                *self.biases_at_edges,
            ]
        if len(self.normalise_calls) == 1:
            out = self.normalise_calls[0].out
            return [(get_gradient_edge(out), Bias(out.detach(), 1, CHANNELS_FIRST, True)), *self.biases_at_edges]
        # of several networks: gradients meet at the image, where the factor 1 / std is in them already
        centred = leaf.detach() - self.normalise_calls[0].layer.mean
        return [(get_gradient_edge(leaf), Bias(centred, 1, CHANNELS_FIRST, True)), *self.biases_at_edges]

    def _begins_with_normalise(self, leaf: Images, output: Any) -> bool:
        first = self.normalise_calls[0].layer
        if not isinstance(output, Tensor) or not all(
            first.is_like(call.layer) and is_copy(call.input, leaf) for call in self.normalise_calls
        ):
            return False
        return not leads_around(output, leaf, [call.out for call in self.normalise_calls])


@contextmanager
def record_biases(network: nn.Module, image_count: int, *, only_spatial: bool) -> Iterator[RecordedBiases]:
    """Within the block, a forward pass of the network records each bias with the place of its gradient.

    Layers whose function is known, and innermost modules of any kind, have one bias each. What happens outside of them
    is recorded operation by operation.
    """
    recorded = RecordedBiases(LayoutTracker(image_count), only_spatial)
    layers, has_operations = innermost_layers(network)
    operations = (
        OperationRecorder(recorded.is_wanted, recorded.add, recorded.layouts.follow) if has_operations else None
    )
    handles = [*hook_layers(layers, recorded, operations)]
    try:
        with nullcontext() if operations is None else operations.recording():
            yield recorded
    finally:
        for handle in handles:
            handle.remove()


def hook_layers(
    layers: Mapping[nn.Module, bool], recorded: RecordedBiases, operations: OperationRecorder | None
) -> Iterator[RemovableHandle]:
    """Hook each layer so that its bias is recorded, and operations inside of it are not.

    Hooks of a user's are operations outside of the layer: ours are next to it.
    """
    implicit, is_all_known = ImplicitBiases(recorded), all(layers.values())

    def only_layers(hook: Callable[..., Any]) -> Callable[..., Any]:
        """The hook, for these layers alone: a deepcopy of a layer that a user's forward makes has its hooks, too."""
        return lambda layer, *given: hook(layer, *given) if layer in layers else None

    for layer, has_known_bias in layers.items():
        if has_known_bias and type(layer) in ELEMENTWISE_LAYERS and (operations is not None or is_all_known):
            continue  # it has no bias, and keeps the layout
        if operations is not None:
            yield layer.register_forward_pre_hook(only_layers(operations.pause))
            yield layer.register_forward_hook(only_layers(operations.resume), prepend=True, always_call=True)
        if has_known_bias:
            yield layer.register_forward_hook(only_layers(recorded.record_layer), prepend=True)
        else:
            yield layer.register_forward_pre_hook(only_layers(implicit.before), with_kwargs=True)
            yield layer.register_forward_hook(only_layers(implicit.after), prepend=True)


def innermost_layers(network: nn.Module) -> tuple[dict[nn.Module, bool], bool]:
    """The modules that count as one function each, with whether their bias is known, and whether a forward pass may
    compute anything outside of them.

    They are linear layers and BatchNorm of torch.nn, and modules without children, in order. A known bias is a
    parameter, follows from parameters, or is zero. The network, or the network inside a wrapper, is among them only if
    it is a layer of torch.nn itself, so that functional calls in its forward are recorded. What is inside a convolution
    (a weight's parametrization) is no layer. A Sequential computes nothing between its layers.
    """
    layers: dict[nn.Module, bool] = {}
    network = next(network.modules())  # a wrapper of ours that computes nothing shows the network itself
    has_operations, waiting, seen, never_layers = False, [network], {network}, {network}
    while waiting:
        module = waiting.pop()
        never_layers.update(inner_networks(module) if module in never_layers else ())
        has_operations = has_operations or bool(module._forward_hooks or module._forward_pre_hooks)  # a user's
        # a forward that was put into the module is not that of its class; mypy does not see that classes are hashable
        base = None if "forward" in vars(module) else torch_class(type(module))  # type: ignore[arg-type]
        is_channel_layer = base is not None and issubclass(base, KNOWN_BIAS_LAYERS)
        children = [] if is_channel_layer else [child for child in module._modules.values() if child is not None]
        if not children and (module not in never_layers or base is not None):
            is_homogeneous = base is not None and issubclass(base, HOMOGENEOUS_LAYERS)
            is_ours = type(module) in (Normalise, FixedDropout)  # the latter has another mask at each call
            layers[module] = is_channel_layer or is_homogeneous or is_ours
        else:
            has_operations = has_operations or base is not nn.Sequential
        fresh = [child for child in children if child not in seen]
        seen.update(fresh)
        waiting += reversed(fresh)
    return layers, has_operations


def inner_networks(wrapper: nn.Module) -> list[nn.Module]:
    """The networks that a module hands its images to: those of a stack, or an only child that has all the weights."""
    if isinstance(wrapper, Stack):
        return list(wrapper.networks)
    children = [child for child in wrapper.children() if type(child) not in (Normalise, FixedDropout)]
    if len(children) != 1 or any(True for _ in wrapper.parameters(recurse=False)):
        return []
    return children if any(parameter.ndim > 1 for parameter in children[0].parameters()) else []


@cache
def torch_class(layer: type[nn.Module]) -> type[nn.Module] | None:
    """The class of torch.nn whose function layers of a class compute: their own, or one whose forward they inherit."""
    for base in layer.__mro__:
        if issubclass(base, nn.Module) and base.__module__.startswith("torch.nn.modules"):
            functions = ("forward", "_conv_forward")  # what a convolution's forward calls
            is_same = all(getattr(layer, name, None) is getattr(base, name, None) for name in functions)
            return base if is_same else None
    return None


def batch_norm_shift(layer: nn.Module) -> Tensor:
    """The bias of a BatchNorm layer in eval mode, one number a channel: what it makes of zeros."""
    assert isinstance(layer, _BatchNorm)
    assert layer.running_mean is not None
    zeros = layer.running_mean.new_zeros(1, layer.num_features)
    return batch_norm(zeros, layer.running_mean, layer.running_var, layer.weight, layer.bias, eps=layer.eps)[0]
