"""What a page says about all images: gathered in one pass over the store, shown in panels.

Plots are inline SVG in the page's own colours, so that they follow light and dark.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from math import log, log10
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from dubium.data.fit import place_map
from dubium.evaluation.metrics.calibration import BINS, reliability_error, reliability_table
from dubium.figures import map_colours
from dubium.report.pictures import img_element, stage_html
from dubium.run.row import Array, Row
from dubium.run.store import Results
from dubium.types import KINDS

FLOOR = 1e-4  # nats; lower scores share the first bar
BARS = 24
Number = float | int
WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 42, 10, 10, 30


@dataclass
class RunSummary:
    """Counts over all images of a run.

    `edges` are those of the score histograms, in nats: from `FLOOR` to the highest entropy of so many classes, on a
    logarithmic scale.
    """

    edges: NDArray[np.float64] = field(default_factory=lambda: np.geomspace(FLOOR, log(2), BARS + 1))
    images: int = 0
    labelled: int = 0
    right: int = 0
    counts: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    reliability: Float[Tensor, "bins columns=3"] = field(default_factory=lambda: torch.zeros(BINS, 3).double())
    doubt: Counter[tuple[int, int]] = field(default_factory=Counter)
    mistakes: Counter[tuple[int, int]] = field(default_factory=Counter)

    @property
    def accuracy(self) -> float | None:
        return self.right / self.labelled if self.labelled else None

    @property
    def calibration_error(self) -> float | None:
        """What `dubium.evaluation.calibration_error` gives for the labelled images."""
        return reliability_error(self.reliability) if self.labelled else None


def summarise_results(results: Results) -> RunSummary:
    """Read scores, labels and predictions of all images, a row group at a time."""
    summary = RunSummary()
    for table in results.columns(["label", "prediction", "probs", *KINDS]):
        probs = np.asarray(table["probs"], np.float64)
        if not summary.images:
            summary.edges = np.geomspace(FLOOR, log(max(2, probs.shape[1])), BARS + 1)
        summary.images += len(probs)
        for kind in KINDS:
            scores = np.asarray(table[kind], np.float64)
            summary.sums[kind] += float(scores.sum())
            counts, _ = np.histogram(np.clip(scores, summary.edges[0], summary.edges[-1]), summary.edges)
            summary.counts[kind] = summary.counts.get(kind, np.zeros(BARS, np.int64)) + counts
        count_predictions(summary, table, probs)
    return summary


def count_predictions(summary: RunSummary, table: dict[str, list[Any]], probs: NDArray[np.float64]) -> None:
    """Add the likeliest classes of some rows to the summary, and how they compare with the labels."""
    first, second = np.argsort(-probs, axis=1, kind="stable")[:, :2].T
    chances = probs[np.arange(len(probs)), second]
    for a, b, chance in zip(first.tolist(), second.tolist(), chances.tolist(), strict=True):
        summary.doubt[min(a, b), max(a, b)] += chance
    labelled = [row for row, label in enumerate(table["label"]) if label is not None]
    answers = [(table["label"][row], table["prediction"][row]) for row in labelled]
    is_right = torch.tensor([label == prediction for label, prediction in answers], dtype=torch.bool)
    confidence = torch.from_numpy(probs[labelled, first[labelled]])
    summary.labelled += len(labelled)
    summary.right += int(is_right.sum())
    summary.reliability += reliability_table(confidence, is_right)
    summary.mistakes.update((label, prediction) for label, prediction in answers if label != prediction)


@dataclass
class MeanMap:
    """Sums of a method's maps by kind, and of how many images; maps of other sizes are brought to the first one's."""

    method: str
    sums: dict[str, Array] = field(default_factory=dict)
    count: int = 0

    def add(self, row: Row) -> None:
        for kind, array in row.coarse_maps().items():
            size = self.sums.get(kind, array).shape
            resized = place_map(torch.from_numpy(array.copy()), size, (0, 0, *size)).numpy()
            self.sums[kind] = self.sums[kind] + resized if kind in self.sums else resized
        self.count += bool(row.stored_maps())


def summary_panels(summary: RunSummary, mean: MeanMap, name: Callable[[int], str]) -> list[str]:
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
        pairs = [(f"{name(a)} or {name(b)}", float(n), f"{n:.1f}") for (a, b), n in summary.doubt.most_common(7)]
        text = "The two likeliest classes of an image, and the probability of the second one, summed over images."
        found.append(panel_html("Most confused classes", text, horizontal_bars(pairs, "Most confused classes")))
    if summary.mistakes:
        wrong = [(f"{name(a)}, said {name(b)}", float(n), str(n)) for (a, b), n in summary.mistakes.most_common(7)]
        found.append(
            panel_html("Mistakes", "What it is, and what was said.", horizontal_bars(wrong, "Mistakes", "total"))
        )
    if mean.sums:
        figures = ""
        for kind, total in mean.sums.items():
            colours = map_colours(torch.from_numpy(np.asarray(total / mean.count, np.float32)))
            stage = stage_html(total.shape, img_element(colours, f"Mean {kind} map of {mean.count} images"))
            figures += f"<figure>{stage}<figcaption>{kind}</figcaption></figure>"
        text = f"Where {mean.method} sees the doubt on average over {mean.count:,} images; each on a scale of its own."
        found.append(
            panel_html("Mean maps", text, f'<div class="means" style="--columns:{len(mean.sums)}">{figures}</div>')
        )
    return found


def panel_html(title: str, words: str, content: str) -> str:
    return f'<section class="panel"><h3>{escape(title)}</h3><p>{escape(words)}</p>{content}</section>'


def svg_element(body: str, label: str, height: int = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">{body}</svg>'


def svg_text(x: Number, y: Number, words: str, anchor: str = "middle", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def shorten(name: str, most: int = 27) -> str:
    """A name that fits beside a bar: its beginning and its end, where the values of options are.

    >>> shorten("local-contrast"), shorten("captum.attr:Occlusion:sliding_window_shapes=[1,4,4]")
    ('local-contrast', 'captum.attr:O…hapes=[1,4,4]')
    """
    start = most // 2
    return name if len(name) <= most else f"{name[:start]}…{name[len(name) - (most - start - 1) :]}"


def text_width(words: Iterable[str]) -> int:
    """Pixels that the longest of some words takes in an SVG of 11 pixels a letter's height, with a gap."""
    return round(max((6.3 * len(text) for text in words), default=0)) + 10


