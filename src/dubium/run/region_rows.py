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
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from dubium.data.fit import Box
from dubium.errors import FileFormatError
from dubium.regions import LEVEL, Region, bounding_box, map_regions

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

    def mask(self, size: tuple[int, int]) -> NDArray[np.bool_]:
        """(H, W), for an image of this size."""
        return mask_from_counts(self.counts, size)

    def json(self) -> dict[str, Any]:
        """All but the mask."""
        box = [self.top, self.left, self.bottom, self.right]
        numbers = {"area": self.area, "share": self.share, "is_remainder": self.is_remainder}
        return {"kind": self.kind, "box": box, **numbers}


def counts_from_mask(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """The run lengths of a mask.

    >>> counts_from_mask(np.array([[False, True], [False, True], [True, True]]))
    (2, 4)
    """
    flat = np.ravel(mask, order="F")
    edges = np.flatnonzero(np.diff(flat.astype(np.int8))) + 1
    lengths = np.diff(np.concatenate([[0], edges, [flat.size]])).tolist()
    return (0, *lengths) if flat.size and flat[0] else tuple(lengths)


def mask_from_counts(counts: Sequence[int], size: tuple[int, int]) -> NDArray[np.bool_]:
    """The mask (H, W) of these run lengths.

    >>> mask_from_counts((0, 1, 3), (2, 2)).tolist()
    [[True, False], [False, False]]
    """
    if min(counts, default=0) < 0 or sum(counts) != size[0] * size[1]:
        raise FileFormatError(f"Run lengths of {sum(counts)} pixels are not a mask of {size[0]} x {size[1]}.")
    values = np.arange(len(counts)) % 2 == 1
    return np.repeat(values, counts).reshape(size, order="F")


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
    bright = [region for region in regions if not region.is_remainder]
    masks = [(region, enlarge_mask(region.mask, size, box or (0, 0, *size))) for region in bright]
    kept = [(region, mask) for region, mask in masks if bool(mask.any())]
    outside = ~torch.stack([mask for _, mask in kept]).any(0) if kept else torch.ones(size, dtype=torch.bool)
    rest = 1.0 - sum(region.share for region, _ in kept)
    rows = [region_row(mask, region.kind, region.share) for region, mask in kept]
    return [*rows, region_row(outside, regions[-1].kind, max(0.0, rest), is_remainder=True)]


def region_row(mask: Bool[Tensor, "H W"], kind: str, share: float, *, is_remainder: bool = False) -> RegionRow:
    counts = counts_from_mask(mask.numpy(force=True))
    return RegionRow(kind, *bounding_box(mask), int(mask.sum()), share, is_remainder, counts)


def enlarge_mask(mask: Bool[Tensor, "h w"], size: tuple[int, int], box: Box) -> Bool[Tensor, "H W"]:
    """A mask on the network's grid as one of the image, by the nearest pixel."""
    top, left, bottom, right = box
    if tuple(mask.shape) == tuple(size) == (bottom - top, right - left):
        return mask
    inner = interpolate(mask[None, None].float(), size=(bottom - top, right - left), mode="nearest-exact")[0, 0] > 0.5
    whole = torch.zeros(size, dtype=torch.bool)
    whole[top:bottom, left:right] = inner
    return whole


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
