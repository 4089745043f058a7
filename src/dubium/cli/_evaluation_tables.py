"""What `dubium evaluate` prints."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dubium.cli._text import text_cell
from dubium.registry import CONTROL_NAMES

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_summary(summary: Mapping[str, Any], out: Path) -> None:
    """The results as a table, and where they are."""
    from rich.console import Console

    results = summary["results"]
    metrics = list(dict.fromkeys(metric for found in results.values() for metric in found if "-me" not in metric))
    console = Console()
    where, intervals = "95 % intervals in brackets", is_narrow(console, results_table(results, metrics, intervals=True))
    if not any(has_interval(one) for found in results.values() for one in found.values()):
        where = f"Numbers: {out / 'results.csv'}"
    elif not intervals:
        where = f"95 % intervals: {out / 'results.csv'}"
    while metrics:  # as many beside each other as can be read
        sizes = range(len(metrics), 0, -1)
        tables = (results_table(results, metrics[:size], intervals=intervals) for size in sizes)
        table = next((table for table in tables if is_narrow(console, table)), None)
        table = table or results_table(results, metrics[:1], intervals=intervals)
        console.print(table)
        metrics = metrics[len(table.columns) - 1 :]
    for note in summary["notes"]:
        console.print(text_cell(note))
    console.print(text_cell(f"{where}; comparisons: {out / 'comparisons.csv'}. Open {out / 'index.html'}."))


def is_narrow(console: "Console", table: "Table") -> bool:
    """Whether a table fits the terminal; folded, nobody could read it."""
    unlimited = console.options.update(max_width=10_000)  # a measure is never above the limit
    return console.measure(table, options=unlimited).maximum <= console.width


def results_table(results: Mapping[str, Any], metrics: Sequence[str], *, intervals: bool) -> "Table":
    """A line for each method, with intervals or without."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method", overflow="fold", min_width=16)
    for metric in metrics:
        table.add_column(metric, overflow="fold", justify="left" if intervals else "right")
    for method, found in results.items():
        name = f"{method} (control)" if method.partition(":")[0] in CONTROL_NAMES else method
        table.add_row(text_cell(name), *(_interval_cell(found.get(metric), intervals=intervals) for metric in metrics))
    return table


def print_overview(overview: Mapping[str, Any], out: Path) -> None:
    """A row for each metric, a column for each method: value and rank; `=`: not significantly worse than the first."""
    from rich.console import Console
    from rich.table import Column, Table

    methods = list(dict.fromkeys(cell["method"] for cell in overview["cells"]))
    controls = {cell["method"] for cell in overview["cells"] if cell["control"]}
    heads = [f"{method} (control)" if method in controls else method for method in methods]
    table = Table("metric", *(Column(text_cell(head)) for head in heads), box=None, pad_edge=False, header_style="bold")
    by_metric: dict[str, dict[str, Any]] = {}
    for cell in overview["cells"]:
        by_metric.setdefault(f"{cell['protocol']} {cell['metric']}", {})[cell["method"]] = cell
    for metric, found in by_metric.items():
        table.add_row(metric, *(_rank_cell(found.get(method)) for method in methods))
    ranks = overview["mean ranks"]
    table.add_row("mean rank", *(f"{ranks[method]:.1f}" if method in ranks else "" for method in methods))
    console = Console()
    console.print(table)
    console.print(
        "Ranks in brackets, equal values share their mean; = is not significantly worse than the first (Holm).",
        highlight=False,
    )
    console.print(text_cell(f"Numbers: {out / 'overview.json'}, overview.csv. Open {out / 'index.html'}."))


def _rank_cell(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    rank = "" if cell["rank"] is None else f" [{cell['rank']:g}{'=' * cell['level']}]"
    return f"{cell['value']:#.3g}{rank}".replace("[", r"\[")


def _interval_cell(found: Mapping[str, float] | None, *, intervals: bool) -> str:
    if found is None:
        return ""
    is_shown = intervals and has_interval(found)
    return f"{found['value']:#.3g}" + (f" [{found['low']:#.3g}, {found['high']:#.3g}]" if is_shown else "")


def has_interval(found: Mapping[str, float]) -> bool:
    """Whether a value has one: that of one image or seed has none."""
    return found["low"] < found["high"]
