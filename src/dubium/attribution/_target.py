"""What is explained: a target turns a network's output into T numbers per image, and knows its part of a batch."""

from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor

from dubium.types import Target


@dataclass(frozen=True)
class LogitTarget:
    """Logits of some classes: the same for all images, or, if there is a row for each image, those of its own row."""

    classes: slice | Int64[Tensor, " T"] | Int64[Tensor, "B T"]

    def __call__(self, logits: Float[Tensor, "... B K"]) -> Float[Tensor, "... B T"]:
        if isinstance(self.classes, Tensor) and self.classes.ndim == 2:
            return logits.gather(-1, self.classes.expand(*logits.shape[:-1], -1))
        return logits[..., self.classes]

    @property
    def differs_by_image(self) -> bool:
        return isinstance(self.classes, Tensor) and self.classes.ndim == 2

    def for_images(self, images: slice | Tensor) -> "LogitTarget":
        """The target of some of the images; a single image's classes, (T,), also fit a batch of its copies."""
        if not (isinstance(self.classes, Tensor) and self.classes.ndim == 2):
            return self
        rows = self.classes[images]
        return LogitTarget(rows[0] if len(rows) == 1 else rows)


ALL_LOGITS = LogitTarget(slice(None))


def target_for_images(target: Target, images: slice | Tensor) -> Target:
    """The target of some of the images, a slice or their numbers. A plain function is the same for all images."""
    return target.for_images(images) if isinstance(target, LogitTarget) else target
