"""CLUE (Antorán et al., 2021, arXiv:2006.06848): what would have to change for the posterior to be sure?"""

from torch import nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._counterfactual_search import Autoencoder, Search, attribute_change, counterfactuals
from dubium.types import Attribution, Images, Target


def clue(
    network: nn.Module,
    x: Images,
    target: Target,
    *,
    vae: Autoencoder | None = None,
    steps: int = 500,
    lr: float = 0.01,
    context: Context = DEFAULT_CONTEXT,
) -> Attribution:
    """Credit each pixel with its change in the counterfactual, which is among the extras.

    Args:
        vae: a model with `encode` and `decode`; `dubium train-vae` makes one.
        steps: of Adam at most.
        lr: its learning rate.
    """
    return attribute_change(x, counterfactuals(network, x, target, vae, Search(steps, lr), context))
