"""The paper's claims as comparisons of two rows, each with a verdict that follows from our intervals."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dubium.reproduce.cells import label_among, signed_text, tag_words
from dubium.reproduce.entries import ENTRIES
from dubium.reproduce.paper import paper_value, read_paper
from dubium.reproduce.result import read_result

LOWER = ("auc-urr@2%", "auc-urr@5%", "nll", "seconds")
"""Metrics of which less is better."""


@dataclass(frozen=True)
class Claim:
    """The row `first` is better than the row `second`, in the same column of a table on each of some datasets."""

    words: str
    entry: str
    first: str
    second: str
    metric: str
    datasets: tuple[str, ...]


GREY_AND_COLOUR, COLOUR = ("mnist", "svhn", "cifar-10", "cifar-100"), ("svhn", "cifar-10", "cifar-100")
CLAIMS = (
    Claim("UA-Backprop's pixels matter more than random ones", "random", "Ours", "Random", "murr@2%",
          ("mnist", "svhn")),
    Claim("UA-Backprop is above Grad", "blurring", "Ours", "Grad", "murr@2%", GREY_AND_COLOUR),
    Claim("UA-Backprop is above SmoothGrad", "blurring", "Ours", "SmoothGrad", "murr@2%", GREY_AND_COLOUR),
    Claim("UA-Backprop is above IG", "blurring", "Ours", "IG", "murr@2%", ("mnist", "cifar-100")),
    Claim("UA-Backprop is above Blur IG", "blurring", "Ours", "Blur IG", "murr@2%", ("mnist", "cifar-100")),
    Claim("Blur IG is above UA-Backprop", "blurring", "Blur IG", "Ours", "murr@2%", ("svhn", "cifar-10")),
    Claim("UA-Backprop is above CLUE", "blurring", "Ours", "CLUE", "murr@2%", GREY_AND_COLOUR),
    Claim("Normalisation raises MURR", "no-normalisation", "With normalisation", "Without normalisation", "murr@2%",
          ("mnist", "cifar-10")),
    Claim("FullGrad is the better way from z to x than Grad", "paths", "UA-Backprop + FullGrad", "UA-Backprop + Grad",
          "murr@2%", ("mnist", "svhn")),
    Claim("InputGrad is better than FullGrad there", "paths", "UA-Backprop + InputGrad", "UA-Backprop + FullGrad",
          "murr@2%", ("mnist",)),
    Claim("Five networks explain better than one", "single", "Ours-Ensemble-5", "Ours-Ensemble-1", "murr@2%",
          ("mnist", "cifar-10")),
    Claim("UA-Backprop finds planted patches better than Grad", "anomaly", "Ours", "Grad", "iou", COLOUR),
    Claim("UA-Backprop finds them better than Blur IG", "anomaly", "Ours", "Blur IG", "iou", COLOUR),
    Claim("UA-Backprop is faster than Blur IG", "runtime", "Ours", "Blur IG", "seconds", ("mnist", "cifar-10")),
    Claim("UA-Backprop is faster than CLUE", "runtime", "Ours", "CLUE", "seconds", ("mnist", "cifar-10")),
    Claim("Attention of alpha .2 raises accuracy", "vary-alpha", "0.2", "0.0", "accuracy", ("mnist", "cifar-10")),
    Claim("Attention of alpha 2 raises accuracy", "vary-alpha", "2.0", "0.0", "accuracy", ("mnist", "cifar-10")),
    Claim("Attention in input space does as well or better", "space", "Ours-input", "Ours-latent", "accuracy",
          ("cifar-10",)),
    Claim("Attention raises accuracy", "mitigation", "Ours", "No attention", "accuracy", GREY_AND_COLOUR),
)  # fmt: skip


VERDICTS = {
    "**reproduces**": "Reproduces",
    "**the opposite**": "Comes out the other way",
    "cannot be told": "Cannot be told from noise",
}
UNMEASURED = "Not measured yet"


@dataclass(frozen=True)
class Judgement:
    """What a claim is worth on one dataset; `low` and `high` are the ends of the interval of our difference."""

    difference: float
    low: float
    high: float
    paper: float
    source: str

    def verdict(self, metric: str) -> str:
        low, high = (-self.high, -self.low) if metric in LOWER else (self.low, self.high)
        if not low < high:  # one image or seed has no interval
            return "cannot be told"
        return "**reproduces**" if low > 0 else "**the opposite**" if high < 0 else "cannot be told"


def claim_lines(results: Path, scale: str, titles: Mapping[str, str]) -> Iterator[str]:
    """A table with a line for each claim and dataset that was measured."""
    yield "| claim of the paper | | its difference | ours [95 % interval] | verdict |"
    yield "|---|---|---|---|---|"
    for claim in CLAIMS:
        for dataset in claim.datasets:
            for found in judge_claim(claim, dataset, results, scale):
                interval = difference_text(Difference(found.difference, found.low, found.high))
                tag = f" ({tag_words(found.source)})" if found.source else ""
                cells = [claim.words, f"{titles[dataset]}{tag}, {claim.metric}", signed_text(found.paper), interval]
                yield "| " + " | ".join([*cells, found.verdict(claim.metric)]) + " |"


def judge_claim(claim: Claim, dataset: str, results: Path, scale: str) -> Iterator[Judgement]:
    """The claim with the entry's own networks, and with others where these were measured."""
    entry, column = ENTRIES[claim.entry], f"{dataset}/{claim.metric}"
    rows = entry.rows(scale)
    table = next(name for name in entry.tables if column in read_paper()["tables"][name]["columns"])
    shift = 0.01 if read_paper()["tables"][table].get("percent") and claim.metric == "accuracy" else 1
    paper = shift * (paper_value(table, claim.first, column) - paper_value(table, claim.second, column))
    (job, a, metric), (other, b, _) = (entry.source(rows[row], column) for row in (claim.first, claim.second))
    tags = ["", *(path.stem.partition("@")[2] for path in sorted(results.glob(f"{job}@*.json")))]
    for tag in tags:
        first, second = (read_result(results, f"{name}@{tag}" if tag else name) for name in (job, other))
        if first is not None and second is not None:
            a, b = label_among(first["results"], a), label_among(second["results"], b)
            found = paired_difference(first, a, b, metric) if job == other else None
            found = found or interval_gap(first["results"].get(a, {}), second["results"].get(b, {}), claim.metric)
            if found is not None:
                yield Judgement(*found, paper, tag)


