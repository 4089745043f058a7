"""`dubium uncertainty`."""

import json as json_
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console

from dubium.checks import number
from dubium.cli import options as o
from dubium.cli.bars import run_bars
from dubium.cli.explain import complain, perform
from dubium.cli.tables import as_json, most_uncertain, rows_table
from dubium.report import write_page
from dubium.run import Settings, open_results


def uncertainty(
    run: o.Run = None,
    out: Annotated[Path | None, typer.Option(help="Also keep the scores, with a page, in this folder.")] = None,
    posterior: o.PosteriorFactory = None,
    weights: o.Weights = None,
    mean: o.Mean = None,
    std: o.Std = None,
    input_shape: o.InputShape = None,
    names: o.Names = None,
    images: o.ImageFiles = None,
    dataset: o.DatasetName = None,
    fit: o.Fit = "stretch",
    top: Annotated[int, typer.Option(min=1, help="Images to list, most uncertain first.")] = 10,
    kinds: o.Kinds = None,
    memory: o.Memory = "1GiB",
    batch: o.Batch = 64,
    threads: o.Threads = None,
    fresh: o.Fresh = False,
    json: o.Json = False,
) -> None:
    """Score images without explaining them: a forward pass each. With --json, one line per image, in their order."""
    settings = Settings(
        posterior=o.posterior_settings(run, posterior, weights, mean, std),
        images=o.image_settings(run, images, dataset),
        method="uncertainty",
        kinds=o.chosen_kinds(kinds),
        top=0,
        fit=fit,
        input_shape=o.shape(input_shape),
        classes=tuple(o.words([names])) if names else None,
        memory=memory,
        batch=batch,
        threads=threads,
    )
    first = settings.kinds[0]
    with TemporaryDirectory() as temporary:
        folder = out or Path(temporary)
        with run_bars(quiet=json) as progress:
            outcome = perform(settings, folder, fresh, progress)
        page = write_page(folder) if out else None
        results = open_results(folder)
        if json:
            for row in results.rows(pictures=False):
                print(json_.dumps(as_json(row)))
        else:
            Console().print(rows_table(most_uncertain(results, first, top), results.about["classes"], first))
            print(f"\n{number(outcome.images, 'image')} scored." + (f" Open {page}." if page else ""))
        complain(outcome, json)
