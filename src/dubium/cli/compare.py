"""`dubium compare`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from dubium.choices import DEMO, RANKING
from dubium.cli import _options as o
from dubium.cli._progress import stage_bars
from dubium.cli._tables import print_json
from dubium.errors import OptionError, UnknownNameError
from dubium.folder_lock import own_folder

Side = Annotated[
    str, typer.Argument(help=f"A folder that dubium explain wrote, or a posterior: a run, a name, `{DEMO}`.")
]


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
    from dubium.report.compare import write_comparison
    from dubium.run import Settings, explain_dataset, open_results, open_work
    from dubium.run.store import has_results

    named = o.split_words(methods) or ("ua-backprop",)
    if len(named) > 2:
        raise OptionError(f"--methods names {len(named)} methods; give one for both sides, or one for each.")
    stored = [has_results(side) for side in (run_a, run_b)]
    folders = [Path(run_a), Path(run_b)]
    with own_folder(out), stage_bars(quiet=json) as progress:
        only: tuple[int, ...] | None = None
        for place, side in enumerate((run_a, run_b)):
            if not stored[place]:
                settings = Settings(
                    posterior=o.posterior_settings(side, posterior, None, None, None),
                    images=o.image_settings(side, images, dataset), method=named[-1 if place else 0],
                    kinds=o.split_words(kinds) or RANKING,
                    options=options_of_side(named, place, o.method_options(option)),
                    top=top if only is None else None, only=only, fit=fit, memory=memory, batch=batch, threads=threads,
                )  # fmt: skip
                folders[place] = out / "ab"[place]
                explain_dataset(open_work(settings), folders[place], fresh=fresh, progress=progress)
            only = open_results(folders[place]).explained_ids()  # so that the other side explains the same images
        page, agreement = write_comparison(folders[0], folders[1], out, names=titles((run_a, run_b), named))
    if json:
        print_json({"page": str(page), "a": str(folders[0]), "b": str(folders[1]), **asdict(agreement)})
        return
    print(f"{agreement.images:,} images, the same prediction for {agreement.same_prediction:.1%}. Open {page}.")


def options_of_side(methods: tuple[str, ...], place: int, options: dict[str, Any]) -> dict[str, Any]:
    """The options that a side's method has; one that neither method has is a mistake."""
    for name in options:
        if not any(has_option(method, name) for method in methods):
            check_option(methods[0], name)
    return {name: value for name, value in options.items() if has_option(methods[-1 if place else 0], name)}


def has_option(method: str, option: str) -> bool:
    try:
        check_option(method, option)
    except UnknownNameError:
        return False
    return True


def check_option(method: str, option: str) -> None:
    """Raise an error that lists the method's options if this is not one of them."""
    from dubium._methods import choose_method

    choose_method(method, {option: "fullgrad" if option == "relevance" else None}, 1)


def titles(sides: tuple[str, str], methods: tuple[str, ...]) -> tuple[str, str]:
    """What to call the two: by posterior, and by method where those differ."""
    first, second = (Path(side).name or side for side in sides)
    if len(methods) == 2 and first == second:
        return methods[0], methods[1]
    if len(methods) == 2:
        return f"{first} with {methods[0]}", f"{second} with {methods[1]}"
    return (first, second) if first != second else (f"A: {sides[0]}", f"B: {sides[1]}")
