"""The networks of a posterior, borrowed for one call: their logits, checked on the first pass, and handed back as they
were."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.jit import ScriptModule

from dubium.attribution._autograd.nodes import graph_nodes
from dubium.attribution._budget import keep_freed_memory
from dubium.attribution._measure import repeat_pass
from dubium.checks import check_network, check_posterior
from dubium.errors import DubiumError, NetworkError
from dubium.networks.class_choice import Pair, select_pair
from dubium.networks.cut_gradients import CutWatch, warn_of_cut
from dubium.networks.outputs import CONVERSIONS, OutputChoice, check_output_choice, take_network_logits
from dubium.networks.refusals import (
    check_is_fixed,
    differ,
    refuse_cut_off,
    refuse_mixed_images,
    refuse_output,
    refuse_probabilities,
)
from dubium.posteriors.adapters import as_posterior
from dubium.types import Images, Kind, Posterior

ONE_CALL = threading.RLock()
"""Calls from several threads take turns: hooks and frozen parameters belong to networks that they may share, and
torch's random numbers, by which some posteriors are drawn, to all."""

NAMED_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a network may raise about images that it cannot take."""


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
) -> Iterator[tuple["BorrowedNetworks", Images]]:
    """Within, checked networks and images that autograd may save, both in at least float32.

    Args:
        output: what to take of a network's output.
        needs_layers: whether the networks' layers must be visible.
        needs_gradients: whether their logits must have a gradient at the image.
        pair: two classes, if the networks' logits are to be of these alone.
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
        borrowed = BorrowedNetworks(networks, is_half, Findings(output, needs_gradients, tuple(x.shape), pair))
        try:
            yield borrowed, x.float() if is_half else x.clone() if x.is_inference() else x.detach()
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
    except RuntimeError as error:
        raise NetworkError(
            f"Network {index} cannot be copied, which its type needs (half precision, or made in inference mode): "
            f"{error} Does its forward pass keep a tensor (self.features = ...)? Detach it, or give a network in "
            "float32."
        ) from error


@dataclass
class Findings:
    """What is asked of a posterior's networks, and what the first pass of each has shown.

    Args:
        choice: what of a network's output to take.
        needs_gradients: whether the method needs the gradient of the logits at the image.
        x_shape: of all images, for error messages.
        pair: the two classes whose logits the networks hand on, instead of all.
    """

    choice: OutputChoice
    needs_gradients: bool
    x_shape: tuple[int, ...]
    pair: Pair | None = None
    checked: set[int] = field(default_factory=set)  # numbers of networks that have had their first pass
    gives_logits: set[int] = field(default_factory=set)  # of networks whose output is the logits, nothing else
    watched: set[type] = field(default_factory=set)  # classes of networks in which no part of the gradient is cut
    operations: dict[int, set[str]] = field(default_factory=dict)  # autograd's nodes in the first network of each class


@dataclass
class BorrowedNetworks:
    """A posterior's networks with logits as output and frozen parameters, without what torch.compile wrapped around.

    They are copies where autograd cannot work with their weights (made in inference mode), or would overflow (half
    precision: the copies are in float32).
    """

    posterior: Posterior
    is_half_precision: bool
    findings: Findings
    frozen: list[ref[nn.Parameter]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.posterior)

    def __iter__(self) -> Iterator[nn.Module]:
        for index, network in enumerate(self.posterior):
            own: nn.Module = getattr(network, "_orig_mod", network)
            parameters = list(own.parameters())
            if self.is_half_precision or any(tensor.is_inference() for tensor in (*parameters, *own.buffers())):
                own = copy_network(own, index)
                own = own.float() if self.is_half_precision else own
                parameters = list(own.parameters())
            for parameter in parameters:
                if parameter.requires_grad:
                    self.frozen.append(ref(parameter))
                    parameter.requires_grad_(False)
            yield own if index in self.findings.gives_logits else LogitsNetwork(own, index, self.findings)


