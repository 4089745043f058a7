"""What is left of the uncertainty, and of the truth, while pixels are removed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dubium.evaluation.shards import ShardStore
from dubium.registry import CONTROL_NAMES
from dubium.report.protocols.colours import method_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = {
    "left": "uncertainty left, mean",
    "accuracy": "accuracy",
    "true-probability": "probability of the true class",
}


def removal_figures(_store: ShardStore, summary: Mapping[str, Any]) -> dict[str, "Figure"]:
    """One figure of curves, for the first kind."""
    kind, ways = summary["settings"]["kinds"][0], summary["settings"]["remove"]
    return {"removal": removal_figure(summary["curves"], ways, "" if kind == "epistemic" else f"/{kind}")}


def removal_figure(curves: Mapping[str, Mapping[str, Any]], ways: list[str], suffix: str) -> "Figure":
    """One column for each way of removal; uncertainty, accuracy and the true class's probability below each other."""
    from matplotlib.figure import Figure

    first = next(iter(curves.values()))
    rows = [name for name in ROWS if f"{name}/{ways[0]}{suffix}" in first]
    figure = Figure(figsize=(4.2 * len(ways), 3.0 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), len(ways), squeeze=False)
    for row, name in zip(axes, rows, strict=True):
        for axis, way in zip(row, ways, strict=True):
            for index, (method, by_name) in enumerate(curves.items()):
                found = by_name[f"{name}/{way}{suffix}"]
                at = [100 * step / (len(found["value"]) - 1) for step in range(len(found["value"]))]
                style = method_style(method, index)
                axis.plot(at, found["value"], label=method, **style)
                if method not in CONTROL_NAMES:
                    axis.fill_between(at, found["low"], found["high"], color=style["color"], alpha=0.1, lw=0)
            axis.set(xlabel=f"pixels removed ({way}), most relevant first (%)", ylabel=ROWS[name])
            axis.set_xlim(0, 100)
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=7, frameon=False
    )
    return figure
