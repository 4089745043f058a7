"""The path integral between an image and its counterfactual (Perez et al., 2022, arXiv:2107.08756)."""

import torch
from torch import Tensor, nn

from dubium.attribution._counterfactual import Autoencoder, counterfactuals
from dubium.attribution._paths import reduced, straight_line
from dubium.attribution._vjp import DEFAULT_MEMORY
from dubium.checks import silent
from dubium.types import Images, Maps, Progress, Target

PATH_STEPS = 100


def clue_path(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    vae: Autoencoder | None = None,
    steps: int = 500,
    lr: float = 0.01,
    signed: bool = True,
    memory: int = DEFAULT_MEMORY,
    progress: Progress = silent,
    extras: dict[str, Tensor] | None = None,
) -> Maps:
    """Credit each pixel with its part of the change from the image's counterfactual of CLUE to the image."""
    changed = counterfactuals(network, x, target, vae, steps=steps, lr=lr, memory=memory, progress=progress)
    if extras is not None:
        extras["counterfactual"] = changed
    by_target = []
    for t in range(changed.shape[1]):  # each target has a counterfactual, and so a path, of its own

        def own(output: Tensor, t: int = t) -> Tensor:
            return target(output)[:, t : t + 1]

        by_target.append(straight_line(network, x, own, changed[:, t], PATH_STEPS, memory=memory, progress=silent))
    return reduced(torch.cat(by_target, 1), signed)
