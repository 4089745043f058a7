"""The tables of docs/which-method.md, from the small results under benchmarks/results/auto.

    python -m benchmarks.auto.page    # writes them between the markers of docs/which-method.md and README.md

Every number comes from a JSON file that `benchmarks.auto.final` or `benchmarks.auto.causes` left; nothing is typed by
hand. **Bold** is the first; = is not significantly worse than the first (Holm over all pairs of methods and controls).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from dubium.evaluation.overview import OverviewCell, is_control, mean_ranks, overview_cells

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "auto", ROOT / "docs" / "which-method.md"
NAMES = {
    "svhn-11-svhn": "SVHN, trained anew",
    "svhn-cnn-svhn": "SVHN, public",
    "mnist-11-mnist": "MNIST, trained anew",
    "cifar10-resnet20-cifar-10": "CIFAR-10",
    "fashion-mnist-11-fashion-mnist": "Fashion-MNIST",
    "cifar100-resnets-cifar-100": "CIFAR-100",
    "causes-mnist": "MNIST, two causes",
    "causes-1000-mnist": "MNIST, two causes, networks of seed 1000",
}
TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "blurring": ("blurring", ("murr@2%", "auc-urr@2%", "murr@5%", "auc-urr@5%")),
    "truth": ("blurring", ("accuracy@2%", "true-probability@2%")),
    "removal": ("removal", ("srg/blur", "srg/mean", "srg/linear")),
    "anomaly": ("anomaly", ("iou", "ada", "recovery")),
    "kinds": ("sanity", ("kinds", "kinds-top5")),
    "randomised": ("sanity", ("top5@100%", "cascade@100%")),
}
OWN, BASE = "blur-path:net=1", "ua-backprop"  # what `auto` stands for, and the paper's method
VARIANTS = ("blur-path", "blur-path:net=2")
CAUSES = {"causes": "causes-mnist", "causes anew": "causes-1000-mnist"}
README = ROOT / "README.md"
README_RUNS = ("mnist-11-mnist", "cifar10-resnet20-cifar-10", "cifar100-resnets-cifar-100", "svhn-11-svhn")
README_METHODS = (OWN, BASE, "grad", "random", "smooth-random", "edges", "local-contrast")
README_ROWS = (("blurring", "auc-urr@2%"), ("anomaly", "iou"))


def read_results() -> dict[str, dict[str, Any]]:
    """Summaries by the name of run and dataset, then by protocol."""
    found: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        for path in sorted(RESULTS.glob(f"{name}-*.json")):
            summary = json.loads(path.read_text(encoding="utf-8"))
            found.setdefault(name, {})[summary["protocol"]] = summary
    return found


def protocol_table(results: Mapping[str, Mapping[str, Any]], protocol: str, metrics: Sequence[str]) -> str:
    """A row for each run and metric, a column for each method; controls last."""
    cells = {
        (name, cell.metric, cell.method): cell
        for name, by_protocol in results.items()
        if protocol in by_protocol
        for cell in [*ranked_cells(by_protocol[protocol], metrics), *variant_cells(by_protocol[protocol], metrics)]
    }
    if not cells:
        return "*Not measured yet.*"
    methods = dict.fromkeys(method for _, _, method in cells)
    methods = sorted(methods, key=lambda method: (is_control(method), method != OWN, not is_variant(method)))
    head = "| | " + " | ".join(f"`{m}`" + " (control)" * is_control(m) for m in methods) + " |"
    lines = [head, "|---" * (1 + len(methods)) + "|"]
    for name, metric in dict.fromkeys((name, metric) for name, metric, _ in cells):
        row = [interval_text(cells[name, metric, m]) if (name, metric, m) in cells else "" for m in methods]
        lines.append(f"| {NAMES[name]}, `{metric}` | " + " | ".join(row) + " |")
    return "\n".join(lines)


def is_variant(label: str) -> bool:
    """Whether a label is our own method's with other options: it is shown, and takes part in no rank."""
    return label in VARIANTS


def ranked_cells(summary: Mapping[str, Any], metrics: Sequence[str] | None = None) -> list[OverviewCell]:
    """The cells of all methods but our own's variants, ranked among themselves."""
    results = {method: found for method, found in summary["results"].items() if not is_variant(method)}
    rows = [row for row in summary["comparisons"] if not is_variant(row["a"]) and not is_variant(row["b"])]
    return overview_cells({**summary, "results": results, "comparisons": rows}, metrics)


def variant_cells(summary: Mapping[str, Any], metrics: Sequence[str]) -> list[OverviewCell]:
    """The cells of our own method's variants, without ranks."""
    cells = overview_cells(summary, metrics)
    return [replace(cell, rank=None) for cell in cells if is_variant(cell.method)]


def interval_text(cell: OverviewCell) -> str:
    """Value and interval; bold for the first, = for what cannot be told from it."""
    text = f"{short(cell.value)} [{short(cell.low)}, {short(cell.high)}]"
    if cell.rank is None:
        return text
    return f"**{text}**" if cell.first else f"{text} =" if cell.level else text


