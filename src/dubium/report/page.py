"""One self-contained HTML page about a run: no script is needed to read it, and nothing is fetched from anywhere."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from importlib.resources import files
from math import log
from pathlib import Path, PurePath
from typing import Any

from dubium.choices import DEMO
from dubium.errors import FileFormatError
from dubium.evaluation.metrics.calibration import BINS
from dubium.figures import smooth_words
from dubium.files import write_atomically
from dubium.path_checks import PAGE, PAGE_END
from dubium.registry import UA_BACKPROP
from dubium.report.cards import gallery_section, image_card, image_key
from dubium.report.causes import causes_section
from dubium.report.panels import summary_panels
from dubium.report.run_pairs import check_beside, run_labels
from dubium.report.summary import MeanMap, RunSummary, summarise_results
from dubium.report.what_to_do import what_to_do_section
from dubium.run.groups import ENOUGH
from dubium.run.shard_checks import check_whole_about
from dubium.run.signed import rows_with_signs
from dubium.run.store import Results, class_name, open_results
from dubium.types import KINDS

FILE = PAGE
GALLERY = 200  # cards on a page
FEW = 20  # cards that come before the plots; more of them come after
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
KINDS_HTML = (
    "<p>Uncertainty is measured in nats; total = aleatoric + epistemic.</p><ul>"
    "<li><b>total</b>: all doubt about the class: the entropy of the networks&#x27; mean prediction.</li>"
    "<li><b>aleatoric</b>: doubt that the networks share, because the image itself is ambiguous.</li>"
    "<li><b>epistemic</b>: disagreement between the networks, which more or better training data would reduce.</li>"
    "</ul>"
)
KINDS_ALIKE = (
    "The three maps of ua-backprop are nearly one picture: it weighs the same relevance maps for every kind. "
    "Maps that tell the kinds apart: <code>--method auto</code>."
)
DEMO_WORDS = (
    " Half of these digits are those of MNIST's 10,000 test digits on which the networks disagree most; of all 10,000 "
    "they get 99.05 % right."
)


def write_page(
    folder: Path | str | Results,
    *,
    gallery: int = GALLERY,
    title: str | None = None,
    smooth: float = 0.0,
    beside: Path | str | None = None,
) -> Path:
    """Write `folder/index.html` from `folder/results` alone.

    Args:
        folder: a run's, or its results, which were checked when they were opened.
        gallery: images on the page.
        title: of the page.
        smooth: blur the maps in its pictures by so many of their pixels; what is stored stays as it is.
        beside: the folder of another run over the same images, whose maps are shown below this one's, under the names
            of both methods and the options in which they differ.

    Returns:
        The page's file.
    """
    results = folder if isinstance(folder, Results) else open_results(folder)
    other = None if beside is None else open_results(beside)
    path = results.folder / FILE
    write_atomically(path, run_page(results, gallery=gallery, title=title, smooth=smooth, beside=other))
    return path


def run_page(
    results: Results,
    *,
    gallery: int = GALLERY,
    title: str | None = None,
    smooth: float = 0.0,
    beside: Results | None = None,
) -> str:
    """The HTML of the page about a run."""
    runs = [results] if beside is None else [results, beside]
    for run in runs:
        check_whole_about(run.about, run.folder)
    settings, skipped, explained = results.about["settings"], results.skipped(), results.explained_count()
    ranking, name = settings["kinds"][0], partial(class_name, results.about["classes"])
    methods = [run.about["settings"]["method"] for run in runs]
    labels = [methods[0]] if beside is None else [*run_labels(results, beside)]
    if beside is not None:
        check_beside(results, beside)
    summary, mean, cards = summarise_results(results), MeanMap(labels[0]), dict[int, str]()
    ranks = results.ranks(ranking, gallery) if results.explained else {}
    full_bar = max((max(table["total"]) for table in results.columns(["total"], results.explained)), default=0) or log(
        2
    )
    others = {} if beside is None else {image_key(row): row for row in rows_with_signs(beside)}
    for row in rows_with_signs(results):
        mean.add(row)
        if row.id in ranks:
            other = others.get(image_key(row)) if others else None
            both = None if other is None else {labels[0]: row, labels[1]: other}
            try:
                cards[ranks[row.id]] = image_card(
                    row,
                    name,
                    full_bar,
                    settings["images"],
                    smooth=smooth,
                    methods=both,
                )
            except FileFormatError as error:
                raise FileFormatError(
                    f"The results in {results.folder} are damaged at image {row.id}: {error}"
                ) from error
    title = title or f"What makes it unsure: {images_title(settings)}"
    images = gallery_section(
        [cards[rank] for rank in sorted(cards)], explained, full_bar, ranking, smooth_words(smooth)
    )
    counted = [
        '<h2 id="summary">All images</h2>',
        f'<div class="plots">{"".join(summary_panels(summary, mean, name))}</div>',
        what_to_do_section(results, name),
        causes_section(results, ranking, name, ranks) if explained >= ENOUGH else "",
    ]
    body = [
        page_header(title, lead_text(results, explained, summary, labels), headline_facts(summary, skipped)),
        "<main>",
        skipped_warning(skipped) if skipped else "",
        *([images, *counted] if len(cards) <= FEW else [*counted, images]),
        '<h2 id="made">How it was made</h2>',
        KINDS_HTML,
        f"<p>{KINDS_ALIKE}</p>" if set(methods) == {UA_BACKPROP} else "",
        f"<details><summary>Settings and versions</summary>{settings_table(results.about)}</details>",
        "</main>",
    ]
    return html_document(title, jump_links("".join(body)))


def jump_links(body: str) -> str:
    """The body with links to its sections at the end of its header, where there are some."""
    sections = re.findall(r'<h2 id="([\w-]+)">([^<]+)</h2>', body)
    if len(sections) < 3:
        return body
    links = "".join(f'<a href="#{key}">{words}</a>' for key, words in sections)
    return body.replace("</header>", f'<nav class="jump" aria-label="On this page">{links}</nav></header>', 1)


def page_style(within: str = "{}") -> str:
    """The colours and the rules of pages, the rules set into `within`."""
    colours, rules = (files("dubium.report").joinpath(name).read_text("utf-8") for name in ("colours.css", "page.css"))
    return colours + within.format(rules)


def html_document(title: str, body: str) -> str:
    """A whole HTML document around a body."""
    style, script = page_style(), files("dubium.report").joinpath("page.js").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{style}</style></head><body>'
        f"{body}<footer>{PAGE_END} Nothing on this page is loaded from anywhere else.</footer>"
        f"<script>{script}</script></body></html>\n"
    )


def page_header(title: str, lead: str, facts: Sequence[tuple[str, str]]) -> str:
    items = "".join(f"<li><b>{escape(value)}</b><span>{escape(name)}</span></li>" for name, value in facts)
    return f'<header><h1>{escape(title)}</h1><p class="lead">{lead}</p><ul class="facts">{items}</ul></header>'


def images_title(settings: dict[str, Any]) -> str:
    """What was explained, in a word or two."""
    images = settings["images"]
    if "dataset" in images:
        return str(images["dataset"])
    if "files" not in images:
        return str(images.get("factory", "images given in Python"))
    first, *others = (PurePath(name).name or name for name in images["files"])
    return f"{first} and {len(others)} more" if others else str(first)


def lead_text(results: Results, explained: int, summary: RunSummary, methods: Sequence[str]) -> str:
    """How many images were shown to how many networks, and how many were explained by which methods."""
    settings, members = results.about["settings"], results.about["posterior"]["members"]
    networks = f"{members} network{'s' * (members != 1)}"
    text = f"{summary.images:,} images were shown to {networks}."
    text = text if summary.images != 1 else f"1 image was shown to {networks}."
    if explained and explained < summary.images:
        text += f" The {explained:,} with the most {settings['kinds'][0]} uncertainty were explained"
    elif explained:
        text += " All were explained" if summary.images != 1 else " It was explained"
    text += f" with {' and '.join(methods)}: the maps say which pixels raise the doubt." if explained else ""
    text += DEMO_WORDS if settings["images"].get("dataset") == DEMO and settings["posterior"].get("run") == DEMO else ""
    single = " With a single network nothing can disagree, so epistemic uncertainty is zero." if members == 1 else ""
    return escape(f"{results.unfinished_note()} {text}{single}".strip())


def headline_facts(summary: RunSummary, skipped: Sequence[Any]) -> list[tuple[str, str]]:
    found = [(f"image{'s' * (summary.images != 1)}", f"{summary.images:,}")]
    if summary.accuracy is not None:
        found.append((f"right of {summary.labelled:,} labelled", f"{summary.accuracy:.1%}".replace("%", " %")))
        found.append((f"calibration error, {BINS} bins", f"{summary.calibration_error:.3f}"))
    found += [(f"mean {kind}, nats", f"{summary.sums[kind] / max(1, summary.images):.3f}") for kind in KINDS]
    return found + ([(f"file{'s' * (len(skipped) != 1)} skipped", f"{len(skipped):,}")] if skipped else [])


def skipped_warning(skipped: Sequence[dict[str, str]]) -> str:
    count = "1 file was" if len(skipped) == 1 else f"{len(skipped):,} files were"
    count += (
        " skipped, because they could not be read" if len(skipped) > 1 else " skipped, because it could not be read"
    )
    return f'<div class="warning"><details><summary>{count}</summary>{skipped_table(skipped)}</details></div>'


def two_column_table(rows: Mapping[str, Any]) -> str:
    """A table of two columns, names and values."""
    lines = "".join(
        f"<tr><th scope=row>{escape(name)}</th><td>{value_html(value)}</td></tr>" for name, value in rows.items()
    )
    return f"<table>{lines}</table>"


def value_html(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, Mapping):
        return "<br>".join(f"{escape(str(name))}: {value_html(item)}" for name, item in value.items()) or "—"
    if isinstance(value, list | tuple):
        short = [str(item) for item in value[:24]] + (["…"] if len(value) > 24 else [])
        return escape(", ".join(short)) or "—"
    return escape(value if isinstance(value, str) else json.dumps(value))


def settings_table(about: Mapping[str, Any]) -> str:
    """What made these results, in words a person can repeat."""
    settings = dict(about["settings"])
    posterior = {**settings.pop("posterior"), **about["posterior"]}
    images = {**settings.pop("images"), **about["images"]}
    rows = {"posterior": posterior, "images": images, **settings, "classes": about["classes"]}
    rows["input_shape"] = about["input_shape"]
    return two_column_table({name.replace("_", " "): value for name, value in {**rows, **about["versions"]}.items()})


def skipped_table(skipped: Sequence[Mapping[str, str]], most: int = 50) -> str:
    """Which files could not be read, and why."""
    more = f"<p>… and {len(skipped) - most} more.</p>" if len(skipped) > most else ""
    return two_column_table({item["path"]: item["reason"] for item in skipped[:most]}) + more
