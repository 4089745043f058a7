"""The table of entries: one for each table and figure of the paper, and some of ours."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dubium.reproduce.added_jobs import attention_jobs, ensemble_jobs, strategy_jobs, strategy_rows
from dubium.reproduce.arms import alpha_arms, attention_arms, kind_arms, method_arms, row_arms, space_arms
from dubium.reproduce.job import AttentionArm, Job, job_name
from dubium.reproduce.paper import read_paper
from dubium.reproduce.rows import (
    NORMALISATION_ROWS,
    SINGLE_ROWS,
    PaperRow,
    added_rows,
    method_on,
    method_rows,
    path_rows,
    temperature_rows,
)
from dubium.reproduce.settings import ANOMALY, BLURRING, DATASETS, MITIGATION, RUNTIME, options_for

Rows = Callable[[str], Mapping[str, PaperRow]]
"""Rows of a table at a scale."""


@dataclass(frozen=True)
class Entry:
    """A table or figure: the paper's tables it repeats, its rows (the paper's and ours), and the jobs behind them."""

    name: str
    tables: tuple[str, ...]
    jobs: Callable[[str], list[Job]]
    rows: Rows
    added_rows: Rows = lambda _scale: {}

    def source(self, row: PaperRow, column: str) -> tuple[str, str, str]:
        """Job, label and metric of a cell; a column is `group/metric`, or a metric alone.

        >>> ENTRIES["single"].source(SINGLE_ROWS["Ours-Ensemble-1"], "mnist/murr@2%")
        ('single-mnist-single', 'ua-backprop', 'murr@2%/aleatoric')
        """
        group, _, metric = column.rpartition("/")
        name = job_name(self.name, group, row.networks)
        return name, method_on(row.label, group), metric if row.kind == "epistemic" else f"{metric}/{row.kind}"


def column_groups(tables: tuple[str, ...]) -> list[str]:
    """What comes before the slash in the columns of some tables: a dataset, or a dataset and a number of images."""
    columns = [column for table in tables for column in read_paper()["tables"][table]["columns"]]
    return list(dict.fromkeys(column.rpartition("/")[0] for column in columns))


def protocol_entry(name: str, table: Any, measure: str, rows: Rows, added: Rows = lambda _scale: {}) -> Entry:
    """An entry whose rows are methods, judged by a protocol on each of its datasets."""

    def jobs(scale: str) -> list[Job]:
        found = []
        for dataset in column_groups((name,)):
            by_networks: dict[str, list[PaperRow]] = {}
            for row in [*rows(scale).values(), *added(scale).values()]:
                by_networks.setdefault(row.networks, []).append(row)
            for networks, chosen in by_networks.items():
                options = {**options_for(table, scale, dataset), "kinds": [chosen[0].kind]}
                texts = tuple(dict.fromkeys(method_on(row.label, dataset) for row in chosen))
                found.append(Job(job_name(name, dataset, networks), measure, dataset, networks, texts, (), options))
        return found

    return Entry(name, (name,), jobs, rows, added)


def mitigation_entry(
    name: str,
    arms: Callable[[str], list[AttentionArm]],
    *,
    tables: tuple[str, ...] | None = None,
) -> Entry:
    """An entry whose rows are arms, trained on each of its datasets and numbers of images."""
    tables = (name,) if tables is None else tables

    def jobs(scale: str) -> list[Job]:
        found = []
        for group in column_groups(tables):
            dataset, _, count = group.rpartition("-") if group.count("-") and group not in DATASETS else (group, "", "")
            options = options_for(MITIGATION, scale, dataset)
            options = with_image_count(options, int(count)) if count and scale != "smoke" else options
            found.append(Job(job_name(name, group), "mitigation", dataset, arms=tuple(arms(scale)), options=options))
        return found

    return Entry(name, tables, jobs, lambda scale: row_arms(arms(scale)))


def with_image_count(options: Mapping[str, Any], images: int) -> dict[str, Any]:
    """Options for another number of images; fewer or more epochs keep the number of training steps, as far as it goes.

    >>> with_image_count({"images": 500, "epochs": 5}, 1500)
    {'images': 1500, 'epochs': 2}
    """
    if "epochs" not in options:
        return {**options, "images": images}
    return {**options, "images": images, "epochs": max(1, round(options["epochs"] * options["images"] / images))}


def property_jobs(scale: str) -> list[Job]:
    rows = [*property_rows(scale).values(), *own_property_rows(scale).values()]
    return [Job("properties", "properties", "", methods=tuple(row.label for row in rows))]


def property_rows(scale: str) -> dict[str, PaperRow]:
    """Path methods are asked for many steps, so that what holds shows to many digits."""
    texts = {"Grad": "grad", "SmoothGrad": "smoothgrad:samples=20", "FullGrad": "fullgrad", "IG": "ig:steps=500"}
    if scale == "smoke":
        texts |= {"SmoothGrad": "smoothgrad:samples=2", "IG": "ig:steps=50"}
    return {name: PaperRow(text) for name, text in texts.items()}


def own_property_rows(_scale: str) -> dict[str, PaperRow]:
    return {"Ours (UA-Backprop)": PaperRow("ua-backprop"), "blur-path": PaperRow("blur-path")}


def runtime_jobs(scale: str) -> list[Job]:
    texts = tuple(row.label for row in [*runtime_rows(scale).values(), *own_runtime_rows(scale).values()])
    groups = column_groups(("runtime",))
    return [Job(f"runtime-{group}", "runtime", group, methods=texts, options=RUNTIME[scale]) for group in groups]


def runtime_rows(scale: str) -> dict[str, PaperRow]:
    """With the paper's steps and samples at every scale but `smoke`: time is what is measured."""
    return method_rows("smoke" if scale == "smoke" else "paper", "Ours", "Blur IG", "SmoothGrad", "CLUE")