def short(value: float) -> str:
    """Three digits after the point, without the zero before it."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.2f}"


def verdict_table(results: Mapping[str, Mapping[str, Any]], method: str) -> str:
    """Where a method is first, level with the first, better or worse than UA-Backprop, and above all controls."""
    lines = [f"| | rank of `{method}` | against `{BASE}` (Holm) | the best control is |", "|---|---|---|---|"]
    for name, by_protocol in results.items():
        for key, (protocol, metrics) in TABLES.items():
            if key == "randomised":
                continue  # random maps pass that test: no control can be beaten there
            cells = ranked_cells(by_protocol[protocol], metrics) if protocol in by_protocol else []
            for metric in dict.fromkeys(cell.metric for cell in cells if cell.rank and cell.method == method):
                lines.append(verdict_row(name, metric, [cell for cell in cells if cell.metric == metric], method))
    return "\n".join(lines)


def verdict_row(name: str, metric: str, cells: Sequence[OverviewCell], method: str) -> str:
    by_method = {cell.method: cell for cell in cells}
    own = by_method[method]
    against = "better" if BASE in own.beats else "**worse**" if BASE in own.loses_to else "level"
    control = best_control(cells)
    gap = (own.rank or 0) - (control.rank or 0)
    verdict = "worse" if gap < 0 else "**better**" if gap > 0 else "equal"
    rank = f"{own.rank:g} of {len(cells)}" + (" =" if own.level and not own.first else "")
    return f"| {NAMES[name]}, `{metric}` | {rank} | {against} | `{control.method}` {short(control.value)}: {verdict} |"


def best_control(cells: Sequence[OverviewCell]) -> OverviewCell:
    """The control of the best rank in one metric."""
    return min((cell for cell in cells if is_control(cell.method)), key=lambda cell: cell.rank or 0)


def ranks_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The mean rank of every method, a row for each run and protocol; empty where a method was not run."""
    summaries = {(name, protocol): found for name, own in results.items() for protocol, found in own.items()}
    methods = dict.fromkeys(m for found in summaries.values() for m in found["results"] if not is_variant(m))
    methods = sorted(methods, key=is_control)
    head = "| | " + " | ".join(f"`{m}`" + " (control)" * is_control(m) for m in methods) + " |"
    lines = [head, "|---" * (1 + len(methods)) + "|"]
    for (name, protocol), summary in summaries.items():
        ranks = mean_ranks(ranked_cells(summary))
        best = min(ranks.values())
        texts = [f"{ranks[m]:.1f}" if m in ranks else "" for m in methods]
        bold = [f"**{text}**" if ranks.get(m) == best else text for m, text in zip(methods, texts, strict=True)]
        lines.append(f"| {NAMES[name]}, {protocol} | " + " | ".join(bold) + " |")
    return "\n".join(lines)


def causes_table(results: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """Two by two: how often each kind's map points at each cause."""
    summary = results.get(name, {}).get("causes")
    if summary is None:
        return "*Not measured yet.*"
    notes, lines = "\n".join(summary["notes"]), []
    for which, words in (("loose", "each raises its own kind"), ("strict", "and neither raises the other")):
        lines += [
            "",
            f"Images where the scores react ({words}):",
            "",
            "| | aleatoric map: mark | patch | own - other | epistemic map: mark | patch | own - other |",
            "|---|---|---|---|---|---|---|",
        ]
        for method, found in summary["results"].items():
            keys = [f"{m}@{which}{k}" for k in ("/aleatoric", "") for m in ("mark", "patch", "own-other")]
            cells = [found[key] for key in keys]
            texts = [f"{short(c['value'])} [{short(c['low'])}, {short(c['high'])}]" for c in cells]
            lines.append(f"| `{method}`{' (control)' * is_control(method)} | " + " | ".join(texts) + " |")
    return notes + "\n" + "\n".join(lines)


def sizes_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """What was run on how many images."""
    lines = ["| | " + " | ".join(sorted({p for found in results.values() for p in found})) + " |"]
    protocols = sorted({p for found in results.values() for p in found})
    lines.append("|---" * (1 + len(protocols)) + "|")
    for name, found in results.items():
        cells = [str(found[p]["settings"]["images"]) if p in found else "not run" for p in protocols]
        lines.append(f"| {NAMES[name]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def readme_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Blurring and planted patches: some methods and all controls, each dataset's two rows together."""
    heads = [f"`{method}`" + " (control)" * is_control(method) for method in README_METHODS]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for name, (protocol, metric) in product(README_RUNS, README_ROWS):
        if protocol not in results.get(name, {}):
            continue
        cells = ranked_cells(results[name][protocol], [metric])
        by_method = {cell.method: cell for cell in cells}
        texts = [interval_text(by_method[method]) for method in README_METHODS]
        lines.append(f"| {NAMES[name]}, `{metric}` | {' | '.join(texts)} |")
    return "\n".join(lines)


def fill_page(text: str, tables: Mapping[str, str]) -> str:
    """The page with each table between its markers `<!-- name -->` and `<!-- end -->`."""
    for name, table in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"There is no place for the table {name!r}.")
        text = pattern.sub(lambda found, table=table: f"{found[1]}\n{table}\n\n{found[2]}", text)
    return text


def main() -> None:
    results = read_results()
    tables = {key: protocol_table(results, protocol, metrics) for key, (protocol, metrics) in TABLES.items()}
    tables |= {marker: causes_table(results, name) for marker, name in CAUSES.items()}
    tables |= {"verdict": verdict_table(results, OWN)}
    tables |= {"sizes": sizes_table(results), "ranks": ranks_table(results)}
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
    readme = {"results": readme_table(results).replace(f"`{OWN}`", "`auto`")}
    README.write_text(fill_page(README.read_text(encoding="utf-8"), readme), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {sum(len(found) for found in results.values())} results")


if __name__ == "__main__":
    main()
