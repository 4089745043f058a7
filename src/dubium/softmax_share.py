"""g -> z: hand each class's share of the uncertainty to the logits that made its probability (Eq. 5 to 8)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from dubium.types import Logits

TEN, LARGEST = 10, 10.0  # the classes of the paper's tau1, and the largest tau1 to choose


def own_weight(classes: int, tau1: float) -> float:
    """What a probability gives its own logit if all K are alike: `e / (e + K - 1)` with `e = exp(1 / tau1)`."""
    return 1 / (1 + (classes - 1) * math.exp(-1 / tau1))


def tau1_for(classes: int, ten: float) -> float:
    """The tau1 at which K classes have the own weight that ten classes have at `ten`.

    Two classes cannot have less than half; where that is asked for, they get the largest tau1, and nearly half.
    """
    return 1 / max(1 / ten + math.log((classes - 1) / (TEN - 1)), 1 / LARGEST)


def softmax_share(on_probs: Float[Tensor, "kinds B K"], logits: Logits, tau1: float) -> Float[Tensor, "S kinds B K"]:
    """Shares on probabilities -> shares on each sample's logits; sums over K are kept.

    Probability j gives logit i the part `softmax_i((delta_ij - g_i) / tau1)`. All rows of that K x K matrix are alike
    but for their diagonal, so its product with the shares needs O(K): with `a = exp(-g / tau1)`, row j sums to
    `D_j = sum(a) + (exp(1 / tau1) - 1) a_j`. Logarithms keep a small tau1 from overflowing.
    """
    log_a = -logits.double().softmax(-1)[:, None] / tau1  # (S, 1, B, K)
    log_e_minus_1 = 1 / tau1 + math.log(-math.expm1(-1 / tau1))  # log(exp(1 / tau1) - 1)
    log_rows = torch.logaddexp(log_a.logsumexp(-1, keepdim=True), log_a + log_e_minus_1)  # log D
    log_q = on_probs.double().log() - log_rows  # (S, kinds, B, K); the log of a share of 0 is -inf, which is right
    return (log_a + log_q.logsumexp(-1, keepdim=True)).exp() + (log_a + log_e_minus_1 + log_q).exp()
