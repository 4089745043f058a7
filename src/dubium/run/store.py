"""Results on disk: Parquet shards that appear whole or not at all, with the settings that made them in each file."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dubium.errors import DataNotFoundError, FileFormatError
from dubium.files import written_atomically
from dubium.types import KINDS

FORMAT = 1
FOLDER = "results"
EXPLAINED, SCORED = "explained", "scored"  # rows with maps, and rows with scores only
FLUSH = 32 * 2**20  # bytes of maps to collect before a row group is written

Array = NDArray[np.float32]
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
    ]
)


@dataclass(frozen=True)
class Row:
    """One image's results; `height` and `width` are its own, and those of its maps.

    `id` is the image's place in its source, `path` its file if it has one, `label` and `prediction` index the classes.
    Maps are (height, width), None where they were not asked for; `thumbnail` is a PNG.
    """

    id: int
    path: str | None
    label: int | None
    prediction: int
    probs: Array  # (K,)
    members: Array  # (S, K)
    total: float
    aleatoric: float
    epistemic: float
    map_total: Array | None
    map_aleatoric: Array | None
    map_epistemic: Array | None
    height: int
    width: int
    thumbnail: bytes | None

    def maps(self) -> dict[str, Array]:
        """The maps there are, by kind."""
        found = {kind: getattr(self, f"map_{kind}") for kind in KINDS}
        return {kind: array for kind, array in found.items() if array is not None}

    def scores(self) -> dict[str, float]:
        """Nats, by kind."""
        return {kind: getattr(self, kind) for kind in KINDS}


class Shard:
    """A Parquet file being written; rows go to disk as they come."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self.writer, self.rows, self.bytes, self.skipped = writer, list[Row](), 0, list[dict[str, str]]()

    def add(self, row: Row) -> None:
        """Take a row; a row group is written when enough have come."""
        self.rows.append(row)
        self.bytes += sum(array.nbytes for array in row.maps().values())
        if self.bytes >= FLUSH:
            self.flush()

    def skip(self, path: str, reason: str) -> None:
        """Remember, in the file, an image that could not be read."""
        self.skipped.append({"path": path, "reason": reason})

    def flush(self) -> None:
        if self.rows:
            self.writer.write_table(as_table(self.rows))
        self.rows, self.bytes = [], 0


@contextmanager
def shard(path: Path | str, about: Mapping[str, Any]) -> Iterator[Shard]:
    """A shard to add rows to; it becomes `path` when the block ends, and vanishes if the block raises."""
    with (
        written_atomically(path) as beside,
        pq.ParquetWriter(beside, SCHEMA, compression="zstd", use_dictionary=["path"]) as writer,
    ):
        opened = Shard(writer)
        yield opened
        opened.flush()
        content = {"format": FORMAT, **about, "skipped": opened.skipped}
        writer.add_key_value_metadata({"dubium": json.dumps(content, allow_nan=False)})


def as_table(rows: Sequence[Row]) -> pa.Table:
    """Rows as columns of the schema."""
    columns = {field.name: [getattr(row, field.name) for row in rows] for field in fields(Row)}
    arrays: dict[str, Any] = dict(columns)
    for name in ("probs", *(f"map_{kind}" for kind in KINDS)):
        arrays[name] = number_lists(columns[name])
    members = [row.members for row in rows]
    inner = number_lists([row for block in members for row in block])
    arrays["members"] = pa.ListArray.from_arrays(offsets([len(block) for block in members]), inner)
    return pa.table([pa.array(arrays[f.name], f.type) if isinstance(arrays[f.name], list) else arrays[f.name]
                     for f in SCHEMA], schema=SCHEMA)  # fmt: skip


def number_lists(arrays: Sequence[Array | None]) -> pa.ListArray:
    """A list of numbers per row, null where there is none, without a Python object per number."""
    sizes = [0 if array is None else array.size for array in arrays]
    there = [np.ravel(array) for array in arrays if array is not None]
    flat = np.concatenate(there, dtype=np.float32) if there else np.empty(0, np.float32)
    missing = pa.array([array is None for array in arrays])
    return pa.ListArray.from_arrays(offsets(sizes), pa.array(flat), mask=missing)


