"""One arm of the mitigation experiment: train a fresh network, with or without maps; test it on other images."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from dubium.data import Dataset
from dubium.evaluation.metrics.calibration import BOUNDS, HIGHER_IS_BETTER, predictive_metrics
from dubium.evaluation.protocols.evaluation import metric_name
from dubium.evaluation.statistics import mean
from dubium.evaluation.summary import Measurement
from dubium.training.attention import MITIGATION, Normalisation, Space, mitigate
from dubium.training.loop import dataset_logits, network_for
from dubium.training.recipe import Recipe
from dubium.types import Kind

NO_ATTENTION = "none"


@dataclass(frozen=True)
class Attention:
    """How maps act on training."""

    alpha: float = 0.2
    normalisation: Normalisation = "softmax"
    space: Space = "latent"


class Arm(NamedTuple):
    """One way of training: with the maps of a method and kind, or (None) without attention."""

    method: str
    kind: Kind | None
    maps: Tensor | None


def train_arm(
    data: Dataset,
    maps: Tensor | None,
    test: Dataset,
    *,
    recipe: Recipe = MITIGATION,
    attention: Attention,
    seed: int = 0,
) -> dict[str, float]:
    """Accuracy, NLL and calibration error of one network trained with these maps (None: without attention).

    Arms with the same seed share their first weights and the order of their images.
    """
    assert data.labels is not None
    assert test.labels is not None
    trained = mitigate(
        network_for(recipe, seed),
        maps,
        data.batch(slice(None)),
        data.labels,
        alpha=attention.alpha,
        normalisation=attention.normalisation,
        space=attention.space,
        recipe=recipe,
        seed=seed,
    )
    return predictive_metrics(dataset_logits(trained, test), test.labels)


def arm_measurements(results: list[dict[str, Any]], kind: Kind | None) -> dict[str, Measurement]:
    """Every metric of one arm, one number for each seed."""
    measurements = {}
    for metric, higher in HIGHER_IS_BETTER.items():
        values = np.array([result[metric] for result in results])
        name = metric if kind is None else metric_name(metric, kind)
        measurements[name] = Measurement(values, mean, values, higher, BOUNDS[metric])
    return measurements
