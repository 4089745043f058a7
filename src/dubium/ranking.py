"""The one rule for "the most uncertain images": highest score first, and the earlier of two equal ones first."""

from jaxtyping import Float, Int64
from torch import Tensor


def most_uncertain(scores: Float[Tensor, " B"], count: int) -> Int64[Tensor, " n"]:
    """Indices of the `count` highest scores.

    Args:
        scores: one number for each image.
        count: how many; all of them if there are fewer.

    Returns:
        n = min(count, B) indices, the highest score first; of equal scores, the lower index first.

    Example:
        >>> import torch
        >>> most_uncertain(torch.tensor([1.0, 3.0, 3.0, 2.0]), 3)
        tensor([1, 2, 3])
    """
    return scores.argsort(descending=True, stable=True)[:count]
