"""The networks of a posterior, checked, borrowed for one call and handed back as they were: copies where autograd needs
them, parameters frozen, logits as output."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from weakref import ref

import torch
from torch import Tensor, nn
from torch.jit import ScriptModule
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

from dubium.attribution._budget import keep_freed_memory
from dubium.attribution._gradients import list_modules
from dubium.checks import warn_user
from dubium.errors import (
    DeviceError,
    DtypeError,
    NetworkError,
    NetworkStateError,
    PosteriorError,
    PosteriorTypeError,
)
from dubium.networks.class_choice import Pair
from dubium.networks.logits_network import FirstPasses, LogitsNetwork, LogitsRequest
from dubium.networks.outputs import OutputChoice, check_output_choice
from dubium.posteriors.adapters import as_posterior
from dubium.types import Images, Kind, Posterior

ONE_CALL = threading.RLock()
"""Calls from several threads take turns: hooks and frozen parameters belong to networks that they may share, and
torch's random numbers, by which some posteriors are drawn, to all."""


@contextmanager
def borrow_networks(
    posterior: object,
    x: Images,
    kinds: Sequence[Kind] = (),
    *,
    output: OutputChoice = None,
    needs_layers: bool = True,
    needs_gradients: bool = True,
    pair: Pair | None = None,
    class_names: Sequence[str] | None = None,
) -> Iterator[tuple["BorrowedNetworks", Images]]:
    """Yield networks that return logits (B, K) and have frozen parameters, and x detached; both in at least float32.

    Args:
        output: what to take of a network's output.
        needs_layers: whether the networks' layers must be visible.
        needs_gradients: whether their logits must have a gradient at the image.
        pair: two classes, if the networks' logits are to be of these alone.
        class_names: of all classes; whether there are as many is known from the first pass.
    """
    if output is not None:
        check_output_choice(output)
    keep_freed_memory()
    own_precision = torch.autocast(x.device.type, enabled=False)  # bfloat16 sums would be off by per cents
    # what torch.compile has made runs as it was written, so that its layers can be seen; importing the compiler takes a
    # second, and without it nothing is compiled
    run_eagerly = partial(torch.compiler.set_stance, "force_eager") if "torch._dynamo" in sys.modules else nullcontext
    with ONE_CALL, own_precision, run_eagerly(), torch.inference_mode(False), torch.no_grad():
        x = x.as_subclass(Tensor)  # operations on a subclass would be hidden from what records them
        if isinstance(posterior, list) and all(isinstance(element, nn.Module) for element in posterior):
            networks: Posterior = posterior
        else:
            networks = as_posterior(posterior)
        check_posterior(networks, kinds)
        seen, copies = WeakIdKeyDictionary(), False
        for index, network in enumerate(networks):
            check_network(network, index, x, needs_layers=needs_layers)
            copies |= not isinstance(networks, list) and overwrites(seen, network)
        is_half = x.dtype in (torch.float16, torch.bfloat16)
        x = x.float() if is_half else x.clone() if x.is_inference() else x.detach()
        request = LogitsRequest(x, output, pair, needs_gradients, class_names)
        borrowed = BorrowedNetworks(networks, is_half, request, copies=copies)
        try:
            yield borrowed, x
        finally:
            for parameter in [reference() for reference in borrowed.frozen]:
                if parameter is not None:
                    parameter.requires_grad_(True)


def check_posterior(posterior: object, kinds: Sequence[Kind] = ()) -> None:
    """Whether this is a collection of networks; with a warning if one network is asked for epistemic uncertainty."""
    hint = "Give a list of networks, even for one: [network]."
    if isinstance(posterior, nn.Module) and not isinstance(posterior, nn.ModuleList):
        raise PosteriorTypeError(f"The posterior is a single {type(posterior).__name__}, not a collection. {hint}")
    if not isinstance(posterior, Posterior) or isinstance(posterior, str | bytes | Tensor | dict):
        raise PosteriorTypeError(
            f"The posterior is a {type(posterior).__name__}; a sized collection of networks, the same on every pass, "
            f"is needed. {hint}"
        )
    if len(posterior) == 0:
        raise PosteriorError(f"The posterior is empty; at least one network is needed. {hint}")
    if len(posterior) == 1 and "epistemic" in kinds:
        warn_user(
            "The posterior has one network: nothing disagrees with it, so epistemic uncertainty is exactly zero, "
            "and total equals aleatoric."
        )


