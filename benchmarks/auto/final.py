"""The final evaluation of `auto`: every protocol on images that took no part in choosing it.

    DUBIUM_DATA=... DUBIUM_MODELS=... python -m benchmarks.auto.final OUT RUN DATASET [PROTOCOL ...]

Killed, the same command goes on. Images are those of `split.py`, part `final`. What was cut to fit two shared cores is
in `SIZES`, `CUTS` and `METHODS`, and in each summary's settings. With DUBIUM_RESULTS=FOLDER a small copy of
each summary goes there. With DUBIUM_METHODS=METHOD,METHOD these alone are run, and no control that is not named; what
an earlier copy has of others stays in it.
"""

import os
import sys
import time
from pathlib import Path

import torch

from benchmarks.auto.keep import keep_summary
from benchmarks.auto.split import split_indices
from dubium.data import load
from dubium.evaluation.methods import parse_methods
from dubium.evaluation.protocols import Evaluation, run_protocol
from dubium.fingerprint import posterior_digests
from dubium.report.protocols import write_figures
from dubium.run.networks import open_posterior

METHODS = (
    "blur-path",
    "blur-path:net=1",
    "ua-backprop",
    "grad",
    "ig:start=blur:steps=5",
    "blur-ig:steps=20",
    "effect-variance",
)
CHECKS = ("kinds", "top")
SIZES: dict[str, dict[str, object]] = {
    "anomaly": {"images": 200, "candidates": 2000},
    "sanity": {"images": 40, "candidates": None, "checks": CHECKS, "stages": (1.0,), "redraws": 1},
    "blurring": {"images": 100, "step": 0.5},
    "removal": {"images": 20},
}
CUTS: dict[str, dict[str, dict[str, object]]] = {
    "mnist": {"removal": {"images": 40}},
    "cifar-10": {"removal": {"images": 40}},
    "cifar-100": {
        "sanity": {"images": 40, "candidates": 2000},
        "blurring": {"images": 100, "candidates": 2000, "fractions": (0.02,), "step": 1.0},
        "removal": {"images": 40, "candidates": 2000},
    },
}


def run_final(
    out: Path, run: str, dataset: str, protocols: list[str], results: Path | None, some: tuple[str, ...] = ()
) -> None:
    """Run the protocols in turn, with `some` methods alone if there are any; small copies go to `results`."""
    torch.set_num_threads(1)
    test = load(dataset, "test")
    data = test.subset(split_indices(dataset, len(test), "final"))
    posterior, _ = open_posterior({"run": run})
    name = f"{Path(run).name}-{dataset}"
    digests, train = posterior_digests(posterior), load(dataset, "train")
    for protocol in protocols:
        start, folder = time.time(), out / name / protocol
        methods = parse_methods(some or METHODS, data.shape[0], control=not some)
        evaluation = Evaluation(
            posterior,
            data,
            methods,
            ("epistemic",),
            folder,
            Path(run).name,
            digests,
            other_data=train,
            map_folder=out / name / "maps",
            on_step=lambda text: print(time.strftime("%H:%M:%S"), name, text, flush=True),
        )
        run_protocol(protocol, evaluation, **{**SIZES[protocol], **CUTS.get(dataset, {}).get(protocol, {})})
        write_figures(folder)
        print(f"{name} {protocol}: {time.time() - start:.0f} s", flush=True)
        if results is not None:
            keep_summary(folder, results / f"{name}-{protocol}.json")


if __name__ == "__main__":
    where, which, images, *chosen = sys.argv[1:]
    small, alone = os.environ.get("DUBIUM_RESULTS"), os.environ.get("DUBIUM_METHODS", "")
    texts = tuple(filter(None, alone.split(",")))
    run_final(Path(where), which, images, chosen or list(SIZES), Path(small) if small else None, texts)
