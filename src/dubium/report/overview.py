"""The first page of `dubium evaluate all`: one table over the protocols, and links to their own pages."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dubium.figures import three_digits
from dubium.files import write_atomically
from dubium.report.evaluation import html_table, method_name, notes_html
from dubium.report.evaluation_words import QUESTIONS
from dubium.report.page import FILE, html_document, page_header

TITLE = "Which method finds the doubt?"
LEAD = (
    "Every row is a metric, every column a method. Ranks are in brackets, and equal values share the mean of their "
    "ranks; = is not significantly worse than the first (Holm). Compare with the controls."
)


def write_overview_page(folder: Path, overview: Mapping[str, Any], protocols: Sequence[str]) -> Path:
    """Write `folder/index.html`.

    Args:
        overview: what `evaluate_all` returns.
        protocols: those that have a page in a folder of their own.
    """
    left_out = [note for name, notes in overview["notes"].items() if name not in protocols for note in notes]
    links = [f'<li><a href="{name}/{FILE}">{name}</a>: {escape(QUESTIONS[name])}</li>' for name in protocols]
    body = [
        page_header(TITLE, escape(LEAD), []),
        f'<main><h2 id="protocols">Protocols</h2><ul>{"".join(links)}</ul>',
        notes_html(left_out),
        f'<h2 id="results">Results</h2>{overview_table(overview)}</main>',
    ]
    write_atomically(folder / FILE, html_document(TITLE, "".join(body)))
    return folder / FILE


def overview_table(overview: Mapping[str, Any]) -> str:
    """A row for each metric and one of mean ranks, a column for each method."""
    methods = list(dict.fromkeys(cell["method"] for cell in overview["cells"]))
    rows: dict[str, dict[str, str]] = {}
    for cell in overview["cells"]:
        rows.setdefault(f"{cell['protocol']} {cell['metric']}", {})[cell["method"]] = cell_text(cell)
    rows["mean rank"] = {method: f"{rank:.1f}" for method, rank in overview["mean ranks"].items()}
    lines = [[name, *(found.get(method, "") for method in methods)] for name, found in rows.items()]
    return html_table(["", *map(method_name, methods)], lines)


def cell_text(cell: Mapping[str, Any]) -> str:
    rank = "" if cell["rank"] is None else f" [{cell['rank']:g}{'=' * cell['level']}]"
    return f"{three_digits(cell['value'])}{rank}"
