"""PNG files of a run: one per explained image."""

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from dubium.figures import percent, picture, smooth_words
from dubium.files import written_atomically
from dubium.path_checks import PICTURES
from dubium.report.cards import likely_classes
from dubium.report.pictures import row_image, row_overlay
from dubium.run.row import Row
from dubium.run.store import Results, class_name, open_results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = PICTURES
SECONDS, BYTES = 0.2, 30_000  # that a picture takes, about, for `--estimate`


def write_pngs(folder: Path | str | Results, *, most: int | None = None, smooth: float = 0.0) -> Iterator[Path]:
    """Draw image, maps, scores and probabilities of the explained images into `folder/png`.

    Args:
        folder: a run's, or its results, which were checked when they were opened.
        most: draw so many of the most uncertain ones only.
        smooth: blur what is drawn by so many pixels of the map.

    Yields:
        Each file, when it is there.
    """
    results = folder if isinstance(folder, Results) else open_results(folder)
    names = results.about.get("classes")
    count = results.explained_count() if most is None else most
    ranks = results.ranks(results.about["settings"]["kinds"][0], count) if results.explained else {}
    for row in results.rows(results.explained):
        if row.id not in ranks:
            continue
        path = results.folder / FOLDER / f"{ranks[row.id]:04}-{file_stem(row)}.png"
        with written_atomically(path) as beside:
            row_figure(row, names, prediction_text(row, names), smooth=smooth).savefig(beside, format="png")
        yield path


def file_stem(row: Row) -> str:
    """A name for a row's file: that of its image, or its number."""
    return str(row.id) if row.path is None else PurePath(row.path).stem


def prediction_text(row: Row, names: Sequence[str] | None) -> str:
    """The image, what the networks say together, and the label where that is wrong."""
    image = file_stem(row) if row.path else f"image {row.id}"
    says = f"{image}: {class_name(names, row.prediction)}, {percent(row.confidence)}"
    if row.label is None or row.label == row.prediction:
        return says
    return f"{says} (it is {class_name(names, row.label)})"


def row_figure(row: Row, names: Sequence[str] | None, title: str = "", *, smooth: float = 0.0) -> "Figure":
    """Image, maps, scores and the networks' probabilities of one row."""
    from matplotlib.figure import Figure

    kinds = list(row.stored_maps())
    figure = Figure(figsize=(2.1 * (1 + len(kinds)) + 2.8, 2.75), dpi=110)
    axes = figure.subplots(1, 2 + len(kinds), width_ratios=[1] * (1 + len(kinds)) + [1.15])
    figure.subplots_adjust(left=0.01, right=0.985, bottom=0.16, top=0.8, wspace=0.08)
    axes[0].imshow(picture(row_image(row)), interpolation="nearest")
    axes[0].set_title("image", fontsize=10)
    for axis, kind in zip(axes[1:-1], kinds, strict=True):
        axis.imshow(row_overlay(row, kind, smooth=smooth), interpolation="nearest")
        axis.set_title(f"{kind} {getattr(row, kind):.3f} nats", fontsize=10)
    for axis in axes[:-1]:
        axis.axis("off")
    draw_votes(axes[-1], row, names)
    if smooth:
        figure.text(0.012, 0.03, smooth_words(smooth), fontsize=8)
    figure.suptitle(title, x=0.012, ha="left", fontsize=10.5, fontweight="bold")
    return figure


def draw_votes(axis: Any, row: Row, names: Sequence[str] | None) -> None:
    """Mean probability as a bar, each network's as a tick."""
    classes = likely_classes(row)
    places = range(len(classes))
    axis.barh(places, [row.probs[k] for k in classes], height=0.6, color="#9cc3df")
    for place, k in zip(places, classes, strict=True):
        axis.plot(
            row.members[:, k], [place] * len(row.members), "|", color="#1c1d22", markersize=11, markeredgewidth=1.4
        )
    axis.set(xlim=(0, 1), ylim=(len(classes) - 0.4, -0.6), yticks=list(places))
    axis.set_yticklabels([names[k] if names else str(k) for k in classes], fontsize=9)
    axis.tick_params(labelsize=8, length=2)
    axis.set_title(f"probabilities of {len(row.members)} networks", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    box = axis.get_position()
    axis.set_position((box.x0 + 0.03, box.y0, box.width - 0.03, box.height))
