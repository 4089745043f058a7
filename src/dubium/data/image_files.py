"""Image files as people have them: any usual kind, depth, colour and rotation, each read on its own.

Pixels become float32 in [0, 1], (1, H, W) for grey and (3, H, W) for colour. 16-bit grey keeps its depth; transparent
pixels are laid on white; EXIF rotation is applied; of an animation the first frame is taken.
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

from dubium.data.folder import SUFFIXES
from dubium.errors import DataNotFoundError, FileFormatError

PIXELS = 100_000_000  # a larger image is refused before it is decoded
WIDE = ("I", "F")


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
    hidden = any(part.startswith(".") for part in file.relative_to(below).parts)
    return file.suffix.lower() in SUFFIXES and not hidden and file.is_file()


def read_image(source: Path | str | bytes, *, pixels: int = PIXELS) -> Float[Tensor, "C H W"]:
    """One image from a file, or from a file's bytes; any damage is a `FileFormatError`."""
    name = "the image" if isinstance(source, bytes) else str(source)
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as opened:
            if opened.width * opened.height > pixels:
                raise FileFormatError(
                    f"{name} has {opened.width} x {opened.height} pixels; at most {pixels:,} are read. Make it smaller."
                )
            return as_tensor(ImageOps.exif_transpose(opened), name)
    except FileFormatError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise FileFormatError(f"{name} has too many pixels to be an honest image ({error}).") from error
    except Exception as error:  # damaged images raise nearly anything
        raise FileFormatError(f"{name} is damaged or not an image ({error}).") from error


def as_tensor(image: Image.Image, name: str) -> Float[Tensor, "C H W"]:
    """Pixels in [0, 1]."""
    if image.mode.startswith(WIDE):
        return wide(np.asarray(image), name)[None]
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        grey = image.mode in ("L", "LA", "La", "1")
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("L" if grey else "RGB")
    elif image.mode in ("1", "L"):
        image = image.convert("L")
    else:
        image = image.convert("RGB")
    pixels = torch.from_numpy(np.array(image)).float().div_(255)
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()


def wide(array: np.ndarray, name: str) -> Tensor:
    """Grey with more than 8 bits: whole numbers from 0 to 65535, or floats from 0 to 1."""
    top = 1.0 if array.dtype.kind == "f" else 65535.0
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= top):
        raise FileFormatError(
            f"{name} has pixels from {low:g} to {high:g}; expected whole numbers from 0 to 65535, or floats in [0, 1]."
        )
    return torch.from_numpy(array.astype(np.float32) / np.float32(top))