def svg_line(x1: Number, y1: Number, x2: Number, y2: Number, style: str = "stroke:var(--line)") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" style="{style}"/>'


def score_distribution(summary: RunSummary) -> str:
    """How many images have which score, a curve per kind; the axis of scores is logarithmic."""
    lowest, highest = log10(summary.edges[0]), log10(summary.edges[-1])
    top = max(1, *(int(counts.max()) for counts in summary.counts.values())) if summary.counts else 1

    def x(nats: Number) -> Number:
        return LEFT + (WIDTH - LEFT - RIGHT) * (log10(nats) - lowest) / (highest - lowest)

    def y(count: Number) -> Number:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * count / top

    parts = [svg_line(LEFT, y(0), WIDTH - RIGHT, y(0)), svg_text(LEFT - 5, y(top) + 8, f"{top:,}", "end")]
    parts.append(svg_text(LEFT - 5, y(0), "0", "end"))
    for power in range(-4, 1):
        nats = 10.0**power
        if summary.edges[0] <= nats * 1.001 and nats <= summary.edges[-1]:
            label = f"≤ {FLOOR:g}" if nats <= FLOOR * 1.001 else f"{nats:g}"
            parts += [svg_line(x(nats), y(0), x(nats), y(0) + 4), svg_text(x(nats), y(0) + 16, label)]
    for kind in KINDS:
        counts = summary.counts.get(kind)
        if counts is None:
            continue
        steps = [f"M{x(summary.edges[0]):.1f} {y(0):.1f}"]
        for count, left, right in zip(counts.tolist(), summary.edges[:-1], summary.edges[1:], strict=True):
            steps.append(f"V{y(count):.1f}H{x(right):.1f}" if left else "")
        steps.append(f"V{y(0):.1f}")
        fill = f"fill:color-mix(in srgb, var(--{kind}) 14%, transparent)"
        parts.append(f'<path d="{"".join(steps)}" style="{fill};stroke:var(--{kind});stroke-width:1.5"/>')
    for index, kind in enumerate(KINDS):
        spot = LEFT + 14 + 88 * index
        parts += [svg_line(spot - 10, HEIGHT - 4, spot - 2, HEIGHT - 4, f"stroke:var(--{kind});stroke-width:3")]
        parts += [svg_text(spot + 2, HEIGHT, kind, "start")]
    means = ", ".join(f"{kind} {summary.sums[kind] / max(1, summary.images):.3g}" for kind in KINDS)
    return svg_element(
        "".join(parts), f"Distribution of scores over {summary.images} images; means in nats: {means}.", HEIGHT + 4
    )


