"""URR curves with bands, and pictures of the progressive blurring."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from dubium.evaluation.metrics.blurring import pixel_ranks
from dubium.evaluation.metrics.gaussian_blur import gaussian_blur
from dubium.evaluation.protocols.blurring import BlurringExample, read_blurring_examples
from dubium.evaluation.shards import ShardStore, file_name
from dubium.figures import overlay, picture
from dubium.report.protocols.colours import method_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STAGES = 5


def blurring_figures(store: ShardStore, summary: Mapping[str, Any]) -> dict[str, "Figure"]:
    """One figure of curves, and one of examples for each method, for the first kind."""
    examples = read_blurring_examples(store, summary["settings"])
    pixels = next(iter(examples.values())).maps[0].numel()
    return {"urr": urr_figure(summary["curves"], pixels)} | {
        f"blurring-{file_name(label)}": blurring_stages_figure(example) for label, example in examples.items()
    }


def urr_figure(curves: dict[str, dict[str, Any]], pixels: int) -> "Figure":
    """What is left of the uncertainty (median, 95 % band) against the pixels blurred, one panel for each fraction."""
    from matplotlib.figure import Figure

    panels = list(next(iter(curves.values())))
    figure = Figure(figsize=(4.6 * len(panels), 3.8), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        for index, (method, by_panel) in enumerate(curves.items()):
            found = by_panel[panel]
            steps = range(len(found["value"]))
            style = method_style(method, index)
            axis.plot(steps, [1 - v for v in found["value"]], label=method, **style)
            low, high = ([1 - v for v in found[end]] for end in ("high", "low"))
            axis.fill_between(steps, low, high, color=style["color"], alpha=0.12, lw=0)
        axis.set(
            xlabel=f"pixels blurred (of {pixels})",
            ylabel="uncertainty left, median",
            title=f"up to {panel} of the pixels",
        )
        axis.set_ylim(0, 1.02)
        axis.set_xlim(0, None)
    axes[0].legend(fontsize=7, frameon=False)
    return figure


def blurring_stages_figure(example: BlurringExample) -> "Figure":
    """One row for each image: its map, then the image with more and more pixels blurred, with what is left of U."""
    from matplotlib.figure import Figure

    x, count = example.x, example.curves.shape[1] - 1
    steps = [round(count * stage / (STAGES - 1)) for stage in range(STAGES)]
    figure = Figure(figsize=(1.7 * (1 + STAGES), 2.2 * len(x)), layout="constrained")
    axes = figure.subplots(len(x), 1 + STAGES, squeeze=False)
    ranks = pixel_ranks(example.maps)
    for row, image in enumerate(x):
        sigma = float(example.sigma[row])
        blurred = gaussian_blur(image[None], [sigma])[0, 0]
        panels = [(overlay(image, example.maps[row]), f"map; blur\nsigma = {sigma:g}")]
        for step in steps:
            stage = torch.where(ranks[row] < step, blurred, image)
            panels.append((picture(stage), f"{step} pixels\nU = {float(example.curves[row, step]):.2g}"))
        for axis, (pixels, title) in zip(axes[row], panels, strict=True):
            axis.imshow(pixels, interpolation="nearest")
            axis.set_title(title, fontsize=11)
            axis.axis("off")
    return figure
