"""`dubium uncertainty`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from dubium.choices import RANKING
from dubium.cli import _options as o
from dubium.cli._estimate import EstimateOnly, print_estimate
from dubium.cli._settings import image_settings, parse_numbers, posterior_settings, split_words
from dubium.cli._tables import (
    exit_with_skipped,
    print_json,
    print_most_uncertain,
    row_json,
    say_changes,
    say_nothing_disagrees,
    say_unused_labels,
)
from dubium.folder_lock import own_folder


def uncertainty(
    run: o.PosteriorName = None,
    out: Annotated[Path | None, typer.Option(help="Also keep the scores, with a page, in this folder.")] = None,
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
    top: Annotated[int, typer.Option(min=1, help="Images to list, most uncertain first.")] = 10,
    kinds: o.Kinds = None,
    memory: o.Memory = "1GiB",
    batch: o.Batch = 64,
    threads: o.Threads = None,
    fresh: o.Fresh = False,
    estimate: EstimateOnly = False,
    json: o.Json = False,
) -> None:
    """Score images without explaining them: a forward pass each. With --json, one line per image, in their order."""
    named_posterior = posterior_settings(run, posterior, weights, mean, std, network_output, data_config)
    named_images = image_settings(run, images, dataset)
    from dubium.cli._progress import stage_bars
    from dubium.report import write_page
    from dubium.run import Settings, explain_dataset, open_work

    settings = Settings(
        posterior=named_posterior,
        images=named_images,
        method="uncertainty",
        kinds=split_words(kinds) or RANKING,
        top=0,
        fit=fit,
        resize=resize,
        interpolation=interpolation,
        input_shape=parse_numbers(input_shape, int),
        classes=split_words([names]) if names else None,
        memory=memory,
        batch=batch,
        threads=threads,
    )
    if estimate:
        from dubium.run.estimate import estimate_run

        expected = estimate_run(open_work(settings))
        print_estimate(expected if out else replace(expected, bytes=0), json=json)  # without --out nothing is kept
        return
    with TemporaryDirectory() as temporary:
        folder = out or Path(temporary)
        with say_what_is_lost(out), own_folder(folder), stage_bars(quiet=json) as progress:
            work = open_work(settings)
            if not json:
                say_changes(work)
                say_nothing_disagrees(work)
            results = explain_dataset(work, folder, fresh=fresh, progress=progress)
            page = write_page(results) if out else None
        if json:
            for row in results.rows(pictures=False):
                print_json(row_json(row))
        else:
            print_most_uncertain(results, settings.kinds[0], top)
            say_unused_labels(results, work)
            count = len(results)
            print(f"\n{count:,} image{'s' * (count != 1)} scored." + (f" Open {page}." if page else ""))
        if skipped := results.skipped():
            exit_with_skipped(skipped, quiet=json)


@contextmanager
def say_what_is_lost(out: Path | None) -> Iterator[None]:
    """Ctrl-C where no folder was named: what every other command says would be wrong."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        if out is not None:
            raise
        typer.echo("dubium: stopped. Nothing is kept; with --out FOLDER the same command would go on.", err=True)
        raise typer.Exit(130) from stopped
