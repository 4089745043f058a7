"""A network's logits: the requested part of its output, checked on the first pass."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import ScriptModule

from dubium.attribution._autograd.graph import graph_nodes
from dubium.attribution._cut_gradients import CutWatch, warn_of_cut
from dubium.attribution._measure import IS_MEASURING
from dubium.attribution._structure import list_modules, network_structure
from dubium.errors import DubiumError
from dubium.image_checks import warn_of_standardised_images
from dubium.models import Normalized
from dubium.models.normalized import Normalise
from dubium.networks.class_choice import Pair, check_class_count, select_pair
from dubium.networks.outputs import CONVERSIONS, SIGMOID, OutputChoice, take_network_logits
from dubium.networks.refusals import (
    refuse_cut_off,
    refuse_features,
    refuse_images,
    refuse_mixed_images,
    refuse_multi_label,
    refuse_output,
    refuse_probabilities,
    refuse_random,
)
from dubium.networks.sigmoid_outputs import check_sigmoid_logit, ends_in_sigmoid, is_within_unit
from dubium.output_checks import are_distributions, are_from_zero_to_one
from dubium.types import Images

LOGIT_ROUNDING = 1e-4  # of the largest logit: smaller differences between two passes are rounding

UNSEEN = "operations that may not be seen"
"""Added to the names of a network's nodes if some of its operations may be hidden: compiled by torch.jit, or inside a
layer of the user's own."""

