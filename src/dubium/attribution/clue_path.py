"""The path integral between an image and its counterfactual (Perez et al., 2022, arXiv:2107.08756)."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._counterfactual_search import Autoencoder, Search, counterfactuals
from dubium.attribution._paths import integrate_lines
from dubium.types import Attribution, Images, Target

PATH_STEPS = 100


def clue_path(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    vae: Autoencoder | None = None,
    steps: int = 500,
    lr: float = 0.01,
    context: Context = DEFAULT_CONTEXT,
) -> Attribution:
    """Credit each pixel with its part of the change from the image's counterfactual of CLUE to the image.

    Args:
        vae, steps, lr: as for `clue`.
    """
    changed = counterfactuals(network, x, target, vae, Search(steps, lr), context)
    silent = replace(context, progress=DEFAULT_CONTEXT.progress)
    by_target = []
    for t in range(changed.shape[1]):  # each target has a counterfactual, and so a path, of its own

        def one_target(output: Tensor, t: int = t) -> Tensor:
            return target(output)[:, t : t + 1]

        def counterfactual(image_slice: slice, t: int = t) -> Float[Tensor, "1 b C H W"]:
            return changed[None, image_slice, t]

        by_target.append(integrate_lines(network, x, one_target, counterfactual, PATH_STEPS, silent))
    return Attribution(torch.cat(by_target, 1), {"counterfactual": changed})
