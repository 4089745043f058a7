"""`dubium explain`."""

import json as json_
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from dubium.checks import number
from dubium.cli import options as o
from dubium.cli.bars import Report, run_bars
from dubium.cli.engine import Address, Engine, device_for, spread_over, threads_for
from dubium.cli.tables import as_json, most_uncertain, rows_table
from dubium.report import write_page, write_pngs
from dubium.run import Outcome, Settings, engine_on, open_results, open_work, run

LISTED = 10  # images in the terminal's table


def explain(
    run: o.Run = None,
    out: Annotated[Path | None, typer.Option(help="Where to write; dubium-explain by default.")] = None,
    posterior: o.PosteriorFactory = None,
    weights: o.Weights = None,
    mean: o.Mean = None,
    std: o.Std = None,
    input_shape: o.InputShape = None,
    names: o.Names = None,
    images: o.ImageFiles = None,
    dataset: o.DatasetName = None,
    fit: o.Fit = "stretch",
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
    engine: Engine = "local",
    address: Address = None,
    fresh: o.Fresh = False,
    json: o.Json = False,
) -> None:
    """Score every image, explain the most uncertain ones, and write a page about them.

    OUT/results holds Parquet shards, OUT/index.html the page. The same command goes on where an interrupted one
    stopped. Files that cannot be read are skipped, counted and named, and the exit code is then 1.
    """
    settings = Settings(
        posterior=o.posterior_settings(run, posterior, weights, mean, std),
        images=o.image_settings(run, images, dataset),
        method=method,
        kinds=o.chosen_kinds(kinds),
        options=o.method_options(
            [*(option or ()), *([f"tau1={tau1}"] if tau1 else ())],
            relevance=relevance,
            tau2=tau2,
            rescale=rescale,
            vae=vae and str(vae.resolve()),
        ),
        top=top,
        fit=fit,
        input_shape=o.shape(input_shape),
        classes=tuple(o.words([names])) if names else None,
        memory=memory,
        seed=seed,
        batch=batch,
        threads=threads_for(engine, threads),
    )
    folder = out or Path("dubium-explain")
    with run_bars(quiet=json) as progress:
        outcome = perform(settings, folder, fresh, progress, engine, address, device)
        pictures = [str(path) for path in write_pngs(folder)] if png else []
        page = write_page(folder, gallery=gallery)
    tell(outcome, {"page": str(page), "pictures": pictures}, kinds=settings.kinds, json=json)


def perform(
    settings: Settings,
    folder: Path,
    fresh: bool,
    progress: Report,
    engine: str = "local",
    address: str | None = None,
    device: str | None = None,
) -> Outcome:
    """Open what the settings name, and run."""
    with spread_over(engine, address, settings.threads) as spread:
        settings = replace(settings, device=device_for(engine, device) or settings.device)
        return run(open_work(settings), folder, fresh=fresh, engine=engine_on(spread), progress=progress)


def tell(outcome: Outcome, more: dict[str, Any], *, kinds: tuple[str, ...], json: bool) -> None:
    """Say what was done; the exit code says whether files were skipped."""
    results = open_results(outcome.folder)
    listed = most_uncertain(results, kinds[0], LISTED)
    if json:
        counts = {"images": outcome.images, "explained": outcome.explained, "skipped": outcome.skipped}
        top = [as_json(row) for row in listed]
        print(json_.dumps({"out": str(outcome.folder), **counts, **more, "top": top}))
    else:
        console = Console()
        console.print(rows_table(listed, results.about["classes"], kinds[0]))
        console.print(
            f"\n{number(outcome.images, 'image')} scored, {outcome.explained:,} explained. Open {more['page']}.",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    complain(outcome, json)


def complain(outcome: Outcome, json: bool) -> None:
    """Name the files that were skipped, and exit with 1 if there are any."""
    if not outcome.skipped:
        return
    if not json:
        for item in outcome.skipped[:LISTED]:
            typer.echo(f"dubium: skipped: {item['reason']}", err=True)
        count = len(outcome.skipped)
        more = f", {count - LISTED} of them not listed here" if count > LISTED else ""
        typer.echo(f"dubium: {count} file{'s' * (count != 1)} skipped{more}.", err=True)
    raise typer.Exit(1)
