"""One image's results, its maps at any size, and its regions: boxes, areas and shares in pixels of the image itself.

A region's mask is stored as COCO's run lengths: column by column, the length of the first run of False (0 if there is
none), of the run of True after it, and so on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from dubium.advice import ADVICE, Advice, advise
from dubium.data.fit import Box, place_map
from dubium.errors import FileFormatError
from dubium.kinds import KINDS
from dubium.regions import LEVEL, map_regions
from dubium.run.pixel_grid import mask_on_image

Array = NDArray[np.float32]
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


@dataclass(frozen=True)
class Row:
    """One image's results; `height` and `width` are those of its maps as they are stored.

    `id` is the image's index in its source, `path` its file if it has one, `label` and `prediction` index the classes.
    Stored maps are (height, width), None where they were not asked for, and lie on the part `seen` of the image: (top,
    left, bottom, right), all of it in results of earlier versions. `thumbnail` is a PNG. `regions` are those of all
    maps, `advice` is a name of `dubium.advice.ADVICE`; both are None in results of the first version. `signed` are maps
    by kind of what raises and what lowers the doubt, of methods that have them; they are stored beside the results.
    """

    id: int
    path: str | None
    label: int | None
    prediction: int
    probs: Array  # (K,)
    members: Array  # (S, K)
    total: float
    aleatoric: float
    epistemic: float
    map_total: Array | None
    map_aleatoric: Array | None
    map_epistemic: Array | None
    height: int
    width: int
    thumbnail: bytes | None
    regions: tuple[RegionRow, ...] | None = None
    advice: str | None = None
    image_height: int = 0  # the map's, if not given
    image_width: int = 0
    seen: Box = (0, 0, 0, 0)
    signed: dict[str, Array] | None = None

    def __post_init__(self) -> None:
        if not self.image_height:
            size = self.height, self.width
            vars(self).update(image_height=size[0], image_width=size[1], seen=(0, 0, *size))

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the image itself."""
        return self.image_height, self.image_width

    @property
    def confidence(self) -> float:
        """The mean probability of the prediction."""
        return float(self.probs[self.prediction])

    def stored_maps(self) -> dict[str, Array]:
        """The maps there are, by kind, as they are stored."""
        found = {kind: getattr(self, f"map_{kind}") for kind in KINDS}
        return {kind: array for kind, array in found.items() if array is not None}

    def maps(self, size: tuple[int, int] | None = None) -> dict[str, Array]:
        """The maps there are, by kind, on the whole image: at its own height and width, or at others; sums are kept."""
        size = size or self.image_size
        height, width = (now / own for now, own in zip(size, self.image_size, strict=True))
        top, left, bottom, right = (
            round(side * scale) for side, scale in zip(self.seen, (height, width) * 2, strict=True)
        )
        box = top, left, max(bottom, top + 1), max(right, left + 1)
        stored = self.stored_maps().items()
        return {kind: place_map(torch.from_numpy(array.copy()), size, box).numpy() for kind, array in stored}

    def coarse_maps(self) -> dict[str, Array]:
        """The maps on the whole image as coarse as they are stored, which is enough for pictures and words."""
        return self.maps(self.coarse_size())

    def coarse_size(self) -> tuple[int, int]:
        """Height and width of the whole image in pixels as large as those of the maps."""
        top, left, bottom, right = self.seen
        height, width = self.image_size
        return round(height * self.height / (bottom - top)), round(width * self.width / (right - left))

    def scores(self) -> dict[str, float]:
        """Nats, by kind."""
        return {kind: getattr(self, kind) for kind in KINDS}

    def full_advice(self) -> Advice:
        """The advice that is stored, or, in results of earlier versions, the one that would be."""
        if self.advice in ADVICE:
            return ADVICE[self.advice]
        return advise(self.confidence, self.prediction, self.label, total=self.total, epistemic=self.epistemic)


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


def region_rows(
    values: Float[Tensor, "h w"],
    kind: str,
    size: Sequence[int],
    box: Box,
    *,
    level: float | int = LEVEL,
    smooth: float | int | None = None,
) -> list[RegionRow]:
    """The regions of one map in pixels of its image, the remainder last.

    They are found on the grid of the map: a photo's smoothed map is no finer than what the network saw. Regions without
    a pixel of the image, and what `crop` cut off, belong to the remainder.

    Args:
        size: height and width of the image.
        box: the part of the image that the map lies on.
        level, smooth: see `dubium.regions.map_regions`.
    """
    rows, outside = list[RegionRow](), np.ones(tuple(values.shape), np.bool_)
    for region in map_regions(values, kind, level=level, smooth=smooth):
        if region.is_remainder:
            continue
        mask = region.mask.numpy(force=True)
        placed, area, counts = mask_on_image(mask, size, box)
        if area:
            rows.append(RegionRow(kind, *placed, area, region.share, False, counts))
            outside &= ~mask
    placed, area, counts = mask_on_image(outside, size, box, outside=True)
    rest = max(0.0, 1.0 - sum(row.share for row in rows))
    return [*rows, RegionRow(kind, *placed, area, rest, True, counts)]


def regions_of_row(row: Row, kind: str, *, level: float | None = None, smooth: float | None = None) -> list[RegionRow]:
    """A row's regions of one kind, the remainder last: the stored ones, or new ones by `level` and `smooth`."""
    if row.regions is not None and level is None and smooth is None:
        return [region for region in row.regions if region.kind == kind]
    stored = row.stored_maps()
    if kind not in stored:
        return []
    values, level = torch.from_numpy(stored[kind].copy()), LEVEL if level is None else level
    return region_rows(values, kind, row.image_size, row.seen, level=level, smooth=smooth)
