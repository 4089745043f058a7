"""`dubium data list | get NAME | check NAME`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from dubium.cli.progress import download_bar
from dubium.data import SOURCES, data_folders
from dubium.data.check import check_dataset
from dubium.data.download import get_dataset
from dubium.data.find import cache_folder, find_files
from dubium.errors import DataNotFoundError

app = typer.Typer(no_args_is_help=True, help="Find, download and verify datasets.")
Name = Annotated[str, typer.Argument(help=f"One of {', '.join(SOURCES)}.")]


@app.command("list")
def list_datasets() -> None:
    """Which datasets are known, and which are here."""
    table = Table("name", "what", "classes", "images", "here")
    for name, source in SOURCES.items():
        shape = " x ".join(str(n) for n in source.shape)
        table.add_row(name, source.title, str(len(source.classes)), shape, ", ".join(_here(name)) or "no")
    Console().print(table)


def _here(name: str) -> list[str]:
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
    folder = to or cache_folder()
    with download_bar(name) as progress:
        get_dataset(name, folder, source=source, progress=progress)
    for found in check_dataset(name, [folder]):
        print(f"{name} {found.split}: {found.images} images in {found.files[0].parent}")


@app.command()
def check(name: Name) -> None:
    """Read a dataset whole, and compare it with what was published."""
    verdicts = {True: "checksums as published", False: "checksums differ from the published", None: "no checksum known"}
    for found in check_dataset(name):
        of = "" if found.images == found.published else f" of {found.published}"
        where = found.files[0].parent
        print(f"{name} {found.split}: {found.images}{of} images, {verdicts[found.as_published]}, {where}")
