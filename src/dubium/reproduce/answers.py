"""The first screens of the page: what a reader asks, answered in sentences that are made of the numbers."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dubium.reproduce.cells import TableGroup, entry_groups, number_text, ours_text
from dubium.reproduce.claims import paired_difference, verdict_counts, verdict_lines
from dubium.reproduce.entries import ENTRIES
from dubium.reproduce.findings import AUTO, METRICS, OURS, TITLES, group_title, group_values, rank_in_group
from dubium.reproduce.result import read_result
from dubium.reproduce.trials import attention_sentence, points_text, strategy_sentence

CAVEATS = (
    "Keep in mind: the networks are not the paper's; where the paper leaves a setting open, the reading is ours, such "
    "as Blur IG's path up to sigma 20 and FullGrad's terms scaled as in its authors' code; intervals are over images "
    "or seeds, not over networks trained anew, and with two seeds they are wide, or narrow by chance."
)
PICK = (
    '**What to pick.** `method="auto"`, which stands for `blur-path`: [which-method.md](which-method.md) has the '
    "evidence, on more protocols than the paper has. Take `ua-backprop` to compare with the paper."
)


def answer_lines(results: Path, scale: str) -> list[str]:
    """A paragraph for each question, then the verdicts on the paper's comparisons."""
    answers = [
        *rank_lines(results, scale),
        *attention_lines(results),
        *trial_lines(results),
        *temperature_lines(results, scale),
        *depend_lines(results, scale),
        *property_lines(results),
        PICK,
    ]
    lines = [f"- {answer}" for answer in answers]
    verdicts = verdict_lines(results, scale, TITLES)
    return [*lines, "", verdict_counts(results, scale), "", *verdicts, "", CAVEATS, ""]


def rank_lines(results: Path, scale: str) -> Iterator[str]:
    """Where UA-Backprop comes among the paper's methods, and on how many datasets `auto` is above it."""
    for name, metric, words in (
        ("blurring", "murr@2%", "when the blamed pixels are blurred"),
        ("anomaly", "iou", "in finding planted patches"),
    ):
        ranks, above = [], []
        for group in entry_groups(ENTRIES[name], results, scale):
            place = group.metrics.index(metric)
            if group.tag or group.rows[OURS][place].ours is None:
                continue
            rank, count, theirs = rank_in_group(group, place)
            ranks.append(f"{group_title(group.name)} {rank} of {count} (in the paper {theirs})")
            values = group_values(group, place)
            above.append(AUTO in values and values[AUTO] > values[OURS])
        if ranks:
            yield (
                f"**Where UA-Backprop ranks** {words}, {METRICS[metric]}, among the paper's methods: "
                f"{', '.join(ranks)}. `auto` is above it on {sum(above)} of {len(above)} datasets."
            )


def attention_lines(results: Path) -> Iterator[str]:
    """Whether the paper's attention helped, from comparisons with no attention on the same seeds."""
    sentences = []
    for dataset, theirs in (("mnist", "+1.17"), ("cifar-10", "+4.86"), ("svhn", "+4.49"), ("cifar-100", "+.10")):
        content = read_result(results, f"mitigation-{dataset}")
        found = None if content is None else paired_difference(content, OURS, "No attention", "accuracy")
        if content is not None and found is not None:
            seeds = content["settings"]["seeds"]
            sentences.append(f"{TITLES[dataset]} {points_text(found)}, {seeds} seeds (the paper {theirs})")
    if sentences:
        yield (
            "**Whether the paper's attention helps.** Accuracy with it minus without, in points, on the same seeds: "
            f"{'; '.join(sentences)}. As printed, with a softmax over all pixels, it multiplies features by about "
            "1.0003 everywhere; what is seen is mostly how much two trainings differ by chance."
        )


def trial_lines(results: Path) -> Iterator[str]:
    """Stronger attention, and other uses of doubt, over ten seeds and on fresh ones."""
    for name, head, sentence in (
        (
            "attention",
            "**Whether stronger attention helps** (ours: each map divided by its highest value; alpha .2, 1 and 2; on "
            "features or on the image). Accuracy minus that of none, in points:",
            attention_sentence,
        ),
        (
            "strategies",
            "**Whether any other use of doubt in training helps** (ours: weights of images, blurred or cut pixels, a "
            "penalty on gradients, choice of images). Accuracy minus that of the same thing with shuffled scores or "
            "random maps, in points; bold where it is above that and above plain training:",
            strategy_sentence,
        ),
    ):
        contents = [(job, read_result(results, job.name)) for job in ENTRIES[name].jobs("cpu")]
        found = [
            sentence(TITLES[job.dataset] + ", fresh seeds" * job.name.endswith("again"), content)
            for job, content in contents
            if content is not None
        ]
        if found:
            yield f"{head} {'. '.join(found)}."


def temperature_lines(results: Path, scale: str) -> Iterator[str]:
    """The most that tau1 alone and tau2 alone move MURR, against the interval of one pair."""
    sentences = []
    for group in entry_groups(ENTRIES["temperatures"], results, scale):
        rows = {row: cells[0].ours for row, cells in group.rows.items() if row not in group.own}
        known = {row: found for row, found in rows.items() if found is not None}
        if len(known) > 1:
            first = next(iter(known.values()))
            tau1, tau2 = (number_text(spread_along(known, place)) for place in (0, 1))
            width = number_text(first["high"] - first["low"])
            sentences.append(f"{group_title(group.name)} {tau1} and {tau2}, where the interval is {width} wide")
    if sentences:
        yield (
            "**Which temperature matters.** The most by which tau1 alone and tau2 alone move MURR at 2 % over the "
            f"paper's pairs: {'; '.join(sentences)}."
        )


def spread_along(rows: Mapping[str, Mapping[str, Any]], place: int) -> float:
    """The greatest difference between rows such as `tau1=0.55, tau2=0.02` that have the other temperature in common."""
    by_other: dict[str, list[float]] = {}
    for name, found in rows.items():
        by_other.setdefault(name.split(", ")[1 - place], []).append(found["value"])
    return max(max(values) - min(values) for values in by_other.values())


def depend_lines(results: Path, scale: str) -> Iterator[str]:
    """How much one number depends on the networks."""
    groups = [group for group in entry_groups(ENTRIES["blurring"], results, scale) if group.name == "svhn"]
    found = [(group.tag or "trained here", ours_number(group)) for group in groups if OURS in group.rows]
    values = [f"{ours_text(ours)} ({tag})" for tag, ours in found if ours is not None]
    if len(values) > 1:
        yield (
            "**The networks decide as much as the method.** UA-Backprop's MURR at 2 % on SVHN with different "
            f"ensembles: {'; '.join(values)}; the paper's network had .625."
        )


def ours_number(group: TableGroup) -> Mapping[str, Any] | None:
    return group.rows[OURS][0].ours


def property_lines(results: Path) -> Iterator[str]:
    """Properties that the paper's table states and that do not hold, or the reverse."""
    content = read_result(results, "properties")
    if content is None:
        return
    differ = []
    for group in entry_groups(ENTRIES["properties"], results, content["scale"]):
        for row, cells in group.rows.items():
            for metric, cell in zip(group.metrics, cells, strict=True):
                if cell.text().startswith("**"):
                    differ.append(f"{row}: {metric} ({'holds' if (cell.ours or {}).get('holds') else 'does not hold'})")
    yield f"**Properties that differ from the paper's table**: {'; '.join(differ) or 'none'}."
