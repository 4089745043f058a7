"""Predicted and planted boxes on their images."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from dubium.evaluation.anomaly import box_iou
from dubium.evaluation.figures.saved import save_figure
from dubium.figures import picture
from dubium.types import Images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXAMPLES = 6


def anomaly_figures(x: Images, corners: Tensor, boxes: Mapping[str, Tensor], box: int, out: Path) -> None:
    """One figure: a row a method."""
    save_figure(
        boxes_figure(x[:EXAMPLES], corners[:EXAMPLES], {m: b[:EXAMPLES] for m, b in boxes.items()}, box),
        out / "boxes.png",
    )


def boxes_figure(x: Images, corners: Tensor, boxes: Mapping[str, Tensor], box: int) -> "Figure":
    """The planted box in orange, the predicted one in red, a row a method."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(1.5 * len(x) + 0.8, 1.7 * len(boxes)), layout="constrained")
    axes = figure.subplots(len(boxes), len(x), squeeze=False)
    for row, (method, found) in zip(axes, boxes.items(), strict=True):
        overlap = box_iou(found, corners, box)
        for index, axis in enumerate(row):
            axis.imshow(picture(x[index]), interpolation="nearest")
            for corner, colour in ((corners[index], "orange"), (found[index], "red")):
                at = (float(corner[1]) - 0.5, float(corner[0]) - 0.5)
                axis.add_patch(Rectangle(at, box, box, fill=False, edgecolor=colour, lw=1.6))
            axis.set_title(f"IoU {float(overlap[index]):.2f}", fontsize=7)
            axis.set_xticks([])
            axis.set_yticks([])
        row[0].set_ylabel(method.replace(":", "\n"), fontsize=7)
    return figure
