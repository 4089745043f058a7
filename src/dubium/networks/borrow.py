"""The networks of a posterior, checked, borrowed for one call and handed back as they were: copies where autograd needs
them, parameters frozen, logits as output."""

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from traceback import walk_tb
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.jit import ScriptModule
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

from dubium.attribution._budget import keep_freed_memory
from dubium.attribution._structure import list_modules
from dubium.checks import warn_user
from dubium.errors import (
    DeviceError,
    DtypeError,
    DubiumError,
    NetworkStateError,
    PosteriorError,
    PosteriorTypeError,
)
from dubium.networks.copies import copy_network, reuses_module
from dubium.networks.logits_network import (
    DEFAULT_REQUEST,
    NETWORK_EXCEPTIONS,
    FirstPassChecks,
    LogitsNetwork,
    LogitsRequest,
    logits_differ,
)
from dubium.networks.outputs import check_output_choice
from dubium.networks.refusals import refuse_images, refuse_other_draw
from dubium.posteriors.adapters import as_posterior
from dubium.types import Images, Kind, Logits, Posterior

GRADIENT_HOOKS = ("_backward_hooks", "_backward_pre_hooks")
"""Where torch keeps a module's hooks on gradients."""

ASKED_AGAIN = 2
"""How many networks are asked for again. Two, since the first may be fixed (a mean), and only later ones be drawn."""

CALL_LOCK = threading.RLock()
"""Calls from several threads take turns: hooks and frozen parameters belong to networks that they may share, and
torch's random numbers, by which some posteriors are drawn, to all."""


@contextmanager
def borrow_networks(
    posterior: object,
    x: Images,
    kinds: Sequence[Kind] = (),
    request: LogitsRequest = DEFAULT_REQUEST,
    *,
    needs_layers: bool = True,
) -> Iterator[tuple["BorrowedNetworks", Images]]:
    """Yield networks that return logits (B, K) and have frozen parameters, and x detached; both in at least float32.

    Args:
        request: which logits are wanted of them.
        needs_layers: whether the networks' layers must be visible.
    """
    if request.output is not None:
        check_output_choice(request.output)
    keep_freed_memory()
    own_precision = torch.autocast(x.device.type, enabled=False)  # bfloat16 sums would be off by per cents
    # compiled modules run eagerly, so that their layers can be seen; if torch._dynamo was never imported, nothing is
    # compiled, and importing it takes a second
    run_eagerly = partial(torch.compiler.set_stance, "force_eager") if "torch._dynamo" in sys.modules else nullcontext
    with CALL_LOCK, own_precision, run_eagerly(), torch.inference_mode(False), torch.no_grad():
        x = x.as_subclass(Tensor)  # operations on a subclass would be hidden from what records them
        networks = as_posterior(posterior)
        check_posterior(networks, kinds)
        original_x, is_half = x, x.dtype in (torch.float16, torch.bfloat16)
        x = x.float() if is_half else x.clone() if x.is_inference() else x.detach()
        are_generated = not isinstance(networks, list | tuple | nn.ModuleList)
        is_ours = type(networks).__module__.startswith("dubium.")
        borrowed, seen = (
            BorrowedNetworks(networks, is_half, request, FirstPassChecks(x), are_generated),
            WeakIdKeyDictionary(),
        )
        for index, network in enumerate(networks):
            check_network(network, index, original_x, needs_layers=needs_layers)
            if are_generated:
                borrowed.must_copy |= reuses_module(seen, network, by_value=not is_ours)
        try:
            yield borrowed, x
        except (DubiumError, torch.OutOfMemoryError):
            raise
        except NETWORK_EXCEPTIONS as error:
            borrowed.refuse_if_raised(error)
            raise
        finally:
            for parameter in [reference() for reference in borrowed.frozen]:
                if parameter is not None:
                    parameter.requires_grad_(True)
            for reference, name, tensor in borrowed.detached_attributes:
                layer = reference()
                if layer is not None and name in vars(layer):
                    vars(layer)[name] = tensor
            for reference, hooks in borrowed.gradient_hooks:
                layer = reference()
                if layer is not None:
                    vars(layer).update(hooks)


