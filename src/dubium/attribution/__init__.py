"""Attribution methods: `(network, x, target, **options) -> maps`, vectorised over targets, one module each."""

from dubium.attribution.blur_ig import blur_ig
from dubium.attribution.clue import clue
from dubium.attribution.clue_path import clue_path
from dubium.attribution.delta_clue import delta_clue
from dubium.attribution.fullgrad import fullgrad
from dubium.attribution.grad import grad
from dubium.attribution.grad_cam import grad_cam
from dubium.attribution.guided_ig import guided_ig
from dubium.attribution.ig import ig
from dubium.attribution.input_grad import input_grad
from dubium.attribution.random import random
from dubium.attribution.smoothgrad import smoothgrad
from dubium.types import Attributor

RELEVANCES: dict[str, Attributor] = {
    "fullgrad": fullgrad,
    "grad": grad,
    "input-grad": input_grad,
    "smoothgrad": smoothgrad,
    "grad-cam": grad_cam,
    "ig": ig,
    "blur-ig": blur_ig,
    "guided-ig": guided_ig,
}
"""Those that explain a logit as well as an uncertainty."""

BY_IMAGE: tuple[Attributor, ...] = (fullgrad, grad, input_grad)
"""Those that know targets that differ from image to image."""

ATTRIBUTORS: dict[str, Attributor] = RELEVANCES | {
    "clue": clue,
    "delta-clue": delta_clue,
    "clue-path": clue_path,
    "random": random,
}

__all__ = [
    "ATTRIBUTORS",
    "BY_IMAGE",
    "RELEVANCES",
    "blur_ig",
    "clue",
    "clue_path",
    "delta_clue",
    "fullgrad",
    "grad",
    "grad_cam",
    "guided_ig",
    "ig",
    "input_grad",
    "random",
    "smoothgrad",
]
