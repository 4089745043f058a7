"""The paper's numbers: tables of `paper.json`, and which of its printed averages do not follow from their rows."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("paper.json")
ROUNDING = 0.5 + 1e-6  # of the last printed digit


@cache
def read_paper() -> dict[str, Any]:
    """`tables`, `figures` and `misprints`.

    >>> read_paper()["tables"]["random"]["rows"]["Random"]
    [0.023, 0.987, 0.011, 0.992]
    """
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def paper_value(table: str, row: str, column: str) -> Any:
    """What the paper prints in one cell; None where it has no such row."""
    content = read_paper()["tables"][table]
    values = content["rows"].get(row)
    return None if values is None else values[content["columns"].index(column)]


@dataclass(frozen=True)
class AverageGap:
    """An average that the paper prints although its rows have another."""

    table: str
    average: str
    row: str
    printed: float
    follows: float


def average_gaps() -> list[AverageGap]:
    """All printed averages that differ from the mean of their columns by more than rounding."""
    gaps = []
    for name, table in read_paper()["tables"].items():
        for label, average in table["averages"].items():
            places = [table["columns"].index(column) for column in average["columns"]]
            digits = 2 if table.get("percent") and label == "accuracy" else 3
            for row, printed in average["printed"].items():
                mean = sum(table["rows"][row][place] for place in places) / len(places)
                if abs(mean - printed) > ROUNDING * 10**-digits:
                    gaps.append(AverageGap(name, label, row, printed, round(mean, 4)))
    return gaps
