"""The most doubtful images of an epoch, on TensorBoard."""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from dubium.errors import OptionError
from dubium.explanation import Explanation
from dubium.ranking import most_uncertain
from dubium.types import Images


@dataclass
class DoubtfulImages:
    """The `most` images with the highest scores of all batches that were added.

    >>> doubtful = DoubtfulImages(most=2)
    >>> for score in (0.1, 0.7, 0.3):
    ...     doubtful.add(torch.full((1, 1, 2, 2), score), torch.tensor([score]))
    >>> doubtful.images[:, 0, 0, 0].tolist() == torch.tensor([0.7, 0.3]).tolist()
    True
    """

    most: int = 8
    images: Images | None = None
    scores: Float[Tensor, " n"] = field(default_factory=lambda: torch.zeros(0))

    def add(self, x: Images, scores: Float[Tensor, " B"]) -> None:
        """Take a batch, and keep what is among the most doubtful so far."""
        images = x if self.images is None else torch.cat([self.images.to(x), x])
        scores = torch.cat([self.scores.to(scores), scores])
        kept = most_uncertain(scores, self.most)
        self.images, self.scores = images[kept], scores[kept]


def log_explanation(writer: Any, explanation: Explanation, step: int, tag: str = "doubt", most: int = 8) -> None:
    """Write an explanation to TensorBoard: a figure of its images and maps, and their mean score of each kind.

    Kinds without maps have scores, too.

    Args:
        writer: a `torch.utils.tensorboard.SummaryWriter`, or anything with `add_figure` and `add_scalar`.
        explanation: one that keeps its images (`explain(..., keep_images=True)`).
        step: the epoch or the batch.
        tag: what it is called on the board.
        most: images in the figure.
    """
    if not hasattr(writer, "add_figure"):
        raise OptionError(
            f"The writer is a {type(writer).__name__}; one with add_figure and add_scalar is needed: "
            "torch.utils.tensorboard.SummaryWriter('folder')."
        )
    if len(explanation.probs) == 0:
        return
    writer.add_figure(tag, explanation.plot(most=most), step, close=False)  # closing would import pyplot
    for kind, scores in (explanation.all_scores or explanation.scores).items():
        writer.add_scalar(f"{tag}/{kind}", float(torch.as_tensor(scores).mean()), step)
