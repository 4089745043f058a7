"""Accuracy of a public ensemble, whose files do not say it."""

from pathlib import Path
from typing import Any

import torch

from dubium.data import Dataset
from dubium.files import write_json
from dubium.reading import read_json
from dubium.training.loop import dataset_logits
from dubium.types import Posterior

IMAGES = 500


def ensemble_accuracy(posterior: Posterior, data: Dataset, file: Path) -> dict[str, Any]:
    """Part of `IMAGES` drawn images that the mean of the networks' probabilities gets right; kept in `file`."""
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, measure_accuracy(posterior, data.sample(IMAGES)))
    found: dict[str, Any] = read_json(file)
    return found


def measure_accuracy(posterior: Posterior, data: Dataset) -> dict[str, Any]:
    """
    >>> data = Dataset(torch.rand(4, 1, 2, 2), torch.tensor([0, 0, 1, 1]), ("a", "b"), "drawn", "test")
    >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
    >>> _ = torch.nn.init.zeros_(network[1].weight), torch.nn.init.constant_(network[1].bias[:1].data, 9.0)
    >>> measure_accuracy([network], data)
    {'accuracy': 0.5, 'images': 4}
    """
    assert data.labels is not None
    probs = torch.stack([dataset_logits(network, data).softmax(1) for network in posterior]).mean(0)
    return {"accuracy": float((probs.argmax(1) == data.labels).double().mean()), "images": len(data)}
