"""A shard: a Parquet file of rows, with the settings that made them in its metadata. Its schema, writing and reading.

Rows go to disk as they come, and the file appears whole or not at all. What is read is checked, whoever wrote it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dubium.errors import FileFormatError
from dubium.files import written_atomically
from dubium.kinds import KINDS
from dubium.reading import open_regular_file, parse_json
from dubium.run.row import REGION, RegionRow, Row
from dubium.run.shard_checks import (
    MAPS,
    REGION_KINDS,
    TEXT_COLUMNS,
    TEXTS,
    check_about,
    check_layout,
    check_rows,
    expand_texts,
)
from dubium.seals import BLANK_SEAL, LARGEST, SEAL, check_seal, damage_of, seal_file

FORMATS = (1, 2, 3)  # the second has a seal, regions and advice; in the third maps have the networks' size
FORMAT = FORMATS[-1]
KEY = "dubium"
FLUSH = 32 * 2**20  # bytes of numbers to collect before a row group is written

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
        *((name, NUMBERS) for name in MAPS),
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
PICTURES = (*MAPS, "thumbnail")


@dataclass
class ShardWriter:
    """A Parquet file that is being written."""

    writer: pq.ParquetWriter
    rows: list[Row] = field(default_factory=list)
    bytes: int = 0
    skipped: list[dict[str, str]] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Take a row; a row group is written when enough have come."""
        self.rows.append(row)
        self.bytes += sum(value.nbytes for value in vars(row).values() if isinstance(value, np.ndarray))
        if self.bytes >= FLUSH:
            self.flush()

    def skip(self, path: str, reason: str) -> None:
        """Remember, in the file, an image that could not be read."""
        self.skipped.append({"path": path, "reason": reason})

    def flush(self) -> None:
        if self.rows:
            self.writer.write_table(table_of_rows(self.rows, self.writer.schema))
        self.rows, self.bytes = [], 0


@contextmanager
def open_shard(path: Path | str, about: Mapping[str, Any], schema: pa.Schema = SCHEMA) -> Iterator[ShardWriter]:
    """A shard to add rows to; it becomes `path` when the block ends, and vanishes if the block raises."""
    options = {"compression": "zstd", "use_dictionary": ["path"], "write_page_checksum": True}
    with written_atomically(path) as beside:
        with pq.ParquetWriter(beside, schema, **options) as writer:
            shard = ShardWriter(writer)
            yield shard
            shard.flush()
            content = {"format": FORMAT, **about, "skipped": shard.skipped, SEAL: BLANK_SEAL}
            writer.add_key_value_metadata({KEY: json.dumps(content, allow_nan=False)})
        seal_file(beside)


def table_of_rows(rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows as columns of the schema; arrays become lists without a Python object per number."""
    columns: dict[str, list[Any]] = {field.name: [getattr(row, field.name) for row in rows] for field in fields(Row)}
    columns["members"] = [list(members) for members in columns["members"]]
    columns["regions"] = [
        None if cells is None else [asdict(region) for region in cells] for cells in columns["regions"]
    ]
    for name in MAPS:
        columns[name] = [None if values is None else np.ravel(values) for values in columns[name]]
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


def read_rows(file: Path, columns: Sequence[str] | None = None) -> Iterator[Row]:
    """The rows of one shard, the inverse of `table_of_rows`; the pictures may be left out of the columns."""
    for table in read_groups(file, columns):
        maps = [name for name in MAPS if name in table.column_names]
        others = [name for name in table.column_names if name not in ("probs", "members", *maps)]
        lists = {name: table[name].to_pylist() for name in others}
        for index in range(len(table)):
            values: dict[str, Any] = dict.fromkeys(PICTURES) | {name: cells[index] for name, cells in lists.items()}
            values["probs"] = np.asarray(table["probs"][index].values, np.float32)
            values["members"] = np.stack([np.asarray(one.values, np.float32) for one in table["members"][index]])
            for name in maps:
                if (cell := table[name][index]).is_valid:
                    values[name] = np.asarray(cell.values, np.float32).reshape(values["height"], values["width"])
            if values.get("regions") is not None:
                regions = values["regions"]
                values["regions"] = tuple(RegionRow(**{**cell, "counts": tuple(cell["counts"])}) for cell in regions)
            if "seen" in values:
                values["seen"] = tuple(values["seen"])
            yield Row(**values)


def read_groups(file: Path, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    """The row groups of a shard that have rows, one at a time: pages verified, values checked."""
    try:
        with open_regular_file(file, most=LARGEST) as source:
            layout = open_parquet(source)
            check_layout(layout, SCHEMA)
            there = layout.schema_arrow.names  # a shard of an older format has fewer columns
            texts = [name for name in (*TEXT_COLUMNS, REGION_KINDS) if name.partition(".")[0] in there]
            parquet = open_parquet(source, read_dictionary=texts)
            for group in range(parquet.num_row_groups):
                wanted = [name for name in there if columns is None or name in columns]
                table = parquet.read_row_group(group, columns=wanted, use_threads=False)  # a group is small
                table = expand_texts(table)
                check_rows(table)
                if len(table):
                    yield table
    except FileFormatError:
        raise
    except Exception as error:  # what Arrow raises depends on the byte that is wrong
        raise FileFormatError(f"{file} is damaged ({error!s:.300}). Delete it and run the command again.") from error


def open_parquet(source: Any, **options: Any) -> pq.ParquetFile:
    """An open file as Parquet; its page checksums are compared, where it has some."""
    limits = {"thrift_string_size_limit": TEXTS, "thrift_container_size_limit": 10**6}
    return pq.ParquetFile(source, page_checksum_verification=True, **limits, **options)


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
