"""Fit images of any size and colour to a network's input, and its maps back to the image's own size.

`stretch` scales the whole image to the network's height and width, whatever its proportions. `crop` scales its shorter
side and takes the middle. Both are bilinear, with antialiasing where the image shrinks. Grey becomes colour by
repetition, colour becomes grey by 0.299 R + 0.587 G + 0.114 B.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from dubium.choices import FITS as FITS
from dubium.errors import OptionError

LUMA = (0.299, 0.587, 0.114)


def to_channels(image: Float[Tensor, "C H W"], channels: int) -> Float[Tensor, "c H W"]:
    """Grey to colour or colour to grey."""
    if len(image) == channels:
        return image
    if len(image) == 1:
        return image.expand(channels, -1, -1)
    if channels == 1 and len(image) == 3:
        return torch.einsum("chw,c->hw", image, image.new_tensor(LUMA))[None]
    raise OptionError(f"The networks take {channels} channels; an image has {len(image)}.")


def to_size(image: Float[Tensor, "C H W"], size: Sequence[int], fit: str = "stretch") -> Float[Tensor, "C h w"]:
    """The image at a network's height and width."""
    if tuple(image.shape[1:]) == tuple(size):
        return image
    top, left, height, width = visible_window(image.shape[1:], size, fit)
    return resize_image(image[:, top : top + height, left : left + width], size).clamp(0, 1)


def from_size(map: Float[Tensor, "h w"], size: Sequence[int], fit: str = "stretch") -> Float[Tensor, "H W"]:
    """A map at the image's own height and width, with the same sum; what `crop` cut off is 0."""
    if tuple(map.shape) == tuple(size):
        return map
    top, left, height, width = visible_window(size, map.shape, fit)
    inner = resize_image(map[None], (height, width))[0]
    before, after = float(map.sum()), float(inner.sum())
    whole = bool((map >= 0).all()) and after > 0
    out = map.new_zeros(*size)
    out[top : top + height, left : left + width] = inner * (before / after if whole else map.numel() / inner.numel())
    return out


def visible_window(size: Sequence[int], inner: Sequence[int], fit: str) -> tuple[int, int, int, int]:
    """The part of an image that the network sees: top, left, height, width."""
    height, width = size
    if fit == "stretch":
        return 0, 0, height, width
    scale = min(height / inner[0], width / inner[1])
    rows, columns = max(1, round(scale * inner[0])), max(1, round(scale * inner[1]))
    return (height - rows) // 2, (width - columns) // 2, rows, columns


def resize_image(image: Float[Tensor, "C H W"], size: Sequence[int]) -> Float[Tensor, "C h w"]:
    """Bilinear, with antialiasing."""
    return interpolate(image[None], size=tuple(size), mode="bilinear", antialias=True)[0]
