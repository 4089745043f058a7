"""Whether FullGrad's terms add up to the logits: measured, and told to the user where they do not."""

from collections.abc import Callable, Collection, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution._autograd.nodes import MissingAttributeError, output_precision
from dubium.attribution._autograd.rules import GRADIENT_RULES
from dubium.attribution._biases import Bias
from dubium.attribution._context import DEFAULT_MEMORY
from dubium.attribution._cut_gradients import find_unseen
from dubium.attribution._fullgrad_terms import term_abs_sum, term_sum
from dubium.attribution._target import ALL_LOGITS, LogitTarget
from dubium.attribution.fullgrad import FullGradPass, reduce_at_biases
from dubium.checks import warn_user
from dubium.types import Images, Posterior

LEAF = "torch::autograd::AccumulateGrad"
LINEAR_NODES = frozenset(
    f"{name}Backward0" for name in ("Sub", "Div", "ConstantPadNd", "Cat", "Stack", "AvgPool2D", "AdaptiveAvgPool2D")
)
COMPLETE_NODES = frozenset([*GRADIENT_RULES, LEAF, *LINEAR_NODES])
"""Nodes of functions whose biases are recorded exactly: a network that has no others is complete by construction."""
MISSING = 1e-3  # of a logit: what FullGrad may miss without a word
SUM_ROUNDING = 64  # times the machine's precision and the sum of all absolute terms: what may be missed by rounding
MEASURED_LOGITS = 3  # of the first image; each costs every explanation time


def warn_if_incomplete(networks: Posterior, node_names: Mapping[int, Collection[str]], x: Images, memory: int) -> None:
    """One warning if FullGrad misses some of the logits of the first image, in a network that has other nodes than
    `COMPLETE_NODES`.

    Args:
        node_names: of autograd, by the index of the network; of networks with code of their own.
    """
    others = {index for index, names in node_names.items() if not COMPLETE_NODES.issuperset(names)}
    for index, network in enumerate(networks if others and len(x) else ()):
        if index not in others:
            continue
        forward_pass = FullGradPass(network, x[:1], only_spatial=False)
        classes = forward_pass.output.shape[1]
        class_ids = torch.arange(0, classes, max(1, classes // MEASURED_LOGITS), device=x.device)
        target = LogitTarget(class_ids[:MEASURED_LOGITS])
        gap = relative_gap(forward_pass, target, memory).median()
        if gap > MISSING and gap > rounding_gap(forward_pass, target, memory):
            layer = find_unseen(network, x[:1])
            warn_user(
                f"FullGrad misses {gap:.1%} of the logits of network {index}: something in its forward pass cannot be "
                f"seen{', in or before layer ' + layer if layer else ''}, such as a function that is given less than "
                "it uses, one of torch.func or of C++, or a gradient that is cut. Give it all features that it uses as "
                "arguments, or use relevance='input-grad' or 'ig', or method='auto', which need no biases; "
                "dubium.fullgrad_completeness measures it."
            )
            return


def rounding_gap(forward_pass: FullGradPass, target: LogitTarget, memory: int) -> Float[Tensor, ""]:
    """The relative gap that rounding may make between logits and the sum of all terms."""
    sizes = sum_over_biases(forward_pass, target, term_abs_sum, memory)
    logits = target(forward_pass.output.detach())
    return SUM_ROUNDING * lowest_precision(forward_pass) * (sizes / logits.abs().clamp(min=1)).median()


def lowest_precision(forward_pass: FullGradPass) -> float:
    """The machine's precision in the shortest type of numbers that a feature has; autocast makes features short."""
    try:
        return max([output_precision(edge.node, edge.output_nr) for edge in forward_pass.edges])
    except MissingAttributeError:
        return torch.finfo(forward_pass.output.dtype).eps


def fullgrad_gap(network: nn.Module, x: Images, *, memory: int = DEFAULT_MEMORY) -> Float[Tensor, "B K"]:
    """How far input and bias terms are from adding up to each logit, relative to its size if that exceeds 1.

    Image by image: then every term is that image's, whatever the network does to the batch.
    """
    passes = (FullGradPass(network, image[None], only_spatial=False) for image in x)
    return torch.cat([relative_gap(forward_pass, ALL_LOGITS, memory) for forward_pass in passes])


def relative_gap(forward_pass: FullGradPass, target: LogitTarget, memory: int) -> Float[Tensor, "1 T"]:
    """|logit - sum of terms| / max(1, |logit|), of one image."""
    logits = target(forward_pass.output.detach())
    return (logits - sum_over_biases(forward_pass, target, term_sum, memory)).abs() / logits.abs().clamp(min=1)


def sum_over_biases(
    forward_pass: FullGradPass, target: LogitTarget, reduction: Callable[[Bias, Tensor], Tensor], memory: int
) -> Float[Tensor, " T"]:
    """The sum of what a reduction (t, S) makes of each term, of one image."""
    chunks = reduce_at_biases([forward_pass], target, reduction, memory)
    return torch.cat([torch.stack([*terms]).sum(0)[:, 0] for terms in chunks])
