"""The biases of a forward pass: which modules have one, what it is, and where in the graph it acts.

Every layer is `f(v) = J_f(v) v + b`. For convolutions, BatchNorm and dense layers b is a parameter or follows from
some; for a layer that is not positively homogeneous (GELU, GroupNorm, ...) it is implicit: `b = f(v) - J_f(v) v`.
The input counts as a bias of its own: its term is gradient times input.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from dubium.attribution._autograd.graph import is_copy, leads_around
from dubium.attribution._autograd.nodes import MissingAttributeError, disable_torch_function
from dubium.attribution._bias_free import ELEMENTWISE_LAYERS, HOMOGENEOUS_LAYERS, LINEAR_LAYERS
from dubium.attribution._closed_forms import CLOSED_FORMS, ClosedForm
from dubium.attribution._implicit import ImplicitBiases
from dubium.attribution._layout_rules import LayoutsByEdge, follow_layouts
from dubium.attribution._layouts import Layout, image_layout
from dubium.attribution._operations import OperationRecorder
from dubium.attribution._places import Place, find_place
from dubium.models.normalized import Normalise
from dubium.posteriors.mc_dropout import FixedDropout
from dubium.posteriors.stack import Stack
from dubium.types import Images

PARAMETER_BIAS_LAYERS = (*LINEAR_LAYERS, _BatchNorm)


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
    axis: int  # of the channels, if the bias has one number for each: the second or the last
    place_edge: GradientEdge  # whose layout places the bias: `edge`, unless that is a leaf that we added


class NormaliseCall(NamedTuple):
    """An execution of a `Normalise` layer."""

    layer: Normalise
    input: Tensor
    out: Tensor


@dataclass
class RecordedBiases:
    """The biases of a forward pass, in order of execution, and where in the graph each acts.

    With `only_spatial`, only those that may have a place in the image; otherwise all, and the pass is of one image.
    """

    image_count: int
    only_spatial: bool
    entries: list[RecordedBias] = field(default_factory=list)
    normalise_calls: list[NormaliseCall] = field(default_factory=list)
    network_splits_batch: bool = False  # whether some feature has a place in a pass of one image, and not in this one

    def is_wanted(self, out: Tensor) -> bool:
        """Whether the bias of such an output is of any use: frequencies, for one, have no place."""
        return not self.only_spatial or (out.ndim > 1 and not out.is_complex())

    def add(self, tensor: Tensor, bias: Tensor, *, on_last_axis: bool = False, placed_as: Tensor | None = None) -> None:
        """A bias that acts at a tensor of the graph: of its shape, or one number for each index of its second axis, or
        of its last. It lies in the image where that tensor does, or another, `placed_as`."""
        if tensor.requires_grad and self.is_wanted(tensor):
            edge = get_gradient_edge(tensor)
            place_edge = edge if placed_as is None else get_gradient_edge(placed_as)
            self.entries.append(RecordedBias(edge, tensor.shape, bias, -1 if on_last_axis else 1, place_edge))

    def record_layer(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Forward hook. Convolution, dense layer, BatchNorm: record the bias. `Normalise`: note the call."""
        if not torch.is_grad_enabled():  # a pass that is made for a check
            return
        with disable_torch_function():
            if isinstance(layer, Normalise):
                if out.requires_grad and len(out) == self.image_count:
                    self.normalise_calls.append(NormaliseCall(layer, first_argument(args, kwargs), out))
                return
            dense, is_norm = isinstance(layer, nn.Linear), isinstance(layer, _BatchNorm)
            value = batch_norm_shift(layer) if is_norm else layer.bias
            if isinstance(value, Tensor):
                has_batch = dense or is_norm or out.ndim == layer.weight.ndim
                value = value if has_batch else value.view(-1, *[1] * (out.ndim - 1)).expand_as(out)
                self.add(out, value.detach(), on_last_axis=dense)

    def record_closed_form(
        self, closed_form: ClosedForm, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor
    ) -> None:
        """Forward hook of a layer whose implicit bias follows from its input and output."""
        if torch.is_grad_enabled() and out.requires_grad and self.is_wanted(out):
            given = first_argument(args, kwargs).detach()
            with disable_torch_function():
                self.add(out, closed_form(layer, given, out.detach()))

    def find_biases(self, leaf: Images, output: Any) -> list[tuple[GradientEdge, Bias]]:
        """All biases after the forward pass, the input first, which counts as one.

        If every path from x leads through equal `Normalise` layers, however deep in wrappers, the input is their
        output. Otherwise it is x, and a `Normalise` layer has an ordinary bias.
        """
        begins_with_normalise = bool(self.normalise_calls) and self._begins_with_normalise(leaf, output)
        if begins_with_normalise and len(self.normalise_calls) == 1:
            input_tensor, value = self.normalise_calls[0].out, self.normalise_calls[0].out.detach()
        elif begins_with_normalise:
            # of several networks: gradients are added at x itself, and contain 1 / std, so that the value is x - mean
            input_tensor, value = leaf, leaf.detach() - self.normalise_calls[0].layer.mean
        else:
            input_tensor, value = leaf, leaf.detach()
            shifts, self.entries = self.entries, []
            for call in self.normalise_calls:
                self.add(call.out, call.layer.shift(call.input))
            self.entries += shifts
        input_bias = Bias(value, 1, find_place(image_layout(leaf.shape), len(leaf)), True)
        layouts = self._layouts(leaf)
        biases = [(get_gradient_edge(input_tensor), input_bias)]
        for entry in self.entries:
            edge = entry.place_edge
            bias = self._place_bias(entry, layouts.get((edge.node, edge.output_nr)))
            if bias.place is not None or not self.only_spatial:
                biases.append((entry.edge, bias))
        return biases

    def _layouts(self, leaf: Images) -> LayoutsByEdge:
        try:
            return follow_layouts(leaf, [entry.place_edge for entry in self.entries])
        except MissingAttributeError:  # this torch does not show its graph: what looks like a feature map is one
            return {
                (edge.node, edge.output_nr): image_layout(shape)
                for edge, shape, *_ in self.entries
                if len(shape) == 4 and shape[0] == self.image_count
            }

    def _place_bias(self, entry: RecordedBias, layout: Layout | None) -> Bias:
        """The bias, with its place in the image."""
        value, is_full_size = entry.value, entry.value.shape == entry.shape
        place = None if layout is None or value.is_complex() else find_place(layout, self.image_count)
        if layout is not None and place is None and self.image_count > 1:
            self.network_splits_batch |= find_place(layout, 1) is not None
        axis_count = len(entry.shape)
        if place is not None and not is_full_size and not place.has_channels_on(entry.axis % axis_count):
            own_shape = [1] * axis_count  # a number for each row, column, token or head
            own_shape[entry.axis] = len(value)
            value, is_full_size = value.view(own_shape).expand(entry.shape), True
        return Bias(value, entry.axis, place, is_full_size)

    def _begins_with_normalise(self, leaf: Images, output: Any) -> bool:
        first = self.normalise_calls[0].layer
        if not isinstance(output, Tensor) or not all(
            first.is_like(call.layer) and is_copy(call.input, leaf) for call in self.normalise_calls
        ):
            return False
        return not leads_around(output, leaf, [call.out for call in self.normalise_calls])


