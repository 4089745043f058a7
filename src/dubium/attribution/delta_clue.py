"""delta-CLUE (Ley et al., 2021, arXiv:2104.06323): CLUE that stays near the image."""

from torch import nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._counterfactual_search import Autoencoder, Search, attribute_change, counterfactuals
from dubium.types import Attribution, Images, Target


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
    context: Context = DEFAULT_CONTEXT,
) -> Attribution:
    """Credit each pixel with its change in the best counterfactual of several starts within a ball of codes.

    Args:
        vae, steps, lr: as for `clue`.
        radius: of the ball around the image's own code.
        starts: where searches begin.
    """
    return attribute_change(x, counterfactuals(network, x, target, vae, Search(steps, lr, radius, starts), context))
