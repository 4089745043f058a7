"""Attribution methods: `(network, x, target, **options) -> maps`, vectorised over targets, one module each."""

from dubium.attribution.blur_ig import blur_ig
from dubium.attribution.blur_path import blur_path
from dubium.attribution.clue import clue
from dubium.attribution.clue_path import clue_path
from dubium.attribution.delta_clue import delta_clue
from dubium.attribution.edges import edges
from dubium.attribution.effect_variance import effect_variance
from dubium.attribution.fullgrad import fullgrad
from dubium.attribution.grad import grad
from dubium.attribution.grad_cam import grad_cam
from dubium.attribution.guided_ig import guided_ig
from dubium.attribution.ig import ig
from dubium.attribution.input_grad import input_grad
from dubium.attribution.local_contrast import local_contrast
from dubium.attribution.map_variance import map_variance
from dubium.attribution.random import random
from dubium.attribution.smooth_random import smooth_random
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

CONTROLS: dict[str, Attributor] = {
    "random": random,
    "smooth-random": smooth_random,
    "edges": edges,
    "local-contrast": local_contrast,
}
"""Those that know nothing of the network: what every method must beat. Never recommended to anybody."""

ATTRIBUTORS: dict[str, Attributor] = (
    RELEVANCES
    | {
        "blur-path": blur_path,
        "clue": clue,
        "delta-clue": delta_clue,
        "clue-path": clue_path,
        "map-variance": map_variance,
        "effect-variance": effect_variance,
    }
    | CONTROLS
)

__all__ = [
    "ATTRIBUTORS",
    "BY_IMAGE",
    "CONTROLS",
    "RELEVANCES",
    "blur_ig",
    "blur_path",
    "clue",
    "clue_path",
    "delta_clue",
    "edges",
    "effect_variance",
    "fullgrad",
    "grad",
    "grad_cam",
    "guided_ig",
    "ig",
    "input_grad",
    "local_contrast",
    "map_variance",
    "random",
    "smooth_random",
    "smoothgrad",
]
