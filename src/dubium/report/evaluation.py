"""A page about an evaluation: its table, its comparisons and its figures, from its folder alone."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dubium.errors import FileFormatError
from dubium.evaluation.summary import read_summary
from dubium.files import write_atomically
from dubium.reading import read_regular_file
from dubium.registry import CONTROLS
from dubium.report.page import FILE, html_document, page_header

SUMMARY = "summary.json"
FIGURE = 2**26  # bytes of a figure


def is_evaluation(folder: Path | str) -> bool:
    return (Path(folder) / SUMMARY).is_file()


def write_evaluation_page(folder: Path | str, *, title: str | None = None) -> Path:
    """Write `folder/index.html` from what `dubium evaluate` left there.

    Returns:
        The page's file.
    """
    folder = Path(folder)
    try:
        summary = read_summary(folder)
        title = title or f"{summary['protocol'].capitalize()}: which method finds the doubt?"
        body = [
            page_header(title, "Estimates with 95 % intervals. Compare with the controls, not with zero.", []),
            "<main><h2>Results</h2>",
            html_table(["", *metric_names(summary)], result_cells(summary)),
            "".join(f"<p>{escape(str(note))}</p>" for note in summary["notes"]),
            "<h2>Differences between methods</h2>",
            html_table(
                ["metric", "", "difference", "p (Holm)", "effect"], map(comparison_cells, summary["comparisons"])
            ),
            "<h2>Figures</h2>",
            "".join(png_element(path) for path in sorted(folder.glob("*.png")) if not path.is_symlink()),
            "<details><summary>Settings and versions</summary><pre>",
            escape(json.dumps({name: summary[name] for name in ("settings", "versions")}, indent=1)),
            "</pre></details></main>",
        ]
    except FileFormatError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(
            f"{folder / SUMMARY} is damaged, or not of dubium evaluate ({type(error).__name__}: {error})."
        ) from error
    write_atomically(folder / FILE, html_document(title, "".join(body)))
    return folder / FILE


def metric_names(summary: Mapping[str, Any]) -> list[str]:
    """Every metric that some method has, in the order of first appearance."""
    return list(dict.fromkeys(name for found in summary["results"].values() for name in found))


def result_cells(summary: Mapping[str, Any]) -> list[list[str]]:
    names = metric_names(summary)
    return [
        [method_name(method), *[interval_text(found[name]) if name in found else "" for name in names]]
        for method, found in summary["results"].items()
    ]


def method_name(label: str) -> str:
    """A method's label, with a word where it is a control."""
    return f"{label} (control)" if label.partition(":")[0] in CONTROLS else label


def interval_text(found: Mapping[str, float]) -> str:
    return f"{found['value']:.3g} [{found['low']:.3g}, {found['high']:.3g}]"


def comparison_cells(one: Mapping[str, Any]) -> list[str]:
    difference = interval_text({"value": one["difference"], "low": one["low"], "high": one["high"]})
    return [one["metric"], f"{one['a']} − {one['b']}", difference, f"{one['p_holm']:.3g}", f"{one['effect']:.2f}"]


def html_table(head: Sequence[str], rows: Any) -> str:
    """A table that scrolls by itself where it is wider than the screen."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f'<div style="overflow-x:auto"><table><thead>{line(head, "th")}</thead><tbody>{body}</tbody></table></div>'


def png_element(path: Path) -> str:
    """A figure of the folder itself: a link may lead to any file of the reader's."""
    content = read_regular_file(path, most=FIGURE)
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        raise FileFormatError(f"{path} is damaged, or not a PNG. Draw it again with the same `dubium evaluate`.")
    data, name = b64encode(content).decode(), escape(path.stem)
    return f'<figure><img src="data:image/png;base64,{data}" alt="{name}" style="max-width:100%"></figure>'
