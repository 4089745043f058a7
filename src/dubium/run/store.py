"""The results of a run: a folder of shards, read one row or one row group at a time."""

import heapq
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from dubium.choices import SPLITS
from dubium.errors import DataNotFoundError
from dubium.path_checks import COMPARED, RESULTS, is_evaluation_folder
from dubium.run.row import Array as Array
from dubium.run.row import Row as Row
from dubium.run.shard import PICTURES, SCHEMA, check_shard, read_about, read_footer, read_groups, read_rows

FOLDER = RESULTS
EXPLAINED, SCORED = "explained", "scored"  # rows with maps, and rows with scores only


@dataclass(frozen=True, repr=False)
class Results:
    """The shards of a run's folder."""

    folder: Path
    explained: tuple[Path, ...]
    scored: tuple[Path, ...]
    about: dict[str, Any]

    def __repr__(self) -> str:
        unfinished = ", not finished" if self.unfinished_note() else ""
        return f"Results({str(self.folder)!r}: {len(self):,} images, {self.explained_count():,} explained{unfinished})"

    @property
    def files(self) -> tuple[Path, ...]:
        return *self.explained, *self.scored

    def skipped(self) -> list[dict[str, str]]:
        """The images that could not be read, each with its reason, in order and once."""
        found = [item for file in self.files for item in read_about(file)["skipped"]]
        return sorted({item["path"]: item for item in found}.values(), key=lambda item: item["path"])

    def unfinished_note(self) -> str:
        """That a run was stopped before its end, and how to go on; "" where it was not."""
        there, wanted = len(self) + len(self.skipped()), self.about["images"].get("count", 0)
        if there >= wanted:
            return ""
        return (
            f"This run is not finished: there are results of {there:,} of its {wanted:,} images, so that what is "
            "counted over all images is not known yet. The command that began it goes on where it stopped."
        )

    def rows(self, files: Iterable[Path] | None = None, *, pictures: bool = True) -> Iterator[Row]:
        """Rows one by one, explained ones first; a row group at a time is in memory.

        Args:
            pictures: read maps and thumbnails too.
        """
        for file in self.files if files is None else files:
            yield from read_rows(file, None if pictures else [n for n in SCHEMA.names if n not in PICTURES])

    def most_uncertain(self, kind: str, count: int, *, pictures: bool = True) -> list[Row]:
        """The rows with the highest scores, highest first: of the explained images, or of all if none is."""
        ranks = self.ranks(kind, count)
        rows = self.rows(self.explained or self.scored, pictures=pictures)
        return sorted((row for row in rows if row.id in ranks), key=lambda row: ranks[row.id])

    def ranks(self, kind: str, count: int) -> dict[int, int]:
        """The rank of each of the most uncertain images, by id: of the explained ones, or of all if none is."""
        scores = (
            pair
            for table in self.columns(["id", kind], self.explained or self.scored)
            for pair in zip(table[kind], (-n for n in table["id"]), strict=True)
        )
        return {-negated: rank for rank, (_, negated) in enumerate(heapq.nlargest(count, scores))}

    def columns(self, names: Sequence[str], files: Iterable[Path] | None = None) -> Iterator[dict[str, list[Any]]]:
        """Some columns of all rows, a row group at a time."""
        for file in self.files if files is None else files:
            for table in read_groups(file, names):
                yield table.to_pydict()

    def __len__(self) -> int:
        return sum(int(read_footer(file).num_rows) for file in self.files)

    def explained_count(self) -> int:
        return sum(int(read_footer(file).num_rows) for file in self.explained)

    def explained_ids(self) -> tuple[int, ...]:
        return tuple(index for table in self.columns(["id"], self.explained) for index in table["id"])


def has_results(folder: Path | str) -> bool:
    """Whether a folder is one that `explain_dataset` filled."""
    return (Path(folder) / FOLDER).is_dir()


def class_name(names: Sequence[str] | None, index: int) -> str:
    """A class by its name, or else its number."""
    return str(names[index]) if names and index < len(names) else str(index)


def shown_path(path: str, images: Mapping[str, Any]) -> str:
    """A file's path in the folder that was named, or its name alone; `images` is that of `Settings`.

    >>> shown_path("photos/1/13.png", {"files": ["photos"]}), shown_path("photos/1/13.png", {"dataset": "photos:test"})
    ('1/13.png', '1/13.png')
    """
    dataset = str(images.get("dataset", ""))
    named = [*images.get("files", ()), dataset, *(dataset.removesuffix(f":{split}") for split in SPLITS)]
    folders = [os.path.expanduser(folder) for folder in named if folder]
    inside = (PurePath(path).relative_to(folder) for folder in folders if PurePath(path).is_relative_to(folder))
    return next((str(part) for part in inside if part.parts), "") or PurePath(path).name


def open_results(folder: Path | str) -> Results:
    """The results below a run's folder."""
    inner = Path(folder) / FOLDER
    explained, scored = (tuple(sorted(inner.glob(f"{name}-*.parquet"))) for name in (EXPLAINED, SCORED))
    if not explained and not scored and is_evaluation_folder(Path(folder)):
        raise DataNotFoundError(
            f"{folder} is an evaluation, which has no results of explained images. Name a folder that `dubium explain` "
            "wrote."
        )
    if not explained and not scored and all(has_results(Path(folder) / side) for side in COMPARED):
        first, second = [Path(folder) / side for side in COMPARED]
        raise DataNotFoundError(f"{folder} compares two runs, {first} and {second}. Name one of them.")
    if not explained and not scored:
        raise DataNotFoundError(
            f"There are no results in {folder}: it has no {FOLDER}/*.parquet. Make them with `dubium explain ... --out "
            f"{folder}`."
        )
    for file in (*explained, *scored):
        check_shard(file)
    return Results(Path(folder), explained, scored, read_about((explained or scored)[0]))
