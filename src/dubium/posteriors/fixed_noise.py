"""Modules whose random zeros and ones are taken from a function instead of torch's generator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

Draw = tuple[int, int]
"""A module's operation that draws, by its number, and the number of the draw in that operation."""


TakeMask = Callable[[Draw, Tensor, float], Tensor]
"""Draw, the tensor to fill and the probability of a 1 -> zeros and ones of its shape."""


def replace_noise(layer: nn.Module, take: TakeMask, *, training: bool, draws: Mapping[Draw, Any] | None = None) -> None:
    """Let a module's forward run in this mode and take its random zeros and ones from a function."""
    noisy = NoisyForward(layer, layer.forward, take, training, draws or {})
    layer.forward = noisy


def restore_noise(network: nn.Module) -> None:
    """Undo `replace_noise`."""
    for layer in network.modules():
        if isinstance(layer.forward, NoisyForward):
            layer.forward = layer.forward.forward


@dataclass(eq=False)
class NoisyForward:
    """The forward of one module, in a mode of its own and with fixed noise; the modules inside keep their modes."""

    layer: nn.Module
    forward: Callable[..., Any]
    take: TakeMask
    training: bool
    draws: Mapping[Draw, Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before, self.layer.training = self.layer.training, self.training
        noise = FixedNoise(self.take, self.draws)
        try:
            with noise, OperationCount(noise):
                return self.forward(*args, **kwargs)
        finally:
            self.layer.training = before


class FixedNoise(TorchDispatchMode):
    """Replaces what `bernoulli_` draws.

    An operation that is executed again, as FullGrad does to find its bias, draws the same again: after the last known
    draw, they are counted from 0 again.
    """

    def __init__(self, take: TakeMask, draws: Mapping[Draw, Any]) -> None:
        super().__init__()
        self.take, self.draws = take, draws
        self.draw: Draw = (-1, 0)  # the latest
        self.is_new = True  # whether the next draw is the first of an operation

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not torch.ops.aten.bernoulli_.float:
            return func(*args, **(kwargs or {}))
        operation, number = self.draw
        draw = (operation + 1, 0) if self.is_new else (operation, number + 1)
        self.draw = (draw[0], 0) if self.draws and draw not in self.draws else draw
        self.is_new = False
        noise, probability = args[0], args[1] if len(args) > 1 else (kwargs or {}).get("p", 0.5)
        return noise.copy_(self.take(self.draw, noise, float(probability)))


class OperationCount(TorchFunctionMode):
    """Tells the noise where an operation begins."""

    def __init__(self, noise: FixedNoise) -> None:
        super().__init__()
        self.noise = noise

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.noise.is_new = True
        return func(*args, **(kwargs or {}))
