"""U -> g: how unsure the posterior is, in nats, and how much of it each class carries (Eq. 2 to 4)."""

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
    log_probs = logits.double().log_softmax(-1)
    log_mean = log_probs.logsumexp(0) - math.log(len(logits))
    total = -log_mean.exp() * log_mean
    aleatoric = -(log_probs.exp() * log_probs).mean(0)
    if len(logits) == 1:  # nothing can disagree with itself, not even by a rounding error
        return torch.stack([aleatoric, aleatoric, torch.zeros_like(aleatoric)])
    aleatoric = torch.minimum(aleatoric, total)  # -p log p is concave: only rounding puts it above
    return torch.stack([total, aleatoric, total - aleatoric])


@dataclass(frozen=True)
class UncertaintyTarget:
    """Uncertainties in nats, (B, S, K) logits -> (B, T) scores; differentiable also where a probability is 0."""

    kinds: Sequence[Kind]

    def __call__(self, logits: Float[Tensor, "B S K"]) -> Scores:
        log_probs = logits.log_softmax(-1)
        log_mean = log_probs.logsumexp(1) - math.log(logits.shape[1])
        total = -(log_mean.exp() * log_mean).sum(-1)
        aleatoric = -(log_probs.exp() * log_probs).sum(-1).mean(1)
        by_kind = {"total": total, "aleatoric": aleatoric, "epistemic": total - aleatoric}
        return torch.stack([by_kind[kind] for kind in self.kinds], 1)
