"""Results on disk: Parquet shards with the settings that made them in each file; here the schema, and reading."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dubium.errors import DataNotFoundError, FileFormatError
from dubium.kinds import KINDS
from dubium.reading import open_regular_file, parse_json
from dubium.run.row import REGION, RegionRow
from dubium.run.row import Array as Array
from dubium.run.row import Row as Row
from dubium.run.shard_checks import check_about, open_parquet, read_groups
from dubium.seals import LARGEST, check_seal, damage_of

FORMATS = (1, 2, 3)  # the second has a seal, regions and advice; in the third maps have the networks' size
FORMAT = FORMATS[-1]
KEY = "dubium"
FOLDER = "results"
EXPLAINED, SCORED = "explained", "scored"  # rows with maps, and rows with scores only

NUMBERS = pa.list_(pa.float32())
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("path", pa.string()),
        ("label", pa.int64()),
        ("prediction", pa.int64()),
        ("probs", NUMBERS),
        ("members", pa.list_(NUMBERS)),
        *((kind, pa.float32()) for kind in KINDS),
        *((f"map_{kind}", NUMBERS) for kind in KINDS),
        ("height", pa.int32()),
        ("width", pa.int32()),
        ("thumbnail", pa.binary()),
        ("regions", pa.list_(REGION)),
        ("advice", pa.string()),
        ("image_height", pa.int32()),
        ("image_width", pa.int32()),
        ("seen", pa.list_(pa.int32())),
    ]
)


PICTURES = (*(f"map_{kind}" for kind in KINDS), "thumbnail")


@dataclass(frozen=True, repr=False)
class Results:
    """The shards of a run's folder."""

    folder: Path
    explained: tuple[Path, ...]
    scored: tuple[Path, ...]
    about: dict[str, Any]

    def __repr__(self) -> str:
        return f"Results({str(self.folder)!r}: {len(self):,} images, {self.explained_count():,} explained)"

    @property
    def files(self) -> tuple[Path, ...]:
        return *self.explained, *self.scored

    def skipped(self) -> list[dict[str, str]]:
        """The images that could not be read, each with its reason, in order and once."""
        found = [item for file in self.files for item in read_about(file)["skipped"]]
        return sorted({item["path"]: item for item in found}.values(), key=lambda item: item["path"])

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
        return {-place: rank for rank, (_, place) in enumerate(heapq.nlargest(count, scores))}

    def columns(self, names: Sequence[str], files: Iterable[Path] | None = None) -> Iterator[dict[str, list[Any]]]:
        """Some columns of all rows, a row group at a time."""
        for file in self.files if files is None else files:
            for table in read_groups(file, SCHEMA, names):
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


def open_results(folder: Path | str) -> Results:
    """The results below a run's folder."""
    inner = Path(folder) / FOLDER
    explained, scored = (tuple(sorted(inner.glob(f"{name}-*.parquet"))) for name in (EXPLAINED, SCORED))
    if not explained and not scored:
        raise DataNotFoundError(
            f"There are no results in {folder}: it has no {FOLDER}/*.parquet. Make them with `dubium explain ... --out "
            f"{folder}`."
        )
    for file in (*explained, *scored):
        check_shard(file)
    return Results(Path(folder), explained, scored, read_about((explained or scored)[0]))


def check_shard(file: Path) -> None:
    """Raise an error unless a shard is, byte for byte, what was written; one of an older dubium has no seal."""
    if not check_seal(file) and read_about(file)["format"] != FORMATS[0]:
        raise damage_of(file)


def read_about(file: Path) -> dict[str, Any]:
    """The settings in a shard's metadata, and what was skipped."""
    metadata = read_footer(file).metadata or {}
    if KEY.encode() not in metadata:
        raise FileFormatError(f"{file} is damaged or not a shard of dubium's. Delete it and run the command again.")
    about = check_about(parse_json(metadata[KEY.encode()], file), file)
    if about.get("format") not in FORMATS:
        raise FileFormatError(f"{file} is not of format {FORMAT}, the one that this dubium reads. Upgrade dubium.")
    return about


def read_footer(file: Path) -> pq.FileMetaData:
    """What a Parquet file says about its rows."""
    try:
        with open_regular_file(file, most=LARGEST) as source, open_parquet(source) as parquet:
            return parquet.metadata
    except (FileFormatError, FileNotFoundError):
        raise
    except Exception as error:  # what Arrow raises depends on the byte that is wrong
        raise FileFormatError(
            f"{file} is damaged or not a shard of dubium's ({error!s:.300}). Delete it and run the command again."
        ) from error


def read_rows(file: Path, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """The rows of one shard, the inverse of `shard.table_of_rows`; the pictures may be left out of the columns."""
    arrays = {"probs", "members", *(f"map_{kind}" for kind in KINDS)}
    for table in read_groups(file, SCHEMA, columns):
        plain = {name: table[name].to_pylist() for name in table.column_names if name not in arrays}
        for index in range(len(table)):
            values: dict[str, Any] = dict.fromkeys(PICTURES) | {name: column[index] for name, column in plain.items()}
            if values.get("regions") is not None:
                cells = values["regions"]
                values["regions"] = tuple(RegionRow(**{**cell, "counts": tuple(cell["counts"])}) for cell in cells)
            if "seen" in values:
                values["seen"] = tuple(values["seen"])
            shape = values["height"], values["width"]
            values["probs"] = float_array(table["probs"][index])
            values["members"] = np.stack([float_array(member) for member in table["members"][index]])
            for name in arrays & {*PICTURES, *table.column_names} - {"probs", "members"}:
                cell = table[name][index] if name in table.column_names else None
                values[name] = float_array(cell).reshape(shape) if cell is not None and cell.is_valid else None
            yield Row(**values)


def float_array(cell: pa.ListScalar) -> Array:
    return np.asarray(cell.values.to_numpy(zero_copy_only=False), np.float32)
