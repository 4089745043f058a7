"""`dubium compare`."""

import json as json_
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from dubium.cli import options as o
from dubium.cli.bars import run_bars
from dubium.cli.explain import perform
from dubium.errors import OptionError, UnknownNameError
from dubium._explain import choose_method
from dubium.report.compare import write_comparison
from dubium.run import Settings, open_results
from dubium.run.store import FOLDER

Side = Annotated[str, typer.Argument(help="A folder that dubium explain wrote, or a posterior: a run, a name, `demo`.")]


def compare(
    run_a: Side,
    run_b: Side,
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("dubium-compare"),
    images: o.ImageFiles = None,
    dataset: o.DatasetName = None,
    fit: o.Fit = "stretch",
    top: Annotated[int, typer.Option(min=1, rich_help_panel=o.METHOD, help="Explain A's most uncertain images.")] = 20,
    kinds: o.Kinds = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD_A,METHOD_B", rich_help_panel=o.METHOD, help="One for both, or one for each."),
    ] = None,
    option: o.Option = None,
    posterior: o.PosteriorFactory = None,
    memory: o.Memory = "1GiB",
    batch: o.Batch = 32,
    threads: o.Threads = None,
    fresh: o.Fresh = False,
    json: o.Json = False,
) -> None:
    """Show two posteriors, or two methods, side by side on the same images.

    Two folders of results are compared as they are. Posteriors are run first: A's most uncertain images are explained
    with both. For two methods, name the same posterior twice: dubium compare demo demo --methods ua-backprop,grad.
    """
    named = o.words(methods) or ["ua-backprop"]
    if len(named) > 2:
        raise OptionError(f"--methods names {len(named)} methods; give one for both sides, or one for each.")
    made = [(Path(side) / FOLDER).is_dir() for side in (run_a, run_b)]
    folders = [Path(run_a), Path(run_b)]
    with run_bars(quiet=json) as progress:
        only: tuple[int, ...] | None = None
        for place, side in enumerate((run_a, run_b)):
            if made[place]:
                only = ids(folders[place])
                continue
            settings = Settings(
                posterior=o.posterior_settings(side, posterior, None, None, None),
                images=o.image_settings(side, images, dataset), method=named[-1 if place else 0],
                kinds=o.chosen_kinds(kinds), options=own(named, place, o.method_options(option)),
                top=top if only is None else None, only=only, fit=fit, memory=memory, batch=batch, threads=threads,
            )  # fmt: skip
            folders[place] = out / "ab"[place]
            perform(settings, folders[place], fresh, progress)
            only = ids(folders[place])
    names = titles((run_a, run_b), named)
    page, agreement = write_comparison(folders[0], folders[1], out, names=names)
    if json:
        print(json_.dumps({"page": str(page), "a": str(folders[0]), "b": str(folders[1]), **asdict(agreement)}))
        return
    print(f"{agreement.images:,} images, the same prediction for {agreement.same_prediction:.1%}. Open {page}.")


def own(methods: list[str], place: int, options: dict[str, Any]) -> dict[str, Any]:
    """The options that a side's method has; one that neither has is a mistake."""
    for name in options:
        if not any(takes(method, name) for method in methods):
            takes(methods[0], name, ask=True)
    return {name: value for name, value in options.items() if takes(methods[-1 if place else 0], name)}


def takes(method: str, option: str, *, ask: bool = False) -> bool:
    try:
        choose_method(method, {option: "fullgrad" if option == "relevance" else None}, 1)
    except UnknownNameError:
        if ask:
            raise
        return False
    return True


def ids(folder: Path) -> tuple[int, ...]:
    """The images that one side explained, so that the other explains the same."""
    results = open_results(folder)
    return tuple(row.id for row in results.rows(results.explained, pictures=False))


def titles(sides: tuple[str, str], methods: list[str]) -> tuple[str, str]:
    """What to call the two: by posterior, and by method where those differ."""
    first, second = (Path(side).name or side for side in sides)
    if len(methods) == 2 and first == second:
        return methods[0], methods[1]
    if len(methods) == 2:
        return f"{first} with {methods[0]}", f"{second} with {methods[1]}"
    return (first, second) if first != second else (f"A: {sides[0]}", f"B: {sides[1]}")