def reliability_diagram(summary: RunSummary) -> str:
    """Accuracy against confidence; on the diagonal, the networks know what they know."""
    side = HEIGHT - TOP - BOTTOM

    def x(value: Number) -> Number:
        return LEFT + (WIDTH - LEFT - RIGHT) * value

    def y(value: Number) -> Number:
        return HEIGHT - BOTTOM - side * value

    parts = [
        svg_line(x(0), y(0), x(1), y(1), "stroke:var(--soft);stroke-dasharray:3 3"),
        svg_line(x(0), y(0), x(1), y(0)),
    ]
    parts += [svg_text(LEFT - 5, y(1) + 8, "100 %", "end"), svg_text(LEFT - 5, y(0), "0", "end")]
    parts += [svg_text(x(v), y(0) + 15, f"{v:.0%}".replace("%", " %")) for v in (0.25, 0.5, 0.75)]
    parts += [svg_text(x(1), y(0) + 15, "100 %", "end"), svg_text(x(0.5), y(0) + 28, "confidence")]
    for index, (count, confidence, right) in enumerate(summary.reliability.tolist()):
        if not count:
            continue
        share = right / count
        title = f"{int(count)} images, confidence {confidence / count:.0%}, {share:.0%} right"
        left, width = x(index / BINS) + 2, x(1 / BINS) - x(0) - 4
        parts.append(
            f'<rect x="{left:.1f}" y="{y(share):.1f}" width="{width:.1f}" height="{max(1.0, side * share):.1f}" '
            f'style="fill:var(--aleatoric);opacity:{0.35 + 0.65 * (count / summary.labelled) ** 0.5:.2f}">'
            f"<title>{escape(title)}</title></rect>"
        )
    return svg_element(
        "".join(parts),
        f"Reliability diagram, expected calibration error {summary.calibration_error:.3f} over {BINS} bins.",
    )


def horizontal_bars(rows: Sequence[tuple[str, Number, str]], label: str, colour: str = "epistemic") -> str:
    """A bar per row: its name, its length, and what is written at its end."""
    height, top = 22, max((value for _, value, _ in rows), default=1) or 1
    name_width, value_width = (
        text_width(shorten(name) for name, _, _ in rows),
        text_width(words for _, _, words in rows),
    )
    parts = []
    for index, (name, value, words) in enumerate(rows):
        middle, length = index * height + 15, (WIDTH - name_width - value_width) * value / top
        parts.append(svg_text(name_width - 8, middle, shorten(name), "end"))
        parts.append(
            f'<rect x="{name_width}" y="{middle - 10}" width="{max(1.0, length):.1f}" height="13" rx="2" '
            f'style="fill:var(--{colour})"><title>{escape(name)}: {escape(words)}</title></rect>'
        )
        parts.append(svg_text(name_width + length + 6, middle, words, "start"))
    listed = "; ".join(f"{name}: {words}" for name, _, words in rows)
    return svg_element("".join(parts), f"{label}: {listed}.", max(1, len(rows)) * height + 4)
