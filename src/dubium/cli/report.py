"""`dubium report`."""

from pathlib import Path
from typing import Annotated

import typer

from dubium.cli._options import Json
from dubium.cli._tables import print_json, say_unfinished
from dubium.errors import OptionError
from dubium.folder_lock import own_folder

GALLERY = 200


def report(
    out: Annotated[Path, typer.Argument(help="A folder that dubium explain or dubium evaluate wrote.")],
    gallery: Annotated[int, typer.Option(min=1, help="Images on the page.")] = GALLERY,
    png: Annotated[bool, typer.Option("--png", help="Also a PNG of each explained image.")] = False,
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
    smooth: Annotated[float, typer.Option(min=0, help="Blur the maps in pictures by so many pixels; 1 or 2.")] = 0.0,
    beside: Annotated[
        Path | None, typer.Option(help="Another run over the same images, say by another method: its maps go below.")
    ] = None,
    json: Json = False,
) -> None:
    """Build the page of a run again, from its results alone."""
    from dubium.cli._progress import stage_bars
    from dubium.registry import AUTO
    from dubium.report import write_page, write_pngs
    from dubium.report.evaluation import is_evaluation, write_evaluation_page
    from dubium.report.overview import is_overview, write_overview_pages
    from dubium.run import open_results
    from dubium.run.store import has_results

    if is_evaluation(out) or is_overview(out):
        given = {"--gallery": gallery != GALLERY, "--png": png, "--smooth": smooth > 0, "--beside": beside is not None}
        if useless := [name for name, is_given in given.items() if is_given]:
            raise OptionError(
                f"{out} is an evaluation; only for a folder of explained images: {', '.join(useless)}. Run it without; "
                "--title is for both."
            )
        write = write_evaluation_page if is_evaluation(out) else write_overview_pages
        with own_folder(out):
            page = write(out, title=title)
        print_json({"page": str(page)}) if json else print(page)
        return
    results = open_results(out)
    say_unfinished(results)
    if beside is None and has_results(out / AUTO):  # the demo's second method
        beside = out / AUTO
    with own_folder(out), stage_bars(quiet=json) as progress:
        page = write_page(out, gallery=gallery, title=title, smooth=smooth, beside=beside)
        pictures = list[str]()
        for path in write_pngs(out, smooth=smooth) if png else ():
            pictures.append(str(path))
            progress("draw", len(pictures), results.explained_count())
    if json:
        print_json({"page": str(page), "pictures": pictures, "images": len(results)})
    else:
        print(f"{page}" + (f", and {len(pictures)} pictures" if png else ""))
