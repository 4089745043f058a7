"""Hooks and modes by which a forward pass records the biases of its layers and of what happens outside of them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from threading import get_ident
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dubium.attribution._autograd.nodes import disable_torch_function
from dubium.attribution._bias_free import UNHOOKED_LAYERS
from dubium.attribution._biases import RecordedBiases, first_argument
from dubium.attribution._closed_forms import ClosedForm, is_nonzero, layer_closed_form
from dubium.attribution._implicit import ImplicitBiases
from dubium.attribution._innermost_layers import LayerFacts, innermost_layers
from dubium.attribution._operations import OperationRecorder
from dubium.models.normalized import Normalise


@runtime_checkable
class LayerRecorder(Protocol):
    """Records the bias of each execution of a layer: what is done before it and after it.

    `before` may return other arguments for the layer, and `after` another output, as torch's hooks do.
    """

    @property
    def needs_before(self) -> bool:
        """Whether `before` does anything."""
        ...

    def before(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def after(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any: ...


class KnownBiasRecorder:
    """Records a known bias. If the layer's parameters depend on the image, forward mode finds the bias instead.

    Args:
        record: given (layer, input, output); None if there is no bias.
        works_in_place: whether the input is overwritten, so that a copy has to be kept.
    """

    def __init__(
        self,
        implicit: ImplicitBiases,
        record: Callable[[nn.Module, Tensor, Tensor], None] | None,
        *,
        works_in_place: bool = False,
    ) -> None:
        self.implicit, self.record, self.needs_before = implicit, record, works_in_place
        self.overwritten_input: Tensor | None = None

    def before(self, _layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.needs_before:
            self.overwritten_input = first_argument(args, kwargs).detach().clone()

    def after(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        if out is None:  # after an error inside
            return None
        if has_dependent_parameters(layer):
            self.implicit.before(layer, args, kwargs)
            return self.implicit.after(layer, args, kwargs, out)
        if self.record is not None and torch.is_grad_enabled():  # not in a pass that is made for a check
            x_before, self.overwritten_input = self.overwritten_input, None
            with disable_torch_function():
                self.record(layer, first_argument(args, kwargs) if x_before is None else x_before, out)
        return None


@contextmanager
def record_biases(network: nn.Module, *, only_spatial: bool) -> Iterator[RecordedBiases]:
    """Within the block, a forward pass of the network records each bias with the edge of the graph where it acts.

    Layers whose function is known, and innermost modules of any kind, have one bias each. What happens outside of them
    is recorded operation by operation.
    """
    recorded = RecordedBiases(only_spatial)
    layers, computes_outside_layers = innermost_layers(network)
    operations = OperationRecorder(recorded.needs_bias_of, recorded.add) if computes_outside_layers else None
    recorders = choose_recorders(layers, recorded, records_operations=operations is not None)
    with hook_layers(recorders, operations), nullcontext() if operations is None else operations.recording():
        yield recorded


def choose_recorders(
    layers: Mapping[nn.Module, LayerFacts], recorded: RecordedBiases, *, records_operations: bool
) -> dict[nn.Module, LayerRecorder]:
    """The recorder of each layer. A layer without a bias has one only to pause the recording of operations inside."""
    implicit, recorders = ImplicitBiases(recorded), dict[nn.Module, LayerRecorder]()
    from_parameters, no_bias = KnownBiasRecorder(implicit, recorded.add_layer), KnownBiasRecorder(implicit, None)
    for layer, facts in layers.items():
        closed_form = None
        if facts.has_implicit_bias and facts.torch_class is not None:
            closed_form = layer_closed_form(facts.torch_class, layer)
        if closed_form is not None:
            works_in_place = bool(getattr(layer, "inplace", False))
            record = record_closed_form(recorded, closed_form, in_place=works_in_place)
            recorders[layer] = KnownBiasRecorder(implicit, record, works_in_place=works_in_place)
        elif facts.has_implicit_bias:
            recorders[layer] = implicit
        elif isinstance(layer, (_BatchNorm, Normalise)) or (facts.may_have_parameter_bias and layer.bias is not None):
            recorders[layer] = from_parameters
        elif records_operations and type(layer) not in UNHOOKED_LAYERS:
            recorders[layer] = no_bias
    return recorders


def record_closed_form(
    recorded: RecordedBiases, closed_form: ClosedForm, *, in_place: bool
) -> Callable[[nn.Module, Tensor, Tensor], None]:
    """A function that records the implicit bias of a layer by its closed form."""

    def record(_layer: nn.Module, x: Tensor, out: Tensor) -> None:
        if out.requires_grad and recorded.needs_bias_of(out):
            bias = closed_form(out.detach(), x.detach())
            if bias is not None and is_nonzero(bias):
                recorded.add(out, bias, in_place=in_place)

    return record


@contextmanager
def hook_layers(recorders: Mapping[nn.Module, LayerRecorder], operations: OperationRecorder | None) -> Iterator[None]:
    """Within the block, each layer's recorder is asked before and after it, and no operation inside of it is recorded.

    A user's hooks run outside of ours, so that their operations are recorded by themselves.
    """
    thread, running = get_ident(), list[nn.Module]()  # layers that run, one in another: only the outermost counts

    def is_ours(layer: nn.Module) -> bool:
        """Whether it is this layer, in this thread: a user's forward may deepcopy a layer, and the copy has its hooks,
        too; another thread may call the network meanwhile."""
        return layer in recorders and get_ident() == thread

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not is_ours(layer):
            return None
        running.append(layer)
        if operations is not None:
            operations.pause()
        return recorders[layer].before(layer, args, kwargs) if len(running) == 1 else None

    def after(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
        """Also called after an error inside of the layer, without an output."""
        if not is_ours(layer):
            return None
        if running and running[-1] is layer:  # not of a layer that has no hook before it
            running.pop()
        try:
            return None if running else recorders[layer].after(layer, args, kwargs, out)
        finally:
            if operations is not None:
                operations.resume()

    handles = []
    try:
        for layer, recorder in recorders.items():
            hooks_before = operations is not None or recorder.needs_before
            if hooks_before:
                handles.append(layer.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(layer.register_forward_hook(after, prepend=True, with_kwargs=True, always_call=hooks_before))
        yield
    finally:
        for handle in handles:
            handle.remove()


def has_dependent_parameters(layer: nn.Module) -> bool:
    """Whether a parameter depends on the image: put in by `torch.func.functional_call`, or computed by a hook."""
    attributes = vars(layer)
    values = [*layer._parameters.values(), attributes.get("weight"), attributes.get("bias")]
    return any(isinstance(value, Tensor) and not value.is_leaf for value in values)
