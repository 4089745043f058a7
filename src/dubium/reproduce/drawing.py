"""What draws the paper's figures again: a matplotlib figure for each job."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dubium.evaluation.methods import explain_maps
from dubium.evaluation.metrics.scoring import scorer
from dubium.evaluation.protocols import run_protocol
from dubium.evaluation.protocols.anomaly import read_anomaly_examples
from dubium.evaluation.protocols.blurring import read_blurring_examples
from dubium.evaluation.protocols.evaluation import Evaluation
from dubium.evaluation.protocols.images import compute_maps
from dubium.evaluation.protocols.mitigation import MAPS, MitigationExamples, mitigation_options
from dubium.evaluation.shards import ShardStore
from dubium.figures import overlay, picture
from dubium.kinds import KINDS
from dubium.ranking import most_uncertain
from dubium.report.protocols.anomaly import boxes_figure
from dubium.report.protocols.blurring import blurring_stages_figure
from dubium.report.protocols.mitigation import attention_figure
from dubium.reproduce.context import Context, open_evaluation
from dubium.reproduce.job import AttentionArm, Job
from dubium.reproduce.mitigation import map_evaluation
from dubium.reproduce.networks import open_data
from dubium.training.attention import attention_weights
from dubium.types import Images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CANDIDATES = 500  # images of which the most uncertain are shown


def draw_methods(context: Context, job: Job) -> "Figure":
    """The most uncertain images, and the map of each method."""
    evaluation, x = uncertain_images(context, job)
    columns = [
        (method.label, explain_maps(evaluation.posterior, x, method, ("epistemic",))) for method in evaluation.methods
    ]
    return map_grid(x, [(label, maps["epistemic"]) for label, maps in columns])


def draw_kinds(context: Context, job: Job) -> "Figure":
    """The same images, and UA-Backprop's map of each kind of uncertainty, then those of `auto`."""
    evaluation, x = uncertain_images(context, job)
    columns = []
    for method in evaluation.methods:
        maps = explain_maps(evaluation.posterior, x, method, KINDS)
        columns += [(f"{method.label}\n{kind}", maps[kind]) for kind in KINDS]
    return map_grid(x, columns)


def draw_blurring(context: Context, job: Job) -> "Figure":
    """UA-Backprop's highest pixels blurred, more and more of them."""
    evaluation = open_figure_evaluation(context, job)
    summary = run_protocol("blurring", evaluation, scale=context.scale, **job.options["protocol"])
    examples = read_blurring_examples(ShardStore(evaluation.out), summary["settings"])
    return blurring_stages_figure(examples[job.methods[0]])


def draw_anomaly(context: Context, job: Job) -> "Figure":
    """Planted patches, and the boxes that each method finds."""
    evaluation = open_figure_evaluation(context, job)
    summary = run_protocol("anomaly", evaluation, scale=context.scale, **job.options["protocol"])
    return boxes_figure(read_anomaly_examples(ShardStore(evaluation.out), summary["settings"]))


def draw_attention(context: Context, job: Job) -> "Figure":
    """Attention of training images: as the paper normalises it, and divided by its highest value."""
    train = open_data(job.dataset, "train", context.scale)
    options = mitigation_options(context.scale, train, **job.options["protocol"])
    folder = context.folder / "evaluations" / f"{job.name}-{job.shared_digest(context.scale, {})}"
    store, data = ShardStore.open(folder, options.settings()), train.sample(options.images)
    shown = replace(job, arms=tuple(AttentionArm(text, text) for text in job.methods))
    evaluation = map_evaluation(context, shown, store, data, options.recipe)
    x = data.batch(slice(6))
    maps = compute_maps(evaluation, store, x, MAPS)
    attention = {
        f"{label}@{way}": attention_weights(found["epistemic"], way)
        for label, found in maps.items()
        for way in ("softmax", "unit")
    }
    return attention_figure(MitigationExamples(x, attention))


def open_figure_evaluation(context: Context, job: Job) -> Evaluation:
    """An evaluation in a folder of the figure's own."""
    folder = context.folder / "evaluations" / f"{job.name}-{job.shared_digest(context.scale, {})}"
    return open_evaluation(context, job, folder)[0]


def uncertain_images(context: Context, job: Job) -> tuple[Evaluation, Images]:
    """Some of the most uncertain test images; `skip` leaves out as many of the first."""
    evaluation = open_figure_evaluation(context, job)
    candidates = evaluation.data.batch(slice(CANDIDATES))
    skip, count = job.options.get("skip", 0), job.options["images"]
    scores = scorer(evaluation.posterior)(candidates)
    return evaluation, candidates[most_uncertain(scores, skip + count)[skip:]]


def map_grid(x: Images, columns: list[tuple[str, Any]]) -> "Figure":
    """A row for each image: the image, then its maps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.15 * (1 + len(columns)), 1.2 * len(x) + 0.35), layout="constrained")
    axes = figure.subplots(len(x), 1 + len(columns), squeeze=False)
    for row, image in enumerate(x):
        axes[row][0].imshow(picture(image), interpolation="nearest")
        for axis, (label, maps) in zip(axes[row][1:], columns, strict=True):
            axis.imshow(overlay(image, maps[row]), interpolation="nearest")
            if row == 0:
                axis.set_title(label.replace(":", "\n"), fontsize=6)
    for axis in axes.flat:
        axis.axis("off")
    return figure
