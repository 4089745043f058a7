"""The suite's JSON lines: reading them, finding a cell, and how time and memory grow."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.suite.cells import GROWTH, Cell

Line = dict[str, Any]
NAMES = {"mnist-cnn": "MNIST CNN", "resnet20": "ResNet-20", "resnet18": "ResNet-18"}


def read(results: Path) -> list[Line]:
    return [json.loads(text) for text in results.read_text().splitlines()]


def latest(lines: list[Line]) -> list[Line]:
    """Those of the newest run: numbers of different code or machines do not belong in one table."""
    same = ("commit", "cpu", "threads", "torch")
    return [line for line in lines if all(line[name] == lines[-1][name] for name in same)]


def of(lines: list[Line], part: str) -> list[Line]:
    return [line for line in lines if line["part"] == part]


def find(lines: list[Line], cell: Cell, part: str = "explain", **more: object) -> Line:
    """The cell's last line, or an empty one."""
    about = {"part": part} | cell.about() | more
    return next((line for line in reversed(lines) if about.items() <= line.items()), {})


def title(line: Line) -> str:
    return f"{NAMES[line['network']]}, K = {line['K']}, S = {line['S']}"


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Of a power law: the slope of least squares through the logarithms."""
    slope, _ = np.polyfit(np.log(sizes), np.log(values), 1)
    return float(slope)


def series(lines: list[Line]) -> dict[tuple[str, str], list[tuple[int, Line]]]:
    """Measured cells of each growth: what was varied, and the line."""
    found: dict[tuple[str, str], list[tuple[int, Line]]] = {}
    for (network, axis), cells in GROWTH.items():
        pairs = [(cell.side**2 if axis == "pixels" else getattr(cell, axis), find(lines, cell)) for cell in cells]
        found[network, axis] = [(size, line) for size, line in pairs if "seconds" in line]
    return found


def taken(line: Line, axis: str) -> float:
    """Time in forward passes, measured beside each call: the pace of a shared machine changes from cell to cell.

    More pixels make forward passes longer, too: there, in seconds.
    """
    return float(line["seconds"] if axis == "pixels" else line["ratio"] * line["S"] * line["K"] * line["B"])


def exponents(lines: list[Line]) -> dict[tuple[str, str], tuple[float, float]]:
    """Of time and of memory, where at least three cells were measured."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for name, pairs in series(lines).items():
        if len(pairs) > 2:
            sizes = [size for size, _ in pairs]
            peaks = [max(1.0, line["peak_mib"]) for _, line in pairs]  # below a mebibyte there is nothing to fit
            found[name] = exponent(sizes, [taken(line, name[1]) for _, line in pairs]), exponent(sizes, peaks)
    return found
