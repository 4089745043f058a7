"""A network that hands on its logits alone, and whose first pass is checked."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.jit import ScriptModule

from dubium.attribution._autograd.nodes import graph_nodes
from dubium.checks import check_output, warn_user
from dubium.errors import NetworkStateError, OutputError
from dubium.networks.class_choice import Pair, select_pair
from dubium.networks.cut_gradients import CutWatch, find_cut
from dubium.networks.outputs import CONVERSIONS, OutputChoice, look_like_probabilities, take_logits

SAME = 1e-4  # of the largest logit: differences below are rounding


@dataclass
class FirstPasses:
    """What the first passes of a posterior's networks have shown.

    Args:
        choice: what of a network's output to take.
        gradients: whether the method needs the gradient of the logits at the image.
        pair: the two classes whose logits the networks hand on, instead of all.
    """

    choice: OutputChoice
    gradients: bool
    pair: Pair | None = None
    checked: set[int] = field(default_factory=set)  # numbers of networks
    plain: set[int] = field(default_factory=set)  # numbers of networks whose output is the logits alone
    watched: set[type] = field(default_factory=set)  # classes of networks in which no part of the gradient is cut
    operations: dict[int, set[str]] = field(default_factory=dict)  # autograd's nodes in the first network of each class


class LogitsNetwork(nn.Module):
    """The logits of a network, whose layers and parameters it shows under their own names.

    The first pass is checked: whether the output is logits, whether it is random, whether it depends on the image.
    """

    network: nn.Module
    index: int
    passes: FirstPasses

    def __init__(self, network: nn.Module, index: int, passes: FirstPasses) -> None:
        super().__init__()
        self.__dict__.update(network=network, index=index, passes=passes, training=False)
        if not isinstance(network, ScriptModule):
            self.__dict__.update({name: getattr(network, name) for name in ("_modules", "_parameters", "_buffers")})

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["network"], name)

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        """The network's, without this module, unless it computes something of the output itself."""
        choice = self.passes.choice
        computes = choice in CONVERSIONS if isinstance(choice, str) else callable(choice)
        if computes or self.passes.pair:
            yield from super().named_modules(*args, **kwargs)
        else:
            yield from self.network.named_modules(*args, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.all_logits(x)
        return logits if self.passes.pair is None else select_pair(logits, self.passes.pair)

    def all_logits(self, x: Tensor) -> Tensor:
        """The logits of all classes; the first time, after the checks."""
        if self.index in self.passes.checked:
            return self.logits(x)
        if not self.passes.gradients or x.requires_grad:
            logits = self.check_first_pass(x, x)
        else:  # a graph of one image tells; the others go without
            with torch.enable_grad():
                logits = self.check_first_pass(x[:1].clone().requires_grad_(), x).detach()
            logits = torch.cat([logits, self.logits(x[1:])]) if len(x) > 1 else logits
        self.passes.checked.add(self.index)
        return logits

    def logits(self, x: Tensor) -> Tensor:
        """The part of the output that was chosen, if it is logits (B, K)."""
        output = self.network(x)
        if self.passes.choice is None and self.passes.pair is None and isinstance(output, Tensor):
            self.passes.plain.add(self.index)
            return check_output(output, self.index, len(x))
        with name_output(self.index):
            part = take_logits(output, self.passes.choice, len(x))
        return check_output(part, self.index, len(x))

    def check_first_pass(self, x: Tensor, batch: Tensor) -> Tensor:
        """The logits of x, in a pass during which all is watched that would make maps silently wrong.

        Args:
            batch: the images, of which x are all or the first.
        """
        before, cuts = random_state(x), list[str]()
        own_code = any(not type(module).__module__.startswith("torch.nn.") for module in self.network.modules())
        is_watched = x.requires_grad and own_code and type(self.network) not in self.passes.watched
        if is_watched:
            with CutWatch() as watch:
                logits = self.logits(x.clone())
            cuts = watch.found
        else:
            logits = self.logits(x.clone())
        if not torch.equal(before, random_state(x)):
            with torch.no_grad():
                check_is_fixed(logits, self.logits(x.clone()), self.index)
        if is_watched:  # numpy's numbers, or a generator of the network's own, move no state of torch's
            with torch.no_grad():
                again = self.logits(batch[: 2 if len(x) == 1 else 1])
                if differ(logits[0], again[0]):
                    check_is_fixed(logits, self.logits(x.clone()), self.index)
                    refuse_mixed_images(self.index)
        if not callable(self.passes.choice) and look_like_probabilities(logits):
            raise OutputError(
                f"The outputs of network {self.index} look like probabilities: none is negative and each row sums to "
                "1. Logits are needed: leave out the last softmax, or say output='probabilities', which takes their "
                "logarithm. If they are logits after all: output=lambda logits: logits."
            )
        if x.requires_grad:
            self.check_gradient(x, logits, cuts)
            if is_watched:
                self.passes.watched.add(type(self.network))
                self.passes.operations[self.index] = {str(node.name()) for node in graph_nodes(logits.grad_fn)}
        return logits

    def check_gradient(self, x: Tensor, logits: Tensor, cuts: Sequence[str]) -> None:
        """Whether the logits depend on x; with a warning if a part of the gradient is cut."""
        if not logits.requires_grad:
            raise NetworkStateError(
                f"The logits of network {self.index} have no gradient at the image: its forward pass cuts it off "
                "(torch.no_grad, detach, .data or .numpy), so that maps would be flat. Let it compute everything with "
                "gradients; its parameters may stay frozen (requires_grad=False)."
            )
        if cuts:
            warn_user(
                f"A part of the gradient is cut in network {self.index}, layer {find_cut(self.network, x.clone())}: "
                "what torch.no_grad or detach hides there is missing in the maps. If that is meant, as in a "
                "straight-through estimate, ignore this."
            )


@contextmanager
def name_output(index: int) -> Iterator[None]:
    """Within the block, errors about an output say which network's it is."""
    try:
        yield
    except OutputError as error:
        raise OutputError(f"Of the output of network {index}: {error}") from error


def random_state(x: Tensor) -> Tensor:
    """The state of torch's random numbers, on the CPU and on the device of x."""
    state = torch.get_rng_state()
    return torch.cat([state, torch.cuda.get_rng_state(x.device)]) if x.is_cuda else state


def differ(logits: Tensor, again: Tensor) -> bool:
    """Whether logits differ by more than rounding."""
    return bool((logits - again).abs().max() > SAME * logits.abs().max())


def check_is_fixed(first: Tensor, again: Tensor, index: int) -> None:
    """Whether a network gives the same logits of the same images again."""
    if differ(first, again):
        raise NetworkStateError(
            f"Network {index} is random: two passes of the same images differ, though it is in eval mode. Does it "
            "call F.dropout without training=self.training, or use FractionalMaxPool2d? Make it a fixed function; for "
            "MC dropout, give dubium.posteriors.MCDropout(network), which fixes the masks."
        )


def refuse_mixed_images(index: int) -> NoReturn:
    raise NetworkStateError(
        f"Network {index} mixes the images of a batch: the logits of an image change with its neighbours, and so "
        "would its maps. Does it reshape or repeat across the batch? (timm's GCViT does.) Explain one image at a "
        "time, or mend its forward pass."
    )
