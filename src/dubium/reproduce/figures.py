"""The paper's figures as entries: what each one draws, of which images."""

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dubium.evaluation.summary import library_versions
from dubium.reproduce.drawing import draw_anomaly, draw_attention, draw_blurring, draw_kinds, draw_methods
from dubium.reproduce.entries import Entry
from dubium.reproduce.job import Job
from dubium.reproduce.rows import METHODS
from dubium.reproduce.settings import DATASETS, MITIGATION, options_for
from dubium.reproduce.study import BLUR_PATH, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWERS: Mapping[str, Callable[[Study, Job], "Figure"]] = {
    "figure-qualitative": draw_methods,
    "figure-kinds": draw_kinds,
    "figure-blurring": draw_blurring,
    "figure-attention": draw_attention,
    "figure-anomaly": draw_anomaly,
    "figure-additional": draw_methods,
}
CAPTIONS = {
    "figure-anomaly": "Orange: the patch that was planted; red: the box that the method finds.",
    "figure-attention": "`softmax` is the paper's attention, which hardly differs from pixel to pixel; `unit` is ours.",
}
DPI, COLOURS = 90, 128


def measure_figure(study: Study, job: Job) -> dict[str, Any]:
    """Draw a figure; the result's file names the picture."""
    picture = compress_figure(DRAWERS[job.options["figure"]](study, job))
    settings = {"dataset": job.dataset, "methods": list(job.methods), **job.options}
    return {
        "protocol": "figure",
        "settings": settings,
        "versions": library_versions(),
        "results": {},
        "notes": [],
        "pictures": {f"{job.name}.png": picture},
    }


def compress_figure(figure: "Figure") -> bytes:
    """A PNG with few colours, the same bytes each time."""
    from PIL import Image

    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=DPI, format="png", metadata={"Software": None})
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(small, "PNG", optimize=True)
    return small.getvalue()


def figure_job(name: str, dataset: str, methods: tuple[str, ...], **options: Any) -> Job:
    return Job(f"{name}-{dataset}", "figure", dataset, methods=methods, options={"figure": name, **options})


def grid_figure_jobs(name: str, skip: int) -> Callable[[str], list[Job]]:
    """A grid of all methods for each dataset."""

    def jobs(scale: str) -> list[Job]:
        texts = (*METHODS[scale].values(), BLUR_PATH)
        images = 1 if scale == "smoke" else 3
        return [figure_job(name, dataset, texts, images=images, skip=skip) for dataset in DATASETS]

    return jobs


def kinds_figure_jobs(scale: str) -> list[Job]:
    return [figure_job("figure-kinds", "mnist", ("ua-backprop", BLUR_PATH), images=1 if scale == "smoke" else 4)]


def blurring_figure_jobs(scale: str) -> list[Job]:
    few = {"images": 4, "candidates": 1000, "step": 1.0}
    protocol = {"images": 1, "candidates": 8, "step": 10.0} if scale == "smoke" else few
    return [figure_job("figure-blurring", name, ("ua-backprop",), protocol=protocol) for name in ("mnist", "cifar-10")]


def anomaly_figure_jobs(scale: str) -> list[Job]:
    protocol = {"images": 1, "candidates": 4} if scale == "smoke" else {"images": 6, "candidates": 200}
    return [figure_job("figure-anomaly", "cifar-10", ("ua-backprop", BLUR_PATH, "grad"), protocol=protocol)]


def attention_figure_jobs(scale: str) -> list[Job]:
    protocol = options_for(MITIGATION, scale, "mnist")
    return [figure_job("figure-attention", "mnist", ("ua-backprop", BLUR_PATH, "random"), protocol=protocol)]


FIGURES: dict[str, Entry] = {
    name: Entry(name, (), jobs, lambda _scale: {})
    for name, jobs in {
        "figure-qualitative": grid_figure_jobs("figure-qualitative", 0),
        "figure-kinds": kinds_figure_jobs,
        "figure-blurring": blurring_figure_jobs,
        "figure-attention": attention_figure_jobs,
        "figure-anomaly": anomaly_figure_jobs,
        "figure-additional": grid_figure_jobs("figure-additional", 3),
    }.items()
}
"""The two that are schemes, figure-framework and figure-mitigation, are drawn on the page itself."""
