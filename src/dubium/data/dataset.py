"""Images in memory; they stay bytes until a batch of them is needed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

GIVEN = "given"
"""What a dataset is called that came from memory."""


@dataclass(frozen=True, repr=False)
class Dataset:
    """Images and what is known about them.

    `images` are uint8 from 0 to 255, or float32 from 0 to 1; `labels` index `classes`. `split` is "all" where the
    source knows no train and test. `by_folder` says that labels count a folder's subfolders in the order of their
    names, which may not be the order of a network's classes. `skipped` says which files could not be read, and why,
    and `label_note` why there are no labels where the source has some.

    >>> bytes_of_images, labels = torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0])
    >>> data = Dataset(bytes_of_images, labels, ("cat", "dog"), "mine", "all")
    >>> len(data), data.shape, data.batch([0, 2]).dtype, data.subset(slice(2)).labels.tolist()
    (3, (1, 2, 2), torch.float32, [0, 1])
    >>> data
    Dataset(mine all: 3 images (1, 2, 2), 2 classes)
    """

    images: Shaped[Tensor, "N C H W"]
    labels: Int64[Tensor, " N"] | None
    classes: tuple[str, ...]
    name: str
    split: str
    by_folder: bool = False
    skipped: tuple[str, ...] = ()
    label_note: str = ""

    @property
    def shown_name(self) -> str:
        """What messages call it."""
        return "the data" if self.name == GIVEN else self.name

    def __repr__(self) -> str:
        known = f"{len(self.classes)} classes" if self.labels is not None else "no labels"
        return f"Dataset({self.name} {self.split}: {len(self)} images {self.shape}, {known})"

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def batch(self, indices: Tensor | Sequence[int] | slice) -> Float[Tensor, "B C H W"]:
        """The images at `indices`, as float32 in [0, 1]."""
        return as_float(self.images[indices if isinstance(indices, slice) else torch.as_tensor(indices)])

    def subset(self, indices: Tensor | Sequence[int] | slice) -> "Dataset":
        """The images and labels at `indices`, in that order."""
        chosen = indices if isinstance(indices, slice) else torch.as_tensor(indices)
        return replace(self, images=self.images[chosen], labels=None if self.labels is None else self.labels[chosen])

    def sample(self, count: int, *, seed: int = 0) -> "Dataset":
        """`count` images drawn without replacement, in their original order; all of them if there are fewer."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        return self.subset(order[:count].sort().values)


def as_float(images: Shaped[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
    """Bytes as float32 in [0, 1]; floats are not changed.

    >>> as_float(torch.full((1, 1, 1, 2), 255, dtype=torch.uint8))
    tensor([[[[1., 1.]]]])
    """
    return images.float().div_(255) if images.dtype == torch.uint8 else images.float()
