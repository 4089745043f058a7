"""`dubium data list | get NAME | check NAME`."""

from pathlib import Path
from typing import Annotated

import typer

from dubium.choices import DATASETS, DEMO
from dubium.errors import DataNotFoundError

app = typer.Typer(no_args_is_help=True, help="Find, download and verify datasets.")
Name = Annotated[str, typer.Argument(help=f"One of {', '.join(DATASETS)}.")]


@app.command("list")
def list_datasets() -> None:
    """Which datasets are known, and which are here."""
    from rich.console import Console
    from rich.table import Table

    from dubium.data import SOURCES, load

    table = Table("name", "what", "classes", "images", "here")
    for name, source in SOURCES.items():
        shape = " x ".join(str(n) for n in source.shape)
        table.add_row(name, source.title, str(len(source.classes)), shape, ", ".join(_splits_here(name)) or "no")
    demo = load(DEMO)
    shape = " x ".join(str(n) for n in demo.shape)
    table.add_row(DEMO, f"{len(demo)} digits of MNIST, embedded", str(len(demo.classes)), shape, "always")
    Console().print(table)


def _splits_here(name: str) -> list[str]:
    from dubium.data import data_folders
    from dubium.data.find import find_files

    splits = []
    for split in ("train", "test"):
        try:
            find_files(name, split, data_folders())
        except DataNotFoundError:
            continue
        splits.append(split)
    return splits


@app.command()
def get(
    name: Name,
    source: Annotated[
        Path | None, typer.Option("--from", help="A folder that has the files; otherwise they are downloaded.")
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Where to put them; your cache folder by default.")] = None,
) -> None:
    """Download a dataset from its official mirrors, or take the files of a folder."""
    from dubium.cli._progress import download_bar
    from dubium.data import cache_folder
    from dubium.data.check import check_dataset
    from dubium.data.download import get_dataset

    folder = to or cache_folder()
    with download_bar(name) as progress:
        get_dataset(name, folder, source=source, progress=progress)
    for found in check_dataset(name, [folder]):
        print(f"{name} {found.split}: {found.images} images in {found.files[0].parent}")


@app.command()
def check(name: Name) -> None:
    """Read a dataset whole, and compare it with what was published."""
    from dubium.data.check import check_dataset

    verdicts = {True: "checksums as published", False: "checksums differ from the published", None: "no checksum known"}
    for found in check_dataset(name):
        of = "" if found.images == found.published else f" of {found.published}"
        where = found.files[0].parent
        print(f"{name} {found.split}: {found.images}{of} images, {verdicts[found.as_published]}, {where}")
