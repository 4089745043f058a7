"""PNG files of a run: one per explained image."""

from collections.abc import Iterator
from pathlib import Path, PurePath

from dubium.files import written_atomically
from dubium.report.pictures import row_figure
from dubium.run.store import Results, Row, open_results

FOLDER = "png"


def write_pngs(folder: Path | str, *, most: int | None = None, smooth: float = 0.0) -> Iterator[Path]:
    """Draw image, maps, scores and probabilities of the explained images into `folder/png`.

    Args:
        folder: a run's.
        most: draw so many of the most uncertain ones only.
        smooth: blur what is drawn by so many pixels of the map.

    Yields:
        Each file, when it is there.
    """
    results = open_results(folder)
    names = results.about.get("classes")
    count = results.explained_count() if most is None else most
    ranks = results.ranks(results.about["settings"]["kinds"][0], count) if results.explained else {}
    for row in results.rows(results.explained):
        if row.id not in ranks:
            continue
        path = Path(folder) / FOLDER / f"{ranks[row.id]:04}-{file_stem(row)}.png"
        with written_atomically(path) as beside:
            row_figure(row, names, prediction_text(row, results), smooth=smooth).savefig(beside, format="png")
        yield path


def file_stem(row: Row) -> str:
    """A name for a row's file: that of its image, or its number."""
    return str(row.id) if row.path is None else PurePath(row.path).stem


def prediction_text(row: Row, results: Results) -> str:
    """The image, what the networks say together, and the label where that is wrong."""
    names = results.about.get("classes")

    def name(index: int) -> str:
        return str(names[index]) if names and index < len(names) else str(index)

    image = file_stem(row) if row.path else f"image {row.id}"
    says = f"{image}: {name(row.prediction)}, {row.probs[row.prediction]:.0%}"
    if row.label is None or row.label == row.prediction:
        return says
    return f"{says} (it is {name(row.label)})"
