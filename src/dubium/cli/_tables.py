"""Results in the terminal: tables, JSON, and the files that were skipped."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import typer

from dubium.cli._text import printable, text_cell
from dubium.kinds import KINDS

if TYPE_CHECKING:
    from dubium.run import Results, Row, Work

MOST_LISTED = 10  # images or files in the terminal
MOST_VOTES, SHORT_NAME = 9, 3  # votes that are listed one by one, and the letters of their names


def print_most_uncertain(results: "Results", kind: str, count: int = MOST_LISTED) -> None:
    """A line per image: what the networks say, and how unsure they are."""
    from rich.console import Console
    from rich.table import Table

    from dubium.run.store import class_name, shown_path

    names: Sequence[str] | None = results.about["classes"]
    images = results.about["settings"]["images"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("image")
    table.add_column("says")
    table.add_column("sure", justify="right")
    table.add_column("is")
    for column in KINDS:
        table.add_column(column, justify="right", style="bold" if column == kind else None)
    table.add_column("networks' votes")
    for row in results.most_uncertain(kind, count, pictures=False):
        label = "" if row.label is None else class_name(names, row.label)
        mark = "" if row.label is None else "green" if row.label == row.prediction else "red"
        table.add_row(
            text_cell(f"#{row.id}" if row.path is None else shown_path(row.path, images)),
            text_cell(class_name(names, row.prediction)),
            f"{(sure := row.probs[row.prediction]):.{int(0 < sure < 0.01)}%}",
            text_cell(label, mark),
            *(f"{score:.3f}" for score in row.scores().values()),
            text_cell(votes_text([class_name(names, int(k)) for k in row.members.argmax(1)])),
        )
    Console().print(table)
    if (more := (results.explained_count() or len(results)) - table.row_count) > 0:
        print(f"... and {more:,} more that are less uncertain")


def votes_text(votes: Sequence[str]) -> str:
    """Each network's vote; where there are many, or their words are long, how often each class was voted for.

    >>> votes_text(["7", "5", "7"]), votes_text(["bear", "whale", "whale"])
    ('7 5 7', 'whale x2, bear')
    """
    if len(votes) <= MOST_VOTES and max(map(len, votes)) <= SHORT_NAME:
        return " ".join(votes)
    return ", ".join(name + f" x{count}" * (count > 1) for name, count in Counter(votes).most_common())


def say_unfinished(results: "Results") -> None:
    """Say that results are of a run that was stopped."""
    if note := results.unfinished_note():
        typer.echo(f"dubium: {note}", err=True)


def say_unused_labels(results: "Results", work: "Work") -> None:
    """Say how folders become labels where classes have no names: those called by numbers, or those of a dataset."""
    from dubium.class_names import list_names
    from dubium.data.labels import folder_labels_note
    from dubium.run.sources import FileImages, source_folders

    named = [PurePath(name) for name in work.settings.images.get("files", ())]
    paths = work.source.paths if isinstance(work.source, FileImages) else ()
    folders = {path.parent.name for path in paths if path.parent not in named}
    if work.about["classes"] is not None or "factory" in work.settings.images:
        of_files = sorted(folders) if named and len(folders) > 1 else ()
        folders_of_classes = source_folders(work.source) or of_files
        if note := folder_labels_note(folders_of_classes, work.about["classes"], are_folders=work.is_named_by_folders):
            typer.echo(f"dubium: {note}", err=True)
        return
    classes = len(next(results.rows(pictures=False)).probs)
    numbers = [str(number) for number in range(classes)]
    called_by_numbers = folders & set(numbers)
    if called_by_numbers and (len(called_by_numbers) > 1 or called_by_numbers == folders):
        shown = list_names(numbers)
        typer.echo(f"dubium: folders are called by numbers; --names {shown} takes them as labels.", err=True)
    elif len(folders) > 1:
        shown = list_names(sorted(folders)) if len(folders) == classes else "A,B,..."
        typer.echo(
            f"dubium: labels are not used: {len(folders)} folders for {classes} classes; --names {shown} says what the "
            "networks' classes are called, in their order.",
            err=True,
        )


def row_json(row: "Row") -> dict[str, Any]:
    """A row's numbers without its maps."""
    return {
        "id": row.id,
        "path": row.path,
        "label": row.label,
        "prediction": row.prediction,
        **row.scores(),
        "probs": row.probs.tolist(),
        "advice": row.advice,
        "regions": [region.json() for region in row.regions or ()],
    }


def print_json(value: Any) -> None:
    """One JSON value on one line."""
    print(json.dumps(value))


def say_changes(work: "Work") -> None:
    """Say what becomes of the images that the user may not know of: their size, where it decides, and their colours."""
    from dubium.checks import count_text
    from dubium.data.image_files import ARRAYS, size_text
    from dubium.run.sources import read_items

    channels, height, width = work.preprocessing.shape
    if work.note:
        typer.echo(f"dubium: {printable(work.note)}", err=True)
    if work.about["size_taken"] and height is not None:
        typer.echo(
            f"dubium: images go in at their own size, {height} pixels high, {width} wide; give another with "
            "--input-shape.",
            err=True,
        )
    item = next(read_items(work.source), None)
    if item is None:
        return  # that none can be read is said later
    given, *size = item.image.shape
    said = []
    if channels and given != channels:
        grey = "are colour and become grey" if channels == 1 else "are grey and become colour"
        said.append(f"images {grey}: the networks take {count_text(channels, 'channel')}.")
        if given == 1 and len(work.source) == channels and work.settings.images.get("dataset", "").endswith(ARRAYS):
            said.append(
                "Is the array one colour image, not three grey ones? Save it as images: numpy.save(name, x[None])."
            )
    resize = work.settings.resize
    if height and width and (size != [height, width] or resize):
        middle = f" --resize {resize}: the middle of that is taken" if resize else ""
        fit = f"--fit {work.settings.fit}{middle}"
        said.append(f"images are brought to the networks' size, {size_text((height, width))} ({fit}).")
    if said:
        typer.echo(f"dubium: {' '.join(said)}", err=True)


def say_nothing_disagrees(work: "Work") -> None:
    """Say that epistemic uncertainty is 0 for all images, where one network is to disagree with itself."""
    from dubium.run.work import agreement_note

    if note := agreement_note(work):
        typer.echo(f"dubium: {note}", err=True)


def exit_with_skipped(skipped: Sequence[dict[str, str]], *, quiet: bool) -> None:
    """Name the files that could not be read, and exit with 1."""
    if not quiet:
        for item in skipped[:MOST_LISTED]:
            typer.echo(f"dubium: skipped: {printable(item['reason'])}", err=True)
        count = len(skipped)
        more = f", {count - MOST_LISTED} of them not listed here" if count > MOST_LISTED else ""
        typer.echo(f"dubium: {count} file{'s' * (count != 1)} skipped{more}.", err=True)
    raise typer.Exit(1)
