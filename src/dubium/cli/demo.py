"""`dubium demo`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dubium.choices import DEMO, SMOOTH
from dubium.cli._tables import print_json, print_most_uncertain
from dubium.folder_lock import own_folder
from dubium.registry import AUTO

TITLE = "What makes five networks unsure about these digits?"


def demo(
    out: Annotated[Path, typer.Option(help="Where to write the page and the pictures.")] = Path("dubium-demo"),
    top: Annotated[int, typer.Option(min=1, max=64, help="How many digits to explain.")] = 16,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Explain the most uncertain of 64 embedded digits with an embedded ensemble, by the paper's method and by `auto`.

    No network is needed.
    """
    from dubium.cli._progress import stage_bars
    from dubium.report import write_page, write_pngs
    from dubium.run import Settings, explain_dataset, open_work
    from dubium.run.dataset import refuse_other_run

    settings = Settings({"run": DEMO}, {"dataset": DEMO}, top=top)
    beside = out / AUTO
    refuse_other_run(out, settings)
    with own_folder(out), stage_bars(quiet=json) as progress:
        results = explain_dataset(open_work(settings), out, fresh=True, progress=progress)
        explain_dataset(open_work(replace(settings, method=AUTO)), beside, fresh=True, progress=progress)
        pictures = []
        for picture in write_pngs(out):
            pictures.append(str(picture))
            progress("draw", len(pictures), top)
        page = write_page(out, title=TITLE, smooth=SMOOTH, beside=beside)
    if json:
        print_json({"page": str(page), "pictures": pictures, "images": len(results)})
        return
    print_most_uncertain(results, settings.kinds[0])
    print(f"\n{len(pictures)} digits explained. Open {page}; pictures are in {out / 'png'}.")
