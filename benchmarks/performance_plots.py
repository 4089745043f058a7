"""The plots of docs/performance.md."""

from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.suite.cells import BATCHES, GRID, SAMPLES, Cell
from benchmarks.suite.lines import NAMES, Line, exponents, find, of, series, title

AXES = ("S", "K", "B", "pixels")
COLOURS = ("#1b6ca8", "#d1495b", "#edae49", "#66a182", "#7a5195")


def draw(lines: list[Line], folder: Path) -> None:
    for name, plot in {"units": units, "peers": peers, "growth": growth}.items():
        plot(lines).savefig(folder / f"performance-{name}.png", dpi=110)


def units(lines: list[Line]) -> Figure:
    """Ratio over batch size: a panel per number of networks."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axis, s in zip(figure.subplots(1, len(SAMPLES), sharey=True), SAMPLES, strict=True):
        for colour, (network, K) in zip(COLOURS, GRID, strict=True):
            found = [(b, find(lines, Cell(network, K, s, b))) for b in BATCHES]
            points = [(b, line["ratio"]) for b, line in found if "ratio" in line]
            label = f"{NAMES[network]}, K = {K}"
            axis.plot([b for b, _ in points], [ratio for _, ratio in points], "o-", color=colour, label=label)
        axis.axhline(1, color="grey", lw=0.8, ls="--")
        axis.set(xscale="log", xlim=(0.8, 80), xlabel="images B", title=f"S = {s}")
        axis.set_xticks(BATCHES, BATCHES)
        axis.minorticks_off()
    first = figure.axes[0]
    first.set(ylabel="time / S*K plain forwards", ylim=(0, None))
    figure.legend(*first.get_legend_handles_labels(), loc="outside right center", fontsize=8, frameon=False)
    return figure


def peers(lines: list[Line]) -> Figure:
    """Bars: how many times longer than `explain` each takes, by network and batch."""
    found = [line for line in of(lines, "peers") if "slower" in line]
    groups = list(dict.fromkeys((title(line), line["B"]) for line in found))
    names = list(dict.fromkeys(line["peer"] for line in found))
    figure = Figure(figsize=(9, 1.2 + 0.75 * max(1, len(groups))), layout="constrained")
    axis = figure.subplots()
    for line in found:
        number = names.index(line["peer"])
        height = groups.index((title(line), line["B"])) + 0.2 * (number - 1.5)
        axis.barh(height, line["slower"] - 1, 0.18, left=1, color=COLOURS[number], label=line["peer"])
        axis.annotate(f" {line['slower']:.2g} x", (max(1, line["slower"]), height), va="center", fontsize=7)
    axis.axvline(1, color="black", lw=0.8)
    axis.set(xscale="log" if found else "linear", xlabel="time over that of explain", yticks=range(len(groups)))
    axis.set_yticklabels([f"{name}, B = {b}" for name, b in groups])
    axis.invert_yaxis()
    axis.margins(x=0.1)
    handles = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    return figure


def growth(lines: list[Line]) -> Figure:
    """Time and memory over what grows, both logarithmic; exponents in the legends."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    panels = figure.subplots(2, len(AXES), sharey="row")
    fitted = exponents(lines)
    for (network, axis), pairs in series(lines).items():
        colour, column = COLOURS[list(NAMES).index(network)], panels[:, AXES.index(axis)]
        one = find(lines, Cell(network, B=1)) if axis == "B" else {}
        for row, (panel, value) in enumerate(zip(column, ("seconds", "peak_mib"), strict=True)):
            slope = f": {fitted[network, axis][row]:.2f}" if (network, axis) in fitted else ""
            panel.plot(
                [n for n, _ in pairs], [p[value] for _, p in pairs], "o-", color=colour, label=NAMES[network] + slope
            )
            if value in one:
                panel.plot([1], [one[value]], "o", color=colour, mfc="none")
            if pairs:
                panel.set(xscale="log", yscale="log")
    for name, column in zip(AXES, panels.T, strict=True):
        for panel in column:
            panel.legend(fontsize=7, frameon=False)
        column[1].set_xlabel(name)
    panels[0, 0].set_ylabel("seconds")
    panels[1, 0].set_ylabel("peak memory, MiB")
    return figure
