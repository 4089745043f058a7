"""Fit images of any size and colour to a network's input, and its maps back to the image's own size.

`stretch` scales the whole image to the network's height and width, whatever its proportions. `crop` scales its shorter
side and takes the middle; with `resize`, the shorter side becomes so many pixels first, as timm and torchvision do it.
Images shrink with antialiasing. Grey becomes colour by repetition, colour becomes grey by 0.299 R + 0.587 G + 0.114 B.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from dubium.choices import BILINEAR, FITS, STRETCH
from dubium.errors import FileFormatError, OptionError, lookup

Box = tuple[int, int, int, int]
"""(top, left, bottom, right) of a part of an image."""

LUMA = (0.299, 0.587, 0.114)
PIXELS = 10**8  # of a resized image; thin images would become far larger than they are


def to_channels(image: Float[Tensor, "C H W"], channels: int) -> Float[Tensor, "c H W"]:
    """Grey to colour or colour to grey."""
    if len(image) == channels:
        return image
    if len(image) == 1:
        return image.expand(channels, -1, -1)
    if channels == 1 and len(image) == 3:
        return torch.einsum("chw,c->hw", image, image.new_tensor(LUMA))[None]
    raise OptionError(
        f"The networks take {channels} channels; an image has {len(image)}.{axes_advice(image.shape, channels)}"
    )


def axes_advice(shape: Sequence[int], channels: int) -> str:
    """What to do with images (H, W, C); "" where the last axis of their shape is not that of the channels."""
    if shape[0] == channels or shape[-1] != channels:
        return ""
    return (
        " Are the axes (H, W, C)? Channels come first: x.movedim(-1, 1) of a tensor of images, x.transpose(0, 3, 1, 2) "
        "of an array."
    )


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes a network's input.

    Args:
        shape: (C, H, W) that the network takes; None for what is taken from the image.
        fit: a name of `FITS`.
        resize: pixels of the shorter side before the middle is taken (of both sides for `stretch`).
        interpolation: a name of `INTERPOLATIONS`.
    """

    shape: tuple[int | None, int | None, int | None] = (None, None, None)
    fit: str = STRETCH
    resize: int | None = None
    interpolation: str = BILINEAR

    def __post_init__(self) -> None:
        lookup("fit", dict.fromkeys(FITS), self.fit)
        if self.resize is None:
            return
        if None in self.shape[1:]:
            raise OptionError(
                f"resize is {self.resize}, and it is not known what size the networks take: images are resized before "
                "a middle of that size is taken. Give it by --input-shape C,H,W. To bring whole images to a size, give "
                "--input-shape alone."
            )
        if self.resize < max(self.input_size((0, 0))):
            raise OptionError(
                f"resize is {self.resize}, and the networks take {self.shape[1]} x {self.shape[2]} pixels. Images are "
                "resized before the middle is taken, so give at least the larger side."
            )

    def input_size(self, size: Sequence[int]) -> tuple[int, int]:
        """The height and width at which the network sees an image of this height and width."""
        return self.shape[1] or size[0], self.shape[2] or size[1]

    def network_input(self, image: Float[Tensor, "C H W"]) -> Float[Tensor, "c h w"]:
        """An image in [0, 1] as the network takes it."""
        x, size = to_channels(image, self.shape[0] or len(image)), self.input_size(image.shape[1:])
        if self.resize is None:
            return to_size(x, size, self.fit, self.interpolation)
        resized = self.resized_size(x.shape[1:])
        if prod(resized) > max(PIXELS, prod(image.shape[1:])):
            raise FileFormatError(
                f"An image of {image.shape[1]} x {image.shape[2]} pixels (height x width) would be resized to "
                f"{resized[0]} x {resized[1]} before its middle is taken; at most {PIXELS:,} pixels are made."
            )
        x = resize_image(x, resized, self.interpolation).clamp(0, 1)
        top, left = middle_corner(x.shape[1:], size)
        return x[:, top : top + size[0], left : left + size[1]]

    def resized_size(self, size: Sequence[int]) -> tuple[int, int]:
        """Height and width of an image before its middle is taken."""
        resize, shorter = self.resize or min(size), min(size)
        if self.fit == STRETCH:
            return resize, resize
        height, width = (resize * side // shorter for side in size)  # as torchvision rounds
        return height, width

    def seen_box(self, size: Sequence[int]) -> Box:
        """The part that the network sees of an image of this height and width."""
        inner = self.input_size(size)
        if self.resize is None:
            return visible_box(size, inner, self.fit)
        scaled = self.resized_size(size)
        start = middle_corner(scaled, inner)
        top, left = (round(a * side / whole) for a, side, whole in zip(start, size, scaled, strict=True))
        sides = zip(start, inner, size, scaled, strict=True)
        bottom, right = (round((a + length) * side / whole) for a, length, side, whole in sides)
        return top, left, max(bottom, top + 1), max(right, left + 1)


def to_size(
    image: Float[Tensor, "C H W"], size: Sequence[int], fit: str = STRETCH, interpolation: str = BILINEAR
) -> Float[Tensor, "C h w"]:
    """The image at a network's height and width."""
    if tuple(image.shape[1:]) == tuple(size):
        return image
    top, left, bottom, right = visible_box(image.shape[1:], size, fit)
    return resize_image(image[:, top:bottom, left:right], size, interpolation).clamp(0, 1)


def place_map(map: Float[Tensor, "h w"], size: Sequence[int], box: Box) -> Float[Tensor, "H W"]:
    """A map at an image's own height and width, with the same sum; outside of the box that the network saw it is 0."""
    top, left, bottom, right = box
    if tuple(map.shape) == tuple(size) == (bottom - top, right - left):
        return map
    inner = resize_image(map[None], (bottom - top, right - left))[0]
    before, after = float(map.double().sum()), float(inner.double().sum())
    whole = bool((map >= 0).all()) and after > 0
    out = map.new_zeros(*size)
    out[top:bottom, left:right] = inner * (before / after if whole else map.numel() / inner.numel())
    return out


def visible_box(size: Sequence[int], inner: Sequence[int], fit: str) -> Box:
    """The part of an image that is brought to the network's height and width."""
    height, width = size
    if fit == STRETCH:
        return 0, 0, height, width
    scale = min(height / inner[0], width / inner[1])
    rows, columns = max(1, round(scale * inner[0])), max(1, round(scale * inner[1]))
    top, left = (height - rows) // 2, (width - columns) // 2
    return top, left, top + rows, left + columns


def middle_corner(size: Sequence[int], inner: Sequence[int]) -> tuple[int, int]:
    """Top and left of the middle part; halves are rounded to even, as torchvision does it."""
    return round((size[0] - inner[0]) / 2), round((size[1] - inner[1]) / 2)


def resize_image(
    image: Float[Tensor, "C H W"], size: Sequence[int], interpolation: str = BILINEAR
) -> Float[Tensor, "C h w"]:
    """The image at another height and width, with antialiasing (but for `nearest`)."""
    mode = {"nearest": "nearest-exact"}.get(interpolation, interpolation)
    return interpolate(image[None], size=tuple(size), mode=mode, antialias=interpolation != "nearest")[0]