def own_runtime_rows(_scale: str) -> dict[str, PaperRow]:
    return {"blur-path": PaperRow("blur-path"), "Grad": PaperRow("grad")}


ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry("properties", ("properties",), property_jobs, property_rows, own_property_rows),
        Entry("runtime", ("runtime",), runtime_jobs, runtime_rows, own_runtime_rows),
        protocol_entry(
            "random",
            BLURRING,
            "blurring",
            lambda _scale: {"Ours": PaperRow("ua-backprop"), "Random": PaperRow("random")},
            lambda _scale: added_rows(),
        ),
        protocol_entry(
            "no-normalisation", BLURRING, "blurring", lambda _scale: NORMALISATION_ROWS, lambda _scale: added_rows()
        ),
        protocol_entry("paths", BLURRING, "blurring", path_rows, lambda _scale: added_rows()),
        protocol_entry("single", BLURRING, "blurring", lambda _scale: SINGLE_ROWS, lambda _scale: added_rows()),
        protocol_entry("blurring", BLURRING, "blurring", method_rows, lambda _scale: added_rows()),
        protocol_entry(
            "temperatures", BLURRING, "blurring", lambda _scale: temperature_rows(), lambda _scale: added_rows()
        ),
        protocol_entry("anomaly", ANOMALY, "anomaly", method_rows, lambda _scale: added_rows()),
        mitigation_entry("kinds", kind_arms),
        mitigation_entry("space", space_arms),
        mitigation_entry("mitigation", method_arms),
        mitigation_entry("vary-alpha", lambda _scale: alpha_arms()),
        Entry("attention", (), attention_jobs, lambda _scale: {}, lambda _scale: row_arms(attention_arms())),
        mitigation_entry(
            "vary-n",
            lambda scale: [arm for arm in method_arms(scale, none="Non-attention") if "CLUE" not in arm.label],
            tables=("vary-n-mnist", "vary-n-cifar-10"),
        ),
        Entry("strategies", (), strategy_jobs, lambda _scale: {}, lambda _scale: strategy_rows()),
        Entry("ensembles", (), ensemble_jobs, lambda _scale: {}),
    )
}
"""In the order of what they cost."""
