"""Images with two causes, each kind's map, and how often it points at each cause."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dubium.evaluation.metrics.causes import cause_sides
from dubium.evaluation.protocols.causes import PAIR, SETS, CausesExamples, read_causes_examples
from dubium.evaluation.shards import ShardStore
from dubium.figures import overlay
from dubium.registry import CONTROL_NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"mark": "deepskyblue", "patch": "orange"}


def causes_figures(store: ShardStore, summary: Mapping[str, Any]) -> dict[str, "Figure"]:
    """One figure of examples, and one of how often each map points at each cause."""
    return {
        "causes": causes_figure(read_causes_examples(store, summary["settings"])),
        "two-by-two": two_by_two_figure(summary["results"]),
    }


def causes_figure(examples: CausesExamples) -> "Figure":
    """One row for each method and kind: the mark's place in blue, the patch's in orange."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    x, sides = examples.x, cause_sides(*examples.x.shape[2:])
    shown = [(label, kind) for label in examples.maps if label not in CONTROL_NAMES for kind in PAIR]
    figure = Figure(figsize=(1.5 * len(x) + 0.8, 1.5 * len(shown)), layout="constrained")
    axes = figure.subplots(len(shown), len(x), squeeze=False)
    for row, (label, kind) in zip(axes, shown, strict=True):
        for index, axis in enumerate(row):
            axis.imshow(overlay(x[index], examples.maps[label][kind][index]), interpolation="nearest")
            for cause, side in (("mark", sides.mark), ("patch", sides.patch)):
                top, left = (float(at) - 0.5 for at in examples.corners[cause][index])
                axis.add_patch(Rectangle((left, top), side, side, fill=False, edgecolor=COLOURS[cause], lw=1.2))
            axis.set_xticks([])
            axis.set_yticks([])
        row[0].set_ylabel(f"{label}\n{kind}".replace(":", "\n"), fontsize=6)
    return figure


def two_by_two_figure(results: Mapping[str, Mapping[str, Any]]) -> "Figure":
    """For each set of images and kind: how often each method's map points at the mark and at the patch."""
    from matplotlib.figure import Figure

    first = next(iter(results.values()))
    sets = [name for name in (*SETS, "none") if f"mark@{name}" in first]
    panels = [(which, kind, "" if kind == "epistemic" else f"/{kind}") for which in sets for kind in PAIR]
    figure = Figure(figsize=(4.4 * len(PAIR), (0.6 + 0.28 * len(results)) * len(sets)), layout="constrained")
    axes = figure.subplots(len(sets), len(PAIR), squeeze=False, sharey=True)
    for axis, (which, kind, suffix) in zip(axes.flat, panels, strict=True):
        for shift, cause in ((-0.15, "mark"), (0.15, "patch")):
            found = [metrics[f"{cause}@{which}{suffix}"] for metrics in results.values()]
            middle = [f["value"] for f in found]
            errors = [[f["value"] - f["low"] for f in found], [f["high"] - f["value"] for f in found]]
            at = [row + shift for row in range(len(found))]
            axis.errorbar(middle, at, xerr=errors, fmt="o", ms=3, capsize=2, color=COLOURS[cause], label=cause)
        axis.set_yticks(range(len(results)), list(results), fontsize=6)
        axis.set_title(f"{kind} map points at ... ({which})", fontsize=8)
        axis.set_xlim(-0.02, 1.02)
        axis.invert_yaxis()
    axes[0][0].legend(fontsize=7, frameon=False)
    return figure
