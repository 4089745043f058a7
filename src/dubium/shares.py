"""U -> g: the uncertainty U in nats, and the share of it on each class's probability g (Eq. 2 to 4)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dubium.types import Kind, Logits, Scores, Shares


def class_shares(logits: Logits) -> Shares:
    """Each class's part of the total, aleatoric and epistemic uncertainty, in that order.

    Float64 whatever comes in: the epistemic part is a small difference, and it costs nothing here.
    """
    total, aleatoric = entropy_terms(logits.double().log_softmax(-1), samples_axis=0)
    if len(logits) == 1:  # nothing can disagree with itself, not even by a rounding error
        return torch.stack([aleatoric, aleatoric, torch.zeros_like(aleatoric)])
    aleatoric = torch.minimum(aleatoric, total)  # -p log p is concave: only rounding puts it above
    return torch.stack([total, aleatoric, total - aleatoric])


@dataclass(frozen=True)
class UncertaintyTarget:
    """Uncertainties in nats, (B, S, K) logits -> (B, T) scores; differentiable also where a probability is 0.

    In float64 inside, as in `class_shares`: for confident networks, float32 gradients are off by several per cent.
    """

    kinds: Sequence[Kind]

    def __call__(self, logits: Float[Tensor, "B S K"]) -> Scores:
        total, aleatoric = (terms.sum(-1) for terms in entropy_terms(logits.double().log_softmax(-1), samples_axis=1))
        by_kind = {"total": total, "aleatoric": aleatoric, "epistemic": total - aleatoric}
        return torch.stack([by_kind[kind] for kind in self.kinds], 1).to(logits.dtype)


def entropy_terms(log_probs: Tensor, samples_axis: int) -> tuple[Tensor, Tensor]:
    """`-p log p` of the samples' mean probabilities, and the mean of the samples' `-p log p`: one number a class."""
    log_mean = log_probs.logsumexp(samples_axis) - math.log(log_probs.shape[samples_axis])
    log_mean = log_mean.clamp(max=0)  # only rounding puts it above
    return -log_mean.exp() * log_mean, -(log_probs.exp() * log_probs).mean(samples_axis)
