"""Images of the explorer: to pick from, of a run's results, and uploads, which are checked."""

from itertools import islice
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from dubium.choices import DATASETS
from dubium.data import load
from dubium.data.fit import to_size
from dubium.data.image_files import byte_pixels, is_wide, open_image, read_image
from dubium.errors import DubiumError, FileFormatError
from dubium.posteriors import Record
from dubium.run.sources import ImageSource, Item, read_items
from dubium.run.store import Row

MEGABYTES, PIXELS = 20, 25_000_000  # of an upload
SIDE = 512  # pixels; a larger upload is made smaller, or a map of it would take gigabytes
SHOWN = 60  # images to pick from


def item_of_row(row: Row) -> Item:
    """The image itself if its file is still there, else its thumbnail, which is the same for small images."""
    try:
        image = read_image(row.path or "")
    except FileFormatError:
        image = read_image(row.thumbnail) if row.thumbnail else torch.full((1, *row.image_size), 0.5)
    return Item(row.id, row.path, row.label, image)


def readable_items(source: ImageSource | None) -> list[Item]:
    """Some images of a source; those that cannot be read are left out."""
    return [] if source is None else [*islice(read_items(source), SHOWN)]


def training_images(record: Record | None) -> dict[str, Any] | None:
    """Test images of the dataset that `dubium train` trained on, if it is one of dubium's and is here."""
    name = record.training.get("dataset") if record else None
    if not isinstance(name, str) or name not in DATASETS:  # a record names no file of the reader's
        return None
    try:
        load(name)
    except DubiumError:
        return None
    return {"dataset": f"{name}:test"}


def read_upload(path: str | Path) -> Item:
    """An uploaded file, checked: its bytes, its pixels, and whether it is an image at all."""
    path = Path(path)
    size = path.stat().st_size
    if size > MEGABYTES * 10**6:
        raise FileFormatError(f"{path.name} has {size / 1e6:.1f} MB; at most {MEGABYTES} MB are taken.")
    try:
        return Item(-1, path.name, None, read_shrunk(path))
    except FileFormatError as error:
        raise FileFormatError(str(error).replace(str(path), path.name)) from error


def read_shrunk(path: Path) -> Float[Tensor, "C H W"]:
    """An image with at most `SIDE` pixels a side; it is made smaller as bytes, a quarter of what the numbers take."""
    image = open_image(path, pixels=PIXELS)
    if max(image.size) <= SIDE or is_wide(image):
        full = read_image(path, pixels=PIXELS)
        scale = min(1, SIDE / max(image.size))
        return to_size(full, (max(1, round(scale * image.height)), max(1, round(scale * image.width))))
    image.thumbnail((SIDE, SIDE))
    return byte_pixels(image).float().div_(255)
