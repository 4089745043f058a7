"""The first page of `dubium evaluate all`: one table over the protocols, and links to their own pages."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dubium.checks import count_text
from dubium.data.dataset import GIVEN
from dubium.evaluation.overview import FILE as OVERVIEW
from dubium.evaluation.overview import read_overview
from dubium.figures import three_digits
from dubium.files import write_atomically
from dubium.folder_lock import own_folder
from dubium.protocols import TOGETHER
from dubium.report.evaluation import html_table, is_evaluation, method_name, notes_html, write_evaluation_page
from dubium.report.evaluation_words import QUESTIONS
from dubium.report.page import FILE, html_document, page_header

TITLE = "Which method finds the doubt?"
LEAD = (
    "Every row is a metric, every column a method. Ranks are in brackets, and equal values share the mean of their "
    "ranks; = is not significantly worse than the first (Holm). Compare with the controls."
)


def is_overview(folder: Path | str) -> bool:
    return (Path(folder) / OVERVIEW).is_file()


def write_overview_pages(folder: Path | str, *, title: str | None = None) -> Path:
    """Write the page of each protocol, and `folder/index.html` over them, from what `evaluate_all` left there.

    Returns:
        The page over all protocols.
    """
    folder = Path(folder)
    found = read_overview(folder)
    named = dict.fromkeys([*found.get("images", ()), *(cell["protocol"] for cell in found["cells"])])
    protocols = [name for name in named if name in TOGETHER and is_evaluation(folder / name)]
    for name in protocols:
        with own_folder(folder / name):
            write_evaluation_page(folder / name)
    return write_overview_page(folder, found, protocols, title=title or TITLE)


def write_overview_page(
    folder: Path, overview: Mapping[str, Any], protocols: Sequence[str], *, title: str = TITLE
) -> Path:
    """Write `folder/index.html`.

    Args:
        overview: what `evaluate_all` returns.
        protocols: those that have a page in a folder of their own.
    """
    left_out = [note for name, notes in overview["notes"].items() if name not in protocols for note in notes]
    measured = {cell["protocol"] for cell in overview["cells"]}
    without_row = [no_row_text(name, overview["notes"].get(name, ())) for name in protocols if name not in measured]
    links = [f"<li>{protocol_line(name, overview)}</li>" for name in protocols]
    given = overview.get("dataset", GIVEN)
    source = "" if given == GIVEN else f" Images of {given}."
    scale = f" Scale {overview['scale']}." if "scale" in overview else ""
    body = [
        page_header(title, escape(LEAD + source + scale), []),
        f'<main><h2 id="protocols">Protocols</h2><ul>{"".join(links)}</ul>',
        notes_html([*left_out, *without_row]),
        f'<h2 id="results">Results</h2>{overview_table(overview)}</main>',
    ]
    write_atomically(folder / FILE, html_document(title, "".join(body)))
    return folder / FILE


def protocol_line(name: str, overview: Mapping[str, Any]) -> str:
    """A link to a protocol's page, its question, and on how many images it was asked."""
    count = overview.get("images", {}).get(name)
    images = f" {count_text(count, 'image')}." if count else ""
    return f'<a href="{name}/{FILE}">{name}</a>: {escape(QUESTIONS[name] + images)}'


def no_row_text(name: str, notes: Sequence[str]) -> str:
    """Why a protocol that was run has no row: what it noted itself."""
    return " ".join([f"{name} has no row below: what the table shows of it could not be measured here.", *notes])


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
