"""One image's results, and its maps at any size."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dubium.data.fit import Box, place_map
from dubium.kinds import KINDS
from dubium.run.region_rows import RegionRow

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Row:
    """One image's results; `height` and `width` are those of its maps as they are stored.

    `id` is the image's place in its source, `path` its file if it has one, `label` and `prediction` index the classes.
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
