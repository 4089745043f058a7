"""Whether what an export would replace is of an earlier one: files of the user's own are left alone."""

import json
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from dubium.errors import OptionError
from dubium.report.exports.coco import DESCRIPTION
from dubium.report.exports.fiftyone import LABELS
from dubium.report.exports.masks import MASKS, palette
from dubium.report.exports.review import COLUMNS

COCO_START = json.dumps({"info": {"description": DESCRIPTION}}).rstrip('"}').encode()
REVIEW_START = ",".join(COLUMNS[:4]).encode()
COLOURS = 6  # numbers of a mask's palette: black, and the first region's colour


def refuse_own_export(path: Path, to: str) -> None:
    """Refuse a file, or a folder with files, that no export to this format wrote."""
    if path.exists() and not EARLIER[to](path):
        what = "has files" if path.is_dir() else "is a file"
        raise OptionError(
            f"{path} {what} that `dubium export --to {to}` did not write, and would write among them or over them. "
            "Choose another place with --out (out= in Python)."
        )


def is_coco(path: Path) -> bool:
    return not path.is_file() or starts_with(path, COCO_START)


def is_review(path: Path) -> bool:
    return not path.is_file() or starts_with(path, REVIEW_START)


def is_mask_folder(folder: Path) -> bool:
    """Whether all that is in a folder, but for hidden files, is masks of an export."""
    return not folder.is_dir() or all(is_mask(file) for file in visible_files(folder))


def is_fiftyone_folder(folder: Path) -> bool:
    """Whether a folder is empty but for hidden files, or has the labels of an export."""
    return not folder.is_dir() or not visible_files(folder) or starts_with(folder / LABELS, COCO_START)


def visible_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def is_mask(file: Path) -> bool:
    """Whether a file is called like a mask, and has a mask's colours."""
    if not file.match(MASKS) or not file.is_file():
        return False
    try:
        with Image.open(file) as image:
            return image.mode == "P" and (image.getpalette() or [])[:COLOURS] == palette()[:COLOURS]
    except (OSError, ValueError, Image.DecompressionBombError):
        return False


def starts_with(file: Path, start: bytes) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(start)) == start


EARLIER: dict[str, Callable[[Path], bool]] = {
    "coco": is_coco,
    "csv": is_review,
    "png": is_mask_folder,
    "fiftyone": is_fiftyone_folder,
}
