"""The networks of a posterior, borrowed for one call and handed back as they were: copies where autograd needs them,
parameters frozen, logits as output."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from weakref import ref

import torch
from torch import Tensor, nn

from dubium.attribution._budget import keep_freed_memory
from dubium.checks import check_network, check_posterior
from dubium.errors import NetworkError
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
    with ONE_CALL, own_precision, run_uncompiled(), torch.inference_mode(False), torch.no_grad():
        x = x.as_subclass(Tensor)  # operations on a subclass would be hidden from what records them
        is_ensemble = isinstance(posterior, list) and all(isinstance(element, nn.Module) for element in posterior)
        networks: Posterior = posterior if is_ensemble else as_posterior(posterior)  # type: ignore[assignment]
        check_posterior(networks, kinds)
        for index, network in enumerate(networks):
            check_network(network, index, x, needs_layers=needs_layers)
        is_half = x.dtype in (torch.float16, torch.bfloat16)
        x = x.float() if is_half else x.clone() if x.is_inference() else x.detach()
        borrowed = BorrowedNetworks(networks, is_half, LogitsRequest(x, output, pair, needs_gradients, class_names))
        try:
            yield borrowed, x
        finally:
            for parameter in [reference() for reference in borrowed.frozen]:
                if parameter is not None:
                    parameter.requires_grad_(True)


def run_uncompiled() -> AbstractContextManager[None]:
    """Within, what torch.compile has made runs as it was written, so that its layers can be seen."""
    is_used = "torch._dynamo" in sys.modules  # importing it takes a second, and without it nothing is compiled
    return torch.compiler.set_stance("force_eager") if is_used else nullcontext()


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
    precision: the copies are in float32).
    """

    posterior: Posterior
    is_half_precision: bool
    request: LogitsRequest
    first_passes: FirstPasses = field(default_factory=FirstPasses)
    frozen: list[ref[nn.Parameter]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.posterior)

    def __iter__(self) -> Iterator[nn.Module]:
        for index, network in enumerate(self.posterior):
            module: nn.Module = getattr(network, "_orig_mod", network)
            parameters = list(module.parameters())
            if self.is_half_precision or any(tensor.is_inference() for tensor in (*parameters, *module.buffers())):
                module = copy_network(module, index)
                module = module.float() if self.is_half_precision else module
                parameters = list(module.parameters())
            for parameter in parameters:
                if parameter.requires_grad:
                    self.frozen.append(ref(parameter))
                    parameter.requires_grad_(False)
            is_plain = index in self.first_passes.returns_logits
            yield module if is_plain else LogitsNetwork(module, index, self.request, self.first_passes)
