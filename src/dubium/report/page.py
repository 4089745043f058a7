"""One self-contained HTML page about a run: no script is needed to read it, and nothing is fetched from anywhere."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from importlib.resources import files
from math import log
from pathlib import Path, PurePath
from typing import Any

import torch

from dubium.errors import FileFormatError
from dubium.evaluation.metrics.calibration import BINS
from dubium.figures import map_colours, smooth_words
from dubium.files import write_atomically
from dubium.registry import UA_BACKPROP
from dubium.report.cards import image_card, image_key
from dubium.report.causes import causes_section
from dubium.report.gallery import gallery_section
from dubium.report.layers import stage_html
from dubium.report.pictures import img_element
from dubium.report.plots import horizontal_bars, reliability_diagram, score_distribution
from dubium.report.summary import MeanMap, RunSummary, summarise_results
from dubium.report.tables import settings_table, skipped_table
from dubium.report.what_to_do import what_to_do_section
from dubium.run.about import check_whole_about
from dubium.run.signed import rows_with_signs
from dubium.run.store import Results, Row, open_results
from dubium.types import KINDS

FILE = "index.html"
GALLERY = 200  # cards on a page
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
KINDS_IN_WORDS = {
    "total": "all doubt about the class: the entropy of the networks' mean prediction.",
    "aleatoric": "doubt that the networks share, because the image itself is ambiguous.",
    "epistemic": "disagreement between the networks, which more or better training data would reduce.",
}
KINDS_ALIKE = (
    "The three maps of ua-backprop are nearly one picture: it weighs the same relevance maps for every kind. "
    "Maps that tell the kinds apart: <code>--method auto</code>."
)


def write_page(
    folder: Path | str,
    *,
    gallery: int = GALLERY,
    title: str | None = None,
    smooth: float = 0.0,
    beside: Path | str | None = None,
) -> Path:
    """Write `folder/index.html` from `folder/results` alone.

    Args:
        folder: a run's.
        gallery: images on the page.
        title: of the page.
        smooth: blur the maps in its pictures by so many of their pixels; what is stored stays as it is.
        beside: the folder of another run over the same images, whose maps are shown below this one's.

    Returns:
        The page's file.
    """
    results, other = open_results(folder), None if beside is None else open_results(beside)
    path = Path(folder) / FILE
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
    check_whole_about(results.about, results.folder)
    settings = results.about["settings"]
    first = settings["kinds"][0]
    summary, mean, cards = summarise_results(results), MeanMap(), dict[int, str]()
    ranks = results.ranks(first, gallery) if results.explained else {}
    most = max((max(table["total"]) for table in results.columns(["total"], results.explained)), default=0) or log(2)
    others = {} if beside is None else {image_key(row): row for row in rows_with_signs(beside)}
    for row in rows_with_signs(results):
        mean.add(row)
        if row.id in ranks:
            methods = {settings["method"]: row}
            if beside is not None and image_key(row) in others:
                methods[beside.about["settings"]["method"]] = others[image_key(row)]
            shown = methods if len(methods) > 1 else None
            with damage_at(results, row):
                cards[ranks[row.id]] = image_card(row, summary.name, most, smooth=smooth, methods=shown)
    title = title or f"What makes it unsure: {images_title(settings)}"
    skipped = results.skipped()
    body = [
        page_header(title, lead_text(results, summary, beside), headline_facts(summary, skipped)),
        "<main>",
        skipped_warning(skipped),
        '<h2 id="summary">All images</h2>',
        f'<div class="plots">{"".join(summary_panels(summary, mean))}</div>',
        what_to_do_section(results, summary.name),
        causes_section(results, first, summary.name),
        gallery_section(
            [cards[rank] for rank in sorted(cards)], results.explained_count(), most, first, smooth_words(smooth)
        ),
        "<h2>How it was made</h2>",
        kinds_html({found.about["settings"]["method"] for found in (results, beside) if found is not None}),
        f"<details><summary>Settings and versions</summary>{settings_table(results.about)}</details>",
        "</main>",
    ]
    return html_document(title, "".join(body))


@contextmanager
def damage_at(results: Results, row: Row) -> Iterator[None]:
    """Say where the results are damaged, if the block finds that they are."""
    try:
        yield
    except FileFormatError as error:
        raise FileFormatError(f"The results in {results.folder} are damaged at image {row.id}: {error}") from error


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
        f"{body}<footer>Made by dubium. Nothing on this page is loaded from anywhere else.</footer>"
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


def lead_text(results: Results, summary: RunSummary, beside: Results | None) -> str:
    """How many images were shown to how many networks, and how many were explained."""
    about, explained = results.about, results.explained_count()
    settings, members = about["settings"], about["posterior"]["members"]
    networks = f"{members} network{'s' * (members != 1)}"
    text = f"{summary.images:,} images were shown to {networks}."
    text = text if summary.images != 1 else f"1 image was shown to {networks}."
    if explained and explained < summary.images:
        text += f" The {explained:,} with the most {settings['kinds'][0]} uncertainty were explained"
    elif explained:
        text += " All were explained" if summary.images != 1 else " It was explained"
    methods = " and ".join(found.about["settings"]["method"] for found in (results, beside) if found is not None)
    text += f" with {methods}: the maps say which pixels raise the doubt." if explained else ""
    single = " With a single network nothing can disagree, so epistemic uncertainty is zero." if members == 1 else ""
    return escape(text + single)


def headline_facts(summary: RunSummary, skipped: Sequence[Any]) -> list[tuple[str, str]]:
    found = [(f"image{'s' * (summary.images != 1)}", f"{summary.images:,}")]
    if summary.accuracy is not None:
        found.append((f"right of {summary.labelled:,} labelled", f"{summary.accuracy:.1%}".replace("%", " %")))
        found.append((f"calibration error, {BINS} bins", f"{summary.calibration_error:.3f}"))
    found += [(f"mean {kind}, nats", f"{summary.sums[kind] / max(1, summary.images):.3f}") for kind in KINDS]
    return found + ([(f"file{'s' * (len(skipped) != 1)} skipped", f"{len(skipped):,}")] if skipped else [])


def skipped_warning(skipped: Sequence[dict[str, str]]) -> str:
    if not skipped:
        return ""
    count = "1 file was" if len(skipped) == 1 else f"{len(skipped):,} files were"
    count += (
        " skipped, because they could not be read" if len(skipped) > 1 else " skipped, because it could not be read"
    )
    return f'<div class="warning"><details><summary>{count}</summary>{skipped_table(skipped)}</details></div>'


def summary_panels(summary: RunSummary, mean: MeanMap) -> list[str]:
    """The summary plots for which the run has data."""
    found = [
        panel_html("Scores", "How many images have which score, in nats (logarithmic).", score_distribution(summary))
    ]
    if summary.labelled:
        text = (
            "Share of right answers at each confidence; darker bars: more images. Where bars end at the dashed line, "
            "networks are right as often as they say."
        )
        found.append(panel_html("Reliability", text, reliability_diagram(summary)))
    if summary.doubt:
        pairs = [
            (f"{summary.name(a)} or {summary.name(b)}", float(n), f"{n:.1f}")
            for (a, b), n in summary.doubt.most_common(7)
        ]
        text = "The two likeliest classes of an image, and the probability of the second one, summed over images."
        found.append(panel_html("Most confused classes", text, horizontal_bars(pairs, "Most confused classes")))
    if summary.mistakes:
        wrong = [
            (f"{summary.name(a)}, said {summary.name(b)}", float(n), str(n))
            for (a, b), n in summary.mistakes.most_common(7)
        ]
        found.append(
            panel_html("Mistakes", "What it is, and what was said.", horizontal_bars(wrong, "Mistakes", "total"))
        )
    if means := mean.means():
        pictures = {
            kind: stage_html(
                array.shape,
                img_element(map_colours(torch.from_numpy(array)), f"Mean {kind} map of {mean.count} images"),
            )
            for kind, array in means.items()
        }
        figures = "".join(
            f"<figure>{picture}<figcaption>{kind}</figcaption></figure>" for kind, picture in pictures.items()
        )
        text = f"Where the doubt lies on average over {mean.count:,} explained images; each on a scale of its own."
        found.append(
            panel_html("Mean maps", text, f'<div class="means" style="--columns:{len(means)}">{figures}</div>')
        )
    return found


def panel_html(title: str, words: str, content: str) -> str:
    return f'<section class="panel"><h3>{escape(title)}</h3><p>{escape(words)}</p>{content}</section>'


def kinds_html(methods: Collection[str]) -> str:
    """What the kinds are, and where UA-Backprop's maps stand alone, how to have maps that tell them apart."""
    items = "".join(f"<li><b>{kind}</b>: {escape(words)}</li>" for kind, words in KINDS_IN_WORDS.items())
    alike = f"<p>{KINDS_ALIKE}</p>" if set(methods) == {UA_BACKPROP} else ""
    return f"<p>Uncertainty is measured in nats; total = aleatoric + epistemic.</p><ul>{items}</ul>{alike}"
