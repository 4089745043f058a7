"""Whether a network that is saved has a class for each name, as one pass of an image of zeros tells."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dubium.class_names import list_names
from dubium.errors import OptionError


def check_names_of_network(names: Sequence[str], network: nn.Module, input_shape: Sequence[int]) -> None:
    """Refuse names that are not as many as the network's classes, where these can be counted."""
    count = count_classes(network, input_shape)
    if count is not None and len(names) != count:
        raise OptionError(
            f"classes has {len(names)} names ({list_names(names)}), but the networks have {count} classes. Give one "
            "name for each, in the order of the networks' outputs, or leave classes out."
        )


def count_classes(network: nn.Module, input_shape: Sequence[int]) -> int | None:
    """How many columns the output for one image has; None where that does not tell the number of classes.

    It does not for one column, the logit of a sigmoid, for outputs of which `output=` is to choose a part, and for
    networks in training mode, which a pass may change.
    """
    if any(module.training for module in network.modules()):
        return None
    weight = next((weight for weight in network.parameters() if weight.is_floating_point()), torch.empty(0))
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            logits = network(weight.new_zeros(1, *input_shape))
    except Exception:  # of the user's own code, or of another input shape
        return None
    return logits.shape[1] if isinstance(logits, Tensor) and logits.ndim == 2 and logits.shape[1] > 1 else None
