"""delta-CLUE (Ley et al., 2021, arXiv:2104.06323): CLUE that stays near the image."""

from torch import Tensor, nn

from dubium.attribution._counterfactual import Autoencoder, counterfactuals, difference
from dubium.attribution._vjp import DEFAULT_MEMORY
from dubium.checks import check_number, silent
from dubium.types import Images, Maps, Progress, Target


def delta_clue(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    vae: Autoencoder | None = None,
    steps: int = 500,
    lr: float = 0.01,
    radius: float = 2.0,
    starts: int = 4,
    seed: int = 0,
    memory: int = DEFAULT_MEMORY,
    progress: Progress = silent,
    extras: dict[str, Tensor] | None = None,
) -> Maps:
    """Credit each pixel with its change in the best counterfactual of several starts within a ball of codes."""
    check_number("radius", radius)
    check_number("starts", starts, whole=True)
    changed = counterfactuals(
        network,
        x,
        target,
        vae,
        steps=steps,
        lr=lr,
        radius=radius,
        starts=starts,
        seed=seed,
        memory=memory,
        progress=progress,
    )
    return difference(x, changed, extras)
