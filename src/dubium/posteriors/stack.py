"""All networks of a posterior as one module."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dubium.errors import PosteriorError
from dubium.types import Posterior


class Stack(nn.Module):
    """One forward through every network: (B, C, H, W) images to (B, S, K) logits."""

    def __init__(self, networks: list[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.training = False  # not .eval(): that would also set the mode of networks that belong to the caller

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError as error:
            if not any(hasattr(network, name) for network in self.networks):
                raise
            raise AttributeError(
                f"A method is given all networks as one module, which has no {name!r}: network.networks[0].{name} is "
                "that of the first. As relevance= of ua-backprop, a method is given one network after the other."
            ) from error

    def forward(self, x: Tensor) -> Tensor:
        logits = [network(x.clone()) for network in self.networks]  # one may work in place
        check_class_counts(logits)
        return torch.stack(logits, 1)


def check_class_counts(logits: Sequence[Tensor]) -> None:
    """Raise an error unless the logits (B, K) of all networks are of as many classes."""
    for index, each in enumerate(logits):
        if each.shape[-1] != logits[0].shape[-1]:
            raise PosteriorError(
                f"Networks disagree about the classes: network 0 has {logits[0].shape[-1]}, network {index} has "
                f"{each.shape[-1]}. Give networks that were trained for the same classes, in the same order; explain "
                "others on their own."
            )


def stacked_networks(network: nn.Module) -> list[nn.Module]:
    """The networks of a stack; any other network is a posterior of one."""
    return list(network.networks) if isinstance(network, Stack) else [network]


def stack(posterior: Posterior) -> Stack:
    """The posterior as one network with (B, S, K) logits; its networks are not copied.

    >>> stack([nn.Linear(4, 3), nn.Linear(4, 3)])(torch.rand(5, 4)).shape
    torch.Size([5, 2, 3])
    """
    networks = list(posterior)
    if not networks:
        raise PosteriorError("The posterior is empty: it has 0 networks. Pass at least one.")
    return Stack(networks)
