"""Networks that hand on a part of their output, for callers that use them directly."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from dubium.networks.outputs import OutputChoice, check_output_choice, take_logits
from dubium.types import Posterior


class ChosenOutput(nn.Module):
    """A network whose output is the part of another's that `output=` chooses: its logits."""

    def __init__(self, network: nn.Module, choice: OutputChoice) -> None:
        super().__init__()
        self.network, self.choice = network, choice
        self.train(network.training)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = take_logits(self.network(x), self.choice, len(x))
        return logits


@dataclass(frozen=True)
class WithChosenOutput:
    """A posterior's networks with the chosen part of their output."""

    posterior: Posterior
    choice: OutputChoice

    def __post_init__(self) -> None:
        check_output_choice(self.choice)

    def __len__(self) -> int:
        return len(self.posterior)

    def __iter__(self) -> Iterator[nn.Module]:
        return (ChosenOutput(network, self.choice) for network in self.posterior)
