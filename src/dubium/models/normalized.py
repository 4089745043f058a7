"""Images stay in [0, 1]; the network sees them standardised."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dubium.errors import OptionError


class Normalized(nn.Module):
    """`network((x - mean) / std)`, per channel. The state dict holds `network`'s tensors only.

    Args:
        network: what sees standardised images.
        mean: one number, or one per channel: a list, tensor or array.
        std: likewise, above 0.

    >>> Normalized(nn.Identity(), mean=0.5, std=0.25)(torch.ones(1, 1, 1, 1)).item()
    2.0
    """

    def __init__(self, network: nn.Module, mean: Any, std: Any) -> None:
        super().__init__()
        self.normalise = Normalise(_channels("mean", mean), _channels("std", std))
        self.network = network
        reference = next((p for p in network.parameters() if p.is_floating_point()), None)
        if reference is not None:
            self.normalise.to(reference.device, reference.dtype)  # the network stays as it is

    @property
    def mean(self) -> Tensor:
        return self.normalise.mean

    @property
    def std(self) -> Tensor:
        return self.normalise.std

    def forward(self, x: Tensor) -> Any:
        return self.network(self.normalise(x))


class Normalise(nn.Module):
    """`(x - mean) / std`: a layer, so that FullGrad finds where the network's own input begins, however deep it is."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if not all(value > 0 for value in std):
            raise OptionError(f"std is {list(std)}; every channel needs a standard deviation above 0.")
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        for values in (self.mean, self.std):
            if len(values) not in (1, x.shape[1]):
                hint = " Are their axes (B, H, W, C)? Then: x.movedim(-1, 1)." if x.shape[-1] == len(values) else ""
                raise OptionError(f"mean or std has {len(values)} channels, the images have {x.shape[1]}.{hint}")
        return (x - self.mean) / self.std

    def is_like(self, other: "Normalise") -> bool:
        """Whether both show their networks the same."""
        return torch.equal(self.mean, other.mean) and torch.equal(self.std, other.std)

    def shift(self, x: Tensor) -> Tensor:
        """The bias of this layer, one number for each channel of x."""
        return (-self.mean / self.std).flatten().expand(x.shape[1])


def refuse_second_normalisation(network: nn.Module) -> None:
    """Refuse a mean and a std for a network that standardises its images already: it would do so twice."""
    found = next((layer for layer in network.modules() if isinstance(layer, Normalise)), None)
    if found is not None:
        mean, std = (
            ",".join(f"{value:.6g}" for value in values.flatten().tolist()) for values in (found.mean, found.std)
        )
        raise OptionError(
            f"The networks standardise images themselves, with mean {mean} and std {std}, and would do so twice. Leave "
            "out --mean and --std (mean= and std= in Python)."
        )


def _channels(name: str, value: Any) -> list[float]:
    try:
        values = torch.as_tensor(value, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        values = torch.empty(0)
    if not values.numel() or values.numel() != max(values.shape, default=1) or not values.isfinite().all():
        given = f"of shape {tuple(values.shape)}" if values.ndim > 1 else repr(value)
        raise OptionError(f"{name} is {given}; give one number, or one per channel.")
    return [float(v) for v in values.flatten()]
