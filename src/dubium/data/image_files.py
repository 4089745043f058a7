"""The one reader of image files: any usual kind, depth, colour and rotation.

EXIF rotation is applied, transparent pixels are laid on white, and of an animation the first frame is taken. An image
is then grey ("L"), colour ("RGB"), or grey with more than 8 bits per pixel ("I;16", "F", ...).

Only the kinds of `FORMATS` are opened, whatever a file's name says: Pillow knows more, and starts Ghostscript for one.
"""

import io
from collections.abc import Iterable
from functools import cache
from glob import glob, has_magic
from io import BufferedReader, BytesIO
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from dubium.data.image_headers import SIDEWAYS, check_header, orientation, turn_upright
from dubium.errors import DataNotFoundError, FileFormatError
from dubium.path_checks import is_figure_folder
from dubium.reading import open_regular_file

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"})
UNREAD = frozenset({".heic", ".heif", ".avif", ".jp2", ".j2k", ".jxl", ".svg", ".psd"})
"""Suffixes of images that are not read: such files are skipped with a word about it, as damaged ones are."""
ARRAYS = (".npy", ".npz")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")  # of those suffixes
PIXELS = 100_000_000  # a larger image is refused before it is decoded
SIDE = 100_000  # pixels; masks of regions have a number for each column
BYTES = 2**30  # of a file
STRIP = 256  # rows to lay on white at a time
TILE_SIDES = (322, 323)  # TIFF's tags of a tile's width and height
TRANSPARENT = ("LA", "La", "PA", "RGBA", "RGBa")


def find_images(named: Iterable[str | Path]) -> list[Path]:
    """The image files named, below the folders named, or matching the patterns named, sorted within each.

    A file that is named is taken whatever its suffix; one below a folder if its suffix is an image's, and if it is no
    picture that dubium drew there. Images of kinds that are not read come last, to be named as skipped.
    """
    found: list[Path] = []
    unread: list[Path] = []
    has_figures = cache(is_figure_folder)
    for name in named:
        path = Path(name).expanduser()
        if path.is_dir():
            images = (file for file in path.rglob("*") if is_image(file, path))
            below = sorted(file for file in images if file.parent == path or not has_figures(file.parent))
            found += [file for file in below if file.suffix.lower() in SUFFIXES]
            unread += [file for file in below if file.suffix.lower() in UNREAD]
        elif path.is_file():
            found.append(path)
        elif has_magic(str(path)) and (matches := sorted(glob(str(path), recursive=True))):
            found += [Path(match) for match in matches if Path(match).is_file()]
        elif path.exists():
            raise DataNotFoundError(f"{str(name)!r} is a pipe or a device. Give images, or a folder of them.")
        else:
            raise DataNotFoundError(f"There is no file or folder {str(name)!r}. Give images, or a folder of them.")
    if not found:
        where = ", ".join(str(name) for name in named)
        raise DataNotFoundError(f"There are no images in {where}. Known kinds: {', '.join(sorted(SUFFIXES))}.")
    for path in (*found, *unread):
        check_name(path)
    return list(dict.fromkeys([*found, *unread]))


def check_name(path: Path) -> None:
    """Refuse a name that is not text, as old disks have some: results could not hold it."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise FileFormatError(f"{str(path)!a} has a name that is not UTF-8. Rename it.") from error


def is_image(file: Path, below: Path) -> bool:
    """Whether a file below a folder has an image's suffix, and neither it nor a folder on the way is hidden."""
    hidden = any(part.startswith(".") for part in file.relative_to(below).parts)
    return file.suffix.lower() in SUFFIXES | UNREAD and not hidden and file.is_file()


def read_image(source: Path | str | bytes, *, pixels: int = PIXELS) -> Float[Tensor, "C H W"]:
    """Read one image.

    Args:
        source: a file, or the bytes of a file.
        pixels: the largest number of pixels that is decoded.

    Returns:
        float32 in [0, 1], (1, H, W) for grey and (3, H, W) for colour; 16-bit grey keeps its depth.

    Raises:
        FileFormatError: the file is damaged, too large, or not an image.
    """
    image = open_image(source, pixels=pixels)
    if is_wide(image):
        return wide_pixels(image, "the image" if isinstance(source, bytes) else str(source))[None]
    channels = image.getbands()
    scaled = torch.empty(len(channels), image.height, image.width)
    for index, channel in enumerate(channels):  # one at a time: 100 million pixels of floats are 1.2 GB
        scaled[index] = torch.from_numpy(np.array(image.getchannel(channel)))
    return scaled.div_(255)


