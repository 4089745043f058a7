"""The first screens of the page: what a reader asks, answered in sentences that are made of the numbers."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dubium.checks import count_text
from dubium.reproduce.cells import TableGroup, entry_groups, measured_text, number_text
from dubium.reproduce.claims import Difference, paired_difference, verdict_counts, verdict_lines
from dubium.reproduce.entries import ENTRIES
from dubium.reproduce.findings import (
    BLUR_PATH_ROW,
    METRICS,
    TITLES,
    UA_BACKPROP_ROW,
    group_title,
    group_values,
    rank_in_group,
)
from dubium.reproduce.result import read_result
from dubium.reproduce.sources import older_methods
from dubium.reproduce.trials import (
    attention_sentence,
    attention_verdict,
    points_text,
    strategy_sentence,
    strategy_verdict,
)

CAVEATS = (
    "Keep in mind: the networks are not the paper's; where the paper leaves a setting open, the reading is ours, such "
    "as Blur IG's path up to sigma 20 and FullGrad's terms scaled as in its authors' code; intervals are over images "
    "or seeds, not over networks trained anew; with two seeds they are wide, even beyond 0 and 100 %, or narrow by "
    "chance. [evaluation.md](evaluation.md) says what MURR, AUC-URR, IoU and ADA measure."
)
PICK = (
    '**What to pick.** `method="auto"`, which is `blur-path` with `net=1`: [which-method.md](which-method.md) has the '
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
    return [*lines, "", verdict_counts(results, scale), "", *verdicts, "", CAVEATS + older_words(results), ""]


def older_words(results: Path) -> str:
    """How many results were made with methods whose maps are others now."""
    contents = [read_result(results, path.stem) for path in sorted(results.glob("*.json"))]
    older = [names for content in contents if content is not None and (names := older_methods(content))]
    if not older:
        return ""
    methods = " and ".join(sorted({name for names in older for name in names}))
    return (
        f" **{len(older)} of {len(contents)} results were made with an earlier version of {methods}**, some of "
        "whose maps are others now: this is said below each of their tables."
    )


def rank_lines(results: Path, scale: str) -> Iterator[str]:
    """Where UA-Backprop comes among the paper's methods, and on how many datasets `blur-path` is above it."""
    for name, metric, words in (
        ("blurring", "murr@2%", "when the blamed pixels are blurred"),
        ("anomaly", "iou", "in finding planted patches"),
    ):
        ranks, first, above = [], [], []
        for group in entry_groups(ENTRIES[name], results, scale):
            column = group.metrics.index(metric)
            if group.tag or group.rows[UA_BACKPROP_ROW][column].measured is None:
                continue
            rank, count, paper_rank = rank_in_group(group, column)
            ranks.append(f"{group_title(group.name)} {rank} of {count} (in the paper {paper_rank})")
            first.append((rank == 1, paper_rank == 1))
            values = group_values(group, column)
            above.append(BLUR_PATH_ROW in values and values[BLUR_PATH_ROW] > values[UA_BACKPROP_ROW])
        if ranks:
            wins, paper_wins = (sum(each) for each in zip(*first, strict=True))
            yield (
                f"**UA-Backprop is first of the paper's methods on {wins} of {len(first)} datasets {words}** (in the "
                f"paper on {paper_wins} of these). Its rank by {METRICS[metric]}: {', '.join(ranks)}. `blur-path` is "
                f"above it on {sum(above)} of {len(above)}."
            )


PAPER_GAINS = {"mnist": "+1.17", "cifar-10": "+4.86", "svhn": "+4.49", "cifar-100": "+.10"}
"""Points of accuracy that attention brings in the paper."""


def attention_lines(results: Path) -> Iterator[str]:
    """Whether the paper's attention helped, from comparisons with no attention on the same seeds."""
    found = attention_gains(results)
    if found:
        sentences = [
            f"{TITLES[name]} {points_text(gain)}, {count_text(seeds, 'seed')} (the paper {PAPER_GAINS[name]})"
            for name, (gain, seeds) in found.items()
        ]
        yield (
            f"**The paper's attention {gain_verdict(results)}.** With it minus without, in points, on the same seeds: "
            f"{'; '.join(sentences)}. As printed, with a softmax over all pixels, it multiplies features by about "
            "1.0003 everywhere; what is seen is how much trainings differ."
        )


def attention_gains(results: Path) -> dict[str, tuple[Difference, int]]:
    """Accuracy with the paper's attention minus without, and the number of seeds, by dataset."""
    found = {}
    for name in PAPER_GAINS:
        content = read_result(results, f"mitigation-{name}")
        gain = None if content is None else paired_difference(content, UA_BACKPROP_ROW, "No attention", "accuracy")
        if content is not None and gain is not None:
            found[name] = gain, int(content["settings"]["seeds"])
    return found


def gain_verdict(results: Path) -> str:
    gains = [gain for gain, _ in attention_gains(results).values()]
    return f"raises accuracy beyond chance on {sum(gain.is_above_zero for gain in gains)} of {len(gains)} datasets"


