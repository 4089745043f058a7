"""Random crops and flips of whole batches, without a loop over images."""

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn import functional as F


def random_crop(
    images: Shaped[Tensor, "B C H W"], padding: int, generator: torch.Generator
) -> Shaped[Tensor, "B C H W"]:
    """Each image shifted by up to `padding` pixels both ways, with black coming in from the border."""
    count, _, height, width = images.shape
    windows = F.pad(images, (padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    down, right = torch.randint(2 * padding + 1, (2, count), generator=generator)
    return windows[torch.arange(count), :, down, right]


def random_flip(images: Shaped[Tensor, "B C H W"], generator: torch.Generator) -> Shaped[Tensor, "B C H W"]:
    """Each image mirrored left to right with probability one half."""
    mirrored = torch.rand(len(images), 1, 1, 1, generator=generator) < 0.5
    return torch.where(mirrored, images.flip(-1), images)
