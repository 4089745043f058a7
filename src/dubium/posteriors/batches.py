"""Training data of the fitting functions: anything that yields (images, labels) on every pass."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dubium.errors import ImagesError, ImagesTypeError, OptionError, OutputError
from dubium.image_checks import check_images
from dubium.output_checks import are_distributions, check_is_tensor

Batches = Iterable[Any]
"""Yields (images, labels) on every pass: a DataLoader, or a list of pairs."""


@dataclass(frozen=True, eq=False)
class TrainingBatches:
    """Batches on the device of `like`, images of its type.

    `dataset` has the number of images, where laplace-torch looks for it, `label_range` the lowest and highest label.
    """

    batches: Batches
    dataset: range
    like: Tensor
    label_range: tuple[int, int]

    def __len__(self) -> int:
        return sum(1 for _ in self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in self.batches:
            yield x.to(self.like), torch.as_tensor(y).to(self.like.device, torch.int64)


def training_batches(batches: Batches, network: nn.Module) -> TrainingBatches:
    """Check images and labels, and count them; what cannot be read a second time, such as a generator, is refused."""
    first = next(iter(batches), None) if not isinstance(batches, Tensor) else batches
    if first is not None and not (isinstance(first, tuple | list) and len(first) == 2):
        raise OptionError(
            f"The batches are a {type(batches).__name__} of {type(first).__name__}; pairs (images, labels) are needed: "
            "a DataLoader, or a list of them, as in [(images, labels)]."
        )
    labels = [check_labelled_images(x, y).cpu() for x, y in batches]
    images = sum(map(len, labels))
    if images == 0 or sum(len(y) for _, y in batches) != images:
        raise OptionError(
            "The batches gave no images, or other images when read again, as an iterator does; they are read several "
            "times. Pass a DataLoader or a list of (images, labels), not a generator."
        )
    return TrainingBatches(batches, range(images), next(network.parameters()), label_range(torch.cat(labels)))


def label_range(labels: Tensor) -> tuple[int, int]:
    """The lowest and the highest label."""
    return int(labels.min()), int(labels.max())


def check_labelled_images(images: Any, labels: Any) -> Tensor:
    """The labels as whole numbers (B,); an error unless there is one for each image."""
    if not isinstance(images, Tensor) or not images.is_floating_point():
        check_images(images)  # raises what is wrong; of their shape and values networks here may have any
    try:
        numbers = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:  # of names, say
        raise ImagesTypeError(
            f"The labels are a {type(labels).__name__} that no tensor can be made of ({error}); numbers of classes "
            "(B,) are needed, from 0."
        ) from error
    if numbers.ndim != 1 or numbers.is_floating_point():
        raise ImagesError(
            f"The labels are {numbers.dtype} of shape {tuple(numbers.shape)}; numbers of classes (B,) are needed."
        )
    if len(numbers) != len(images) or not len(images):
        raise ImagesError(f"{len(images)} images and {len(numbers)} labels; as many of one as of the other are needed.")
    return numbers.long()


def check_classes(network: nn.Module, images: Tensor, labels: tuple[int, int]) -> None:
    """Raise an error unless the network puts out logits (B, K) and labels are numbers of its K classes.

    Args:
        network: in eval mode.
        labels: the lowest and the highest.
    """
    x = images[:1].to(next(network.parameters()), copy=True)
    with torch.no_grad():
        logits = network(x.clone())
        check_is_tensor(logits)
        if logits.ndim != 2:
            raise OutputError(f"The network puts out shape {tuple(logits.shape)} for one image; (1, K) is needed.")
        # logits of one image may sum to 1 by chance; those of another, of zeros, must do so too
        if are_distributions(logits) and are_distributions(network(torch.zeros_like(x))):
            raise OutputError(
                "The outputs of the network look like probabilities: none is negative and each row sums to 1. It would "
                "be trained with the cross-entropy of logits: leave out the last softmax."
            )
    (lowest, highest), count = labels, logits.shape[1]
    if lowest < 0 or highest >= count:
        advice = " Do they count from 1? Then give labels - 1." if lowest > 0 and highest == count else ""
        raise ImagesError(
            f"The labels are {lowest} to {highest}; the network has {count} classes, whose numbers are 0 to "
            f"{count - 1}.{advice}"
        )
