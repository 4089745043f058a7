"""Cells of the page: our number with its interval, the paper's, and the difference."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dubium.reproduce.entries import Entry
from dubium.reproduce.paper import paper_value, read_paper
from dubium.reproduce.result import read_result
from dubium.reproduce.rows import PaperRow

EFFORT = ("steps", "samples", "starts")
"""Options that say how much work a method does, not what it is."""


@dataclass(frozen=True)
class Cell:
    """One number of a table: ours (value and interval, or whether a property holds) and the paper's; None if absent."""

    measured: Mapping[str, Any] | None
    paper: Any

    @property
    def difference(self) -> float | None:
        if self.measured is None or not isinstance(self.paper, float | int):
            return None
        return float(self.measured["value"] - self.paper)

    def text(self) -> str:
        """`ours [low, high] / paper (difference)`; a dash stands for what is not there."""
        if self.measured is not None and "holds" in self.measured:
            return property_text(self.measured, self.paper)
        parts = ["–" if self.measured is None else measured_text(self.measured)]
        if self.paper is not None:
            parts.append(f"/ {number_text(self.paper)}")
        if self.difference is not None:
            parts.append(f"({signed_text(self.difference, 2 if self.paper >= 10 else 3)})")
        return " ".join(parts)


def property_text(measured: Mapping[str, Any], paper: Any) -> str:
    """Yes or no with the number behind it; bold where the paper says otherwise."""
    answer = "yes" if measured["holds"] else "no"
    text = f"{answer} ({measured['value']:.2g})" + (f" / {paper.lower()}" if paper else "")
    return f"**{text}**" if paper and paper.lower().rstrip("*") != answer else text


def measured_text(found: Mapping[str, Any]) -> str:
    low, high = found.get("low"), found.get("high")
    if low is None or high is None:
        return number_text(found["value"])
    interval = f" [{number_text(low)}, {number_text(high)}]" if low < high else ""  # one image or seed has none
    return f"**{number_text(found['value'])}**{interval}"


def number_text(value: Any, digits: int | None = None) -> str:
    """Three digits after the point, without the zero before it; two from 10 on.

    Args:
        digits: another number of them.

    >>> number_text(0.6484), number_text(91.954), number_text(-0.5)
    ('.648', '91.95', '-.500')
    """
    if isinstance(value, str):
        return value.lower()
    digits = digits or (2 if abs(value) >= 10 else 3)
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def signed_text(value: float, digits: int | None = None) -> str:
    return ("+" if value >= 0 else "−") + number_text(abs(value), digits)


@dataclass(frozen=True)
class TableGroup:
    """The columns of one dataset (or dataset and number of images) of one table, with every row's cells."""

    entry: str
    table: str
    name: str
    metrics: tuple[str, ...]
    rows: Mapping[str, tuple[Cell, ...]]
    added_rows: frozenset[str]  # that the paper does not have
    results: tuple[Mapping[str, Any], ...]  # the result files that the cells come from
    tag: str = ""  # of other networks or images than the entry's own

    def cells(self) -> Iterator[Cell]:
        """The cells of the paper's rows."""
        for name, cells in self.rows.items():
            if name not in self.added_rows:
                yield from cells

    @property
    def is_measured(self) -> bool:
        return any(cell.measured is not None for cell in self.cells())


def entry_groups(entry: Entry, results: Path, scale: str) -> list[TableGroup]:
    """Every group of an entry's tables, in the order of the paper."""
    found = []
    for table in entry.tables:
        columns = read_paper()["tables"][table]["columns"]
        for name in dict.fromkeys(column.rpartition("/")[0] for column in columns):
            mine = [column for column in columns if column.rpartition("/")[0] == name]
            found.append(make_group(entry, table, name, mine, results, scale))
            for path in sorted(results.glob(f"{entry.name}-{name}@*.json")):
                tag = path.stem.partition("@")[2]
                found.append(make_group(entry, table, name, mine, results, scale, tag))
    return found


def make_group(
    entry: Entry, table: str, name: str, columns: list[str], results: Path, scale: str, tag: str = ""
) -> TableGroup:
    """The cells of one group, read from the results that are there."""
    paper, added = entry.rows(scale), entry.added_rows(scale)
    percent = bool(read_paper()["tables"][table].get("percent"))
    files: dict[str, Mapping[str, Any]] = {}
    rows: dict[str, tuple[Cell, ...]] = {}
    for label, row in {**paper, **added}.items():
        cells = []
        for column in columns:
            measured = find_number(entry, row, column, results, tag, files)
            value = None if tag and label in added else paper_value(table, label, column) if label in paper else None
            cells.append(Cell(scale_percent(measured, percent and column.endswith("accuracy")), value))
        if not (tag and all(cell.measured is None for cell in cells)):
            rows[label] = tuple(cells)
    metrics = tuple(column.rpartition("/")[2] for column in columns)
    return TableGroup(entry.name, table, name, metrics, rows, frozenset(added), tuple(files.values()), tag)


def find_number(
    entry: Entry, row: PaperRow, column: str, results: Path, tag: str, files: dict[str, Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """Our number of a cell, if it was measured; results of other networks may have a method with other options."""
    job, label, metric = entry.source(row, column)
    job = f"{job}@{tag}" if tag else job
    if job not in files:
        content = read_result(results, job)
        if content is None:
            return None
        files[job] = content
    by_label = files[job]["results"]
    found: Mapping[str, Any] | None = by_label.get(label_among(by_label, label), {}).get(metric)
    return found


def label_among(labels: Iterable[str], label: str) -> str:
    """The label itself if it is there, or the same method with other numbers of steps."""
    known = list(labels)
    return label if label in known else next((other for other in known if is_same_method(other, label)), label)


def is_same_method(first: str, second: str) -> bool:
    """Whether two texts name one method, with other numbers of steps, samples or starts at most.

    >>> is_same_method("blur-ig:steps=20", "blur-ig"), is_same_method("ig:start=blur", "ig")
    (True, False)
    """
    kept = [[part for part in text.split(":") if part.partition("=")[0] not in EFFORT] for text in (first, second)]
    return kept[0] == kept[1]


def tag_words(tag: str) -> str:
    """What a tag of a result file means: other images, or networks of that name.

    >>> tag_words("100-images"), tag_words("svhn-11")
    ('100 other images', 'networks svhn-11')
    """
    count, _, noun = tag.partition("-")
    return f"{count} other images" if noun == "images" else f"networks {tag}"


def scale_percent(found: Mapping[str, Any] | None, percent: bool) -> Mapping[str, Any] | None:
    """A share in per cent, where the paper prints per cent."""
    return {name: 100 * value for name, value in found.items()} if found is not None and percent else found
