"""Results in the terminal."""

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from rich.table import Table

from dubium.run.store import Results, Row
from dubium.types import KINDS


def rows_table(rows: Iterable[Row], names: Sequence[str] | None, first: str) -> Table:
    """A line per image: what the networks say, and how unsure they are."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("image")
    table.add_column("says")
    table.add_column("sure", justify="right")
    table.add_column("is")
    for kind in KINDS:
        table.add_column(kind, justify="right", style="bold" if kind == first else None)
    table.add_column("networks' votes")
    for row in rows:
        label = "" if row.label is None else called(names, row.label)
        mark = "" if row.label is None else "green" if row.label == row.prediction else "red"
        votes = " ".join(called(names, int(k)) for k in row.members.argmax(1)[:9])
        table.add_row(
            f"#{row.id}" if row.path is None else PurePath(row.path).name,
            called(names, row.prediction),
            f"{row.probs[row.prediction]:.0%}",
            f"[{mark}]{label}[/{mark}]" if mark else label,
            *(f"{score:.3f}" for score in row.scores().values()),
            votes + (" …" if len(row.members) > 9 else ""),
        )
    return table


def called(names: Sequence[str] | None, index: int) -> str:
    return names[index] if names and index < len(names) else str(index)


def as_json(row: Row) -> dict[str, Any]:
    """A row's numbers without its maps."""
    return {
        "id": row.id,
        "path": row.path,
        "label": row.label,
        "prediction": row.prediction,
        **row.scores(),
        "probs": row.probs.tolist(),
    }


def most_uncertain(results: Results, kind: str, count: int) -> list[Row]:
    """The rows with the highest scores, without their pictures: of those explained, or of all if none is."""
    ranks = results.ranked(kind, count)
    rows = results.rows(results.explained or results.scored, pictures=False)
    return sorted((row for row in rows if row.id in ranks), key=lambda row: ranks[row.id])
