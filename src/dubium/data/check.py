"""Which splits of a dataset are there, and whether their files are the published ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dubium.choices import SPLITS
from dubium.data.catalog import SOURCES
from dubium.data.find import data_folders, find_files, is_published
from dubium.data.load import load
from dubium.errors import DataNotFoundError, lookup


@dataclass(frozen=True)
class FoundSplit:
    """One split of a dataset.

    Args:
        images: the number of images found.
        published: the number of images that were published.
        as_published: whether the files' checksums are the published ones; None where none are known.
    """

    split: str
    images: int
    published: int
    files: tuple[Path, ...]
    as_published: bool | None


def check_dataset(name: str, folders: Sequence[Path] | None = None) -> list[FoundSplit]:
    """Read every file of a dataset that is there, whole; a damaged one raises `FileFormatError`."""
    source = lookup("dataset", SOURCES, name)
    where = data_folders() if folders is None else folders
    found, missing = [], None
    for split in SPLITS:
        try:
            _, paths = find_files(name, split, where)
        except DataNotFoundError as error:
            missing = error
            continue
        images = len(load(name, split, folders=where))
        known = [is_published(source, path) for path in paths]
        verdict = None if None in known else all(known)
        found.append(FoundSplit(split, images, source.published[split], tuple(paths), verdict))
    if not found and missing is not None:
        raise missing
    return found
