"""How much each scale measures; what is not here is as the protocols' own scale says. The page names it all."""

from collections.abc import Mapping
from typing import Any

DATASETS = ("mnist", "svhn", "cifar-10", "cifar-100")
"""Of the paper."""

BLURRING: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "cpu": {
        "mnist": {"images": 50, "step": 0.5},
        "svhn": {"images": 20, "step": 1.0, "candidates": 2000},
        "cifar-10": {"images": 20, "step": 1.0, "candidates": 2000},
        "cifar-100": {"images": 8, "step": 2.0, "candidates": 300},
    },
    "smoke": {name: {"images": 2, "candidates": 16, "step": 10.0} for name in DATASETS},
}
ANOMALY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "cpu": {
        "cifar-10": {"images": 50, "candidates": 500},
        "cifar-100": {"images": 10, "candidates": 100},
        "svhn": {"images": 50, "candidates": 500},
    },
    "smoke": {name: {"images": 2, "candidates": 6} for name in DATASETS},
}
FEW_EPOCHS = {"batch_size": 16, "lr": 0.05, "members": 3, "test_images": 1000, "seeds": 2}
"""A small batch learns more from few epochs than the paper's of 128; the learning rate falls along a half cosine."""

MITIGATION: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "cpu": {
        "mnist": {"images": 500, "epochs": 5, **FEW_EPOCHS},
        "cifar-10": {"images": 1000, "epochs": 3, **FEW_EPOCHS},
        "svhn": {"images": 2000, "epochs": 3, **FEW_EPOCHS},
        "cifar-100": {"images": 500, "epochs": 6, **FEW_EPOCHS},
    },
    "smoke": {name: {"images": 12, "epochs": 1, "test_images": 16, "seeds": 1, "members": 2} for name in DATASETS},
}
NETWORK = "network"  # the option of a mitigation job that changes sizes of its network
SMALL_NETWORK = {
    NETWORK: {"filters": 8, "units": 64, "dropout": 0.25},
    "batch_size": 16,
    "members": 3,
    "test_images": 1000,
}
TRIALS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "cpu": {
        "mnist": {"images": 500, "epochs": 8, "lr": 0.03, "mean": (0.13,), "std": (0.31,), **SMALL_NETWORK},
        "cifar-10": {"images": 1000, "epochs": 6, "lr": 0.02, **SMALL_NETWORK},
    },
    "smoke": MITIGATION["smoke"],
}
"""Where the question is whether attention, or anything, helps at all; `SEEDS` trainings of each arm.

A quarter of the filters makes ten trainings as cheap as two; accuracy is about the paper's (90 and 33 per cent without
attention; the paper has 90.8 and 31.6).
"""

RUNTIME: Mapping[str, Mapping[str, Any]] = {"smoke": {"repeats": 1}, "cpu": {"repeats": 5}, "paper": {"repeats": 20}}
SEEDS = {"smoke": 1, "cpu": 10, "paper": 10}


def options_for(table: Mapping[str, Mapping[str, Mapping[str, Any]]], scale: str, dataset: str) -> dict[str, Any]:
    """A measure's options; none at scale `paper`, where the protocol's own are the paper's."""
    return dict(table.get(scale, {}).get(dataset, {}))
