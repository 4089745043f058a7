"""Folders of image files: `class/name.png`, or flat."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from dubium.checks import list_some
from dubium.data.dataset import Dataset
from dubium.data.fit import Preprocessing
from dubium.data.image_files import (
    SUFFIXES,
    UNREAD,
    byte_pixels,
    check_name,
    is_image,
    is_wide,
    kind_advice,
    open_image,
    read_image,
    size_text,
)
from dubium.errors import DataNotFoundError, FileFormatError, ImagesError, OptionError
from dubium.path_checks import is_figure_folder


def read_folder(folder: Path, split: str, preprocessing: Preprocessing | None = None, *, skip: bool = False) -> Dataset:
    """The images below `folder`, or below `folder/train` and `folder/test` where those exist; a class per subfolder.

    Args:
        preprocessing: how images of any size are brought to one.
        skip: leave out files that cannot be read, and say why in `skipped`; without it one of them is an error.
    """
    groups, classes, split = list_folder(folder, split)
    skipped: list[str] = []
    if skip:
        groups = [[file for file in group if is_readable(file, skipped)] for group in groups]
        skipped += [f"{file} is left out.{kind_advice(file)}" for file in unread_images(folder, split)]
    files = [file for group in groups for file in group]
    if not files:
        raise FileFormatError(f"No image in {folder} can be read: {' '.join(skipped[:3])}")
    labels = torch.tensor([label for label, group in enumerate(groups) for _ in group]) if classes else None
    images = read_images(files, preprocessing)
    return Dataset(images, labels, classes, str(folder), split, by_folder=bool(classes), skipped=tuple(skipped))


def is_readable(file: Path, reasons: list[str]) -> bool:
    """Whether an image file can be read; if not, why is added to the reasons."""
    try:
        read_image(file)
    except FileFormatError as error:
        reasons.append(str(error))
        return False
    return True


def list_folder(folder: Path, split: str) -> tuple[list[list[Path]], tuple[str, ...], str]:
    """The image files of each class, the names of the classes, and the split: "all" where there is but one.

    A flat folder has one list of files and no classes. Subfolders without images, or with pictures that dubium drew,
    are no classes.
    """
    inner = folder / split
    if not inner.is_dir():
        if any((folder / other).is_dir() for other in ("train", "test")):
            raise DataNotFoundError(
                f"{folder} has no folder {split!r}, only {subfolder_names(folder)}. Name the split you mean."
            )
        inner, split = folder, "all"
    inside = [path for path in sorted(inner.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    by_class = {path: files for path in inside if not is_figure_folder(path) and (files := image_paths(path))}
    beside = image_paths(inner)
    if by_class and beside:
        raise ImagesError(
            f"{inner} has both images ({list_some([file.name for file in beside], 3)}) and folders of images "
            f"({list_some([path.name for path in by_class], 3)}); expected images alone, or a folder for each class. "
            "Move the images, or the folders, elsewhere."
        )
    groups = [*by_class.values()] or [beside]
    files = [file for group in groups for file in group]
    if not files:
        raise DataNotFoundError(f"{inner} has no images. Known kinds: {', '.join(sorted(SUFFIXES))}.")
    for path in (*by_class, *files):
        check_name(path)
    return groups, tuple(path.name for path in by_class), split


def unread_images(folder: Path, split: str) -> list[Path]:
    """Images of kinds that are not read, in a dataset's folder and its subfolders; `split` is that of `list_folder`."""
    inner = folder if split == "all" else folder / split
    files = (file for pattern in ("*", "*/*") for file in inner.glob(pattern))
    return sorted(file for file in files if file.suffix.lower() in UNREAD and is_image(file, inner))


def refuse_image_folder(out: Path | str, named: Iterable[Path]) -> None:
    """Refuse to write results among the images: into a folder that was named for them, or one of images below it."""
    place = Path(out).resolve()
    for folder in (path.resolve() for path in named if path.is_dir()):
        is_of_images = place.is_relative_to(folder) and place.is_dir() and not is_figure_folder(place)
        if place == folder or (is_of_images and image_paths(place)):
            raise OptionError(f"{out} is the folder of the images; give another one for the results.")


def read_images(files: list[Path], preprocessing: Preprocessing | None = None) -> Tensor:
    """Image files of one size as bytes (N, C, H, W): one channel if all are grey, else three.

    With `preprocessing`, images of any size, as float32.
    """
    if preprocessing is not None:
        return torch.stack([preprocessing.network_input(read_image(file)) for file in files])
    images = [open_image(file) for file in files]
    for file, image in zip(files, images, strict=True):
        if is_wide(image):
            raise FileFormatError(f"{file} has more than 8 bits a pixel ({image.mode}); convert it to 8 bits first.")
        if image.size != images[0].size:
            raise ImagesError(
                f"The images differ in size ({files[0]}: {size_text((images[0].height, images[0].width))}, {file}: "
                f"{size_text((image.height, image.width))}). Name the size that the networks take, and "
                "they are brought to it: --input-shape 3,224,224 (channels, height, width) of `dubium explain`, "
                "`dubium evaluate`, `dubium train` and `dubium train-vae`, input_shape= in Python, as in "
                "dubium.evaluate(posterior, folder, input_shape=(3, 224, 224)) or, where networks are trained on them, "
                "dubium.evaluate(None, folder, protocol='causes', input_shape=(3, 224, 224))."
            )
    mode = "L" if all(image.mode == "L" for image in images) else "RGB"
    return torch.stack([byte_pixels(image.convert(mode)) for image in images])


def image_paths(folder: Path) -> list[Path]:
    """The image files in a folder, sorted, without hidden ones."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))


def subfolder_names(folder: Path) -> str:
    """The names of the folders in a folder, for error messages."""
    return ", ".join(repr(path.name) for path in sorted(folder.iterdir()) if path.is_dir())
