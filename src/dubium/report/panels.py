"""Panels of a page: plots as inline SVG in the page's own colours, so that they follow light and dark."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from math import log10

import numpy as np
import torch

from dubium.checks import count_text
from dubium.evaluation.metrics.calibration import BINS
from dubium.figures import map_colours
from dubium.report.pictures import img_element, stage_html
from dubium.report.summary import FLOOR, MeanMap, RunSummary
from dubium.types import KINDS

Number = float | int
WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 42, 10, 10, 30
NARROW, USUAL, WIDE, WIDEST = 4.6, 7.0, 11.0, "mwMW@%=+…<>~_QOGDNHU"  # pixels of letters


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


def short_name(name: str, most: int = 27) -> str:
    """A name that fits beside a bar: its beginning and its end, where the values of options are.

    >>> short_name("local-contrast"), short_name("captum.attr:Occlusion:sliding_window_shapes=[1,4,4]")
    ('local-contrast', 'captum.attr:O…hapes=[1,4,4]')
    """
    start = most // 2
    return name if len(name) <= most else f"{name[:start]}…{name[len(name) - (most - start - 1) :]}"


def text_width(words: Iterable[str]) -> int:
    """Pixels that the longest of some words takes in an SVG of 11 pixels a letter's height, with a gap.

    By the letters of DejaVu Sans, the widest of the fonts that pages are shown in.
    """
    widths = (
        sum(NARROW if c in "ijlftr.,:;|'-[]() " else WIDE if c in WIDEST else USUAL for c in text) for text in words
    )
    return round(max(widths, default=0)) + 10


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
        title = f"{count_text(int(count), 'image')}, confidence {confidence / count:.0%}, {share:.0%} right"
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
        text_width(short_name(name) for name, _, _ in rows),
        text_width(words for _, _, words in rows),
    )
    parts = []
    for index, (name, value, words) in enumerate(rows):
        middle, length = index * height + 15, (WIDTH - name_width - value_width) * value / top
        parts.append(svg_text(name_width - 8, middle, short_name(name), "end"))
        parts.append(
            f'<rect x="{name_width}" y="{middle - 10}" width="{max(1.0, length):.1f}" height="13" rx="2" '
            f'style="fill:var(--{colour})"><title>{escape(name)}: {escape(words)}</title></rect>'
        )
        parts.append(svg_text(name_width + length + 6, middle, words, "start"))
    listed = "; ".join(f"{name}: {words}" for name, _, words in rows)
    return svg_element("".join(parts), f"{label}: {listed}.", max(1, len(rows)) * height + 4)