@contextmanager
def record_biases(network: nn.Module, image_count: int, *, only_spatial: bool) -> Iterator[RecordedBiases]:
    """Within the block, a forward pass of the network records each bias with the edge of the graph where it acts.

    Layers whose function is known, and innermost modules of any kind, have one bias each. What happens outside of them
    is recorded operation by operation.
    """
    recorded = RecordedBiases(image_count, only_spatial)
    layers, computes_outside_layers = innermost_layers(network)
    operations = OperationRecorder(recorded.is_wanted, recorded.add) if computes_outside_layers else None
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

    A user's hooks run outside of ours, so that their operations are recorded by themselves.
    """
    implicit = ImplicitBiases(recorded)

    def only_layers(hook: Callable[..., Any]) -> Callable[..., Any]:
        """The hook, for these layers alone: a user's forward may deepcopy a layer, and the copy has its hooks, too."""
        return lambda layer, *given: hook(layer, *given) if layer in layers else None

    def unless_parameters_depend(record: Callable[..., None]) -> Callable[..., Any]:
        """The hook, for layers whose parameters are constants; of others the bias is found by forward mode."""

        def record_bias(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
            if not has_dependent_parameters(layer):
                return record(layer, args, kwargs, out)
            implicit.before(layer, args, kwargs)
            return implicit.after(layer, args, out)

        return only_layers(record_bias)

    for layer, has_known_bias in layers.items():
        may_have_bias = isinstance(layer, (_BatchNorm, Normalise)) or getattr(layer, "bias", None) is not None
        has_no_bias = has_known_bias and not may_have_bias
        if has_no_bias and (operations is None or type(layer) in ELEMENTWISE_LAYERS):
            continue
        if operations is not None:
            yield layer.register_forward_pre_hook(only_layers(operations.pause))
            yield layer.register_forward_hook(only_layers(operations.resume), prepend=True, always_call=True)
        closed_form = None if has_known_bias else closed_form_of(layer)
        if not has_known_bias and closed_form is None:
            yield layer.register_forward_pre_hook(only_layers(implicit.before), with_kwargs=True)
            yield layer.register_forward_hook(only_layers(implicit.after), prepend=True)
        elif not has_no_bias:
            record = partial(recorded.record_closed_form, closed_form) if closed_form else recorded.record_layer
            yield layer.register_forward_hook(unless_parameters_depend(record), prepend=True, with_kwargs=True)


def has_dependent_parameters(layer: nn.Module) -> bool:
    """Whether a parameter depends on the image, as those that `torch.func.functional_call` puts in may."""
    return not all(value is None or value.is_leaf for value in layer._parameters.values())


def first_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The input of a layer that has one, which a caller may name."""
    given: Tensor = args[0] if args else next(iter(kwargs.values()))
    return given


def closed_form_of(layer: nn.Module) -> ClosedForm | None:
    """How the implicit bias follows from input and output; None if it does not, or if the input is overwritten."""
    base = None if "forward" in vars(layer) or getattr(layer, "inplace", False) else torch_class(type(layer))  # type: ignore[arg-type]
    return None if base is None else CLOSED_FORMS.get(base)


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
    computes_outside_layers, waiting, seen, never_layers = False, [network], {network}, {network}
    while waiting:
        module = waiting.pop()
        never_layers.update(inner_networks(module) if module in never_layers else ())
        computes_outside_layers = computes_outside_layers or bool(
            module._forward_hooks or module._forward_pre_hooks
        )  # a user's
        # a forward that was put into the module is not that of its class; mypy does not see that classes are hashable
        base = None if "forward" in vars(module) else torch_class(type(module))  # type: ignore[arg-type]
        has_parameter_bias = base is not None and issubclass(base, PARAMETER_BIAS_LAYERS)
        children = [] if has_parameter_bias else [child for child in module._modules.values() if child is not None]
        if not children and (module not in never_layers or base is not None):
            is_homogeneous = base is not None and issubclass(base, HOMOGENEOUS_LAYERS)
            is_ours = type(module) in (Normalise, FixedDropout)  # the latter has another mask at each call
            layers[module] = has_parameter_bias or is_homogeneous or is_ours
        else:
            computes_outside_layers = computes_outside_layers or base is not nn.Sequential
        fresh = [child for child in children if child not in seen]
        seen.update(fresh)
        waiting += reversed(fresh)
    return layers, computes_outside_layers


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
