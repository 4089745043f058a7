"""Hooks and modes by which a forward pass records the biases of its layers and of what happens outside of them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from dubium.attribution._autograd.nodes import disable_torch_function
from dubium.attribution._bias_free import ELEMENTWISE_LAYERS, LINEAR_LAYERS
from dubium.attribution._biases import RecordedBiases, first_argument
from dubium.attribution._closed_forms import ClosedForm, is_nonzero
from dubium.attribution._implicit import ImplicitBiases
from dubium.attribution._innermost_layers import closed_form_of, innermost_layers
from dubium.attribution._operations import OperationRecorder
from dubium.models.normalized import Normalise


@dataclass
class ClosedFormHooks:
    """Hooks before and after a layer whose implicit bias follows from its input and output."""

    recorded: RecordedBiases
    closed_form: ClosedForm
    overwritten_input: Tensor | None = None

    def keep_input(self, _layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before a layer that works in place."""
        self.overwritten_input = first_argument(args, kwargs).detach().clone()

    def record(self, _layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
        x_before, self.overwritten_input = self.overwritten_input, None
        if torch.is_grad_enabled() and out.requires_grad and self.recorded.is_wanted(out):
            with disable_torch_function():
                x = first_argument(args, kwargs).detach() if x_before is None else x_before
                bias = self.closed_form(out.detach(), x)
                if bias is not None and is_nonzero(bias):
                    self.recorded.add(out, bias, in_place=x_before is not None)


@contextmanager
def record_biases(network: nn.Module, *, only_spatial: bool) -> Iterator[RecordedBiases]:
    """Within the block, a forward pass of the network records each bias with the edge of the graph where it acts.

    Layers whose function is known, and innermost modules of any kind, have one bias each. What happens outside of them
    is recorded operation by operation.
    """
    recorded = RecordedBiases(only_spatial)
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
    implicit, thread = ImplicitBiases(recorded), get_ident()

    def only_layers(hook: Callable[..., Any]) -> Callable[..., Any]:
        """The hook, for these layers in this thread alone: a user's forward may deepcopy a layer, and the copy has its
        hooks, too; another thread may call the network meanwhile."""
        return lambda layer, *given: hook(layer, *given) if layer in layers and get_ident() == thread else None

    def unless_parameters_depend(record: Callable[..., None]) -> Callable[..., Any]:
        """The hook, for layers whose parameters are constants; of others the bias is found by forward mode."""

        def record_bias(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
            if not has_dependent_parameters(layer):
                return record(layer, args, kwargs, out)
            implicit.before(layer, args, kwargs)
            return implicit.after(layer, args, out)

        return only_layers(record_bias)

    record_nothing = unless_parameters_depend(lambda *_given: None)
    for layer, has_implicit_bias in layers.items():
        has_parameter_bias = isinstance(layer, (_BatchNorm, Normalise)) or getattr(layer, "bias", None) is not None
        has_no_bias = not (has_implicit_bias or has_parameter_bias)
        if has_no_bias and (operations is None or type(layer) in ELEMENTWISE_LAYERS):
            continue
        if operations is not None:
            yield layer.register_forward_pre_hook(only_layers(operations.pause))
            yield layer.register_forward_hook(only_layers(operations.resume), prepend=True, always_call=True)
            if has_no_bias and isinstance(layer, LINEAR_LAYERS):
                yield layer.register_forward_hook(record_nothing, prepend=True, with_kwargs=True)
        closed_form = closed_form_of(layer) if has_implicit_bias else None
        if closed_form is not None:
            hooks = ClosedFormHooks(recorded, closed_form)
            if getattr(layer, "inplace", False):
                yield layer.register_forward_pre_hook(only_layers(hooks.keep_input), with_kwargs=True)
            yield layer.register_forward_hook(unless_parameters_depend(hooks.record), prepend=True, with_kwargs=True)
        elif has_implicit_bias:
            yield layer.register_forward_pre_hook(only_layers(implicit.before), with_kwargs=True)
            yield layer.register_forward_hook(only_layers(implicit.after), prepend=True)
        elif not has_no_bias:
            record_layer = unless_parameters_depend(recorded.record_layer)
            yield layer.register_forward_hook(record_layer, prepend=True, with_kwargs=True)


def has_dependent_parameters(layer: nn.Module) -> bool:
    """Whether a parameter depends on the image, as those that `torch.func.functional_call` puts in may, or one that was
    deleted and is computed."""
    values = [*layer._parameters.values(), *[vars(layer).get(name) for name in ("weight", "bias")]]
    return not all(value is None or value.is_leaf for value in values)
