"""Attribution methods: `(network, x, target, **options) -> maps`, vectorised over targets, one module each.

All of them take the same three arguments, and return maps (B, T, H, W), or an `Attribution` with more than maps:

- network: a module in eval mode.
- x: images (B, C, H, W).
- target: a function of the network's output, with T numbers per image, (B, T).

Their docstrings say what their own options are. `context` is how the caller wants them to run.

>>> import torch
>>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3)).eval()
>>> ig(network, torch.rand(2, 1, 4, 4), lambda logits: logits, steps=5).shape
torch.Size([2, 3, 4, 4])
"""

from dubium.attribution._context import Context
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
from dubium.registry import METHODS, load_function
from dubium.types import Attributor

ATTRIBUTORS: dict[str, Attributor] = {name: load_function(method.path) for name, method in METHODS.items()}
"""All methods but UA-Backprop, by name."""

CONTROLS: dict[str, Attributor] = {name: ATTRIBUTORS[name] for name in METHODS if METHODS[name].is_control}
"""Maps that know nothing of the network: what every method must beat."""

RELEVANCES: dict[str, Attributor] = {name: ATTRIBUTORS[name] for name in METHODS if METHODS[name].is_relevance}
"""Methods that explain a logit as well as an uncertainty."""

__all__ = [
    "ATTRIBUTORS",
    "CONTROLS",
    "RELEVANCES",
    "Context",
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
