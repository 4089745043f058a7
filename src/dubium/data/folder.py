"""Folders of image files: `class/name.png`, or flat."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dubium.data.dataset import Dataset
from dubium.errors import DataNotFoundError, FileFormatError, ImagesError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"})


def read_folder(folder: Path, split: str) -> Dataset:
    """The images below `folder`, or below `folder/train` and `folder/test` where those exist; a class per subfolder."""
    inner = folder / split
    if not inner.is_dir():
        if any((folder / other).is_dir() for other in ("train", "test")):
            raise DataNotFoundError(
                f"{folder} has no folder {split!r}, only {_names(folder)}. Name the split you mean."
            )
        inner, split = folder, "all"
    classes = [path for path in sorted(inner.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    groups = [_files(path) for path in classes] or [_files(inner)]
    files = [file for group in groups for file in group]
    if not files:
        raise DataNotFoundError(f"{inner} has no images. Known kinds: {', '.join(sorted(SUFFIXES))}.")
    labels = torch.tensor([label for label, group in enumerate(groups) for _ in group]) if classes else None
    return Dataset(read_images(files), labels, tuple(path.name for path in classes), str(folder), split)


def read_images(files: list[Path]) -> Tensor:
    """Image files of one size as bytes (N, C, H, W): one channel if all are grey, else three."""
    images = [_read(file) for file in files]
    sizes = {image.size for image in images}
    if len(sizes) > 1:
        other = next(file for file, image in zip(files, images, strict=True) if image.size != images[0].size)
        raise ImagesError(
            f"The images differ in size: {files[0]} is {images[0].size}, {other} is not. Bring them to one size first."
        )
    mode = "L" if all(image.mode == "L" for image in images) else "RGB"
    arrays = [np.array(image.convert(mode)) for image in images]
    stacked = torch.from_numpy(np.stack(arrays))
    return stacked[:, None] if mode == "L" else stacked.permute(0, 3, 1, 2).contiguous()


def _read(path: Path) -> Image.Image:
    try:
        with Image.open(path) as image:
            if image.mode in ("1", "L"):
                return image.convert("L")
            if image.mode.startswith(("I", "F")):
                raise FileFormatError(
                    f"{path} has more than 8 bits a pixel ({image.mode}); convert it to 8 bits first."
                )
            return image.convert("RGB")
    except FileFormatError:
        raise
    except FileNotFoundError:
        raise
    except Exception as error:  # damaged images raise nearly anything
        raise FileFormatError(f"{path} is damaged or not an image ({error}).") from error


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))


def _names(folder: Path) -> str:
    return ", ".join(repr(path.name) for path in sorted(folder.iterdir()) if path.is_dir())
