"""A page about an evaluation: its table, its comparisons and its figures, from its folder alone."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dubium.checks import count_text
from dubium.data.dataset import GIVEN
from dubium.errors import FileFormatError
from dubium.evaluation.overview import is_control
from dubium.evaluation.protocols.mitigation_arm import NO_ATTENTION
from dubium.evaluation.shards import file_name
from dubium.evaluation.summary import read_summary
from dubium.figures import three_digits
from dubium.files import write_atomically
from dubium.reading import read_regular_file
from dubium.report.evaluation_words import COMPARE, FIGURES, QUESTIONS, TITLES, metric_sentence
from dubium.report.interval_chart import interval_chart, interval_text
from dubium.report.page import FILE, html_document, jump_links, page_header
from dubium.report.panels import panel_html

SUMMARY = "summary.json"
FIGURE = 2**26  # bytes of a figure
LEVEL = 0.05  # of significance


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
        protocol = summary["protocol"]
        title = title or f"{protocol.capitalize()}: {TITLES.get(protocol, 'which method finds the doubt?')}"
        compared = summary["comparisons"]
        body = [
            page_header(title, escape(lead_about_methods(summary)), []),
            '<main><h2 id="results">Results</h2>',
            f'<div class="plots">{"".join(metric_panel(summary, name) for name in shown_metrics(summary))}</div>',
            notes_html(summary["notes"]),
            details_html("All numbers", html_table(["", *metric_names(summary)], result_cells(summary))),
            details_html(
                f"Differences between methods: {sum(one['p_holm'] < LEVEL for one in compared)} of {len(compared)} are "
                f"significant (p < {LEVEL} after Holm's correction)",
                html_table(["metric", "", "difference", "p (Holm)", "effect"], map(comparison_cells, compared)),
            ),
            figures_html(folder, summary),
            details_html("Settings and versions", f"<pre>{escape(settings_text(summary))}</pre>"),
            "</main>",
        ]
    except FileFormatError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(
            f"{folder / SUMMARY} is damaged, or not of dubium evaluate ({type(error).__name__}: {error})."
        ) from error
    write_atomically(folder / FILE, html_document(title, jump_links("".join(body))))
    return folder / FILE


def notes_html(notes: Sequence[Any]) -> str:
    """What the protocol noted, a line each; names between backticks are code."""
    found = [re.sub("`([^`]+)`", r"<code>\1</code>", escape(str(note))) for note in notes]
    return f'<ul class="todo">{"".join(f"<li>{note}</li>" for note in found)}</ul>' if found else ""


def lead_about_methods(summary: Mapping[str, Any]) -> str:
    """The protocol's question, and on what it was asked."""
    settings = summary["settings"]
    parts = [QUESTIONS.get(summary["protocol"], "")]
    images = len(summary.get("images", {}).get("index", ())) or settings.get("images")
    if isinstance(images, int):
        source = settings.get("dataset")
        parts.append(count_text(images, "image") + (f" of {source}." if source and source != GIVEN else "."))
    if members := settings.get("members"):
        parts.append(f"{count_text(members, 'network')}.")
    values = [found for metrics in summary["results"].values() for found in metrics.values()]
    if any(found["low"] < found["high"] for found in values):
        parts.append("Dots are estimates, lines their 95 % intervals.")
    parts.append(COMPARE.get(summary["protocol"], "Compare with the controls (grey), not with zero."))
    return " ".join(part for part in parts if part)


def shown_metrics(summary: Mapping[str, Any]) -> list[str]:
    """The metrics that get a chart: all but those that are another one taken by means or medians."""
    names = metric_names(summary)
    return [name for name in names if not any(part in name for part in ("-mean", "-median"))]


def metric_panel(summary: Mapping[str, Any], metric: str) -> str:
    """A chart of one metric, and which way is better."""
    shown = {label: found[metric] for label, found in summary["results"].items() if metric in found}
    rows = [(label, found, is_control(label) or label == NO_ATTENTION) for label, found in shown.items()]
    better, words = summary.get("better", {}).get(metric), metric_sentence(summary["protocol"], metric)
    words += f" {better.capitalize()} is better." if better else ""
    return panel_html(metric, words.strip(), interval_chart(rows, metric))


def details_html(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def settings_text(summary: Mapping[str, Any]) -> str:
    return json.dumps({name: summary[name] for name in ("settings", "versions")}, indent=1)


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
    return f"{label} (control)" if is_control(label) else label


def comparison_cells(one: Mapping[str, Any]) -> list[str]:
    difference = interval_text({"value": one["difference"], "low": one["low"], "high": one["high"]})
    return [one["metric"], f"{one['a']} − {one['b']}", difference, three_digits(one["p_holm"]), f"{one['effect']:.2f}"]


def html_table(head: Sequence[str], rows: Any) -> str:
    """A table that scrolls by itself where it is wider than the screen."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    table = f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def figures_html(folder: Path, summary: Mapping[str, Any]) -> str:
    """The folder's figures: those about all methods, then those of each, two beside each other; "" without any."""
    start, labels = f"{summary['protocol']}-", {file_name(label): label for label in summary["results"]}
    files = [path for path in sorted(folder.glob("*.png")) if not path.is_symlink()]
    single = [path for path in files if path.stem.startswith(start)]
    order = {f"{start}{name}": place for place, name in enumerate(labels)}
    single.sort(key=lambda path: order.get(path.stem, len(order)))
    overall = "".join(png_panel(path, FIGURES.get(path.stem, path.stem)) for path in files if path not in single)
    names = [path.stem.removeprefix(start) for path in single]
    panels = "".join(png_panel(path, labels.get(name, name)) for path, name in zip(single, names, strict=True))
    if not files:
        return ""
    return f'<h2 id="figures">Figures</h2>{overall}' + (f'<div class="plots figures">{panels}</div>' if panels else "")


def png_panel(path: Path, title: str) -> str:
    """A figure of the folder itself, not of where a link leads to: that may be any file of the reader's."""
    content = read_regular_file(path, most=FIGURE)
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        raise FileFormatError(f"{path} is damaged, or not a PNG. Draw it again with the same `dubium evaluate`.")
    picture = f'<img class="figure" src="data:image/png;base64,{b64encode(content).decode()}" alt="{escape(title)}">'
    return f'<section class="panel"><h3>{escape(title)}</h3>{picture}</section>'
