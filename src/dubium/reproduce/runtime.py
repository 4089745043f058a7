"""Seconds to attribute one image (Appendix D.1)."""

import os
from time import perf_counter
from typing import Any

import numpy as np
import torch

from dubium.evaluation.methods import explain_maps
from dubium.evaluation.statistics import bootstrap, median
from dubium.evaluation.summary import library_versions
from dubium.reproduce.job import Job
from dubium.reproduce.study import Study, prepare_evaluation

BUSY = "the machine did other work at the same time: ratios tell more than seconds"


def measure_runtime(study: Study, job: Job) -> dict[str, Any]:
    """The median over a few calls of `explain` with one image, after one call that does not count."""
    evaluation, about = prepare_evaluation(study, job, study.folder / "evaluations" / "runtime")
    x, repeats = evaluation.data.batch(slice(1)), int(job.options.get("repeats", 5))
    results = {}
    for method in evaluation.methods:
        seconds = []
        for _ in range(1 + repeats):
            start = perf_counter()
            explain_maps(evaluation.posterior, x, method, ("epistemic",))
            seconds.append(perf_counter() - start)
        found = bootstrap(np.array(seconds[1:]), median)
        results[method.label] = {"seconds": vars(found)}
        study.on_step(f"{job.name}: {method.label}")
    settings = {"dataset": job.dataset, "repeats": repeats, "threads": torch.get_num_threads(), "posterior": about}
    return {
        "protocol": "runtime",
        "settings": settings,
        "versions": library_versions(),
        "results": results,
        "notes": [BUSY] if is_machine_busy() else [],
    }


def is_machine_busy() -> bool:
    """Whether more processes than cores have wanted to run in the last minute, where the system tells."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return load > 1 + (os.cpu_count() or 1)
