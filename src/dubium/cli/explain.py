"""`dubium explain`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dubium.choices import RANKING
from dubium.cli import _options as o
from dubium.cli._engine import Address, EngineName, device_for, executor_for, threads_for
from dubium.cli._estimate import EstimateOnly, print_estimate
from dubium.cli._settings import image_settings, method_options, parse_numbers, posterior_settings, split_words
from dubium.cli._tables import (
    MOST_LISTED,
    exit_with_skipped,
    print_json,
    print_most_uncertain,
    row_json,
    say_changes,
    say_nothing_disagrees,
    say_unused_labels,
)
from dubium.folder_lock import own_folder
from dubium.option_text import split_method

if TYPE_CHECKING:
    from dubium.estimate import Estimate


def explain(
    run: o.PosteriorName = None,
    out: Annotated[Path | None, typer.Option(help="Where to write; dubium-explain by default.")] = None,
    posterior: o.PosteriorFactory = None,
    weights: o.Weights = None,
    mean: o.Mean = None,
    std: o.Std = None,
    input_shape: o.InputShape = None,
    network_output: o.NetworkOutput = None,
    names: o.Names = None,
    images: o.ImageFiles = None,
    dataset: o.DatasetName = None,
    fit: o.Fit = None,
    resize: o.Resize = None,
    interpolation: o.Interpolation = None,
    data_config: o.DataConfig = None,
    top: Annotated[
        int | None, typer.Option(min=0, rich_help_panel=o.METHOD, help="Explain only the N most uncertain images.")
    ] = None,
    kinds: o.Kinds = None,
    method: o.Method = "ua-backprop",
    relevance: Annotated[str | None, typer.Option(rich_help_panel=o.METHOD, help="Of ua-backprop.")] = None,
    tau1: Annotated[
        str | None, typer.Option(rich_help_panel=o.METHOD, help="From classes to logits: a number, or 'auto'.")
    ] = None,
    tau2: Annotated[float | None, typer.Option(rich_help_panel=o.METHOD, help="From logits to pixels.")] = None,
    rescale: Annotated[str | None, typer.Option(rich_help_panel=o.METHOD, help="Of FullGrad's terms.")] = None,
    vae: Annotated[Path | None, typer.Option(rich_help_panel=o.METHOD, help="What the clue methods need.")] = None,
    option: o.Option = None,
    png: Annotated[bool, typer.Option("--png", help="Also a PNG of each explained image.")] = False,
    gallery: Annotated[int, typer.Option(min=1, help="Images on the page.")] = 200,
    memory: o.Memory = "1GiB",
    seed: Annotated[int, typer.Option(rich_help_panel=o.RUNNING)] = 0,
    batch: o.Batch = 32,
    threads: o.Threads = None,
    device: o.Device = None,
    engine: EngineName = "local",
    address: Address = None,
    fresh: o.Fresh = False,
    estimate: EstimateOnly = False,
    json: o.Json = False,
) -> None:
    """Score every image, explain the most uncertain ones, and write a page about them.

    OUT/results holds Parquet shards, OUT/index.html the page. The same command goes on where an interrupted one
    stopped. Files that cannot be read are skipped, counted and named, and the exit code is then 1.
    """
    named_posterior = posterior_settings(run, posterior, weights, mean, std, network_output, data_config)
    method, texts = split_method(method)
    named_images = image_settings(run, images, dataset)
    options = method_options(
        relevance or method,
        [*texts, *(option or ()), *([f"tau1={tau1}"] if tau1 else ())],
        relevance=relevance,
        tau2=tau2,
        rescale=rescale,
        vae=vae and str(vae.resolve()),
    )
    from dubium.cli._progress import stage_bars
    from dubium.report import write_page, write_pngs
    from dubium.run import Settings, explain_dataset, open_work
    from dubium.run.dataset import with_recorded_names

    folder = out or Path("dubium-explain")
    settings = Settings(
        posterior=named_posterior,
        images=with_recorded_names(named_images, folder),
        method=method,
        kinds=split_words(kinds) or RANKING,
        options=options,
        top=top,
        fit=fit,
        resize=resize,
        interpolation=interpolation,
        input_shape=parse_numbers(input_shape, int),
        classes=split_words([names]) if names else None,
        memory=memory,
        seed=seed,
        batch=batch,
        threads=threads_for(engine, threads),
    )
    if estimate:
        from dubium.run.estimate import estimate_run

        expected = estimate_run(open_work(settings))
        print_estimate(with_pictures(expected) if png else expected, json=json)
        return
    with own_folder(folder), stage_bars(quiet=json) as progress:
        with executor_for(engine, address, settings.threads) as executor:
            settings = replace(settings, device=device_for(engine, device) or settings.device)
            work = open_work(settings)
            if not json:
                say_changes(work)
                say_nothing_disagrees(work)
            results = explain_dataset(work, folder, fresh=fresh, engine=executor, progress=progress)
        pictures = [str(path) for path in write_pngs(results)] if png else []
        page = write_page(results, gallery=gallery)
    count, explained, skipped = len(results), results.explained_count(), results.skipped()
    if json:
        counts = {"images": count, "explained": explained, "skipped": skipped}
        top_rows = results.most_uncertain(settings.kinds[0], MOST_LISTED, pictures=False)
        files = {"page": str(page), "pictures": pictures}
        print_json({"out": str(folder), **counts, **files, "top": [row_json(row) for row in top_rows]})
    else:
        print_most_uncertain(results, settings.kinds[0])
        say_unused_labels(results, work)
        print(f"\n{count:,} image{'s' * (count != 1)} scored, {explained:,} explained. Open {page}.")
    if skipped:
        exit_with_skipped(skipped, quiet=json)


def with_pictures(expected: "Estimate") -> "Estimate":
    """The estimate with a PNG of each explained image."""
    from dubium.report.png import BYTES, SECONDS

    count = expected.explained
    return replace(
        expected,
        task=f"{expected.task} and to draw",
        seconds=None if expected.seconds is None else expected.seconds + count * SECONDS,
        bytes=expected.bytes + count * BYTES,
    )
