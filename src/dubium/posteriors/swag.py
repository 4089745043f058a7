"""SWAG (Maddox et al., 2019, arXiv:1902.02476): a Gaussian fitted to the weights that SGD passes through."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dubium.errors import PosteriorError
from dubium.posteriors.batches import Batches
from dubium.posteriors.gaussian import Gaussian
from dubium.posteriors.weights import WeightSamples, check_weights, snapshot, with_weights


class SWAG:
    """Collects weights while a network trains: call `collect` after each epoch of the last, constant learning rate.

    Args:
        rank: the number of deviations from the mean, the latest ones, that are kept for the low-rank part.

    >>> swag = SWAG()
    >>> for _ in range(3):
    ...     swag.collect(nn.Linear(4, 2))
    >>> len(swag.posterior(nn.Linear(4, 2), samples=5))
    5
    """

    def __init__(self, rank: int = 20) -> None:
        self.rank, self.count = rank, 0
        self.mean: dict[str, Tensor] = {}
        self.scatter: dict[str, Tensor] = {}  # sum of squared deviations from the mean, by Welford's update
        self.deviations: dict[str, Tensor] = {}  # (at most rank, *shape), the latest last

    def collect(self, network: nn.Module) -> None:
        """Add the network's parameters to the mean, the variance and the latest deviations."""
        self.count += 1
        for name, parameter in network.named_parameters():
            weight = parameter.detach().cpu()
            before = self.mean.get(name, torch.zeros_like(weight))
            mean = before + (weight - before) / self.count
            self.mean[name] = mean
            self.scatter[name] = self.scatter.get(name, 0) + (weight - before) * (weight - mean)
            kept = self.deviations.get(name, weight.new_empty(0, *weight.shape))
            self.deviations[name] = torch.cat([kept, (weight - mean)[None]])[-self.rank :]

    def posterior(
        self, network: nn.Module, *, samples: int = 20, seed: int = 0, batches: Batches | None = None
    ) -> Gaussian | WeightSamples:
        """The Gaussian around the mean of what was collected, half of it diagonal and half low-rank.

        Args:
            network: of the same architecture; its weights are not used.
            samples: the number of networks to draw.
            batches: training data, over which the statistics of BatchNorm layers are measured for every sample.

        Returns:
            A `Gaussian`; for a network with BatchNorm, the weights and statistics of each sample.
        """
        if self.count < 2 or self.rank < 2:
            raise PosteriorError(
                f"SWAG has collected {self.count} networks at rank {self.rank}; a covariance needs two of both."
            )
        check_weights(network, self.mean, "What SWAG collected")
        missing = [name for name, _ in network.named_parameters() if name not in self.mean]
        if missing:
            raise PosteriorError(
                f"SWAG has collected no {', '.join(missing[:3])}, which this {type(network).__name__} has. Give one of "
                "the architecture that was collected."
            )
        device = next(network.parameters()).device
        centred = with_weights(snapshot(network), {name: mean.to(device) for name, mean in self.mean.items()})
        std = {name: (scatter / self.count / 2).sqrt() for name, scatter in self.scatter.items()}
        factors = {name: kept / (2 * (len(kept) - 1)) ** 0.5 for name, kept in self.deviations.items()}
        gaussian = Gaussian(centred, std, factors, samples, seed)
        if not any(isinstance(layer, _BatchNorm) for layer in network.modules()):
            return gaussian
        if batches is None:
            raise PosteriorError(
                f"The {type(network).__name__} has BatchNorm layers, whose statistics belong to one set of weights. "
                "Pass batches= of training data, and they are measured for every sample."
            )
        return WeightSamples(centred, [measure_batch_norm(sample, batches) for sample in gaussian])

    def tensors(self) -> dict[str, Tensor]:
        """Everything that was collected, for a checkpoint."""
        groups = {"mean": self.mean, "scatter": self.scatter, "deviations": self.deviations}
        flat = {f"{group}/{name}": value for group, values in groups.items() for name, value in values.items()}
        return {"count": torch.tensor(self.count), **flat}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `tensors` returned."""
        self.count = int(tensors["count"])
        for group in ("mean", "scatter", "deviations"):
            prefix = f"{group}/"
            found = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
            setattr(self, group, found)


def measure_batch_norm(network: nn.Module, batches: Batches) -> dict[str, Tensor]:
    """The network's parameters, and its BatchNorm statistics over the batches; the network is changed in place."""
    layers = {layer: layer.momentum for layer in network.modules() if isinstance(layer, _BatchNorm)}
    device = next(network.parameters()).device
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the plain mean over all batches
        layer.train()
    is_empty = True
    with torch.no_grad():
        for batch in batches:
            network((batch[0] if isinstance(batch, tuple | list) else batch).to(device))
            is_empty = False
    if is_empty:
        raise PosteriorError(
            "batches gave none, at first or when read again: they are read once for every sample. Pass a DataLoader or "
            "a list, not a generator."
        )
    for layer, momentum in layers.items():
        layer.momentum = momentum
        layer.eval()
    return dict([*network.named_parameters(), *network.named_buffers()])
