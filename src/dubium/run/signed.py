"""Signed maps of a run: beside each shard of results, one of the same name and form whose maps have signs.

What raises the doubt is above 0, what lowers it below; methods without signed maps have none of these shards. They are
in a folder of their own, so that readers who know nothing of them read the results as ever.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dubium.errors import FileFormatError
from dubium.kinds import KINDS
from dubium.run.row import Row
from dubium.run.shard import check_shard, read_rows
from dubium.run.store import Results

FOLDER = "signed"


def signed_shard(file: Path | str) -> Path:
    """Where the signed maps of a shard's images are, if there are any."""
    return Path(file).parent.parent / FOLDER / Path(file).name


def signed_row(row: Row) -> Row:
    """A row with signed maps in the place of its maps, and without what is in the results already."""
    return replace(row, **map_columns(row.signed or {}), signed=None, thumbnail=None, regions=None, advice=None)


def lowering_row(row: Row) -> Row:
    """The row with what lowers the doubt as its maps: none without signed maps."""
    lowering = {kind: (-values).clip(min=0) for kind, values in (row.signed or {}).items()}
    return replace(row, **map_columns(lowering), signed=None, regions=None, advice=None)


def map_columns(maps: dict[str, Any]) -> dict[str, Any]:
    return {f"map_{kind}": maps.get(kind) for kind in KINDS}


def rows_with_signs(results: Results) -> Iterator[Row]:
    """The explained rows, with signed maps where the run has stored some."""
    for file in results.explained:
        beside = signed_shard(file)
        if not beside.exists():
            yield from results.rows([file])
            continue
        check_shard(beside)
        others = read_rows(beside)
        for row in results.rows([file]):
            other = next(others, None)
            if other is None or (row.id, row.height, row.width) != (other.id, other.height, other.width):
                raise FileFormatError(f"{beside} is not of the images in {file}. Delete it, or run with --fresh.")
            yield replace(row, signed=other.stored_maps())
