"""How fast maps change as weights are randomised."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dubium.evaluation.shards import ShardStore
from dubium.report.protocols.colours import method_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def sanity_figures(_store: ShardStore, summary: Mapping[str, Any]) -> dict[str, "Figure"]:
    """One figure, for the first kind."""
    kind = summary["settings"]["kinds"][0]
    return {"cascade": cascade_figure(summary["results"], "" if kind == "epistemic" else f"/{kind}")}


def cascade_figure(results: Mapping[str, Mapping[str, Any]], suffix: str) -> "Figure":
    """Agreement with the original map against the layers whose weights were randomised, from the output back."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.8), layout="constrained")
    axis = figure.subplots()
    for index, (method, metrics) in enumerate(results.items()):
        found = {
            name: value
            for name, value in metrics.items()
            if name.startswith("cascade@") and name.endswith(f"%{suffix}")
        }
        at = [0.0, *(float(name.removeprefix("cascade@").partition("%")[0]) for name in found)]
        middle = [1.0, *(value["value"] for value in found.values())]
        errors = [
            [0.0, *(v["value"] - v["low"] for v in found.values())],
            [0.0, *(v["high"] - v["value"] for v in found.values())],
        ]
        style = method_style(method, index)
        axis.errorbar(at, middle, yerr=errors, label=method, marker="o", ms=3, capsize=2, **style)
    axis.axhline(0, color="0.7", lw=0.8)
    axis.set(xlabel="layers randomised, from the output (%)", ylabel="rank correlation with the original map")
    axis.legend(fontsize=7, frameon=False)
    return figure