class LogitsNetwork(nn.Module):
    """The logits of a network, whose layers and parameters it shows under their own names.

    The first pass is checked: whether the output is logits, whether it is random, whether it depends on the image.
    """

    network: nn.Module
    index: int
    findings: Findings

    def __init__(self, network: nn.Module, index: int, findings: Findings) -> None:
        super().__init__()
        self.__dict__.update(network=network, index=index, findings=findings, training=False)
        if not isinstance(network, ScriptModule):
            self.__dict__.update({name: getattr(network, name) for name in ("_modules", "_parameters", "_buffers")})

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["network"], name)

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        """The network's, without this module, unless it computes something of the output itself."""
        choice = self.findings.choice
        computes = choice in CONVERSIONS if isinstance(choice, str) else callable(choice)
        if computes or self.findings.pair:
            yield from super().named_modules(*args, **kwargs)
        else:
            yield from self.network.named_modules(*args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        findings = self.findings
        if self.index in findings.checked or x.is_meta:  # without values nothing can be checked
            logits = self.logits(x)
        elif not findings.needs_gradients or x.requires_grad:
            logits = self.check_first_pass(x, x)
        else:  # a graph of one image tells; the others go without
            with torch.enable_grad():
                logits = self.check_first_pass(x[:1].clone().requires_grad_(), x).detach()
            logits = torch.cat([logits, self.logits(x[1:])]) if len(x) > 1 else logits
        findings.checked.add(self.index)
        return logits if findings.pair is None else select_pair(logits, findings.pair)

    def logits(self, x: Tensor) -> Tensor:
        """The part of the output that was chosen, if it is logits (B, K). What the network raises is said to be its."""
        findings = self.findings
        try:
            output: Any = self.network(x)
            if findings.choice is None and findings.pair is None and isinstance(output, Tensor):
                findings.gives_logits.add(self.index)
            else:
                output = take_network_logits(output, findings.choice, len(x), self.index)
        except DubiumError:
            raise
        except NAMED_ERRORS as error:
            raise NetworkError(
                f"Network {self.index} cannot take images of shape {findings.x_shape}: {type(error).__name__}: {error}"
            ) from error
        is_matrix = isinstance(output, Tensor) and output.ndim == 2 and len(output) == len(x)
        if not is_matrix or not output.is_floating_point() or output.shape[1] < 2:
            refuse_output(output, self.index, len(x))
        logits: Tensor = output
        return logits

    def check_first_pass(self, x: Tensor, batch: Tensor) -> Tensor:
        """The logits of x, in a pass during which all is watched that would make maps silently wrong.

        Args:
            batch: the images, of which x are all or the first.
        """
        own_code = not all(type(module).__module__.startswith("torch.nn.") for module in self.network.modules())
        is_watched = x.requires_grad and own_code and type(self.network) not in self.findings.watched
        before, on_device = torch.get_rng_state(), torch.cuda.get_rng_state(x.device) if x.is_cuda else None
        watch = CutWatch() if is_watched else None
        with watch or nullcontext():
            logits = self.logits(x.clone())
        with torch.no_grad(), repeat_pass():
            is_drawn = on_device is not None and not torch.equal(on_device, torch.cuda.get_rng_state(x.device))
            if is_drawn or not torch.equal(before, torch.get_rng_state()):
                check_is_fixed(logits, self.logits(x.clone()), self.index)
            if is_watched:  # numpy's numbers, or a generator of the network's own, move no state of torch's
                again = self.logits(batch[: 2 if len(x) == 1 else 1])
                if differ(logits[0], again[0]):
                    check_is_fixed(logits, self.logits(x.clone()), self.index)
                    refuse_mixed_images(self.index)
            sums_to_one = bool(logits.numel() and (logits >= 0).all() and (logits.sum(-1) - 1).abs().max() < 1e-5)
        if sums_to_one and not callable(self.findings.choice):
            refuse_probabilities(self.index)
        if x.requires_grad and not logits.requires_grad:
            refuse_cut_off(self.index)
        if watch is not None:
            if watch.found:
                with repeat_pass():
                    warn_of_cut(self.network, x, self.index)
            self.findings.watched.add(type(self.network))
            self.findings.operations[self.index] = {str(node.name()) for node in graph_nodes(logits.grad_fn)}
        return logits
