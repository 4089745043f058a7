"""Where the numbers of a feature lie in the image: which of its axes are its place, and which are channels."""

from collections.abc import Collection
from dataclasses import dataclass

from torch import Tensor

PREFIX_TOKENS = 5  # at most: a class token, a distillation token, four registers

Size = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """The place of a feature (B, ...): two axes, or one axis of tokens that make a grid, behind a prefix of others."""

    axes: tuple[int, ...]  # counted after the batch
    grid: Size | None = None
    prefix: int = 0

    def as_maps(self, gradient: Tensor) -> Tensor:
        """(t, S, B, ...) as (t, B, h, w, S, C); tokens without a place are left out."""
        channels = [axis for axis in range(gradient.ndim - 3) if axis not in self.axes]
        order = 0, 2, *(3 + axis for axis in self.axes), 1, *(3 + axis for axis in channels)
        maps = gradient.permute(order)
        if self.grid is not None:
            maps = maps[:, :, self.prefix :].unflatten(2, self.grid)
        return maps.flatten(5) if len(channels) > 1 else maps


CHANNELS_FIRST, CHANNELS_LAST = Layout((1, 2)), Layout((0, 1))


def layout_of(shape: tuple[int, ...], *, channels_last: bool, sizes: Collection[Size]) -> Layout | None:
    """The layout of a feature (B, ...), given the sizes of the feature maps that the network has made so far.

    (B, C, h, w) and (B, h, w, C) are feature maps. (B, N, D), (B, heads, N, D) and (B, N, heads, D) are tokens if some
    feature map has N pixels, or up to five fewer: those in front are class tokens and registers. A matrix of attention,
    (B, heads, N, N), lies where its keys are: there the values are that it weighs.
    """
    if len(shape) == 4 and (channels_last or shape[2:] in sizes):
        return CHANNELS_LAST if channels_last else CHANNELS_FIRST
    for axis in {3: (1,), 4: (3, 2, 1) if shape[-1] == shape[-2] else (2, 1)}.get(len(shape), ()):
        for prefix in range(PREFIX_TOKENS + 1):
            for size in sizes:
                if size[0] * size[1] > 1 and shape[axis] == size[0] * size[1] + prefix:
                    return Layout((axis - 1,), size, prefix)
    return CHANNELS_FIRST if len(shape) == 4 else None