NETWORK_EXCEPTIONS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a network may raise about images that it cannot take."""


@dataclass(frozen=True)
class LogitsRequest:
    """What a call asks of a posterior's networks.

    Args:
        output: which part of a network's output the logits are.
        pair: two classes, if the networks are to return the logits of these alone.
        log_probs: whether the networks are to return log-probabilities instead, whose softmax is that of the logits.
        needs_gradients: whether the logits must have a gradient at the image.
        class_names: of all classes; whether there are as many is known from the first pass.
    """

    output: OutputChoice = None
    pair: Pair | None = None
    log_probs: bool = False
    needs_gradients: bool = True
    class_names: Sequence[str] | None = None


DEFAULT_REQUEST = LogitsRequest()


@dataclass
class FirstPassChecks:
    """What the first forward pass of each network has shown."""

    images: Images  # all images of the call, for comparisons and messages
    checked_indices: set[int] = field(default_factory=set)  # indices of networks that have had theirs
    plain_logits_indices: set[int] = field(
        default_factory=set
    )  # indices of networks whose output is the logits already
    structures: set[tuple[object, ...]] = field(default_factory=set)  # of the networks that were compared
    # names of the graph's nodes by the network's index, only for the first network of each structure with custom code
    node_names_of_custom_networks: dict[int, set[str]] = field(default_factory=dict)


class LogitsNetwork(nn.Module):
    """The logits of a network, whose layers and parameters it shows under their own names.

    The first call of `forward` runs the checks and returns its logits, so that no pass is computed for them alone:
    whether the output is logits, whether it is random, whether it depends on the image, and on that image alone.
    """

    network: nn.Module
    index: int
    request: LogitsRequest
    first_checks: FirstPassChecks
    has_hooks: bool  # of the user's, on some of its modules

    def __init__(
        self, network: nn.Module, index: int, request: LogitsRequest, first_checks: FirstPassChecks, *, has_hooks: bool
    ) -> None:
        super().__init__()
        self.__dict__.update(network=network, index=index, request=request, first_checks=first_checks, training=False)
        self.__dict__["has_hooks"] = has_hooks
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
        if computes or self.request.pair or self.request.log_probs:
            yield from super().named_modules(*args, **kwargs)
        else:
            yield from self.network.named_modules(*args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        if self.index in self.first_checks.checked_indices or IS_MEASURING.get():
            logits = self.compute_logits(x)
        elif not self.request.needs_gradients or x.requires_grad:
            logits = self.check_first_pass(x)
        else:  # a graph is built for the first image alone
            with torch.enable_grad():
                logits = self.check_first_pass(x[:1].clone().requires_grad_().clone()).detach()
            logits = torch.cat([logits, self.compute_logits(x[1:])]) if len(x) > 1 else logits
        logits = logits if self.request.pair is None else select_pair(logits, self.request.pair)
        return logits.log_softmax(-1) if self.request.log_probs else logits

    def compute_logits(self, x: Tensor) -> Tensor:
        """The requested part of the output, logits (B, K). Exceptions of the network name it as a `NetworkError`."""
        output_choice = self.request.output
        image_count = x.shape[0]
        try:
            output: Any = self.network(x)
            is_plain = output_choice is None and isinstance(output, Tensor)
            output = output if is_plain else take_network_logits(output, output_choice, image_count, self.index)
            if image_count == 1 and isinstance(output, Tensor) and output.ndim == 1:
                output = output[None]  # `squeeze` in the network has taken the batch, too
            elif image_count == 1 and is_plain and self.request.pair is None and not self.request.log_probs:
                self.first_checks.plain_logits_indices.add(self.index)
        except (DubiumError, torch.OutOfMemoryError):
            raise
        except NETWORK_EXCEPTIONS as error:
            called_with = x if self.index in self.first_checks.checked_indices else None
            refuse_images(self.index, error, self.first_checks.images, called_with)
        has_rows = isinstance(output, Tensor) and output.ndim == 2 and output.shape[0] == image_count
        if not has_rows or not output.is_floating_point() or output.shape[1] < 2:
            refuse_output(output, self.index, image_count)
        logits: Tensor = output
        return logits

    def check_first_pass(self, x: Tensor) -> Tensor:
        """The logits of x, in a pass during which everything is watched that would make maps silently wrong.

        As in any pass, the network may overwrite x.
        """
        images = x.detach().clone()
        modules = list_modules(self.network)
        custom_modules = [module for module in modules if not type(module).__module__.startswith("torch.nn.")]
        has_custom_code = bool(custom_modules) or self.has_hooks or any("forward" in vars(module) for module in modules)
        if self.index == 0 and any(type(module) is Normalise for module in modules):
            warn_of_standardised_images(images)
        has_neighbours = len(self.first_checks.images) > 1
        needs_structure = has_custom_code or has_neighbours or self.request.output == SIGMOID
        structure = (has_custom_code, *network_structure(modules)) if needs_structure else ()
        is_new = structure not in self.first_checks.structures
        watch = CutWatch(x) if x.requires_grad and has_custom_code and is_new else None
        generators = [torch.default_generator, *([torch.cuda.default_generators[x.get_device()]] if x.is_cuda else [])]
        states = [generator.get_state() for generator in generators]
        with watch or nullcontext():
            logits = self.compute_logits(x)
        with torch.no_grad():
            if not all(torch.equal(g.get_state(), state) for g, state in zip(generators, states, strict=True)):
                self.refuse_if_random(images, logits)
            if is_new and (has_custom_code or has_neighbours):
                self.check_neighbours(images, logits)
            must_check_sigmoid = self.request.output == SIGMOID and is_new and len(x) and not logits[:, 0].any()
            if must_check_sigmoid and is_within_unit(logits):
                check_sigmoid_logit(self.compute_logits, self.first_checks.images, self.index)
            is_in_unit_range = are_from_zero_to_one(logits)
            # logits of one image may sum to 1 by chance; those of another, of zeros, must do so too
            sums_to_one = is_in_unit_range and are_distributions(logits)
            sums_to_one = sums_to_one and are_distributions(self.compute_logits(torch.zeros_like(x)))
        if self.request.class_names is not None:
            check_class_count(self.request.class_names, logits.shape[1], self.request.pair)
        if self.request.output is None and has_no_head(self.network, logits.shape[1]):
            refuse_features(self.index, logits.shape[1])
        if sums_to_one and not callable(self.request.output) and not self.is_said_to_be_logits(x):
            refuse_probabilities(self.index)
        if self.request.output is None and is_in_unit_range and ends_in_sigmoid(self.compute_logits, images):
            refuse_multi_label(self.index)
        if x.requires_grad and not logits.requires_grad:
            refuse_cut_off(self.index)
        if watch is not None:
            if watch.cut_layers:
                warn_of_cut(self.network, images.requires_grad_(), self.index)
            names = {str(node.name()) for node in graph_nodes(logits.grad_fn)}
            sees_all = not watch.unseen_layers and watch.has_seen([logits]) and not has_custom_layers(self.network)
            self.first_checks.node_names_of_custom_networks[self.index] = names if sees_all else {*names, UNSEEN}
        self.first_checks.structures.add(structure)
        self.first_checks.checked_indices.add(self.index)
        return logits

    def is_said_to_be_logits(self, x: Tensor) -> bool:
        """Whether the user says output='logits' of a tensor; of other outputs it is the name of a part."""
        return self.request.output == "logits" and isinstance(self.network(torch.zeros_like(x)), Tensor)

    def check_neighbours(self, x: Tensor, logits: Tensor) -> None:
        """Raise an error unless the first and the last image have the same logits alone and beside others.

        Both, since a network that divides a batch by its largest pixel leaves the image that has it unchanged. Random
        numbers of NumPy, or of a generator that the network has, move no state of torch: they show here, too.
        """
        all_images = self.first_checks.images
        if len(x) > 1:
            pairs = [
                (logits[:1], self.compute_logits(x[:1].clone())),
                (logits[-1:], self.compute_logits(x[-1:].clone())),
            ]
        elif len(all_images) > 1:
            both = self.compute_logits(torch.cat([x, all_images[-1:]]))
            pairs = [(logits, both[:1]), (self.compute_logits(all_images[-1:].clone()), both[1:])]
        else:
            pairs = [(logits, self.compute_logits(x.clone()))]
        if any(one.numel() and logits_differ(one, other) for one, other in pairs):
            self.refuse_if_random(x, logits)
            refuse_mixed_images(self.index)

    def refuse_if_random(self, x: Tensor, logits: Tensor) -> None:
        """Raise an error unless the network gives the same logits of x again."""
        if logits_differ(logits, self.compute_logits(x.clone())):
            refuse_random(self.index)


def has_custom_layers(network: nn.Module) -> bool:
    """Whether some innermost module, other than the network itself, is of a class of the user's own."""
    inner = [module for module in list_modules(network) if module is not network and not module._modules]
    return not all(type(module).__module__.startswith(("torch.nn.", "dubium.")) for module in inner)


def has_no_head(network: nn.Module, output_count: int) -> bool:
    """Whether a timm network puts out its features; one that was given a head by hand still says `num_classes` 0."""
    network = network.network if isinstance(network, Normalized) else network
    widths = [getattr(network, name, None) for name in ("num_features", "head_hidden_size")]
    return getattr(network, "num_classes", None) == 0 and output_count in widths


def logits_differ(logits: Tensor, again: Tensor) -> bool:
    """Whether they differ by more than rounding."""
    return bool((logits - again).abs().max() > LOGIT_ROUNDING * logits.abs().max())
