"""What is explained: a target turns a network's output into T numbers per image, and knows its part of a batch."""

from collections.abc import Iterator
from dataclasses import dataclass

from jaxtyping import Float, Int64
from torch import Tensor, nn

from dubium.types import Images, Maps, Target


@dataclass(frozen=True)
class LogitTarget:
    """Logits of some classes: the same for all images, or, if there is a row for each image, those of its own row."""

    classes: slice | Int64[Tensor, " T"] | Int64[Tensor, "B T"]

    def select(self, by_class: Float[Tensor, "... B K"]) -> Float[Tensor, "... B T"]:
        """The numbers of the target's classes, from numbers of all classes."""
        if isinstance(self.classes, Tensor) and self.differs_by_image:
            return by_class.gather(-1, self.classes.expand(*by_class.shape[:-1], -1))
        return by_class[..., self.classes]

    __call__ = select

    @property
    def differs_by_image(self) -> bool:
        return isinstance(self.classes, Tensor) and self.classes.ndim == 2

    def for_images(self, images: slice | Tensor) -> "LogitTarget":
        """The target of some images; of one image its classes are (T,), so that they also fit a batch of its copies."""
        if not (isinstance(self.classes, Tensor) and self.differs_by_image):
            return self
        rows = self.classes[images]
        return LogitTarget(rows[0] if len(rows) == 1 else rows)


ALL_LOGITS = LogitTarget(slice(None))


def target_for_images(target: Target, images: slice | Tensor) -> Target:
    """The target of some of the images, a slice or their numbers. A plain function is the same for all images."""
    return target.for_images(images) if isinstance(target, LogitTarget) else target


def split_images(x: Images, target: Target, size: int) -> Iterator[tuple[Images, Target]]:
    """`size` images at a time, with their part of the target."""
    for start in range(0, len(x), size):
        image_slice = slice(start, start + size)
        yield x[image_slice], target_for_images(target, image_slice)


def count_targets(network: nn.Module, x: Images, target: Target) -> int:
    """T, from the first image."""
    return target_for_images(target, slice(1))(network(x[:1].clone())).shape[1]


def repeat_for_targets(maps: Float[Tensor, "B H W"], network: nn.Module, x: Images, target: Target) -> Maps:
    """The same map for every target."""
    return maps[:, None].repeat(1, count_targets(network, x, target), 1, 1)