class Difference(NamedTuple):
    """Of two rows, with the ends of its interval."""

    value: float
    low: float
    high: float

    @property
    def is_above_zero(self) -> bool:
        """Whether the interval is; one image or seed has none."""
        return self.high > self.low > 0


def difference_text(found: Difference, factor: int = 1, digits: int | None = None) -> str:
    """A difference with its sign, and its interval if it has one.

    >>> difference_text(Difference(0.5, 0.25, 0.75)), difference_text(Difference(0.5, 0.5, 0.5))
    ('+.500 [+.250, +.750]', '+.500')
    """
    value, low, high = (signed_text(factor * number, digits) for number in found)
    return f"{value} [{low}, {high}]" if found.low < found.high else value


def paired_difference(content: Mapping[str, Any], a: str, b: str, metric: str) -> Difference | None:
    """`a - b` on the same images or seeds, with the interval that the evaluation computed."""
    for row in content["comparisons"]:
        if row["metric"] == metric and {row["a"], row["b"]} == {a, b}:
            sign = 1 if row["a"] == a else -1
            low, high = sorted((sign * row["low"], sign * row["high"]))
            return Difference(sign * row["difference"], low, high)
    return None


def interval_gap(first: Mapping[str, Any], second: Mapping[str, Any], metric: str) -> Difference | None:
    """The difference of two numbers, from the far ends of their intervals: wider than a paired interval."""
    a = next((found for name, found in first.items() if name.partition("/")[0] == metric), None)
    b = next((found for name, found in second.items() if name.partition("/")[0] == metric), None)
    if a is None or b is None:
        return None
    return Difference(a["value"] - b["value"], a["low"] - b["high"], a["high"] - b["low"])


def verdict_lines(results: Path, scale: str, titles: Mapping[str, str]) -> Iterator[str]:
    """The claims by their verdict, in words; what was not measured is named too."""
    found: dict[str, dict[str, list[str]]] = {words: {} for words in (*VERDICTS.values(), UNMEASURED)}
    for claim in CLAIMS:
        for dataset in claim.datasets:
            judged = list(judge_claim(claim, dataset, results, scale))
            for each in judged:
                where = titles[dataset] + (f" with {tag_words(each.source)}" if each.source else "")
                found[VERDICTS[each.verdict(claim.metric)]].setdefault(claim.words, []).append(where)
            if not judged:
                found[UNMEASURED].setdefault(claim.words, []).append(titles[dataset])
    for words, claims in found.items():
        if words == VERDICTS["cannot be told"] and claims:
            count = sum(len(where) for where in claims.values())
            yield f"- **{words}**: the other {count}; the table below has them all."
        elif claims:
            text = "; ".join(f"{claim} ({', '.join(where)})" for claim, where in claims.items())
            yield f"- **{words}**: {text}."


def verdict_counts(results: Path, scale: str) -> str:
    """How many of the claims that were measured reproduce."""
    verdicts = [
        found.verdict(claim.metric)
        for claim in CLAIMS
        for dataset in claim.datasets
        for found in judge_claim(claim, dataset, results, scale)
    ]
    counts = {word: verdicts.count(word) for word in ("**reproduces**", "cannot be told", "**the opposite**")}
    return (
        f"Of {len(verdicts)} comparisons that the paper's text rests on and that were measured, "
        f"{counts['**reproduces**']} reproduce, {counts['**the opposite**']} come out the other way, and "
        f"{counts['cannot be told']} cannot be told from noise."
    )