def open_image(source: Path | str | bytes, *, pixels: int = PIXELS) -> Image.Image:
    """Decode one image from a file or its bytes, upright and on white; any damage is a `FileFormatError`."""
    name = "the image" if isinstance(source, bytes) else str(source)
    try:
        stream = io.BytesIO(source) if isinstance(source, bytes) else open_regular_file(source, most=BYTES)
        with stream, open_checked(stream) as opened:
            check_pixels(opened, name, pixels)
            opened.load()
            converted = convert_colours(turn_upright(opened))
            return converted.copy() if converted is opened else converted  # the open image goes with its file
    except FileFormatError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise FileFormatError(f"{name} has too many pixels to be an honest image ({error}).") from error
    except UnidentifiedImageError as error:  # its text names an object of Python's
        raise FileFormatError(f"{name} is damaged or not an image (of no known format).{kind_advice(name)}") from error
    except Exception as error:  # damaged images raise nearly anything
        raise FileFormatError(f"{name} is damaged or not an image ({error}).") from error


def kind_advice(name: Path | str) -> str:
    """What to do with a file that is called like another kind than those that are read; "" where nothing is known."""
    suffix = Path(name).suffix.lower()
    if suffix in ARRAYS:
        return f" Arrays of images are a dataset: --dataset {name}; in Python the data {str(name)!r}, not in a list."
    return f" Files of the kind {suffix} are not read; convert them to PNG or JPEG." if suffix in UNREAD else ""


def open_checked(stream: BufferedReader | BytesIO) -> Image.Image:
    """Open an image without its pixels, after a look at what is beside them."""
    check_header(stream)
    return Image.open(stream, formats=FORMATS)


def image_size(path: Path | str) -> tuple[int, int] | None:
    """Height and width of an image, upright, from its header alone; None where it cannot be read."""
    try:
        with open_regular_file(path, most=BYTES) as stream, open_checked(stream) as opened:
            if opened.format == "PNG":
                opened.load()  # its EXIF may come after the pixels
            sideways = orientation(opened) in SIDEWAYS
            return (opened.width, opened.height) if sideways else (opened.height, opened.width)
    except Exception:  # damaged images raise nearly anything; they are named when they are read
        return None


def size_text(size: tuple[int, int]) -> str:
    """Height and width in words, since people and programs write them in either order.

    >>> size_text((95, 189))
    '95 pixels high, 189 wide'
    """
    return f"{size[0]} pixels high, {size[1]} wide"


def check_pixels(opened: Image.Image, name: str, most: int) -> None:
    """Refuse an image whose header announces more pixels than are read, in all or in a tile of a TIFF file."""
    if max(opened.size) > SIDE:
        raise FileFormatError(f"{name} has {opened.width} x {opened.height} pixels; at most {SIDE:,} a side are read.")
    if opened.width * opened.height > most:
        raise FileFormatError(
            f"{name} has {opened.width} x {opened.height} pixels; at most {most:,} are read. Make it smaller."
        )
    width, height = (getattr(opened, "tag_v2", {}).get(tag, 0) for tag in TILE_SIDES)
    if width * height > most:
        raise FileFormatError(f"{name} has tiles of {width} x {height} pixels; at most {most:,} are read.")


def convert_colours(image: Image.Image) -> Image.Image:
    """The image as grey ("L") or colour ("RGB"), without transparency; wide grey is not changed."""
    if is_wide(image):
        return image
    mode = "L" if image.mode in ("1", "L", "LA", "La") else "RGB"
    if image.mode not in TRANSPARENT and "transparency" not in image.info:
        return image.convert(mode)
    flat = Image.new(mode, image.size)
    for top in range(0, image.height, STRIP):  # in strips, since each of the steps makes a copy
        strip = image.crop((0, top, image.width, min(top + STRIP, image.height))).convert("RGBA")
        flat.paste(Image.alpha_composite(Image.new("RGBA", strip.size, "white"), strip).convert(mode), (0, top))
    return flat


def is_wide(image: Image.Image) -> bool:
    """Whether the image is grey with more than 8 bits per pixel."""
    return image.mode.startswith(("I", "F"))


def byte_pixels(image: Image.Image) -> Tensor:
    """The pixels of an "L" or "RGB" image as bytes, (C, H, W)."""
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()


def wide_pixels(image: Image.Image, name: str) -> Tensor:
    """The pixels of a wide image in [0, 1], (H, W): of whole numbers from 0 to 65535, or of floats from 0 to 1."""
    array = np.asarray(image)
    top = 1.0 if array.dtype.kind == "f" else 65535.0
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= top):
        raise FileFormatError(
            f"{name} has pixels from {low:g} to {high:g}; expected whole numbers from 0 to 65535, or floats in [0, 1]."
        )
    return torch.from_numpy(array.astype(np.float32) / np.float32(top))
