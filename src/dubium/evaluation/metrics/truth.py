"""Less doubt is not more truth: whether predictions are right, beside how sure they are."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

HIGHER_IS_BETTER = {"accuracy": True, "true-probability": True}


def truth_columns(probs: Float[Tensor, "B K"], labels: Int64[Tensor, " N"]) -> Float[Tensor, "B columns=2"]:
    """For each image: 1 where the likeliest class is the true one, else 0; and the true class's probability.

    Args:
        probs: mean probabilities; B is a multiple of N, with the N images in the same order in every copy.
        labels: the true classes.

    Example:
        >>> truth_columns(torch.tensor([[0.75, 0.25], [0.75, 0.25]]), torch.tensor([0, 1])).tolist()
        [[1.0, 0.75], [0.0, 0.25]]
    """
    true = labels.to(probs.device).repeat(len(probs) // max(1, len(labels)))
    return torch.stack([(probs.argmax(1) == true).to(probs), probs.gather(1, true[:, None])[:, 0]], 1)
