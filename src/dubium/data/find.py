"""Where the files of a dataset are."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from dubium.data.catalog import SOURCES, DatasetSource, FileLayout
from dubium.errors import DataNotFoundError


def data_folders() -> list[Path]:
    """The folders of `DUBIUM_DATA` (separated as in `PATH`), then the one that downloads go to.

    >>> data_folders()[-1] == cache_folder()
    True
    """
    named = [Path(part).expanduser() for part in os.environ.get("DUBIUM_DATA", "").split(os.pathsep) if part]
    return [*named, cache_folder()]


def cache_folder() -> Path:
    """Where downloads go if no other folder is named: `dubium/data` in the user's cache.

    >>> cache_folder().parts[-2:]
    ('dubium', 'data')
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dubium" / "data"


def find_files(name: str, split: str, folders: Sequence[Path]) -> tuple[FileLayout, list[Path]]:
    """The files of one split, in the first folder that has them all."""
    source = SOURCES[name]
    incomplete: list[str] = []
    for folder in folders:
        for below in source.folders:
            for layout in source.layouts:
                paths = [folder / below / file for file in layout.splits[split]]
                there = [path.is_file() for path in paths]
                if any(there) and is_other_dataset(name, paths[there.index(True)]):
                    continue
                if all(there):
                    return layout, paths
                if any(there):
                    incomplete += [str(path) for path, is_there in zip(paths, there, strict=True) if not is_there]
    searched = ", ".join(str(folder) for folder in folders) or "no folder"
    missing = f" Only these files are missing: {', '.join(incomplete)}." if incomplete else ""
    raise DataNotFoundError(
        f"The {split} images of {source.title} are not in {searched}.{missing} Get them with `dubium data get {name}`,"
        " or name the folder that has them in DUBIUM_DATA."
    )


def is_other_dataset(name: str, path: Path) -> bool:
    """Whether a file belongs to another dataset: MNIST and Fashion-MNIST use the same file names.

    Their folders and published checksums tell them apart.
    """
    others = [other for other in SOURCES if other != name and path.name in SOURCES[other].md5]
    if not others:
        return False
    is_fashion = any("fashion" in part.lower() for part in path.absolute().parts[-3:-1])
    if is_fashion and name != "fashion-mnist":
        return True
    digest = md5(path)
    return any(SOURCES[other].md5[path.name] == digest for other in others)


def is_published(source: DatasetSource, path: Path) -> bool | None:
    """Whether a file is, byte for byte, the published one; None if no checksum is known for it."""
    expected = source.md5.get(path.name)
    return None if expected is None else md5(path) == expected


def md5(path: Path) -> str:
    """The checksum under which datasets are published; it finds damage, not malice."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
