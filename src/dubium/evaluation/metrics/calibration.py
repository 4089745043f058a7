"""How good predictions are: accuracy, negative log likelihood, and expected calibration error."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

HIGHER_IS_BETTER = {"accuracy": True, "nll": False, "ece": False}
BOUNDS = {"accuracy": (0.0, 1.0), "nll": (0.0, float("inf")), "ece": (0.0, 1.0)}
BINS = 15  # of confidence, of equal width; the number depends on them, so it is named wherever the error is shown


def predictive_metrics(logits: Float[Tensor, "B K"], labels: Int64[Tensor, " B"]) -> dict[str, float]:
    """Accuracy, negative log likelihood and calibration error of one network.

    Args:
        logits: unnormalised outputs.
        labels: the true classes.

    Returns:
        `accuracy` and `ece` from 0 to 1, `nll` in nats.

    Example:
        >>> predictive_metrics(torch.zeros(2, 2), torch.tensor([0, 1]))
        {'accuracy': 0.5, 'nll': 0.6931471805599453, 'ece': 0.0}
    """
    log_probs = logits.double().log_softmax(-1)
    return {
        "accuracy": float((log_probs.argmax(-1) == labels).double().mean()),
        "nll": float(F.nll_loss(log_probs, labels)),
        "ece": calibration_error(log_probs.exp(), labels),
    }


def calibration_error(probs: Float[Tensor, "B K"], labels: Int64[Tensor, " B"], bins: int = BINS) -> float:
    """Expected calibration error: mean gap between confidence and accuracy, weighted by images (Guo et al., 2017).

    Args:
        probs: predicted probabilities.
        labels: the true classes.
        bins: of confidence, of equal width.

    Returns:
        From 0 (confidence equals accuracy in every bin) to 1.

    Example:
        >>> calibration_error(torch.tensor([[0.75, 0.25], [0.75, 0.25]]), torch.tensor([0, 1]))
        0.25
    """
    confidence, prediction = probs.max(-1)
    return reliability_error(reliability_table(confidence, prediction == labels, bins))


def reliability_table(
    confidence: Float[Tensor, " B"], is_right: Tensor, bins: int = BINS
) -> Float[Tensor, "bins columns=3"]:
    """Images, their summed confidence and their right answers, by bin of confidence; tables of parts add up.

    Bin n holds confidences above n / bins, up to and including (n + 1) / bins.
    """
    rows = torch.stack([torch.ones_like(confidence), confidence, is_right.to(confidence)], 1).double()
    bin_index = (confidence * bins).ceil().long().clamp(1, bins) - 1
    return rows.new_zeros(bins, 3).index_add(0, bin_index, rows)


def reliability_error(table: Float[Tensor, "bins columns=3"]) -> float:
    """The expected calibration error of a `reliability_table`."""
    images, confidence, right = table.unbind(1)
    return float((confidence - right).abs().sum() / images.sum())
