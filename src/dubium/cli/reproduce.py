"""`dubium reproduce`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubium.choices import DATASETS, SCALES
from dubium.cli import _options as o
from dubium.cli._engine import Address, EngineName, executor_for, threads_for
from dubium.cli._estimate import print_estimate
from dubium.cli._options import completion, one_of
from dubium.cli._settings import posterior_settings, split_words
from dubium.errors import OptionError, UnknownNameError, lookup
from dubium.folder_lock import own_folder

if TYPE_CHECKING:
    from dubium.reproduce.status import JobStatus

ALL = "all"
LONG = 10  # seconds from which a run says beforehand what it will take


def check_datasets(text: str | None) -> str | None:
    """A callback of --dataset: those of the paper, and where other images are measured."""
    for word in split_words([text]) if text else ():
        try:
            lookup("dataset", dict.fromkeys(DATASETS), word)
        except UnknownNameError as error:
            raise UnknownNameError(
                f"{error} reproduce measures the paper's tables, which are about these datasets. On images "
                f"and networks of yours, `dubium evaluate all RUN --dataset {word} --out FOLDER` measures the same "
                f"methods; `dubium train --dataset {word} --out RUN` trains networks for it."
            ) from error
    return text


def reproduce(
    name: Annotated[str, typer.Argument(help="A table or figure of the paper, as --list shows; or all.")] = ALL,
    scale: Annotated[
        str, typer.Option(help="smoke: minutes; cpu: hours, fewer images; paper.", **one_of("scale", SCALES))
    ] = "cpu",
    out: Annotated[Path, typer.Option(help="Networks, maps and results are kept here.")] = Path("reproduce"),
    results: Annotated[Path | None, typer.Option(help="Folder of the result files; OUT/SCALE/results.")] = None,
    page: Annotated[Path | None, typer.Option(help="The page to write; OUT/SCALE/results.md.")] = None,
    readme: Annotated[
        Path | None,
        typer.Option(help="A file whose part from `<!-- reproduce -->` to `<!-- end -->` gets a short table."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Only these, such as mnist,svhn.", callback=check_datasets, autocompletion=completion(DATASETS)
        ),
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Say what is left to do and what it will take, and do nothing.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--list", help="Show what is there and what is missing; compute nothing.")
    ] = False,
    run: Annotated[
        str | None,
        typer.Option(metavar="RUN", rich_help_panel=o.POSTERIOR, help="Networks of yours in place of the ensemble."),
    ] = None,
    posterior: o.PosteriorFactory = None,
    weights: o.Weights = None,
    mean: o.Mean = None,
    std: o.Std = None,
    network_output: o.NetworkOutput = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; the last digits depend on them.")] = None,
    engine: EngineName = "local",
    address: Address = None,
) -> None:
    """Every table and figure of the paper, measured again: ours beside theirs, on one page.

    With networks of yours (--run, or --posterior and --weights) and their --dataset, what the paper measures on an
    ensemble is measured on them, in a folder of their own.
    """
    import torch

    from dubium.cli._progress import step_lines
    from dubium.executor import thread_count
    from dubium.reproduce.costs import estimate_jobs, training_statuses
    from dubium.reproduce.page import write_results_page
    from dubium.reproduce.readme import fill_readme
    from dubium.reproduce.runner import (
        check_data,
        check_has_jobs,
        check_has_results,
        entry_jobs,
        entry_names,
        job_status,
        jobs_on_networks,
        measure_jobs,
    )
    from dubium.reproduce.status import DONE
    from dubium.reproduce.study import Study

    lookup("table or figure", dict.fromkeys((ALL, PAGE, *entry_names())), name)
    folder = out / scale
    chosen = split_words([dataset]) if dataset else ()
    if name != PAGE:
        check_has_jobs(name, scale, chosen)
    jobs = [] if name == PAGE else list(entry_jobs(name, scale, chosen))
    if run or posterior:
        named = posterior_settings(run, posterior, weights, mean, std, network_output)
        networks = open_user_networks(named, chosen, scale)
        jobs, folder = jobs_on_networks(jobs, networks) if jobs else [], folder / networks
    results, page = results or folder / "results", page or folder / "results.md"
    if name == PAGE:
        check_has_results(results, scale, out)
    study, is_own = Study(scale, folder), bool(run or posterior)
    statuses = [job_status(entry, job, scale, results) for entry, job in jobs]
    statuses = [*training_statuses(statuses, scale, study.networks_folder), *statuses]
    if show:
        print_statuses(statuses)
        print(
            f"Results are looked for in {results} (--results); times to come are of one core with nothing else to do."
        )
        return
    check_data(statuses, scale)
    expected = estimate_jobs(statuses)
    if estimate:
        print_estimate(expected)
        return
    if expected.seconds is None or expected.seconds > LONG:
        print_estimate(expected)
        print("Killed, the same command goes on where it stopped.", flush=True)
    threads = threads_for(engine, threads) or torch.get_num_threads()
    with (
        own_folder(out),
        thread_count(threads),
        executor_for(engine, address, threads) as executor,
        step_lines() as on_step,
    ):

        def announce(status: "JobStatus") -> None:
            print(f"{status.job.name}: {time_words(status) if status.state == DONE else status.state}", flush=True)
            write_results_page(page, results, scale, is_own=is_own)

        measure_jobs(replace(study, executor=executor, on_step=on_step), jobs, results, announce)
        write_results_page(page, results, scale, is_own=is_own)
        if readme is not None:
            fill_readme(readme, results, scale)
    print(page)


def open_user_networks(named: dict[str, Any], datasets: Sequence[str], scale: str) -> str:
    """The name under which jobs know the networks that the user named, after a look at whether they take the images."""
    from dubium._evaluate import check_networks
    from dubium._explain import uncertainty
    from dubium.reproduce.networks import open_data, take_networks
    from dubium.run.networks import open_posterior

    if len(datasets) != 1:
        raise OptionError("Say which dataset these networks are for: --dataset mnist, or another one of them.")
    data = open_data(datasets[0], "test", scale)
    opened, record = open_posterior(named)
    how_to_reshape = (
        "The paper's tables are of images as the dataset has them. `dubium evaluate` takes --input-shape {shape}."
    )
    networks = check_networks(opened, data, named.get("output"), record, how_to_reshape=how_to_reshape)
    classes = uncertainty(networks, data.batch([0])).probs.shape[1]
    if classes != len(data.classes):
        raise OptionError(
            f"The networks have {classes} classes, {data.name} has {len(data.classes)}: the paper's tables are about "
            f"networks of a dataset's own classes. Name theirs with --dataset, or measure without labels: `dubium "
            f"evaluate blurring ... --dataset {data.name}`."
        )
    return take_networks(networks)


PAGE = "page"
"""Computes nothing: writes the page from the results that are there."""


def print_statuses(statuses: "Sequence[JobStatus]") -> None:
    """A line for each job: its entry, whether its result is there, and how long it took or will take."""
    from rich.console import Console
    from rich.table import Column, Table

    columns = ("table or figure", Column("job", no_wrap=True), "result", "time")
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for status in statuses:
        table.add_row(status.entry, status.job.name, status.state, time_words(status))
    Console().print(table)


def time_words(status: Any) -> str:
    """Measured time as it is, a guess with `about`."""
    if status.seconds is None:
        return "not known"
    words = f"{status.seconds:.0f} s" if status.seconds < 120 else f"{status.seconds / 60:.0f} min"
    return words if status.state == "done" else f"about {words}"
