"""The one reader of image files: any usual kind, depth, colour and rotation.

EXIF rotation is applied, transparent pixels are laid on white, and of an animation the first frame is taken. An image
is then grey ("L"), colour ("RGB"), or grey with more than 8 bits per pixel ("I;16", "F", ...).
"""

import io
from collections.abc import Iterable
from glob import glob, has_magic
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image, ImageOps
from torch import Tensor

from dubium.errors import DataNotFoundError, FileFormatError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"})
PIXELS = 100_000_000  # a larger image is refused before it is decoded
TRANSPARENT = ("LA", "La", "PA", "RGBA", "RGBa")


def find_images(named: Iterable[str | Path]) -> list[Path]:
    """The image files named, below the folders named, or matching the patterns named, sorted within each.

    A file that is named is taken whatever its suffix; one below a folder if its suffix is an image's.
    """
    found: list[Path] = []
    for name in named:
        path = Path(name).expanduser()
        if path.is_dir():
            found += sorted(file for file in path.rglob("*") if is_image(file, path))
        elif path.is_file():
            found.append(path)
        elif has_magic(str(path)) and (matches := sorted(glob(str(path), recursive=True))):
            found += [Path(match) for match in matches if Path(match).is_file()]
        else:
            raise DataNotFoundError(f"There is no file or folder {str(name)!r}. Give images, or a folder of them.")
    if not found:
        where = ", ".join(str(name) for name in named)
        raise DataNotFoundError(f"There are no images in {where}. Known kinds: {', '.join(sorted(SUFFIXES))}.")
    return list(dict.fromkeys(found))


def is_image(file: Path, below: Path) -> bool:
    """Whether a file below a folder has an image's suffix, and neither it nor a folder on the way is hidden."""
    hidden = any(part.startswith(".") for part in file.relative_to(below).parts)
    return file.suffix.lower() in SUFFIXES and not hidden and file.is_file()


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
        return wide_pixels(image, image_name(source))[None]
    return byte_pixels(image).float().div_(255)


def open_image(source: Path | str | bytes, *, pixels: int = PIXELS) -> Image.Image:
    """Decode one image from a file or its bytes, upright and on white; any damage is a `FileFormatError`."""
    name = image_name(source)
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as opened:
            if opened.width * opened.height > pixels:
                raise FileFormatError(
                    f"{name} has {opened.width} x {opened.height} pixels; at most {pixels:,} are read. Make it smaller."
                )
            return convert_colours(ImageOps.exif_transpose(opened))
    except FileFormatError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise FileFormatError(f"{name} has too many pixels to be an honest image ({error}).") from error
    except Exception as error:  # damaged images raise nearly anything
        raise FileFormatError(f"{name} is damaged or not an image ({error}).") from error


def image_name(source: Path | str | bytes) -> str:
    """What error messages call an image."""
    return "the image" if isinstance(source, bytes) else str(source)


def convert_colours(image: Image.Image) -> Image.Image:
    """The image as grey ("L") or colour ("RGB"), without transparency; wide grey is not changed."""
    if is_wide(image):
        return image
    grey = image.mode in ("1", "L", "LA", "La")
    if image.mode in TRANSPARENT or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("L" if grey else "RGB")


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
