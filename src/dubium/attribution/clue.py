"""CLUE (Antorán et al., 2021, arXiv:2006.06848): what would have to change for the posterior to be sure?"""

from torch import Tensor, nn

from dubium.attribution._counterfactual import Autoencoder, counterfactuals, difference
from dubium.attribution._vjp import DEFAULT_MEMORY
from dubium.checks import silent
from dubium.types import Images, Maps, Progress, Target


def clue(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    vae: Autoencoder | None = None,
    steps: int = 500,
    lr: float = 0.01,
    memory: int = DEFAULT_MEMORY,
    progress: Progress = silent,
    extras: dict[str, Tensor] | None = None,
) -> Maps:
    """Credit each pixel with its change in the counterfactual, which `extras["counterfactual"]` receives."""
    changed = counterfactuals(network, x, target, vae, steps=steps, lr=lr, memory=memory, progress=progress)
    return difference(x, changed, extras)
