"""docs/performance.md and its plots, from the suite's JSON lines: python -m benchmarks.performance [RESULTS [DOCS]]."""

import sys
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path

from benchmarks.performance_plots import draw
from benchmarks.suite.cells import BATCHES, FRACTIONS, GRID, MIB, SAMPLES, TARGETS, Cell
from benchmarks.suite.lines import NAMES, Line, exponents, find, latest, of, read, series, title
from benchmarks.suite.peers import FULLGRAD, IG, ROWS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/performance.jsonl"
MOST = {("mnist-cnn", 64): 1.6, ("mnist-cnn", 1): 2.8, ("resnet20", 8): 1.8, ("resnet18", 8): 1.8}  # units
FASTER = {FULLGRAD: 6, IG: 15}
STEEPEST = 1.05

PAGE = """# Performance

Time and memory of `dubium.explain` (UA-Backprop with FullGrad, three kinds, default options) beside two yardsticks,
measured in one run. One is the **unit**: S*K plain forward passes at their best batch size, about the least that a
method can do that treats every class of every network. The other is what a user would write today with Captum and
pytorch-grad-cam. S networks, K classes, B images. Weights and images are random: they do not change the time.

{setting}
`make bench` measures again and writes this page; every number is in
[performance.jsonl](../benchmarks/results/performance.jsonl).

Units differ from machine to machine, most of all at B = 1, where Python counts as much as arithmetic; two commits
[in turn on one machine](decisions/speed.md#two-commits-in-turn) tell more than two pages.

## Targets

{targets}

## Units

Time of one call over its unit, and seconds in brackets. *Skipped* cells would take longer than a call was given
(`--budget`); the costs are linear (see [growth](#growth)), so the estimate beside them is as good.

{units}

![Units over batch size](images/performance-units.png)

## Beside the peers

How many times longer than `explain` they take. The loops treat the whole batch at a time and one class of one network
after the other, with frozen parameters; Integrated Gradients explains the epistemic uncertainty of all networks at
once, from a white image, {rows} rows at a time. All take turns of at least two seconds each, so that none is timed only
while it waits for memory that another left behind. Where a peer would take minutes, a part was measured and scaled, as
the table says. The last column is what it adds to the process's memory at its peak; `explain` keeps to a
[limit](#memory) instead.

{peers}

What they give is not the same: a loop gives a map per class and network, from which maps of uncertainty are still to be
made; Integrated Gradients gives one kind of three. Its cost does not grow with K, and ours does: see
the network with 1000 classes.

![Times of the peers](images/performance-peers.png)

## Growth

Exponents of power laws, fitted to logarithms by least squares: 1 is linear. Time is counted in forward passes, which
are measured beside each call, since the pace of a shared machine changes from cell to cell; in seconds where pixels
grow, which make forward passes longer, too. Memory is what a call adds to the process's high-water mark; chunks are
made to fit the cache and the limit, and it grows until they are full. B = 1 is drawn (hollow) but not fitted: there,
the fixed cost of a call shows.

{growth}

![Growth of time and memory](images/performance-growth.png)

## Memory

By how much a call raises the high-water mark of a fresh process, in MiB, against the limit (`memory=`, by default
1024 MiB); networks and images are there before.

{memory}

## Where the time goes

Shares of the profiler's time by class of operator. The gradient of a convolution is computed as a transposed one, which
the profiler counts as forward. What was done about the rest, and what not: [decisions/speed.md](decisions/speed.md).

{profile}
"""


def write(results: Path = RESULTS, docs: Path = ROOT / "docs") -> str:
    """Make the page and the plots; returns what was done."""
    lines = latest(read(results))
    (docs / "images").mkdir(parents=True, exist_ok=True)
    draw(lines, docs / "images")
    (docs / "performance.md").write_text(page(lines))
    return f"{len(lines)} lines of {results.name} -> {docs.name}/performance.md"


