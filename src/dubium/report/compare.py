"""Two runs over the same images, side by side on one page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from dubium.errors import OptionError
from dubium.evaluation.ranks import rank_correlation
from dubium.files import write_atomically
from dubium.path_checks import refuse_own_files
from dubium.report.cards import (
    CONTRAST,
    card_html,
    gallery_html,
    image_key,
    maps_html,
    prediction_html,
    scores_html,
    votes_html,
)
from dubium.report.page import FILE, html_document, page_header, settings_table
from dubium.report.panels import horizontal_bars, panel_html
from dubium.report.run_pairs import method_labels, rows_in_common
from dubium.report.summary import RunSummary, summarise_results
from dubium.run.row import Row
from dubium.run.shard_checks import check_whole_about
from dubium.run.store import Results, class_name, open_results
from dubium.types import KINDS

SHORT = 14  # letters of a name that fits beside a bar
ROUNDING = 1e-4  # of probabilities that the same networks give in batches of other sizes


@dataclass(frozen=True)
class Agreement:
    """How alike two runs are: rank correlations of scores over images and of maps over pixels, by kind."""

    images: int
    same_prediction: float
    scores: dict[str, float]
    maps: dict[str, float]
    explained: int


def write_comparison(
    a: Path | str, b: Path | str, out: Path | str, *, names: tuple[str, str] = ("A", "B"), gallery: int = 60
) -> tuple[Path, Agreement]:
    """Write `out/index.html` about the images that both runs have.

    Args:
        a: the folder of one run.
        b: the folder of the other.
        out: where the page is written.
        names: what the page calls the two.
        gallery: images on the page.

    Returns:
        The page's file, and how alike the runs are.
    """
    refuse_own_files(Path(out), [FILE])
    first, second = open_results(a), open_results(b)
    for results in (first, second):
        check_whole_about(results.about, results.folder)
    classes = [results.about.get("classes") for results in (first, second)]
    if None not in classes and classes[0] != classes[1]:
        raise OptionError(f"{a} and {b} know different classes, so that they cannot be compared.")
    pairs, agreement = compare_results(first, second, names, gallery)
    path = Path(out) / FILE
    write_atomically(path, comparison_page(first, second, names, pairs, agreement))
    return path, agreement


def check_class_counts(counts: Sequence[int]) -> None:
    """Raise an error where two posteriors have different numbers of classes."""
    if len(set(counts)) > 1:
        raise OptionError(
            f"The first networks have {counts[0]} classes, the second {counts[1]}, so that they cannot be compared."
        )


def names_note(first: Results, second: Results) -> str:
    """How classes are told apart where one of two runs alone has names for them; "" elsewhere."""
    named = [letter for letter, run in zip("AB", (first, second), strict=True) if run.about["classes"] is not None]
    if len(named) != 1:
        return ""
    return (
        f"Classes have names in {named[0]} alone: they are compared by their numbers, and shown by these names. Check "
        "that both have the same classes in the same order."
    )


def compare_results(
    first: Results, second: Results, names: tuple[str, str], gallery: int
) -> tuple[list[str], Agreement]:
    """Cards of the images that both explained, the first run's most uncertain first, and how alike the runs are."""
    common = rows_in_common(first, second)
    check_class_counts([len(row.probs) for row in common[0]])
    both = {image_key(row) for row in second.rows(second.explained, pictures=False)}
    kind = first.about["settings"]["kinds"][0]
    ranks = first.ranks(kind, gallery) if first.explained else {}
    waiting = {image_key(row): row for row in first.rows(first.explained) if row.id in ranks and image_key(row) in both}
    classes = first.about["classes"] or second.about["classes"]
    name, images = partial(class_name, classes), first.about["settings"]["images"]
    most = max((max(a.total, b.total) for a, b in common), default=1.0) or 1.0
    cards, alike = dict[int, str](), dict[str, list[float]]({kind: [] for kind in KINDS})
    for row in second.rows(second.explained):
        other = waiting.pop(image_key(row), None)
        if other is None:
            continue
        cards[ranks[other.id]] = comparison_card(other, row, names, name, most, images)
        finer = max(other.coarse_size(), row.coarse_size())
        one, two = other.maps(finer), row.maps(finer)
        for shared in one.keys() & two.keys():
            alike[shared].append(rank_correlation(one[shared].ravel(), two[shared].ravel()))
    agreement = Agreement(
        images=len(common),
        same_prediction=float(np.mean([a.prediction == b.prediction for a, b in common])),
        scores={kind: score_correlation(common, kind) for kind in KINDS},
        maps={kind: float(np.mean(values)) for kind, values in alike.items() if values},
        explained=len(cards),
    )
    return [cards[rank] for rank in sorted(cards)], agreement


