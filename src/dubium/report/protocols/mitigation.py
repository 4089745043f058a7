"""Attention over its images, and what it did to the test accuracy."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dubium.evaluation.metrics.calibration import BINS, BOUNDS
from dubium.evaluation.protocols.mitigation import MitigationExamples, read_mitigation_examples
from dubium.evaluation.shards import ShardStore
from dubium.figures import overlay, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def mitigation_figures(store: ShardStore, summary: Mapping[str, Any]) -> dict[str, "Figure"]:
    """One figure of examples, and one of results."""
    return {
        "attention": attention_figure(read_mitigation_examples(store, summary["settings"])),
        "arms": arms_figure(summary["results"]),
    }


def attention_figure(examples: MitigationExamples) -> "Figure":
    """One row for each arm: attention over the image, and its highest value."""
    from matplotlib.figure import Figure

    x, attention = examples.x, examples.attention
    figure = Figure(figsize=(1.4 * len(x) + 0.8, 1.6 * (1 + len(attention))), layout="constrained")
    axes = figure.subplots(1 + len(attention), len(x), squeeze=False)
    for index, axis in enumerate(axes[0]):
        axis.imshow(picture(x[index]), interpolation="nearest")
    axes[0][0].set_ylabel("image", fontsize=7)
    for row, (label, found) in zip(axes[1:], attention.items(), strict=True):
        for index, axis in enumerate(row):
            axis.imshow(overlay(x[index], found[index] - found[index].min()), interpolation="nearest")
            axis.set_title(f"A up to {float(found[index].max()):.2g}", fontsize=6)
        row[0].set_ylabel(label.replace("@", "\n").replace(":", "\n"), fontsize=7)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    return figure


def arms_figure(results: Mapping[str, Any]) -> "Figure":
    """Mean and interval of each metric, arm by arm."""
    from matplotlib.figure import Figure

    metrics = [metric for metric in ("accuracy", "nll", "ece") if any(metric in found for found in results.values())]
    figure = Figure(figsize=(3.6 * len(metrics), 0.5 + 0.35 * len(results)), layout="constrained")
    axes = figure.subplots(1, len(metrics), squeeze=False, sharey=True)[0]
    for axis, metric in zip(axes, metrics, strict=True):
        rows = [(label, found[metric]) for label, found in results.items() if metric in found]
        middle = [found["value"] for _, found in rows]
        errors = [[f["value"] - f["low"] for _, f in rows], [f["high"] - f["value"] for _, f in rows]]
        axis.errorbar(middle, range(len(rows)), xerr=errors, fmt="o", ms=4, capsize=3)
        low, high = axis.get_xlim()
        axis.set_xlim(max(low, BOUNDS[metric][0]), min(high, BOUNDS[metric][1]))
        axis.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=7)
        title = f"ece ({BINS} bins)" if metric == "ece" else metric
        axis.set_title(
            f"{title}, mean and 95 % interval" if any(map(any, errors)) else f"{title}, one seed", fontsize=8
        )
        axis.tick_params(axis="x", labelsize=7)
    axes[0].invert_yaxis()
    return figure
