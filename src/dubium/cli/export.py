"""`dubium export`."""

from pathlib import Path
from typing import Annotated

import typer

from dubium.choices import EXPORTS
from dubium.cli._options import Json, one_of
from dubium.cli._tables import print_json, say_unfinished
from dubium.kinds import KINDS

FORMAT, KIND = one_of("export", tuple(EXPORTS)), one_of("kind of uncertainty", KINDS)
CONTENT = {"coco": "regions", "csv": "images to look at", "png": "masks", "fiftyone": "images"}


def export(
    run: Annotated[Path, typer.Argument(metavar="OUT", help="A folder that dubium explain wrote.")],
    to: Annotated[str, typer.Option(metavar="|".join(EXPORTS), help="The format.", **FORMAT)],
    out: Annotated[
        Path | None,
        typer.Option(help=f"The file or folder to write; by default in OUT: {', '.join(EXPORTS.values())}."),
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Whose regions; the run's first kind by default.", **KIND)] = None,
    level: Annotated[
        float | None, typer.Option(min=0, max=1, help="Regions anew: the part of a map's peak that is bright.")
    ] = None,
    smooth: Annotated[float | None, typer.Option(min=0, help="Regions anew: blur maps by so many pixels.")] = None,
    json: Json = False,
) -> None:
    """Write regions of doubt as COCO, PNG masks or for FiftyOne, or a ranked list for label review as CSV."""
    from dubium.report.exports import write_export
    from dubium.run import open_results

    say_unfinished(open_results(run))
    path, count = write_export(run, to, out, kind=kind, level=level, smooth=smooth)
    print_json({"to": to, "path": str(path), "count": count}) if json else print(f"{path}: {count:,} {CONTENT[to]}")
