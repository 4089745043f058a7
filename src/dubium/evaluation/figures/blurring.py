"""URR curves with bands, and pictures of the progressive blurring."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dubium.data import Dataset
from dubium.evaluation.blurring import pixel_counts, pixel_ranks
from dubium.evaluation.figures.saved import save_figure
from dubium.evaluation.gaussian_blur import gaussian_blur
from dubium.figures import overlay, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXAMPLES = 4
STAGES = 5


def blurring_figures(job: Any, store: Any, data: Dataset, options: Any, written: dict[str, Any]) -> None:
    """One figure of curves, and one of examples a method, for the first kind."""
    kind = job.kinds[0]
    pixels = data.images.shape[2] * data.images.shape[3]
    save_figure(urr_figure(written["curves"], pixels), job.out / "urr.png")
    where = torch.tensor(written["images"]["index" if kind == "epistemic" else f"index/{kind}"][:EXAMPLES])
    x, fraction = data.batch(where), max(options.fractions)
    for method in job.methods:
        maps = store.tensors(method.file_name, f"00000-{kind}", dict)[kind]
        part = store.values(method.file_name, f"00000-{kind}", dict)[f"{fraction:g}"]
        count = pixel_counts(x.shape[2], x.shape[3], [fraction])[0]
        sigma = torch.tensor(part["sigma"])[: len(x)]
        curves = torch.tensor(part["curves"])[: len(x)]
        figure = examples_figure(x, maps[: len(x)], sigma, curves, count)
        save_figure(figure, job.out / f"blurring-{method.file_name}.png")


def urr_figure(curves: dict[str, dict[str, Any]], pixels: int) -> "Figure":
    """What is left of the uncertainty (median, 95 % band) against the pixels blurred, a panel a fraction."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    panels = list(next(iter(curves.values())))
    figure = Figure(figsize=(4.6 * len(panels), 3.8), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        for index, (method, by_panel) in enumerate(curves.items()):
            found = by_panel[panel]
            steps = range(len(found["value"]))
            colour = "0.45" if method == "random" else colormaps["tab10"](index % 10)
            axis.plot(
                steps,
                [1 - v for v in found["value"]],
                color=colour,
                label=method,
                ls=":" if method == "random" else "-",
            )
            axis.fill_between(
                steps, [1 - v for v in found["high"]], [1 - v for v in found["low"]], color=colour, alpha=0.12, lw=0
            )
        axis.set(
            xlabel=f"pixels blurred (of {pixels})",
            ylabel="uncertainty left, median",
            title=f"up to {panel} of the pixels",
        )
        axis.set_ylim(0, 1.02)
        axis.set_xlim(0, None)
    axes[0].legend(fontsize=7, frameon=False)
    return figure


def examples_figure(x: Tensor, maps: Tensor, sigma: Tensor, curves: Tensor, count: int) -> "Figure":
    """A row an image: the map, then the image as more and more of its pixels are blurred, with what is left of U."""
    from matplotlib.figure import Figure

    steps = [round(count * stage / (STAGES - 1)) for stage in range(STAGES)]
    figure = Figure(figsize=(1.7 * (1 + STAGES), 1.9 * len(x)), layout="constrained")
    axes = figure.subplots(len(x), 1 + STAGES, squeeze=False)
    rank = pixel_ranks(maps)
    for row, image in enumerate(x):
        blurred = gaussian_blur(image[None], [float(sigma[row])])[0, 0]
        panels = [(overlay(image, maps[row]), f"sigma {float(sigma[row]):.1f}")]
        for t in steps:
            shown = torch.where(rank[row] < t, blurred, image)
            panels.append((picture(shown), f"{t} pixels: U = {float(curves[row, t]):.2g}"))
        for axis, (shown_as, title) in zip(axes[row], panels, strict=True):
            axis.imshow(shown_as, interpolation="nearest")
            axis.set_title(title, fontsize=7)
            axis.axis("off")
    return figure