def offsets(sizes: Sequence[int]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int32))


@dataclass(frozen=True)
class Results:
    """The shards of a run's folder."""

    folder: Path
    explained: tuple[Path, ...]
    scored: tuple[Path, ...]
    about: dict[str, Any]

    @property
    def files(self) -> tuple[Path, ...]:
        return *self.explained, *self.scored

    def skipped(self) -> list[dict[str, str]]:
        """The images that could not be read, each with its reason, in order and once."""
        found = [item for file in self.files for item in read_about(file)["skipped"]]
        return sorted({item["path"]: item for item in found}.values(), key=lambda item: item["path"])

    def rows(self, files: Iterable[Path] | None = None) -> Iterator[Row]:
        """Rows one by one, explained ones first; a row group at a time is in memory."""
        for file in self.files if files is None else files:
            yield from read_rows(file)

    def columns(self, names: Sequence[str]) -> Iterator[dict[str, list[Any]]]:
        """Some columns of all rows, a row group at a time."""
        for file in self.files:
            with pq.ParquetFile(file) as parquet:
                for group in range(parquet.num_row_groups):
                    yield parquet.read_row_group(group, columns=list(names)).to_pydict()

    def __len__(self) -> int:
        return sum(pq.read_metadata(file).num_rows for file in self.files)

    def explained_count(self) -> int:
        return sum(pq.read_metadata(file).num_rows for file in self.explained)


def open_results(folder: Path | str) -> Results:
    """The results below a run's folder."""
    inner = Path(folder) / FOLDER
    explained, scored = (tuple(sorted(inner.glob(f"{name}-*.parquet"))) for name in (EXPLAINED, SCORED))
    if not explained and not scored:
        raise DataNotFoundError(
            f"There are no results in {folder}: it has no {FOLDER}/*.parquet. Make them with `dubium explain ... --out "
            f"{folder}`."
        )
    return Results(Path(folder), explained, scored, read_about((explained or scored)[0]))


def read_about(file: Path) -> dict[str, Any]:
    """The settings in a shard's metadata, and what was skipped."""
    try:
        about = json.loads((pq.read_metadata(file).metadata or {})[b"dubium"])
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise FileFormatError(
            f"{file} is damaged or not a shard of dubium's ({error}). Delete it and run the command again."
        ) from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise FileFormatError(f"{file} is not of format {FORMAT}, the one that this dubium reads. Upgrade dubium.")
    return about


def read_rows(file: Path) -> Iterator[Row]:
    """The rows of one shard."""
    try:
        with pq.ParquetFile(file) as parquet:
            for group in range(parquet.num_row_groups):
                yield from as_rows(parquet.read_row_group(group))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise FileFormatError(f"{file} is damaged ({error}). Delete it and run the command again.") from error


def as_rows(table: pa.Table) -> Iterator[Row]:
    """The inverse of `as_table`."""
    arrays = {"probs", "members", *(f"map_{kind}" for kind in KINDS)}
    plain = {name: table[name].to_pylist() for name in SCHEMA.names if name not in arrays}
    for index in range(len(table)):
        values: dict[str, Any] = {name: column[index] for name, column in plain.items()}
        shape = values["height"], values["width"]
        values["probs"] = numbers(table["probs"][index])
        values["members"] = np.stack([numbers(member) for member in table["members"][index]])
        for kind in KINDS:
            cell = table[f"map_{kind}"][index]
            values[f"map_{kind}"] = numbers(cell).reshape(shape) if cell.is_valid else None
        yield Row(**values)


def numbers(cell: pa.ListScalar) -> Array:
    return np.asarray(cell.values.to_numpy(zero_copy_only=False), np.float32)
