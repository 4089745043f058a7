"""One arm of the mitigation experiment: train a fresh network, with or without maps; test it on untouched images."""

from dataclasses import dataclass

from torch import Tensor

from dubium.data import Dataset
from dubium.evaluation.calibration import predictive_metrics
from dubium.training.attention import MITIGATION, Normalisation, Space, mitigate
from dubium.training.loop import network_for, predict_logits
from dubium.training.recipe import Recipe

HIGHER_IS_BETTER = {"accuracy": True, "nll": False, "ece": False}
NO_ATTENTION = "none"


@dataclass(frozen=True)
class Attention:
    """How maps act on training."""

    alpha: float = 0.2
    normalisation: Normalisation = "softmax"
    space: Space = "latent"


def mitigation_arm(
    data: Dataset, maps: Tensor | None, test: Dataset, *, recipe: Recipe = MITIGATION, how: Attention, seed: int = 0
) -> dict[str, float]:
    """Accuracy, NLL and calibration error of one network trained with these maps (None: without attention).

    Arms with the same seed share their first weights and the order of their images.
    """
    assert data.labels is not None
    assert test.labels is not None
    fresh = network_for(recipe, seed)
    trained = mitigate(
        fresh,
        maps,
        data.batch(slice(None)),
        data.labels,
        alpha=how.alpha,
        normalisation=how.normalisation,
        space=how.space,
        recipe=recipe,
        seed=seed,
    )
    return predictive_metrics(predict_logits(trained, test), test.labels)
