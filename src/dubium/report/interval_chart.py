"""The values of all methods under one metric as inline SVG: a dot with its 95 % interval, a line for each method."""

from collections.abc import Mapping, Sequence
from html import escape

from dubium.figures import three_digits
from dubium.report.panels import WIDTH, short_name, svg_element, svg_line, svg_text, text_width

LINE = 22  # pixels of a line's height


def interval_text(found: Mapping[str, float]) -> str:
    """Value and interval; the value alone where there is no interval, as of one image or seed."""
    value, low, high = (three_digits(found[part]) for part in ("value", "low", "high"))
    return f"{value} [{low}, {high}]" if found["low"] < found["high"] else value


def interval_chart(rows: Sequence[tuple[str, Mapping[str, float], bool]], label: str) -> str:
    """Name, interval (value, low, high) and whether it is a control; controls are grey.

    Args:
        rows: at least one.
        label: what a reader who does not see it is told.
    """
    low = min(found["low"] for _, found, _ in rows)
    high = max(found["high"] for _, found, _ in rows)
    span, names = (high - low) or 1.0, text_width(short_name(name) for name, _, _ in rows)
    end = WIDTH - 8 - text_width(three_digits(found["value"]) for _, found, _ in rows)  # right of it are the values

    def x(value: float) -> float:
        part = (value - low) / span if high > low else 0.5
        return names + (end - names) * part

    height = LINE * len(rows) + 20
    parts = [svg_line(names, height - 18, end, height - 18)]
    ends = [(low, "start"), (high, "end")] if high > low else [(low, "middle")]
    parts += [svg_text(x(value), height - 4, three_digits(value), anchor) for value, anchor in ends]
    for index, (name, found, is_control) in enumerate(rows):
        y, colour = LINE * index + 12, "var(--soft)" if is_control else "var(--epistemic)"
        parts += [
            f"<g><title>{escape(name)}: {interval_text(found)}</title>",
            svg_text(names - 8, y + 4, short_name(name), "end"),
            svg_line(x(found["low"]), y, x(found["high"]), y, f"stroke:{colour};stroke-width:2;opacity:.6"),
            f'<circle cx="{x(found["value"]):.1f}" cy="{y}" r="4" style="fill:{colour}"/>',
            svg_text(end + 8, y + 4, three_digits(found["value"]), "start"),
            "</g>",
        ]
    listed = "; ".join(f"{name} {three_digits(found['value'])}" for name, found, _ in rows)
    return svg_element("".join(parts), f"{label}: {listed}.", height)
