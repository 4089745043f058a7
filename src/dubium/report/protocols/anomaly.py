"""Predicted and planted boxes on their images."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dubium.evaluation.metrics.anomaly import box_iou
from dubium.evaluation.protocols.anomaly import AnomalyExamples, read_anomaly_examples
from dubium.evaluation.shards import ShardStore
from dubium.figures import picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def anomaly_figures(store: ShardStore, summary: Mapping[str, Any]) -> dict[str, "Figure"]:
    """One figure of examples."""
    return {"boxes": boxes_figure(read_anomaly_examples(store, summary["settings"]))}


def boxes_figure(examples: AnomalyExamples) -> "Figure":
    """One row for each method: the planted box in orange, the predicted one in red."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    x, corners, boxes, box = examples.x, examples.corners, examples.boxes, examples.box
    figure = Figure(figsize=(1.5 * len(x) + 0.8, 1.7 * len(boxes)), layout="constrained")
    axes = figure.subplots(len(boxes), len(x), squeeze=False)
    for row, (method, predicted) in zip(axes, boxes.items(), strict=True):
        overlap = box_iou(predicted, corners, box)
        for index, axis in enumerate(row):
            axis.imshow(picture(x[index]), interpolation="nearest")
            for corner, colour in ((corners[index], "orange"), (predicted[index], "red")):
                at = (float(corner[1]) - 0.5, float(corner[0]) - 0.5)
                axis.add_patch(Rectangle(at, box, box, fill=False, edgecolor=colour, lw=1.6))
            axis.set_title(f"IoU {float(overlap[index]):.2f}", fontsize=7)
            axis.set_xticks([])
            axis.set_yticks([])
        row[0].set_ylabel(method.replace(":", "\n"), fontsize=7)
    return figure
