"""g -> z: hand each class's share of the uncertainty to the logits that made its probability (Eq. 5 to 8)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from dubium.types import Logits

PAPER_CLASSES, MAX_TAU1 = 10, 10.0  # the classes of the paper's tau1, and the largest tau1 to choose


def diagonal_weight(classes: int, tau1: float) -> float:
    """The part that a probability gives its own logit if all K probabilities are equal: `e / (e + K - 1)`, where
    `e = exp(1 / tau1)`."""
    return 1 / (1 + (classes - 1) * math.exp(-1 / tau1))


def scale_tau1(classes: int, tau1_at_ten: float) -> float:
    """The tau1 that gives K classes the diagonal weight that ten classes have at `tau1_at_ten`.

    It is at most `MAX_TAU1`: with two classes the diagonal weight cannot be below 1/2.
    """
    return 1 / max(1 / tau1_at_ten + math.log((classes - 1) / (PAPER_CLASSES - 1)), 1 / MAX_TAU1)


def softmax_share(on_probs: Float[Tensor, "kinds B K"], logits: Logits, tau1: float) -> Float[Tensor, "S kinds B K"]:
    """Shares on probabilities -> shares on each sample's logits; sums over K are kept.

    With g the sample's probabilities, probability j gives logit i the part `softmax_i((delta_ij - g_i) / tau1)`. All
    rows of that K x K matrix are alike but for their diagonal, so its product with the shares needs O(K): with
    `a = exp(-g / tau1)`, row j sums to `D_j = sum(a) + (exp(1 / tau1) - 1) a_j`. Logarithms keep a small tau1 from
    overflowing.
    """
    log_a = -logits.double().softmax(-1)[:, None] / tau1  # (S, 1, B, K)
    log_e_minus_1 = 1 / tau1 + math.log(-math.expm1(-1 / tau1))  # log(exp(1 / tau1) - 1)
    log_rows = torch.logaddexp(log_a.logsumexp(-1, keepdim=True), log_a + log_e_minus_1)  # log D
    log_q = on_probs.double().log() - log_rows  # (S, kinds, B, K); the log of a share of 0 is -inf, which is right
    return (log_a + log_q.logsumexp(-1, keepdim=True)).exp() + (log_a + log_e_minus_1 + log_q).exp()
