"""The way of a command of `dubium evaluate` from words to a finished folder."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dubium.cli._engine import executor_for, threads_for
from dubium.cli._estimate import print_estimate
from dubium.cli._evaluation_options import PREPARED, SharedOptions
from dubium.cli._evaluation_tables import print_overview, print_summary
from dubium.cli._settings import image_settings, method_texts, parse_numbers, posterior_settings, split_words
from dubium.cli._text import printable
from dubium.folder_lock import own_folder
from dubium.protocols import PROTOCOLS, TOGETHER
from dubium.registry import CONTROL_NAMES

if TYPE_CHECKING:
    from dubium.data.fit import Preprocessing
    from dubium.evaluation.protocols import Evaluation
    from dubium.posteriors import Record
    from dubium.types import Posterior


def evaluate_and_print(protocol: str, shared: SharedOptions, **changes: Any) -> None:
    """Run a protocol, draw its figures, and print its results; options that are None are left to the scale."""
    from dubium.evaluation.protocols import run_protocol
    from dubium.report.evaluation import write_evaluation_page
    from dubium.report.protocols import write_figures

    given = {name: value for name, value in changes.items() if value is not None}
    if shared.estimate:
        estimate_and_print([protocol], shared, {protocol: given})
        return
    with own_folder(shared.out):
        with open_evaluation(protocol, shared) as evaluation:
            summary = run_protocol(protocol, evaluation, scale=shared.scale, **given)
        write_figures(shared.out)
        write_evaluation_page(shared.out)
    print_summary(summary, shared.out)
    say_other_methods([shared.out], evaluation.method_labels())
    if evaluation.data.skipped:
        raise typer.Exit(1)


def evaluate_all_and_print(
    shared: SharedOptions, protocols: Sequence[str] | None, changes: Mapping[str, Mapping[str, Any]]
) -> None:
    """Run several protocols, with options by their names, draw their figures, and print one table over them."""
    from dubium.evaluation.protocols.all_protocols import check_together, evaluate_all
    from dubium.report.overview import write_overview_pages
    from dubium.report.protocols import write_figures

    chosen = protocols or TOGETHER
    check_together(chosen)
    if shared.estimate:
        estimate_and_print(chosen, shared, changes)
        return
    with own_folder(shared.out):
        with open_evaluation("blurring", shared) as evaluation:
            possible = without_unlabelled(evaluation, chosen)
            overview = evaluate_all(evaluation, chosen, scale=shared.scale, **changes)
        for name in possible:
            with own_folder(shared.out / name):
                write_figures(shared.out / name)
        write_overview_pages(shared.out)
    print_overview(overview, shared.out)
    say_other_methods([shared.out / name for name in possible], evaluation.method_labels())
    if evaluation.data.skipped:
        raise typer.Exit(1)


def say_other_methods(folders: Sequence[Path], labels: Sequence[str]) -> None:
    """Say which methods of earlier calls are in no table now, and how they get there again."""
    from dubium.evaluation.shards import other_methods

    others = list(dict.fromkeys(label for folder in folders for label in other_methods(folder, labels)))
    if others:
        named = ",".join([*others, *(label for label in labels if label not in CONTROL_NAMES)])
        typer.echo(
            "dubium: tables and page have the methods that are named now. To have those of earlier calls too, whose "
            f"finished parts are kept, name all: --methods {printable(named)}",
            err=True,
        )


def without_unlabelled(evaluation: "Evaluation", protocols: Sequence[str]) -> Sequence[str]:
    """The protocols that can be run on these images; which are left out, and why, is said at once."""
    from dubium.evaluation.protocols.all_protocols import leave_out_unlabelled

    chosen, left_out = leave_out_unlabelled(evaluation, protocols)
    for why in left_out.values():
        typer.echo(f"dubium: {why}", err=True)
    return chosen


def estimate_and_print(
    protocols: Sequence[str], shared: SharedOptions, changes: Mapping[str, Mapping[str, Any]]
) -> None:
    """Say what the protocols will take; that some of them can share their maps is not counted."""
    import torch

    from dubium.estimate import join_estimates
    from dubium.evaluation.estimate import estimate_protocol
    from dubium.executor import thread_count

    with thread_count(shared.threads or torch.get_num_threads()):
        evaluation = load_evaluation(protocols[0], shared)
        protocols = without_unlabelled(evaluation, protocols) if len(protocols) > 1 else protocols
        found = [estimate_protocol(name, evaluation, scale=shared.scale, **changes.get(name, {})) for name in protocols]
    if len(found) > 1:
        for name, one in zip(protocols, found, strict=True):
            print(f"{name}: {one.sentence()}")
        found = [replace(join_estimates(found), task="Together")]
    print_estimate(found[0])


@contextmanager
def open_evaluation(protocol: str, shared: SharedOptions) -> "Iterator[Evaluation]":
    """What the user named, loaded; within the block, with the given threads and executor, and a line of progress."""
    import torch

    from dubium.cli._progress import step_lines
    from dubium.executor import thread_count

    threads = threads_for(shared.engine, shared.threads) or torch.get_num_threads()
    with thread_count(threads), executor_for(shared.engine, shared.address, threads) as executor, step_lines() as show:
        yield load_evaluation(protocol, shared, executor=executor, on_step=show)


def load_evaluation(protocol: str, shared: SharedOptions, **running: Any) -> "Evaluation":
    """Posterior, images and methods that the user named."""
    from dubium._evaluate import check_networks, match_to_networks, other_images
    from dubium.checks import check_kinds, skipped_note
    from dubium.data.labels import check_spelling
    from dubium.errors import lookup
    from dubium.evaluation.methods import DEFAULTS, parse_methods
    from dubium.evaluation.protocols import Evaluation
    from dubium.run.networks import open_posterior
    from dubium.run.sources import open_dataset, refuse_dataset_folder
    from dubium.run.work import vae_beside

    texts = lookup("scale", DEFAULTS, shared.scale)
    kinds = check_kinds(split_words([shared.kinds]))
    images = image_settings(shared.run, None, shared.dataset, takes_files=False)
    if "dataset" in images:
        refuse_dataset_folder(shared.out, images["dataset"])
    split, name = PROTOCOLS[protocol].split, ""
    posterior: Posterior = ()
    named: dict[str, Any] = {}
    preprocessing: Preprocessing | None = None
    if PROTOCOLS[protocol].needs_posterior:
        named = posterior_settings(
            shared.run, shared.posterior, shared.weights, shared.mean, shared.std, shared.network_output,
            shared.data_config,
        )  # fmt: skip
        (opened, record), name = open_posterior(named), shared.run or str(shared.posterior)
        preprocessing = named_preprocessing(shared, named, images, opened, record)
        data = open_dataset(images, split, preprocessing)
        posterior = check_networks(opened, data, named.get("output"), record)
        given = split_words([shared.names]) if shared.names else None
        check_spelling(given, data)
        names = given or (record.classes if record else None)
        data, note = match_to_networks(data, posterior, names, protocol)
    else:
        preprocessing = named_preprocessing(shared, named, images, posterior, None)
        data, note = open_dataset(images, split, preprocessing), ""
    running["note"] = " ".join(filter(None, [note, skipped_note(data.skipped)]))
    methods = parse_methods(method_texts(shared.methods) or texts, data.shape[0], vae=vae_beside(named.get("run")))
    running |= {"other_data": other_images(images.get("dataset"), data, preprocessing), "preprocessing": preprocessing}
    return Evaluation(posterior, data, methods, kinds, shared.out, name, seed=shared.seed, **running)


def named_preprocessing(
    shared: SharedOptions,
    named: dict[str, Any],
    images: dict[str, Any],
    posterior: "Posterior",
    record: "Record | None",
) -> "Preprocessing | None":
    """How images are brought to the networks' size, as `dubium explain` does it.

    None where no option says it, but for a folder of images of another size than the posterior's record has.
    """
    from dubium._evaluate import other_shape
    from dubium.run import Settings
    from dubium.run.networks import input_shape
    from dubium.run.work import make_preprocessing, resolve_data_config

    folder = images.get("dataset", "")
    is_recorded = record is not None and other_shape(record, folder) is not None
    if not is_recorded and all(getattr(shared, name) is None for name in PREPARED):
        return None
    settings = Settings(
        posterior=named, images=images, fit=shared.fit, resize=shared.resize, interpolation=shared.interpolation,
        input_shape=parse_numbers(shared.input_shape, int),
    )  # fmt: skip
    if "data_config" in named:
        settings = resolve_data_config(settings, posterior)
    channels, height, width = settings.input_shape or input_shape(posterior, record)
    return make_preprocessing(settings, (channels, height, width))