def score_correlation(pairs: Sequence[tuple[Row, Row]], kind: str) -> float:
    return rank_correlation([getattr(a, kind) for a, _ in pairs], [getattr(b, kind) for _, b in pairs])


def network_digests(results: Results) -> tuple[str, str | None]:
    return results.about["posterior"]["sha256"], results.about.get("network attributes")


def comparison_page(
    first: Results, second: Results, names: tuple[str, str], cards: list[str], agreement: Agreement
) -> str:
    """The HTML of the page about two runs."""
    title = f"{names[0]} and {names[1]}, side by side"
    titles, bars = "", names
    if max(map(len, names)) > SHORT:
        title, bars = "A and B, side by side", ("A", "B")
        titles = " ".join(f"{letter} is {name}." for letter, name in zip(bars, names, strict=True)) + " "
    same = network_digests(first) == network_digests(second)
    lead = (
        titles
        + f"{agreement.images:,} images scored by both, {agreement.explained:,} explained by both and shown here."
    )
    lead += " The networks are the same, so that only the maps can differ." if same else ""
    lead += f" {note}" if (note := names_note(first, second)) else ""
    methods = method_labels(first, second)
    lead += (
        f" Maps by {methods[0]}." if methods[0] == methods[1] else f" Maps by {methods[0]} (A) and {methods[1]} (B)."
    )
    facts = [(f"{kind} maps: rank correlation", f"{value:.2f}") for kind, value in agreement.maps.items()]
    parts = ["<main>"]
    if not same:
        facts = [
            (f"{kind} scores: rank correlation", f"{value:.2f}") for kind, value in agreement.scores.items()
        ] + facts
        facts = [("same prediction", f"{agreement.same_prediction:.1%}".replace("%", " %")), *facts]
        parts.append(
            f'<h2>All images</h2><div class="plots four">{"".join(difference_panels(bars, first, second))}</div>'
        )
    if cards:
        words = "Each map has a scale of its own. A class's mean probability is a bar, each network's a tick."
        parts.append(gallery_html(cards, f"{words} {CONTRAST}"))
    parts.append("<h2>How it was made</h2>")
    for name, results in zip(names, (first, second), strict=True):
        table = settings_table(results.about)
        parts.append(f"<details><summary>Settings and versions of {escape(name)}</summary>{table}</details>")
    return html_document(title, page_header(title, escape(lead), facts) + "".join(parts) + "</main>")


def difference_panels(names: tuple[str, str], first: Results, second: Results) -> list[str]:
    """Means of both, where their networks differ."""
    summaries = summarise_results(first), summarise_results(second)
    found = [mean_score_panel(kind, names, summaries) for kind in KINDS]
    labelled = all(summary.accuracy is not None for summary in summaries)
    return [*found, accuracy_panel(names, summaries)] if labelled else found


def mean_score_panel(kind: str, names: tuple[str, str], summaries: tuple[RunSummary, RunSummary]) -> str:
    values = [summary.sums[kind] / max(1, summary.images) for summary in summaries]
    rows = [(name, value, f"{value:.4f}") for name, value in zip(names, values, strict=True)]
    return panel_html(f"Mean {kind}", "Nats per image.", horizontal_bars(rows, f"Mean {kind} uncertainty", kind))


def accuracy_panel(names: tuple[str, str], summaries: tuple[RunSummary, RunSummary]) -> str:
    rows = [
        (name, s.accuracy or 0.0, f"{100 * (s.accuracy or 0):.1f} %") for name, s in zip(names, summaries, strict=True)
    ]
    return panel_html("Right answers", "Share of the labelled images.", horizontal_bars(rows, "Right answers", "total"))


def comparison_card(
    a: Row, b: Row, names: tuple[str, str], name: Callable[[int], str], most: float, images: Mapping[str, Any]
) -> str:
    """One image: each side's maps in a line, and the votes below, once if they are the same."""
    same = a.members.shape == b.members.shape and bool(np.allclose(a.members, b.members, atol=ROUNDING))
    sides = []
    for letter, side, row in zip("AB", names, (a, b), strict=True):
        heading, maps = f"<p><b>{letter if side == letter else f'{letter}: {escape(side)}'}</b>", maps_html(row)
        if same:
            sides.append(f"<div>{heading}</p>{maps}</div>")
        else:
            words = votes_html(row, name) + scores_html(row.scores(), most)
            sides.append(
                f'<div class="side">{heading} {prediction_html(row, name)}</p><div>{maps}</div>'
                f'<div class="told">{words}</div></div>'
            )
    below = votes_html(a, name) + scores_html(a.scores(), most) if same else ""
    predictions = " / ".join(dict.fromkeys(name(row.prediction) for row in (a, b)))
    title = prediction_html(a, name) if same else escape(predictions)
    return card_html(a, title, f'<div class="pair">{"".join(sides)}</div>', below, images)
