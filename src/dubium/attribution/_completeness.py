"""Whether FullGrad's terms add up to the logits: measured, and told to the user where they do not."""

from collections.abc import Collection, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution._autograd.rules import RULES
from dubium.attribution._context import DEFAULT_MEMORY
from dubium.attribution._target import ALL_LOGITS, LogitTarget
from dubium.attribution.fullgrad import FullGradPass, bias_terms, term_sum
from dubium.checks import warn_user
from dubium.types import Images, Posterior

LEAF = "torch::autograd::AccumulateGrad"
MISSING = 0.05  # of a logit: what FullGrad may miss without a word
LOGITS = 3  # of the first image: what is measured; each costs every explanation time


def warn_if_incomplete(networks: Posterior, operations: Mapping[int, Collection[str]], x: Images, memory: int) -> None:
    """One warning if FullGrad misses much of the logits of the first image, in a network with nodes that have no rule.

    Args:
        operations: names of autograd's nodes in some of the networks, by their numbers.
    """
    others = {index for index, names in operations.items() if not {*names} <= {*RULES, LEAF}}
    for index, network in enumerate(networks if others and len(x) else ()):
        if index not in others:
            continue
        recorded = FullGradPass(network, x[:1], only_spatial=False)
        classes = recorded.output.shape[1]
        class_ids = torch.arange(0, classes, max(1, classes // LOGITS), device=x.device)[:LOGITS]
        gap = float(relative_gap(recorded, LogitTarget(class_ids), memory).median())
        if gap > MISSING:
            warn_user(
                f"FullGrad misses {gap:.0%} of the logits of network {index}: something in its forward pass cannot be "
                "seen, such as a torch.autograd.Function outside of modules, a function of torch.jit, reentrant "
                "checkpointing, or a gradient that is cut. Use relevance='input-grad' or 'ig', or method='auto', which "
                "need no biases; dubium.fullgrad_completeness measures it."
            )
            return


def fullgrad_gap(network: nn.Module, x: Images, *, memory: int = DEFAULT_MEMORY) -> Float[Tensor, "B K"]:
    """How far input and bias terms are from adding up to each logit, relative to its size if that exceeds 1.

    Image by image: then every term is that image's, whatever the network does to the batch.
    """
    passes = (FullGradPass(network, image[None], only_spatial=False) for image in x)
    return torch.cat([relative_gap(recorded, ALL_LOGITS, memory) for recorded in passes])


def relative_gap(recorded: FullGradPass, target: LogitTarget, memory: int) -> Float[Tensor, "1 T"]:
    """|logit - sum of terms| / max(1, |logit|), of one image."""
    sums = torch.cat([torch.stack([*terms]).sum(0)[:, 0] for terms in bias_terms([recorded], target, term_sum, memory)])
    logits = target(recorded.output.detach())
    return (logits - sums).abs() / logits.abs().clamp(min=1)
