"""Writing a shard: rows go to disk as they come, and the file appears whole or not at all."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dubium.files import written_atomically
from dubium.kinds import KINDS
from dubium.run.store import FORMAT, KEY, SCHEMA, Row
from dubium.seals import BLANK_SEAL, SEAL, seal_file

FLUSH = 32 * 2**20  # bytes of numbers to collect before a row group is written


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
            self.writer.write_table(table_of_rows(self.rows))
        self.rows, self.bytes = [], 0


@contextmanager
def open_shard(path: Path | str, about: Mapping[str, Any]) -> Iterator[ShardWriter]:
    """A shard to add rows to; it becomes `path` when the block ends, and vanishes if the block raises."""
    options = {"compression": "zstd", "use_dictionary": ["path"], "write_page_checksum": True}
    with written_atomically(path) as beside:
        with pq.ParquetWriter(beside, SCHEMA, **options) as writer:
            shard = ShardWriter(writer)
            yield shard
            shard.flush()
            content = {"format": FORMAT, **about, "skipped": shard.skipped, SEAL: BLANK_SEAL}
            writer.add_key_value_metadata({KEY: json.dumps(content, allow_nan=False)})
        seal_file(beside)


def table_of_rows(rows: Sequence[Row]) -> pa.Table:
    """Rows as columns of the schema; arrays become lists without a Python object per number."""
    columns: dict[str, list[Any]] = {field.name: [getattr(row, field.name) for row in rows] for field in fields(Row)}
    columns["members"] = [list(members) for members in columns["members"]]
    columns["regions"] = [
        None if cells is None else [asdict(region) for region in cells] for cells in columns["regions"]
    ]
    for name in (f"map_{kind}" for kind in KINDS):
        columns[name] = [None if values is None else np.ravel(values) for values in columns[name]]
    return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
