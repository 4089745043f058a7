"""How a job is measured: by a protocol of `dubium.evaluation`, or by a small experiment of this package."""

from collections.abc import Callable, Mapping
from typing import Any

from dubium.evaluation.protocols import run_protocol
from dubium.reproduce.figures import measure_figure
from dubium.reproduce.job import Job
from dubium.reproduce.mitigation import measure_mitigation
from dubium.reproduce.networks import describe_networks
from dubium.reproduce.properties import measure_properties
from dubium.reproduce.runtime import measure_runtime
from dubium.reproduce.strategy_trials import measure_strategies
from dubium.reproduce.study import Study, prepare_evaluation

Summary = dict[str, Any]


def measure_protocol(study: Study, job: Job) -> Summary:
    """Run a protocol of `dubium.evaluation`; jobs with the same networks and options share maps and curves."""
    networks = describe_networks(job.dataset, job.networks, study.scale)
    digest = job.shared_digest(study.scale, networks)
    folder = study.folder / "evaluations" / f"{job.measure}-{job.dataset}-{job.networks}-{digest}"
    evaluation, about = prepare_evaluation(study, job, folder)
    options = {name: value for name, value in job.options.items() if name != "kinds"}
    summary = run_protocol(job.measure, evaluation, scale=study.scale, **options)
    return {**summary, "settings": {**summary["settings"], "posterior": about}}


MEASURES: Mapping[str, Callable[[Study, Job], Summary]] = {
    "blurring": measure_protocol,
    "anomaly": measure_protocol,
    "mitigation": measure_mitigation,
    "properties": measure_properties,
    "runtime": measure_runtime,
    "strategies": measure_strategies,
    "figure": measure_figure,
}
