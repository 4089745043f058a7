"""How good predictions are: accuracy, negative log likelihood, and expected calibration error."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

HIGHER_IS_BETTER = {"accuracy": True, "nll": False, "ece": False}
BINS = 15


def predictive_metrics(logits: Float[Tensor, "B K"], labels: Int64[Tensor, " B"]) -> dict[str, float]:
    """All three, of one network's logits."""
    log_probs = logits.double().log_softmax(-1)
    return {
        "accuracy": float((log_probs.argmax(-1) == labels).double().mean()),
        "nll": float(F.nll_loss(log_probs, labels)),
        "ece": calibration_error(log_probs.exp(), labels),
    }


def calibration_error(probs: Float[Tensor, "B K"], labels: Int64[Tensor, " B"], bins: int = BINS) -> float:
    """Mean gap between confidence and accuracy over bins of equal width, weighted by images (Guo et al., 2017)."""
    confidence, said = probs.max(-1)
    right = (said == labels).to(probs)
    which = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gaps = torch.zeros(bins, dtype=probs.dtype).index_add(0, which, right - confidence)
    return float(gaps.abs().sum() / len(labels))
