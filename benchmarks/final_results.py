"""Numbers of the final evaluation of `auto` for docs/results.md: python -m benchmarks.final_results [RESULTS].

The paper's protocols on other networks or images than `dubium reproduce` takes: small copies of
benchmarks/results/auto, as `RESULTS/blurring-svhn@svhn-11.json` (results/cpu by default), which the page shows beside
its own.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dubium.files import write_json
from dubium.registry import RECOMMENDED
from dubium.reproduce.dependencies import method_versions

ROOT = Path(__file__).parents[1]
SOURCE, PROTOCOLS = ROOT / "benchmarks" / "results" / "auto", ("blurring", "anomaly")
METRICS = ("murr@2%", "murr@5%", "auc-urr@2%", "auc-urr@5%", "iou", "ada")
ABOUT: dict[str, dict[str, Any]] = {
    "mnist-11": {
        "architecture": {"name": "cnn"},
        "test": {"accuracy": 0.9901},
        "trained": "dubium train --dataset mnist --scale cpu --seed 11",
    },
    "svhn-11": {
        "architecture": {"name": "svhn-cnn"},
        "test": {"accuracy": 0.9017},
        "trained": "dubium train --dataset svhn --scale cpu --seed 11",
    },
    "svhn-cnn": {"architecture": {"name": "svhn-cnn"}, "test": {"accuracy": 0.926}, "public": "svhn-cnn"},
    "cifar10-resnet20": {
        "architecture": {"name": "cifar-resnet"},
        "test": {"accuracy": 0.943},
        "public": "cifar10-resnet20",
    },
    "cifar100-resnets": {
        "architecture": {"name": "cifar-resnet"},
        "test": {"accuracy": 0.767},
        "public": "cifar100-resnets",
    },
}
"""The networks: architecture, and the test accuracy of all together."""

SAME_NETWORKS = ("mnist-11", "cifar10-resnet20", "cifar100-resnets")
"""Those that `dubium reproduce` takes too; here they have more images."""


def copy_result(path: Path, results: Path) -> Path | None:
    """Write one small copy; None where the page has no place for it, or `auto` was not measured as it is now."""
    summary = json.loads(path.read_text(encoding="utf-8"))
    settings, protocol = summary["settings"], summary["protocol"]
    run, dataset = settings.get("run"), settings.get("dataset")
    if protocol not in PROTOCOLS or run not in ABOUT or (protocol, dataset) == ("anomaly", "mnist"):
        return None
    if RECOMMENDED not in summary["results"]:
        return None
    kept = {
        method: {metric: found[metric] for metric in METRICS if metric in found}
        for method, found in summary["results"].items()
    }
    tag = f"{settings['images']}-images" if run in SAME_NETWORKS else run
    name = f"{protocol}-{dataset}@{tag}"
    content = {
        "job": name,
        "entry": protocol,
        "command": f"python -m benchmarks.auto.final OUT {run} {dataset} {protocol}",
        "scale": "cpu",
        "seed": settings["seed"],
        "commit": storing_commit(path),
        "machine": {"processor": "AMD EPYC", "cores": 2, "threads": settings["threads"]},
        "protocol": protocol,
        "settings": {**settings, "posterior": {**ABOUT[run], "members": settings["members"]}},
        "versions": summary["versions"],
        "dependencies": {"methods": {label: method_versions(label) for label in kept}},
        "results": kept,
        "comparisons": [row for row in summary["comparisons"] if is_kept(row)],
        "notes": [*summary["notes"], "images that took no part in choosing `auto`, see docs/which-method.md"],
        "pictures": [],
    }
    write_json(results / f"{name}.json", content)
    return results / f"{name}.json"


def storing_commit(path: Path) -> str:
    """The commit that stored the result."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%h", "--abbrev=12", "--", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def is_kept(row: dict[str, Any]) -> bool:
    """Whether the page needs a comparison: of UA-Backprop or `auto`, in the paper's metrics."""
    return row["metric"] in METRICS and not {RECOMMENDED, "ua-backprop"}.isdisjoint((row["a"], row["b"]))


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "results" / "cpu"
    for file in sorted(SOURCE.glob("*.json")):
        copied = copy_result(file, target)
        if copied is not None:
            print(copied.name)
