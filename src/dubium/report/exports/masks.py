"""PNG masks: one file per explained image at its own size, 0 outside, 1 in the region with the largest share, ..."""

from functools import cache
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray
from PIL import Image

from dubium.files import written_atomically
from dubium.report.exports.regions import ExportRegions, image_file_name
from dubium.run.row import RegionRow, Row

MASKS = "[0-9][0-9][0-9][0-9][0-9][0-9]*.png"  # names of the files
MOST = 255  # regions that a byte can number


def write_masks(regions: ExportRegions, folder: Path) -> int:
    """Write the files; how many they are."""
    count = 0
    for row, bright in regions.explained():
        with written_atomically(folder / f"{Path(image_file_name(row)).stem}.png") as beside:
            mask_image(label_array(row, bright)).save(beside, "PNG")
        count += 1
    return count


def label_array(row: Row, bright: list[RegionRow]) -> NDArray[np.uint8]:
    """The number of each pixel's region; 0 for none."""
    labels = np.zeros(row.image_size, np.uint8)
    for number, region in enumerate(bright[:MOST], 1):
        labels[region.mask(row.image_size)] = number
    return labels


def mask_image(labels: NDArray[np.uint8]) -> Image.Image:
    """Region numbers as pixel values, with a palette by which people can see them: black, then bright colours."""
    height, width = labels.shape
    image = Image.frombytes("P", (width, height), labels.tobytes())
    image.putpalette(palette())
    return image


@cache
def palette() -> list[int]:
    """Red, green and blue of every pixel value."""
    colours = [(0, 0, 0), *islice(cycle(colormaps["tab10"](np.arange(10))[:, :3].tolist()), MOST)]
    return [round(255 * part) for colour in colours for part in colour]
