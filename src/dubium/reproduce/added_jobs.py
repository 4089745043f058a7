"""Jobs of entries that the paper does not have: whether attention or anything else helps, and other networks."""

from collections.abc import Sequence

from dubium.reproduce.arms import attention_arms
from dubium.reproduce.job import CONTROL, Job, job_name
from dubium.reproduce.rows import PaperRow, added_rows, method_rows
from dubium.reproduce.settings import BLURRING, SEEDS, TRIALS, options_for
from dubium.reproduce.strategies import PLAIN, STRATEGIES

DATASETS = ("mnist", "cifar-10")
HELPED = ("choice",)
"""Strategies that helped on the first seeds of the first dataset; these alone are tried on the other, and again."""


def attention_jobs(scale: str) -> list[Job]:
    """Whether attention helps at all: stronger attention of several maps against none, over several trainings."""
    found = []
    for dataset in DATASETS:
        options = {**options_for(TRIALS, scale, dataset), "seeds": SEEDS[scale]}
        arms = tuple(attention_arms())
        found.append(Job(job_name("attention", dataset), "mitigation", dataset, arms=arms, options=options))
    return found


def strategy_jobs(scale: str) -> list[Job]:
    """Other ways to use doubt in training; what helps must do so on both datasets, and again on fresh seeds."""
    found = []
    for tag, first in (("", 0), ("again", SEEDS[scale])):
        for dataset in DATASETS:
            options = {**options_for(TRIALS, scale, dataset), "seeds": SEEDS[scale], "first seed": first}
            name = job_name("strategies", dataset, tag or "ensemble")
            methods = strategy_labels(tuple(STRATEGIES) if dataset == DATASETS[0] and not tag else HELPED)
            found.append(Job(name, "strategies", dataset, methods=methods, options=options))
    return found


def strategy_labels(names: Sequence[str] = tuple(STRATEGIES)) -> tuple[str, ...]:
    """Plain training, then each strategy and its control."""
    used = [name for name in names if name != PLAIN]
    return (PLAIN, *(label for name in used for label in (name, name + CONTROL)))


def strategy_rows() -> dict[str, PaperRow]:
    return {label: PaperRow(label) for label in strategy_labels()}


def ensemble_jobs(scale: str) -> list[Job]:
    """The blurring test with another ensemble of the same dataset, to show how much depends on the networks."""
    if scale == "smoke":
        return []
    options = {**options_for(BLURRING, scale, "svhn"), "kinds": ["epistemic"]}
    methods = tuple(row.label for row in [*method_rows(scale, "Ours", "Grad").values(), *added_rows().values()])
    return [Job("blurring-svhn@svhn-cnn", "blurring", "svhn", "svhn-cnn", methods, (), options)]