def check_network(network: object, index: int, x: Tensor, *, needs_layers: bool) -> None:
    """Whether a network is a fixed function of one image, of x's type and on x's device.

    With `needs_layers`, also whether those can be seen: FullGrad would miss biases, and not know it.
    """
    if not isinstance(network, nn.Module):
        hint = " Its network is element.module_ (skorch)." if hasattr(network, "module_") else ""
        raise PosteriorTypeError(
            f"Element {index} of the posterior is a {type(network).__name__}; a torch.nn.Module is needed.{hint}"
        )
    tensors: list[Tensor] = []
    modeless = set[nn.Module]()
    for module in list_modules(network):
        own = [t for t in (*module._parameters.values(), *module._buffers.values()) if t is not None]
        if any(is_lazy(tensor) for tensor in own):
            raise NetworkStateError(
                f"Without weights: {layer_text(index, network, module)}. It is a lazy layer that has not seen a batch. "
                "Pass one batch through the network, or load its weights, first."
            )
        if any(tensor.is_meta for tensor in own):
            raise DeviceError(
                f"x is on {x.device}, network {index} on meta. Without weights: {layer_text(index, network, module)}. "
                "Load its weights first."
            )
        tensors += [tensor for tensor in own if tensor.is_floating_point()]
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
        if isinstance(module, _BatchNorm) and not isinstance(module, _InstanceNorm) and module.running_mean is None:
            raise NetworkStateError(
                f"BatchNorm without running statistics: {layer_text(index, network, module)}. It mixes the images of a "
                "batch, so that a map would depend on its neighbours. Use track_running_stats=True, or GroupNorm."
            )
    for tensor in tensors:
        if tensor.device != x.device:
            raise DeviceError(
                f"x is on {x.device}, network {index} on {tensor.device}. Move one: x.to({str(tensor.device)!r})."
            )
    if tensors and all(tensor.dtype != x.dtype for tensor in tensors):
        raise DtypeError(
            f"x is {x.dtype}, network {index} {tensors[0].dtype}. Convert one: x.to({tensors[0].dtype}), "
            f"or network.to({x.dtype})."
        )


def overwrites(seen: WeakIdKeyDictionary, network: nn.Module) -> bool:
    """Whether a posterior has loaded this network's weights into a module that it gave before; `seen` is filled.

    Such networks must be copied: whoever holds two of them holds the last one twice.
    """
    answer = network in seen
    seen[network] = None
    for tensor in (*network.parameters(), *network.buffers()):
        if tensor.layout == torch.strided and not tensor.is_inference():  # others have no version
            version = (tensor._version, tensor.data_ptr())
            answer |= seen.setdefault(tensor, version) != version
    return answer


def layer_text(index: int, network: nn.Module, layer: nn.Module) -> str:
    name = next(name for name, module in network.named_modules() if module is layer)
    return f"network {index}" + (f", layer {name!r} ({type(layer).__name__})" if name else "")


def copy_network(network: nn.Module, index: int) -> nn.Module:
    try:
        return deepcopy(network)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise NetworkError(
            f"Network {index} cannot be copied, which its type needs (half precision, or made in inference mode): "
            f"{error} Does its forward pass keep a tensor (self.features = ...)? Detach it, or give a network in "
            "float32."
        ) from error


@dataclass
class BorrowedNetworks:
    """A posterior's networks with logits as output and frozen parameters, without what torch.compile wrapped around.

    They are copies where autograd cannot work with their weights (made in inference mode), or would overflow (half
    precision: the copies are in float32), or where the posterior overwrites them with the next network's.
    """

    posterior: Posterior
    is_half_precision: bool
    request: LogitsRequest
    copies: bool
    first_passes: FirstPasses = field(default_factory=FirstPasses)
    frozen: list[ref[nn.Parameter]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.posterior)

    def __iter__(self) -> Iterator[nn.Module]:
        for index, network in enumerate(self.posterior):
            module: nn.Module = getattr(network, "_orig_mod", network)
            layers = list_modules(module)
            tensors = [tensor for layer in layers for tensor in (*layer._parameters.values(), *layer._buffers.values())]
            is_inference = any(tensor is not None and tensor.is_inference() for tensor in tensors)
            if self.copies or self.is_half_precision or is_inference:
                module = copy_network(module, index)
                module = module.float() if self.is_half_precision else module
                layers = list_modules(module)
            for parameter in [tensor for layer in layers for tensor in layer._parameters.values()]:
                if parameter is not None and parameter.requires_grad:
                    self.frozen.append(ref(parameter))
                    parameter.requires_grad_(False)
            is_plain = index in self.first_passes.returns_logits
            yield module if is_plain else LogitsNetwork(module, index, self.request, self.first_passes)
