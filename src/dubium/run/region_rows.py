"""Regions in the results: boxes, areas and shares in pixels of the image itself, masks as run lengths.

Run lengths are COCO's: column by column, the length of the first run of False (0 if there is none), of the run of True
after it, and so on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from dubium.data.fit import Box
from dubium.errors import FileFormatError
from dubium.regions import LEVEL, Region, map_regions
from dubium.run.pixel_grid import GridMask, mask_on_image

if TYPE_CHECKING:
    from dubium.run.row import Row

REGION = pa.struct(
    [
        ("kind", pa.string()),
        *((name, pa.int32()) for name in ("top", "left", "bottom", "right", "area")),
        ("share", pa.float64()),
        ("is_remainder", pa.bool_()),
        ("counts", pa.list_(pa.int32())),
    ]
)


@dataclass(frozen=True)
class RegionRow:
    """A `dubium.regions.Region` as it is stored."""

    kind: str
    top: int
    left: int
    bottom: int
    right: int
    area: int
    share: float
    is_remainder: bool
    counts: tuple[int, ...]

    def mask(self, size: tuple[int, int], step: int = 1) -> NDArray[np.bool_]:
        """(H, W), for an image of this size, or each so-many-th pixel of it."""
        return mask_from_counts(self.counts, size, step)

    def json(self) -> dict[str, Any]:
        """All but the mask."""
        box = [self.top, self.left, self.bottom, self.right]
        numbers = {"area": self.area, "share": self.share, "is_remainder": self.is_remainder}
        return {"kind": self.kind, "box": box, **numbers}


def mask_from_counts(counts: Sequence[int], size: tuple[int, int], step: int = 1) -> NDArray[np.bool_]:
    """The mask of these run lengths for an image of this height and width; with a step, each so-many-th pixel of it.

    >>> mask_from_counts((0, 1, 3), (2, 2)).tolist()
    [[True, False], [False, False]]
    """
    if min(counts, default=0) < 0 or sum(counts) != size[0] * size[1]:
        raise FileFormatError(f"Run lengths of {sum(counts)} pixels are not a mask of {size[0]} x {size[1]}.")
    if step == 1:
        return np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(size, order="F")
    rows, columns = (np.arange(0, side, step, dtype=np.int64) for side in size)
    pixels = rows[:, None] + size[0] * columns
    is_bright: NDArray[np.bool_] = np.searchsorted(np.cumsum(counts, dtype=np.int64), pixels, side="right") % 2 == 1
    return is_bright


def make_region_rows(
    maps: Mapping[str, Float[Tensor, "h w"]], size: tuple[int, int], box: Box
) -> tuple[RegionRow, ...]:
    """The regions of one image's maps, in pixels of the image.

    They are found on the grid of the maps: a photo's smoothed map is no finer than what the network saw.

    Args:
        maps: by kind.
        size: height and width of the image.
        box: the part of the image that the maps lie on.
    """
    return tuple(row for kind, values in maps.items() for row in region_rows(map_regions(values, kind), size, box))


def region_rows(regions: Sequence[Region], size: tuple[int, int], box: Box | None = None) -> list[RegionRow]:
    """Regions at another size; those without a pixel there, and what `crop` cut off, belong to the remainder."""
    place, bright = box or (0, 0, *size), [region for region in regions if not region.is_remainder]
    masks = [(region, mask_on_image(region.mask.numpy(force=True), size, place)) for region in bright]
    kept = [(region, mask) for region, mask in masks if mask.values.any()]
    outside = np.ones(tuple(regions[-1].mask.shape), np.bool_)
    for region, _ in kept:
        outside &= ~region.mask.numpy(force=True)
    rest = 1.0 - sum(region.share for region, _ in kept)
    rows = [region_row(mask, region.kind, region.share) for region, mask in kept]
    remainder = mask_on_image(outside, size, place, outside=True)
    return [*rows, region_row(remainder, regions[-1].kind, max(0.0, rest), is_remainder=True)]


def region_row(mask: GridMask, kind: str, share: float, *, is_remainder: bool = False) -> RegionRow:
    return RegionRow(kind, *mask.box(), mask.area(), share, is_remainder, mask.counts())


def regions_of_row(
    row: "Row", kind: str, *, level: float | None = None, smooth: float | None = None
) -> list[RegionRow]:
    """A row's regions of one kind, the remainder last: the stored ones, or new ones by `level` and `smooth`."""
    if row.regions is not None and level is None and smooth is None:
        return [region for region in row.regions if region.kind == kind]
    stored = row.stored_maps()
    if kind not in stored:
        return []
    found = map_regions(
        torch.from_numpy(stored[kind].copy()), kind, level=LEVEL if level is None else level, smooth=smooth
    )
    return region_rows(found, row.image_size, row.seen)


def regions_from_arrow(cell: Sequence[Mapping[str, Any]] | None) -> tuple[RegionRow, ...] | None:
    """What a cell of the column holds."""
    return None if cell is None else tuple(RegionRow(**{**item, "counts": tuple(item["counts"])}) for item in cell)


def regions_to_arrow(regions: Sequence[RegionRow] | None) -> list[dict[str, Any]] | None:
    return None if regions is None else [asdict(region) for region in regions]
