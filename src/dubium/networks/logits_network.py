"""A network's logits: the requested part of its output, checked on the first pass."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import NoneType
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import ScriptModule

from dubium.attribution._autograd.nodes import graph_nodes
from dubium.attribution._gradients import list_modules
from dubium.attribution._measure import repeat_pass
from dubium.errors import DubiumError, NetworkError
from dubium.networks.class_choice import Pair, check_class_count, select_pair
from dubium.networks.cut_gradients import CutWatch, warn_of_cut
from dubium.networks.outputs import CONVERSIONS, SIGMOID, OutputChoice, take_network_logits
from dubium.networks.refusals import (
    refuse_cut_off,
    refuse_mixed_images,
    refuse_output,
    refuse_probabilities,
    refuse_random,
)
from dubium.networks.sigmoid_outputs import check_sigmoid_logit, is_within_unit
from dubium.types import Images

LOGIT_ROUNDING = 1e-4  # of the largest logit: smaller differences between two passes are rounding

UNSEEN = "operations that may not be seen"
"""Added to the names of a network's nodes if some of its operations may be hidden: compiled by torch.jit, or inside a
layer of the user's own."""

NAMED_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a network may raise about images that it cannot take."""


@dataclass(frozen=True)
class LogitsRequest:
    """What a call asks of a posterior's networks.

    Args:
        images: all images of the call, for comparisons and messages.
        output: which part of a network's output the logits are.
        pair: two classes, if the networks are to return the logits of these alone.
        needs_gradients: whether the logits must have a gradient at the image.
        class_names: of all classes, if they are to be compared with the logits.
    """

    images: Images
    output: OutputChoice
    pair: Pair | None
    needs_gradients: bool
    class_names: Sequence[str] | None = None


@dataclass
class FirstPasses:
    """What the first forward pass of each network has shown."""

    checked: set[int] = field(default_factory=set)  # indices of networks that have had theirs
    returns_logits: set[int] = field(default_factory=set)  # indices of networks whose output is the logits, no more
    structures: set[tuple[type, ...]] = field(default_factory=set)  # module classes of networks that were compared
    operations: dict[int, set[str]] = field(default_factory=dict)  # autograd's nodes, of one network a structure


class LogitsNetwork(nn.Module):
    """The logits of a network, whose layers and parameters it shows under their own names.

    The first pass is checked, inside of `forward`, so that it serves for logits and maps as well: whether the output is
    logits, whether it is random, whether it depends on the image, and on that image alone.
    """

    network: nn.Module
    index: int
    request: LogitsRequest
    first_passes: FirstPasses

    def __init__(self, network: nn.Module, index: int, request: LogitsRequest, first_passes: FirstPasses) -> None:
        super().__init__()
        self.__dict__.update(network=network, index=index, request=request, first_passes=first_passes, training=False)
        if not isinstance(network, ScriptModule):
            self.__dict__.update({name: getattr(network, name) for name in ("_modules", "_parameters", "_buffers")})

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["network"], name)

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        """The modules of the network; this one is among them only if it computes something of the output."""
        output = self.request.output
        computes = output in CONVERSIONS if isinstance(output, str) else callable(output)
        if computes or self.request.pair:
            yield from super().named_modules(*args, **kwargs)
        else:
            yield from self.network.named_modules(*args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        if self.index in self.first_passes.checked or x.is_meta:  # without values nothing can be checked
            logits = self.logits(x)
        elif not self.request.needs_gradients or x.requires_grad:
            logits = self.check_first_pass(x)
        else:  # a graph is built for the first image alone
            with torch.enable_grad():
                logits = self.check_first_pass(x[:1].clone().requires_grad_()).detach()
            logits = torch.cat([logits, self.logits(x[1:])]) if len(x) > 1 else logits
        self.first_passes.checked.add(self.index)
        return logits if self.request.pair is None else select_pair(logits, self.request.pair)

    def logits(self, x: Tensor) -> Tensor:
        """The requested part of the output, logits (B, K). Exceptions of the network name it as a `NetworkError`."""
        output_choice = self.request.output
        try:
            output: Any = self.network(x)
            if output_choice is None and self.request.pair is None and isinstance(output, Tensor):
                if len(x) == 1 and output.ndim == 1:  # `squeeze` in the network has taken the batch, too
                    output = output[None]
                elif len(x) == 1:
                    self.first_passes.returns_logits.add(self.index)
            else:
                output = take_network_logits(output, output_choice, len(x), self.index)
        except (DubiumError, torch.OutOfMemoryError):
            raise
        except NAMED_ERRORS as error:
            shape = tuple(self.request.images.shape)
            is_exported = isinstance(error, AssertionError) and "Guard failed" in str(error)
            hint = ". torch.export fixes the batch size unless dynamic_shapes say {0: torch.export.Dim.AUTO}."
            raise NetworkError(
                f"Network {self.index} cannot take images of shape {shape}: {type(error).__name__}: {error}"
                + hint * is_exported
            ) from error
        is_matrix = isinstance(output, Tensor) and output.ndim == 2 and len(output) == len(x)
        if not is_matrix or not output.is_floating_point() or output.shape[1] < 2:
            refuse_output(output, self.index, len(x))
        logits: Tensor = output
        return logits

    def check_first_pass(self, x: Tensor) -> Tensor:
        """The logits of x, in a pass during which everything is watched that would make maps silently wrong."""
        layers = [type(module) for module in list_modules(self.network)]
        has_own_code = not all(layer.__module__.startswith("torch.nn.") for layer in layers)
        structure = (*layers, *(plain_attributes(self.network) if has_own_code else ()))
        is_new = structure not in self.first_passes.structures
        watch = CutWatch(x) if x.requires_grad and has_own_code and is_new else None
        generators = [torch.default_generator, *([torch.cuda.default_generators[x.get_device()]] if x.is_cuda else [])]
        states = [generator.get_state() for generator in generators]
        with watch or nullcontext():
            logits = self.logits(x.clone())
        with torch.no_grad(), repeat_pass():
            if not all(torch.equal(g.get_state(), state) for g, state in zip(generators, states, strict=True)):
                self.check_is_fixed(x, logits)
            if is_new and (has_own_code or len(self.request.images) > 1):
                self.check_first_image(x, logits)
            is_sigmoid = self.request.output == SIGMOID and is_new and len(x) and not logits[:, 0].any()
            if is_sigmoid and is_within_unit(logits):
                check_sigmoid_logit(self.logits, self.request.images, self.index)
            sums_to_one = bool(logits.numel() and (logits >= 0).all() and (logits.sum(-1) - 1).abs().max() < 1e-5)
        if self.request.class_names is not None:
            check_class_count(self.request.class_names, logits.shape[1], self.request.pair)
        if sums_to_one and not callable(self.request.output):
            refuse_probabilities(self.index)
        if x.requires_grad and not logits.requires_grad:
            refuse_cut_off(self.index)
        if watch is not None:
            if watch.cut_layers:
                with repeat_pass():
                    warn_of_cut(self.network, x, self.index)
            names = {str(node.name()) for node in graph_nodes(logits.grad_fn)}
            sees_all = not watch.unseen_layers and watch.has_seen([logits]) and not has_own_layers(self.network)
            self.first_passes.operations[self.index] = names if sees_all else {*names, UNSEEN}
        self.first_passes.structures.add(structure)
        return logits

    def check_first_image(self, x: Tensor, logits: Tensor) -> None:
        """Whether the first image has the same logits in a batch of another size.

        Random numbers of NumPy, or of a generator that the network has, move no state of torch: they show here, too.
        """
        neighbour = self.request.images[-1:] if len(self.request.images) > 1 else x[:0]
        again = self.logits(x[:1].clone() if len(x) > 1 else torch.cat([x, neighbour]))
        if len(x) and logits_differ(logits[0], again[0]):
            self.check_is_fixed(x, logits)
            refuse_mixed_images(self.index)

    def check_is_fixed(self, x: Tensor, logits: Tensor) -> None:
        """Whether the network gives the same logits of x again."""
        if logits_differ(logits, self.logits(x.clone())):
            refuse_random(self.index)


def plain_attributes(network: nn.Module) -> list[tuple[str, object]]:
    """The flags, numbers and words of the user's own modules, by which networks of the same classes may differ."""
    own = [module for module in list_modules(network) if not type(module).__module__.startswith("torch.nn.")]
    plain = (bool, int, float, str, NoneType)
    return [(name, value) for module in own for name, value in vars(module).items() if isinstance(value, plain)]


def has_own_layers(network: nn.Module) -> bool:
    """Whether some innermost module, other than the network itself, is of a class of the user's own."""
    inner = [module for module in network.modules() if module is not network and not module._modules]
    return not all(type(module).__module__.startswith(("torch.nn.", "dubium.")) for module in inner)


def logits_differ(logits: Tensor, again: Tensor) -> bool:
    """Whether they differ by more than rounding."""
    return bool((logits - again).abs().max() > LOGIT_ROUNDING * logits.abs().max())
