"""Summary plots as inline SVG, coloured by the page's own variables, so that they follow light and dark."""

from collections.abc import Sequence
from html import escape
from math import log10

from dubium.evaluation.metrics.calibration import BINS
from dubium.report.summary import FLOOR, RunSummary
from dubium.types import KINDS

Number = float | int
WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 42, 10, 10, 30


def svg_element(body: str, label: str, height: int = HEIGHT) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">{body}</svg>'


def svg_text(x: Number, y: Number, words: str, anchor: str = "middle", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


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
            parts += [svg_line(x(nats), y(0), x(nats), y(0) + 4), svg_text(x(nats), y(0) + 16, nats_label(nats))]
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
    for place, kind in enumerate(KINDS):
        spot = LEFT + 14 + 88 * place
        parts += [svg_line(spot - 10, HEIGHT - 4, spot - 2, HEIGHT - 4, f"stroke:var(--{kind});stroke-width:3")]
        parts += [svg_text(spot + 2, HEIGHT, kind, "start")]
    means = ", ".join(f"{kind} {summary.sums[kind] / max(1, summary.images):.3g}" for kind in KINDS)
    return svg_element(
        "".join(parts), f"Distribution of scores over {summary.images} images; means in nats: {means}.", HEIGHT + 4
    )


def nats_label(nats: Number) -> str:
    return f"≤ {FLOOR:g}" if nats <= FLOOR * 1.001 else f"{nats:g}"


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
    for place, (count, confidence, right) in enumerate(summary.reliability.tolist()):
        if not count:
            continue
        share = right / count
        title = f"{int(count)} images, confidence {confidence / count:.0%}, {share:.0%} right"
        left, width = x(place / BINS) + 2, x(1 / BINS) - x(0) - 4
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
    name_width, value_width = 118, 74
    parts = []
    for place, (name, value, words) in enumerate(rows):
        middle, length = place * height + 15, (WIDTH - name_width - value_width) * value / top
        parts.append(svg_text(name_width - 8, middle, name if len(name) < 20 else name[:18] + "…", "end"))
        parts.append(
            f'<rect x="{name_width}" y="{middle - 10}" width="{max(1.0, length):.1f}" height="13" rx="2" '
            f'style="fill:var(--{colour})"><title>{escape(name)}: {escape(words)}</title></rect>'
        )
        parts.append(svg_text(name_width + length + 6, middle, words, "start"))
    listed = "; ".join(f"{name}: {words}" for name, _, words in rows)
    return svg_element("".join(parts), f"{label}: {listed}.", max(1, len(rows)) * height + 4)
