"""Whether FullGrad's terms add up to the logits, told to the user where they do not."""

from collections.abc import Sequence

import torch
from torch import nn

from dubium.attribution._target import LogitTarget
from dubium.attribution.fullgrad import FullGradPass, bias_terms, term_sum
from dubium.checks import warn_user
from dubium.types import Images

MISSING = 0.05  # of a logit: what FullGrad may miss without a word
LOGITS = 3  # of the first image: what is measured; each costs every explanation time


def warn_if_incomplete(numbered: Sequence[tuple[int, nn.Module]], x: Images, memory: int) -> None:
    """One warning if FullGrad misses much of the logits of the first image, in one of these networks."""
    for index, network in numbered if len(x) else ():
        gap = median_gap(FullGradPass(network, x[:1], spatial=False), memory)
        if gap > MISSING:
            warn_user(
                f"FullGrad misses {gap:.0%} of the logits of network {index}: something in its forward pass cannot be "
                "seen, such as a torch.autograd.Function outside of modules, reentrant checkpointing, or a gradient "
                "that is cut. Use relevance='input-grad' or 'ig', or method='auto', which need no biases; "
                "dubium.fullgrad_completeness measures it."
            )
            return


def median_gap(one: FullGradPass, memory: int) -> float:
    """The median over some logits of |logit - sum of terms| / max(1, |logit|), of one image."""
    classes = one.output.shape[1]
    chosen = torch.arange(0, classes, max(1, classes // LOGITS), device=one.output.device)[:LOGITS]
    target = LogitTarget(chosen)
    sums = torch.cat([torch.stack([*terms]).sum(0)[:, 0] for terms in bias_terms([one], target, term_sum, memory)])
    logits = target(one.output.detach())[0]
    return float(((logits - sums.flatten()).abs() / logits.abs().clamp(min=1)).median())
