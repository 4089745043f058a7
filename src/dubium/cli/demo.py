"""`dubium demo`."""

import json as json_
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dubium.cli.bars import run_bars
from dubium.cli.tables import most_uncertain, rows_table
from dubium.report import write_page, write_pngs
from dubium.run import Settings, open_results, open_work, run


def demo(
    out: Annotated[Path, typer.Option(help="Where to write the page and the pictures.")] = Path("dubium-demo"),
    top: Annotated[int, typer.Option(min=1, max=64, help="How many digits to explain.")] = 16,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Explain the most uncertain of 64 embedded digits with an embedded ensemble; no network is needed."""
    settings = Settings({"run": "demo"}, {"dataset": "demo"}, top=top)
    with run_bars(quiet=json) as progress:
        run(open_work(settings), out, fresh=True, progress=progress)
        pictures = []
        for picture in write_pngs(out):
            pictures.append(picture)
            progress("draw", len(pictures), top)
        page = write_page(out, title="What makes five networks unsure about these digits?")
    results = open_results(out)
    if json:
        print(json_.dumps({"page": str(page), "pictures": [str(p) for p in pictures], "images": len(results)}))
        return
    console = Console()
    console.print(rows_table(most_uncertain(results, "epistemic", 10), results.about["classes"], "epistemic"))
    console.print(f"\n{len(pictures)} digits explained. Open {page}; pictures are in {out / 'png'}.", highlight=False)