def page(lines: list[Line]) -> str:
    last = lines[-1]
    load = max(line.get("load", 0) for line in lines)
    setting = (
        f"{last['cpu']}, {last['threads']} threads, torch {last['torch']}, `src` at commit {last['commit']}; "
        f"medians; the highest load average while measuring was {load:g}."
    )
    return PAGE.format(
        setting=setting, targets=targets(lines), units=units(lines), peers=peers(lines), growth=growth(lines),
        memory=memory(lines), profile=profile(lines), rows=ROWS,
    )  # fmt: skip


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    body = [f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(body)


def targets(lines: list[Line]) -> str:
    """Each target with what was measured; one that was not is not left out."""
    rows = []
    for cell in TARGETS:
        found, most = find(lines, cell), MOST[cell.network, cell.B]
        what = f"units of {NAMES[cell.network]}, S = {cell.S}, B = {cell.B}"
        value = f"{found['ratio']:.2f}, median of {found['repeats']}" if "ratio" in found else "not measured"
        rows.append((what, f"at most {most}", value, met("ratio" in found and found["ratio"] <= most)))
    for (cell, _), (peer, least) in product(FRACTIONS, FASTER.items()):
        if cell.B == 64 and cell.K == 10:
            times = find(lines, cell, "peers", peer=peer).get("slower", 0)
            what = f"faster than {peer}: {title(cell.about())}, B = 64"
            value = f"{times:.1f} x" if times else "not measured"
            rows.append((what, f"at least {least} x", value, met(times >= least)))
    peaks = [line["peak_mib"] * MIB / line["limit"] for line in of(lines, "explain") if "peak_mib" in line]
    worst = max(peaks, default=0)
    rows.append((f"peak memory over the limit, all {len(peaks)} cells", "at most 1", f"{worst:.2f}", met(worst <= 1)))
    for (network, axis), (time, _) in exponents(lines).items():
        if axis != "pixels":
            what = f"exponent of the time in {axis}, {NAMES[network]}"
            rows.append((what, f"at most {STEEPEST}", f"{time:.2f}", met(time <= STEEPEST)))
    return table(("what", "target", "measured", "met"), rows)


def met(yes: bool) -> str:
    return "yes" if yes else "**no**"


def units(lines: list[Line]) -> str:
    def cell(found: Line) -> str:
        if "ratio" in found:
            return f"{found['ratio']:.2f} ({found['seconds']:.2g} s)"
        return f"*skipped, {found['skipped']}*" if found else "-"

    return grid(lines, cell)


def memory(lines: list[Line]) -> str:
    wide = grid(lines, lambda found: f"{found['peak_mib']:.0f}" if "peak_mib" in found else "-")
    tight = [line for line in of(lines, "explain") if line["limit"] < 1024 * MIB and "peak_mib" in line]
    rows = [(title(line), line["B"], line["limit"] // MIB, f"{line['peak_mib']:.0f}") for line in tight]
    return wide + "\n\nUnder tighter limits:\n\n" + table(("network", "B", "limit", "peak"), rows) if rows else wide


def grid(lines: list[Line], text: Callable[[Line], str]) -> str:
    """Networks and samples down, batch sizes across."""
    rows = [
        (NAMES[network], K, s, *(text(find(lines, Cell(network, K, s, b))) for b in BATCHES))
        for network, K in GRID
        for s in SAMPLES
    ]
    return table(("network", "K", "S", *(f"B = {b}" for b in BATCHES)), rows)


def peers(lines: list[Line]) -> str:
    rows = [
        (title(line), line["B"], line["peer"], f"{line['slower']:.1f} x", line["measured"], f"{line['peak_mib']:.0f}")
        if "slower" in line
        else (title(line), line["B"], line["peer"], line["skipped"], "-", "-")
        for line in of(lines, "peers")
    ]
    return table(("network", "B", "peer", "time over ours", "measured", "MiB"), rows)


def growth(lines: list[Line]) -> str:
    found = series(lines)
    rows = []
    for (network, axis), (time, peak) in exponents(lines).items():
        sizes = ", ".join(str(size) for size, _ in found[network, axis])
        rows.append((NAMES[network], axis, sizes, f"{time:.2f}", f"{peak:.2f}"))
    return table(("network", "what grows", "from, to", "exponent of time", "exponent of memory"), rows)


def profile(lines: list[Line]) -> str:
    found = of(lines, "profile")
    kinds = list(dict.fromkeys(kind for line in found for kind in line["shares"]))
    rows = [(kind, *(f"{100 * line['shares'].get(kind, 0):.0f} %" for line in found)) for kind in kinds]
    return table(("operators", *(f"{title(line)}, B = {line['B']}" for line in found)), rows)


if __name__ == "__main__":
    print(write(*map(Path, sys.argv[1:])))