def mitigation_words(results: Path) -> str:
    """In one sentence, whether anything helps in training."""
    attention, strategies = (trial_contents(results, name) for name in ("attention", "strategies"))
    parts = [f"the paper's attention {gain_verdict(results)}"] if attention_gains(results) else []
    parts += [f"stronger attention {attention_verdict(attention)}"] if attention else []
    parts += [f"of other uses of doubt in training, {strategy_verdict(strategies)}"] if strategies else []
    return f"Whether maps help to train: {'; '.join(parts)}." if parts else ""


def trial_lines(results: Path) -> Iterator[str]:
    """Stronger attention, and other uses of doubt, over ten seeds and on fresh ones."""
    attention, strategies = (trial_contents(results, name) for name in ("attention", "strategies"))
    if attention:
        yield (
            f"**Stronger attention** (ours: maps divided by their highest value; alpha .2, 1 and 2; on features or on "
            f"the image) **{attention_verdict(attention)}.** Accuracy minus that of none, in points: "
            f"{'. '.join(attention_sentence(title, content) for title, content in attention)}."
        )
    if strategies:
        yield (
            f"**Other uses of doubt in training** (ours): **{strategy_verdict(strategies)}.** Accuracy minus that of "
            "the same thing with shuffled scores or random maps, and minus plain training, in points: "
            f"{strategy_sentence(strategies)}."
        )


def trial_contents(results: Path, name: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The trials of an entry that were measured, each under the name of its dataset."""
    contents = [(job, read_result(results, job.name)) for job in ENTRIES[name].jobs("cpu")]
    return [
        (TITLES[job.dataset] + ", fresh seeds" * job.name.endswith("again"), content)
        for job, content in contents
        if content is not None
    ]


def temperature_lines(results: Path, scale: str) -> Iterator[str]:
    """The most that tau1 alone and tau2 alone move MURR, against the interval of one pair."""
    sentences, matters = [], []
    for group in entry_groups(ENTRIES["temperatures"], results, scale):
        rows = {row: cells[0].measured for row, cells in group.rows.items() if row not in group.added_rows}
        known = {row: found for row, found in rows.items() if found is not None}
        if len(known) > 1:
            first = next(iter(known.values()))
            spreads, width = [spread_along(known, axis) for axis in (0, 1)], first["high"] - first["low"]
            tau1, tau2 = (number_text(spread) for spread in spreads)
            matters += [f"tau{1 + axis}" for axis in (0, 1) if spreads[axis] > width]
            sentences.append(
                f"{group_title(group.name)} {tau1} and {tau2}, where the interval is {number_text(width)} wide"
            )
    if sentences:
        verdict = f"{' and '.join(sorted(set(matters)))} matters" if matters else "Neither temperature matters here"
        yield (
            f"**{verdict}.** The most by which tau1 alone and tau2 alone move MURR at 2 % over the paper's pairs: "
            f"{'; '.join(sentences)}."
        )


def spread_along(rows: Mapping[str, Mapping[str, Any]], axis: int) -> float:
    """The greatest difference between rows such as `tau1=0.55, tau2=0.02` that have the other temperature in common."""
    by_other: dict[str, list[float]] = {}
    for name, found in rows.items():
        by_other.setdefault(name.split(", ")[1 - axis], []).append(found["value"])
    return max(max(values) - min(values) for values in by_other.values())


def depend_lines(results: Path, scale: str) -> Iterator[str]:
    """How much one number depends on the networks."""
    groups = [group for group in entry_groups(ENTRIES["blurring"], results, scale) if group.name == "svhn"]
    found = [(group, measured_number(group)) for group in groups if UA_BACKPROP_ROW in group.rows]
    values = [
        f"{measured_text(measured)} with {networks_words(group)}" for group, measured in found if measured is not None
    ]
    if len(values) > 1:
        yield (
            "**The networks decide as much as the method.** UA-Backprop's MURR at 2 % on SVHN with different "
            f"ensembles: {'; '.join(values)}; the paper's network had .625."
        )


def networks_words(group: TableGroup) -> str:
    """How many networks, of which origin, and how often they are right."""
    about = group.results[0]["settings"].get("posterior") or {}
    accuracy = (about.get("test") or {}).get("accuracy")
    right = f", {accuracy:.0%} of the test images right" if accuracy else ""
    origin = "public networks" if "public" in about else "networks trained here"
    return f"{about.get('members', 'other')} {origin} ({group.tag or 'those of the tables'}{right})"


def measured_number(group: TableGroup) -> Mapping[str, Any] | None:
    return group.rows[UA_BACKPROP_ROW][0].measured


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
                    differ.append(
                        f"{row}: {metric} ({'holds' if (cell.measured or {}).get('holds') else 'does not hold'})"
                    )
    yield f"**Properties that differ from the paper's table**: {'; '.join(differ) or 'none'}."