def check_posterior(posterior: Posterior, kinds: Sequence[Kind]) -> None:
    """Raise an error unless there is a network; warn if one alone is asked for epistemic uncertainty."""
    if len(posterior) == 0:
        raise PosteriorError(
            "The posterior is empty; at least one network is needed. Give a list of networks, even for one: [network]."
        )
    if len(posterior) == 1 and "epistemic" in kinds:
        warn_user(
            "The posterior has one network: nothing disagrees with it, so epistemic uncertainty is exactly zero, "
            "and total equals aleatoric."
        )


def check_network(network: object, index: int, x: Tensor, *, needs_layers: bool) -> None:
    """Raise an error unless the network is a fixed function of one image, of x's type and on x's device.

    With `needs_layers`, its layers must be visible too: otherwise FullGrad would miss biases unnoticed.
    """
    if not isinstance(network, nn.Module):
        hint = " Its network is element.module_ (skorch)." if hasattr(network, "module_") else ""
        if isinstance(getattr(network, "model", None), nn.Module):
            hint = " Its network is element.model (a pipeline of Hugging Face)."
        if isinstance(network, str | Path):
            hint = " Weight files need the code that builds the network: dubium.load_weights(Net, files)."
        elif isinstance(network, Posterior) and isinstance(next(iter(network), None), nn.Module):
            hint = (
                " It is a posterior itself: of several, give the networks of all, [n for p in posteriors for n in p]."
            )
        raise PosteriorTypeError(
            f"Element {index} of the posterior is a {type(network).__name__}; a torch.nn.Module is needed.{hint}"
        )
    tensors: list[Tensor] = []
    modeless = set[nn.Module]()
    for module in list_modules(network):
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            if tensor is None:
                continue
            if is_lazy(tensor):
                raise NetworkStateError(
                    f"Without weights: {layer_text(index, network, module)}. It is a lazy layer that has not seen a "
                    "batch. Pass one batch through the network, or load its weights, first."
                )
            if tensor.is_meta:
                raise DeviceError(
                    f"x is on {x.device}, network {index} on meta. Without weights: "
                    f"{layer_text(index, network, module)}. Load its weights first."
                )
            if tensor.is_floating_point():
                tensors.append(tensor)
        if "eval" in vars(module):  # made by torch.export, which has fixed its mode and refuses to change it
            modeless.update(module.modules())
        if module.training and module not in modeless:
            raise NetworkStateError(
                f"In training mode: {layer_text(index, network, module)}. Its output is random or depends on the "
                "batch. Call network.eval() first; for MC dropout, use dubium.posteriors.MCDropout, which fixes the "
                "masks."
            )
        if needs_layers and isinstance(module, ScriptModule):
            raise PosteriorTypeError(
                f"Compiled by torch.jit: {layer_text(index, network, module)}. Its layers cannot be seen. Give the "
                "module that it was made from."
            )
        if isinstance(module, _BatchNorm) and module.running_mean is None:
            raise NetworkStateError(
                f"BatchNorm without running statistics: {layer_text(index, network, module)}. It mixes the images of a "
                "batch, so that a map would depend on its neighbours. Use track_running_stats=True, or GroupNorm."
            )
    for device in {tensor.device: None for tensor in tensors}:
        if device != x.device:
            raise DeviceError(f"x is on {x.device}, network {index} on {device}. Move one: x.to({str(device)!r}).")
    if tensors and all(tensor.dtype != x.dtype for tensor in tensors):
        raise DtypeError(
            f"x is {x.dtype}, network {index} {tensors[0].dtype}. Convert one: x.to({tensors[0].dtype}), "
            f"or network.to({x.dtype})."
        )


def layer_text(index: int, network: nn.Module, layer: nn.Module) -> str:
    name = next(name for name, module in network.named_modules() if module is layer)
    return f"network {index}" + (f", layer {name!r} ({type(layer).__name__})" if name else "")


