"""How a job is measured: by a protocol of `dubium.evaluation`, or by a small experiment of this package."""

from collections.abc import Callable, Mapping
from typing import Any

from dubium.evaluation.protocols import run_protocol
from dubium.reproduce.context import Context, open_evaluation
from dubium.reproduce.figures import measure_figure
from dubium.reproduce.job import Job
from dubium.reproduce.mitigation import measure_mitigation
from dubium.reproduce.networks import describe_networks
from dubium.reproduce.properties import measure_properties
from dubium.reproduce.runtime import measure_runtime

Summary = dict[str, Any]


def measure_protocol(context: Context, job: Job) -> Summary:
    """Run a protocol of `dubium.evaluation`; jobs with the same networks and options share maps and curves."""
    networks = describe_networks(job.dataset, job.networks, context.scale)
    digest = job.shared_digest(context.scale, networks)
    folder = context.folder / "evaluations" / f"{job.measure}-{job.dataset}-{job.networks}-{digest}"
    evaluation, about = open_evaluation(context, job, folder)
    options = {name: value for name, value in job.options.items() if name != "kinds"}
    summary = run_protocol(job.measure, evaluation, scale=context.scale, **options)
    return {**summary, "settings": {**summary["settings"], "posterior": about}}


MEASURES: Mapping[str, Callable[[Context, Job], Summary]] = {
    "blurring": measure_protocol,
    "anomaly": measure_protocol,
    "mitigation": measure_mitigation,
    "properties": measure_properties,
    "runtime": measure_runtime,
    "figure": measure_figure,
}
