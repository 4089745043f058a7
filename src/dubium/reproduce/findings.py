"""What reproduces and what does not, in sentences that are made of the numbers."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dubium.reproduce.cells import TableGroup, entry_groups, number_text, ours_text, signed_text
from dubium.reproduce.claims import claim_lines, paired_difference, verdict_counts, verdict_lines
from dubium.reproduce.entries import ENTRIES
from dubium.reproduce.job import CONTROL
from dubium.reproduce.result import read_result

TITLES = {"mnist": "MNIST", "svhn": "SVHN", "cifar-10": "CIFAR-10", "cifar-100": "CIFAR-100"}
METRICS = {
    "murr@2%": "MURR at 2 %",
    "murr@5%": "MURR at 5 %",
    "auc-urr@2%": "AUC-URR at 2 %",
    "auc-urr@5%": "AUC-URR at 5 %",
    "iou": "IoU",
    "ada": "ADA",
    "accuracy": "accuracy (%)",
    "nll": "NLL",
    "seconds": "seconds",
}
LOWER = ("auc-urr@2%", "auc-urr@5%", "nll")
OURS, AUTO = "Ours", "auto (blur-path)"
CAVEATS = (
    "Keep in mind: the networks are not the paper's, and they decide much (see below); where the paper leaves a "
    "setting open, the reading is ours, such as Blur IG's path up to sigma 20, and FullGrad's terms scaled as in its "
    "authors' code; intervals are over images or seeds, not over networks trained anew, and with two or three "
    "seeds they are wide, or narrow by chance.",
)
PICK = (
    '**What to pick.** `method="auto"`, which stands for `blur-path`: [which-method.md](which-method.md) has the '
    "evidence, on more protocols than the paper has. Take `ua-backprop` to compare with the paper."
)


def group_title(name: str) -> str:
    """`mnist-200` as `MNIST, 200 images`."""
    if name in TITLES:
        return TITLES[name]
    dataset, _, count = name.rpartition("-")
    return f"{TITLES[dataset]}, {count} images" if dataset in TITLES else name


def finding_lines(results: Path, scale: str) -> list[str]:
    """The first screens of the page."""
    lines = [verdict_counts(results, scale), "", *verdict_lines(results, scale, TITLES), "", *CAVEATS, ""]
    lines += [*claim_lines(results, scale, TITLES), ""]
    lines += ["**Where UA-Backprop ranks** among the paper's methods that were measured (its rank there in brackets):"]
    lines += ["", *rank_table(results, scale), ""]
    lines += [*depend_lines(results, scale), *attention_lines(results), *strategy_lines(results)]
    lines += [*temperature_lines(results, scale)]
    return [*lines, *property_lines(results), PICK, ""]


def rank_table(results: Path, scale: str) -> Iterator[str]:
    """A line for each metric and dataset of the two protocols that judge maps."""
    yield "| | rank of UA-Backprop (paper) | UA-Backprop, ours / paper | first among them | `auto` | best control |"
    yield "|---|---|---|---|---|---|"
    for name in ("blurring", "anomaly"):
        for group in entry_groups(ENTRIES[name], results, scale):
            for place, cell in enumerate(group.rows.get(OURS, ())):
                if cell.ours is not None:
                    yield rank_line(group, place)


def rank_line(group: TableGroup, place: int) -> str:
    metric = group.metrics[place]
    ours = {row: cells[place].ours for row, cells in group.rows.items()}
    paper = {row: cells[place].paper for row, cells in group.rows.items() if row not in group.own}
    values = {row: found["value"] for row, found in ours.items() if found is not None}
    mine = order_rows({row: value for row, value in values.items() if row not in group.own}, metric)
    theirs = order_rows({row: value for row, value in paper.items() if row in mine}, metric)
    controls = order_rows({row: value for row, value in values.items() if row.endswith("(control)")}, metric)
    rank = f"{mine.index(OURS) + 1} of {len(mine)} ({theirs.index(OURS) + 1})"
    cells = [
        f"{group_title(group.name)}{f' ({group.tag})' if group.tag else ''}, {METRICS[metric]}",
        rank,
        group.rows[OURS][place].text(),
        f"{mine[0]} {number_text(values[mine[0]])}",
        number_text(values[AUTO]) if AUTO in values else "–",
        f"{controls[0]} {number_text(values[controls[0]])}".replace(" (control)", "") if controls else "–",
    ]
    return "| " + " | ".join(cells) + " |"


def order_rows(values: Mapping[str, float], metric: str) -> list[str]:
    """Rows from the best to the worst."""
    return sorted(values, key=lambda row: values[row], reverse=metric not in LOWER)


def depend_lines(results: Path, scale: str) -> Iterator[str]:
    """How much one number depends on the networks."""
    groups = [group for group in entry_groups(ENTRIES["blurring"], results, scale) if group.name == "svhn"]
    found = [(group.tag or "trained here", group.rows[OURS][0].ours) for group in groups if OURS in group.rows]
    values = [f"{ours_text(ours)} ({tag})" for tag, ours in found if ours is not None]
    if len(values) > 1:
        yield (
            f"**The networks decide more than the method.** UA-Backprop's MURR at 2 % on SVHN is {'; '.join(values)}; "
            "the paper's network had .625.\n"
        )


def attention_lines(results: Path) -> Iterator[str]:
    """Whether attention helped, from comparisons with no attention on the same seeds."""
    sentences = []
    for dataset in ("mnist", "cifar-10", "svhn", "cifar-100"):
        content = read_result(results, f"mitigation-{dataset}")
        found = None if content is None else paired_difference(content, OURS, "No attention", "accuracy")
        if content is not None and found is not None:
            sentences.append(f"{TITLES[dataset]} {points_text(found)}, {content['settings']['seeds']} seeds")
    if sentences:
        yield (
            "**Whether attention helps.** Accuracy with the paper's attention minus without, in points of per cent, on "
            f"the same seeds: {'; '.join(sentences)}. The paper has +1.17, +4.86, +4.49 and +.10 (MNIST, CIFAR-10, "
            "SVHN, CIFAR-100).\n"
        )
    for dataset in ("mnist", "cifar-10"):
        content = read_result(results, f"attention-{dataset}")
        if content is not None:
            yield strongest_line(dataset, content)


def strongest_line(dataset: str, content: Mapping[str, Any]) -> str:
    """Stronger attention over the seeds: how many arms differ from none, of networks and of controls."""
    arms = [label for label in content["results"] if label != "No attention"]
    found = {arm: paired_difference(content, arm, "No attention", "accuracy") for arm in arms}
    known = {arm: row for arm, row in found.items() if row is not None}
    better = [arm for arm, (_, low, _) in known.items() if low > 0]
    worse = [arm for arm, (_, _, high) in known.items() if high < 0]
    best = max(known, key=lambda arm: known[arm][0])
    return (
        f"**Stronger attention** (`unit`, alpha .2 to 2, on features and on the image) on {TITLES[dataset]}, "
        f"{content['settings']['seeds']} seeds: {len(better)} of {len(known)} arms are above no attention by an "
        f"interval that excludes zero ({', '.join(better) or 'none'}), {len(worse)} below it "
        f"({', '.join(worse) or 'none'}). The highest is {best}, {points_text(known[best])}. With so many arms, one or "
        "two are expected to pass by chance, and maps that know nothing of the networks (random, edges) are among "
        "them as a control.\n"
    )


def strategy_lines(results: Path) -> Iterator[str]:
    """Every other use of doubt against its control, on each dataset and on fresh seeds."""
    for job in ENTRIES["strategies"].jobs("cpu"):
        content = read_result(results, job.name)
        if content is None:
            continue
        names = [label.removesuffix(CONTROL) for label in content["results"] if label.endswith(CONTROL)]
        found = {name: paired_difference(content, name, name + CONTROL, "accuracy") for name in names}
        words = "; ".join(f"{name} {points_text(values)}" for name, values in found.items() if values is not None)
        fresh = ", fresh seeds" * job.name.endswith("again")
        seeds = content["settings"]["seeds"]
        yield (
            f"**Other uses of doubt in training** on {TITLES[job.dataset]}{fresh}, {seeds} seeds, accuracy minus "
            f"that of the same thing with random scores or pixels, in points: {words}.\n"
        )


def points_text(found: tuple[float, float, float]) -> str:
    difference, low, high = (100 * value for value in found)
    return f"{signed_text(difference, 2)} [{signed_text(low, 2)}, {signed_text(high, 2)}]"


def temperature_lines(results: Path, scale: str) -> Iterator[str]:
    """The spread over the pairs of temperatures, against the interval of one of them."""
    for group in entry_groups(ENTRIES["temperatures"], results, scale):
        rows = {row: cells[0].ours for row, cells in group.rows.items() if row not in group.own}
        values = {row: found["value"] for row, found in rows.items() if found is not None}
        first = next(iter(rows.values()))
        if len(values) > 1 and first is not None:
            lowest, highest = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
            yield (
                f"**Which temperature matters**, {group_title(group.name)}: over the paper's pairs MURR at 2 % goes "
                f"from {number_text(values[lowest])} ({lowest}) to {number_text(values[highest])} ({highest}); the "
                f"interval of the first pair alone is {number_text(first['low'])} to {number_text(first['high'])}.\n"
            )


def property_lines(results: Path) -> Sequence[str]:
    """Properties that the paper's table states and that do not hold, or the reverse."""
    content = read_result(results, "properties")
    if content is None:
        return []
    differ = []
    for group in entry_groups(ENTRIES["properties"], results, content["scale"]):
        for row, cells in group.rows.items():
            for metric, cell in zip(group.metrics, cells, strict=True):
                if cell.text().startswith("**"):
                    differ.append(f"{row}: {metric} ({'holds' if (cell.ours or {}).get('holds') else 'does not hold'})")
    return [f"**Properties that differ from the paper's table**: {'; '.join(differ) or 'none'}.\n"]