@dataclass
class BorrowedNetworks:
    """A posterior's networks with logits as output and frozen parameters, without what torch.compile wrapped around.

    They are copies where autograd cannot work with their weights (made in inference mode), or would overflow (half
    precision: the copies are in float32), or where the posterior overwrites them with the next network's.
    """

    posterior: Posterior
    is_half_precision: bool
    request: LogitsRequest
    first_checks: FirstPassChecks
    are_generated: bool  # by the posterior's code, so that iterating again may give other networks
    must_copy: bool = False
    frozen: list[ref[nn.Parameter]] = field(default_factory=list)
    gradient_hooks: list[tuple[ref[nn.Module], dict[str, Any]]] = field(default_factory=list)  # taken off meanwhile
    detached_attributes: list[tuple[ref[nn.Module], str, Tensor]] = field(default_factory=list)  # detached meanwhile
    given_unwrapped: dict[int, tuple[int, ref[nn.Module]]] = field(default_factory=dict)  # (index, network) by id

    def __len__(self) -> int:
        return len(self.posterior)

    def check_repeats(self, logits: Logits) -> None:
        """Raise an error unless the posterior, asked again, gives networks with these logits; the first two show it."""
        image = self.first_checks.images[:1]
        for index, network in islice(enumerate(self), ASKED_AGAIN) if len(image) else ():
            again = network(image.clone())
            if again.shape[1:] != logits.shape[2:] or logits_differ(logits[index, :1], again):
                refuse_other_draw(index)

    def refuse_if_raised(self, error: Exception) -> None:
        """Say which network raised an error, if it was yielded without a wrapper; a `LogitsNetwork` says it itself."""
        for frame, _ in walk_tb(error.__traceback__):
            module, args = frame.f_locals.get("self"), frame.f_locals.get("args")
            index, network = self.given_unwrapped.get(id(module), (0, None))
            if network is not None and network() is module:
                called_with = args[0] if isinstance(args, tuple) and args else None
                refuse_images(index, error, self.first_checks.images, called_with)

    def freeze(self, layer: nn.Module) -> None:
        """Make a constant of each weight, and note how it was."""
        for parameter in layer._parameters.values():
            if parameter is not None and parameter.requires_grad:
                self.frozen.append(ref(parameter))
                parameter.requires_grad_(False)
        attributes = vars(layer)
        if Tensor in map(type, attributes.values()):
            for name, value in [*attributes.items()]:
                if isinstance(value, Tensor) and value.grad_fn is not None:  # a weight that was computed before
                    self.detached_attributes.append((ref(layer), name, value))
                    attributes[name] = value.detach()
        if layer._backward_hooks or layer._backward_pre_hooks:  # maps are of what the network computes
            self.gradient_hooks.append((ref(layer), {name: attributes[name] for name in GRADIENT_HOOKS}))
            attributes.update({name: OrderedDict() for name in GRADIENT_HOOKS})

    def __iter__(self) -> Iterator[nn.Module]:
        for index, network in enumerate(self.posterior):
            module: nn.Module = getattr(network, "_orig_mod", network)
            layers = list_modules(module)
            tensors = [tensor for layer in layers for tensor in (*layer._parameters.values(), *layer._buffers.values())]
            is_inference = any(tensor.is_inference() for tensor in tensors if tensor is not None)
            if self.must_copy or self.is_half_precision or is_inference:
                module = copy_network(module, index)
                module = module.float() if self.is_half_precision else module
                layers = list_modules(module)
            for layer in layers:
                self.freeze(layer)
            needs_no_wrapper = (
                index in self.first_checks.checked_indices and index in self.first_checks.plain_logits_indices
            )
            if needs_no_wrapper:
                self.given_unwrapped[id(module)] = index, ref(module)
                yield module
            else:
                has_hooks = any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers)
                yield LogitsNetwork(module, index, self.request, self.first_checks, has_hooks=has_hooks)
