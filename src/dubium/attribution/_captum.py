"""Any Captum class whose `attribute(x, target=)` needs nothing more, as an attributor."""

from typing import Any

import torch
from torch import Tensor, nn

from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._controls import count_targets
from dubium.types import Attributor, Images, Maps, Scores, Target


class TargetModule(nn.Module):
    """Target after network, as the module that Captum wants."""

    def __init__(self, network: nn.Module, target: Target) -> None:
        super().__init__()
        self.network, self.target = network, target
        self.training = False  # not .eval(): the network is the caller's

    def forward(self, x: Tensor) -> Scores:
        return self.target(self.network(x.clone()))


def captum_attributor(method: Any) -> Attributor:
    """Attribute each target in turn: the sum over channels, or the mean of absolute values for a relevance."""

    def attribute(network: nn.Module, x: Images, target: Target, *, context: Context = DEFAULT_CONTEXT) -> Maps:
        explainer = method(TargetModule(network, target))
        with torch.no_grad():
            targets = count_targets(network, x, target)
        with torch.enable_grad():
            # a copy each time: Captum leaves gradients on the tensor it is given
            by_target = [explainer.attribute(x.clone().requires_grad_(), target=t).detach() for t in range(targets)]
        maps = torch.stack(by_target, 1).to(x.dtype)
        return maps.sum(2) if context.signed else maps.abs().mean(2)

    return attribute
