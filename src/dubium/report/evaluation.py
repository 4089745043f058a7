"""A page about an evaluation: its table, its comparisons and its figures, from its folder alone."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dubium.data.samples import GIVEN
from dubium.errors import FileFormatError
from dubium.evaluation.overview import is_control
from dubium.evaluation.shards import file_name
from dubium.evaluation.summary import read_summary
from dubium.figures import three_digits
from dubium.files import write_atomically
from dubium.reading import read_regular_file
from dubium.report.interval_chart import interval_chart
from dubium.report.page import FILE, html_document, jump_links, page_header
from dubium.report.panels import panel_html

SUMMARY = "summary.json"
FIGURE = 2**26  # bytes of a figure
LEVEL = 0.05  # of significance
QUESTIONS = {
    "blurring": "Does the doubt go when the pixels that a method blames for it are blurred?",
    "removal": "What becomes of doubt and prediction when the blamed pixels are taken away?",
    "anomaly": "Is a patch found that was pasted into the image?",
    "masks": "Do the maps agree with the masks that were given?",
    "sanity": "Do the maps depend on the networks at all, and are they the same when made again?",
    "causes": "Does each kind's map point at its own cause, at a known place?",
    "mitigation": "Does training with the maps make better networks?",
}
MEANINGS = {
    "murr": "Doubt that is gone at the best blur, median over images.",
    "auc-urr": "Doubt that is left while the blur grows, mean of the median curve.",
    "accuracy": "Share of right predictions when the blamed pixels are gone.",
    "true-probability": "Probability of the right class when the blamed pixels are gone.",
    "srg": "Doubt left without the least relevant pixels minus doubt left without the most relevant ones.",
    "iou": "Overlap of the guess and the place, over their union.",
    "ada": "How often the overlap is above one half.",
    "recovery": "How often the old prediction returns when the guess is removed.",
    "nll": "Negative log likelihood of test images.",
    "ece": "Calibration error of test images.",
}
"""Of metrics whose name does not say it, by the name's first part."""

FIGURES = {
    "urr": "Doubt that is left while the blamed pixels are blurred",
    "boxes": "Where the patch was pasted, and where each method guesses it",
    "removal": "Doubt that is left while pixels are taken away",
    "cascade": "How like itself a map is when layers are randomised",
    "causes": "Two causes in one image: a mark that is ambiguous (blue) and a patch that is unknown (orange)",
    "two-by-two": "How often each kind's map points at each cause",
    "attention": "What networks are trained to look at, over the images",
    "arms": "Test images with and without maps in training",
}
"""Titles of figures about all methods."""


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
            '<h2 id="figures">Figures</h2>',
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
    if isinstance(images := settings.get("images"), int):
        source = settings.get("dataset")
        parts.append(f"{images:,} images" + (f" of {source}." if source and source != GIVEN else "."))
    if members := settings.get("members"):
        parts.append(f"{members} networks.")
    parts.append("Dots are estimates, lines their 95 % intervals. Compare with the controls (grey), not with zero.")
    return " ".join(part for part in parts if part)


def shown_metrics(summary: Mapping[str, Any]) -> list[str]:
    """The metrics that get a chart: all but those that are another one taken by means or medians."""
    names = metric_names(summary)
    return [name for name in names if not any(part in name for part in ("-mean", "-median"))]


def metric_panel(summary: Mapping[str, Any], metric: str) -> str:
    """A chart of one metric, and which way is better."""
    rows = [(label, found[metric], is_control(label)) for label, found in summary["results"].items() if metric in found]
    better = summary.get("better", {}).get(metric)
    words = MEANINGS.get(metric.partition("@")[0].partition("/")[0], "")
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


def interval_text(found: Mapping[str, float]) -> str:
    value, low, high = (three_digits(found[part]) for part in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def comparison_cells(one: Mapping[str, Any]) -> list[str]:
    difference = interval_text({"value": one["difference"], "low": one["low"], "high": one["high"]})
    return [one["metric"], f"{one['a']} − {one['b']}", difference, three_digits(one["p_holm"]), f"{one['effect']:.2f}"]


def html_table(head: Sequence[str], rows: Any) -> str:
    """A table that scrolls by itself where it is wider than the screen."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f'<div style="overflow-x:auto"><table><thead>{line(head, "th")}</thead><tbody>{body}</tbody></table></div>'


def figures_html(folder: Path, summary: Mapping[str, Any]) -> str:
    """The folder's figures: those about all methods, then those of each, two beside each other."""
    start, labels = f"{summary['protocol']}-", {file_name(label): label for label in summary["results"]}
    files = [path for path in sorted(folder.glob("*.png")) if not path.is_symlink()]
    single = [path for path in files if path.stem.startswith(start)]
    order = {f"{start}{name}": place for place, name in enumerate(labels)}
    single.sort(key=lambda path: order.get(path.stem, len(order)))
    overall = "".join(png_panel(path, FIGURES.get(path.stem, path.stem)) for path in files if path not in single)
    names = [path.stem.removeprefix(start) for path in single]
    panels = "".join(png_panel(path, labels.get(name, name)) for path, name in zip(single, names, strict=True))
    return overall + (f'<div class="plots figures">{panels}</div>' if panels else "")


def png_panel(path: Path, title: str) -> str:
    """A figure of the folder itself, not of where a link leads to: that may be any file of the reader's."""
    content = read_regular_file(path, most=FIGURE)
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        raise FileFormatError(f"{path} is damaged, or not a PNG. Draw it again with the same `dubium evaluate`.")
    picture = f'<img class="figure" src="data:image/png;base64,{b64encode(content).decode()}" alt="{escape(title)}">'
    return f'<section class="panel"><h3>{escape(title)}</h3>{picture}</section>'
