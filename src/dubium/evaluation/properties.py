"""The paper's table of properties (Appendix A.1), measured: one small experiment for each, on any method.

Each gives a number and whether it counts as a yes. Networks are small, random and in float64, so that a property that
holds shows to many digits.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dubium._explain import explain, uncertainty
from dubium.evaluation.metrics.blurring import pixel_counts, pixel_ranks
from dubium.evaluation.metrics.gaussian_blur import gaussian_blur
from dubium.evaluation.statistics import bootstrap, mean
from dubium.types import Images

SIZE, CLASSES, MEMBERS = 10, 4, 3
EXACT = 1e-3  # relative; path methods are asked for many steps
BLURS = (0.0, 1.0, 2.0, 4.0)
Explain = Callable[[Sequence[nn.Module], Images], Tensor]
"""A posterior and images -> maps (B, H, W) of one kind of uncertainty."""


@dataclass(frozen=True)
class Finding:
    """Whether a method has a property, with the number that decides it."""

    holds: bool
    value: float
    meaning: str


def explainer(method: str, kind: Any, **options: Any) -> Explain:
    """A method with its options as a function of posterior and images."""
    return lambda posterior, x: explain(posterior, x, method=method, kinds=kind, **options).maps[kind]


def completeness(attribute: Explain) -> Finding:
    """The map adds up to the uncertainty."""
    posterior, x = [random_network(seed) for seed in range(MEMBERS)], random_images()
    exact = uncertainty(posterior, x).scores["aleatoric"]
    gap = ((attribute(posterior, x).sum((1, 2)) - exact).abs() / exact).max()
    return Finding(bool(gap < EXACT), float(gap), "largest relative gap between the map's sum and U")


def positivity(attribute: Explain) -> Finding:
    """No pixel has a negative value."""
    lowest = attribute([random_network(seed) for seed in range(MEMBERS)], random_images()).min()
    return Finding(bool(lowest >= 0), float(lowest), "smallest value of a map")


def sensitivity(attribute: Explain) -> Finding:
    """Pixels that cannot change the uncertainty get nothing, and others get something."""
    posterior, x = [nn.Sequential(RightHalf(), random_network(seed)).eval() for seed in range(MEMBERS)], random_images()
    maps = attribute(posterior, x).abs()
    ignored, seen = maps[..., : SIZE // 2], maps[..., SIZE // 2 :]
    share = ignored.sum() / maps.sum()
    return Finding(bool(share < 1e-9 and (seen > 0).all()), float(share), "share of the map on pixels never looked at")


def saturation(attribute: Explain) -> Finding:
    """Pixels with a gradient of zero, though other values of theirs would change the uncertainty, count too."""
    posterior = [nn.Sequential(AtLeastHalf(), random_network(seed)).eval() for seed in range(MEMBERS)]
    x = random_images()
    x[..., : SIZE // 2] = 0.2  # below what AtLeastHalf lets through
    maps = attribute(posterior, x).abs()
    share = maps[..., : SIZE // 2].sum() / maps.sum()
    return Finding(bool(share > 1e-6), float(share), "share of the map on pixels with zero gradient")


def implementation_invariance(attribute: Explain) -> Finding:
    """Networks that compute the same, one with BatchNorm, one with it folded into the convolution, have equal maps."""
    posterior, x = [random_network(seed) for seed in range(MEMBERS)], random_images()
    twins = [fold_batch_norm(member) for member in posterior]
    assert all(torch.allclose(a(x), b(x)) for a, b in zip(posterior, twins, strict=True))
    gap = relative_l1(attribute(twins, x), attribute(posterior, x))
    return Finding(gap < EXACT, gap, "relative L1 distance between the maps of equal functions")


def shift_invariance(attribute: Explain) -> Finding:
    """Networks whose logits are all shifted by a function of x, which changes no probability, have equal maps."""
    posterior, x = [random_network(seed) for seed in range(MEMBERS)], random_images()
    gap = relative_l1(attribute([ShiftedLogits(member).eval() for member in posterior], x), attribute(posterior, x))
    return Finding(gap < EXACT, gap, "relative L1 distance between the maps of equal probabilities")


def linearity(attribute: Explain) -> Finding:
    """Two posteriors together, whose aleatoric uncertainty is the mean of theirs, have the mean of their maps."""
    first, second = ([random_network(seed + shift) for seed in range(MEMBERS)] for shift in (0, 10))
    x = random_images()
    mean = (attribute(first, x) + attribute(second, x)) / 2
    gap = relative_l1(attribute([*first, *second], x), mean)
    return Finding(gap < EXACT, gap, "relative L1 distance to the mean of the two maps")


def fidelity(attribute: Explain, posterior: Sequence[nn.Module], x: Images) -> Finding:
    """Blurring the pixels of highest value lowers the uncertainty more than blurring random ones; of real networks."""
    control = explainer("random", "epistemic")
    gain = blurring_reduction(posterior, x, attribute(posterior, x)) - blurring_reduction(
        posterior, x, control(posterior, x)
    )
    found = bootstrap(gain.numpy(), mean)
    return Finding(found.low > 0, found.value, "mean extra reduction of U over random maps")


def blurring_reduction(posterior: Sequence[nn.Module], x: Images, maps: Tensor) -> Tensor:
    """The part of the epistemic uncertainty that goes when the highest 5 % of pixels are blurred, at the best sigma."""
    chosen = (pixel_ranks(maps) < pixel_counts(*x.shape[2:])[-1])[:, None]
    before = uncertainty(posterior, x).scores["epistemic"]
    after = [
        uncertainty(posterior, torch.where(chosen, blurred, x)).scores["epistemic"]
        for blurred in gaussian_blur(x, BLURS)
    ]
    return (1 - torch.stack(after).amin(0) / before).double()


PROPERTIES: dict[str, Callable[[Explain], Finding]] = {
    "implementation invariance": implementation_invariance,
    "completeness": completeness,
    "sensitivity": sensitivity,
    "saturation": saturation,
    "same maps when logits are shifted": shift_invariance,
    "linearity": linearity,
    "positivity": positivity,
}


def random_network(seed: int) -> nn.Sequential:
    """Two convolutions, the first with BatchNorm, and a dense layer, all far from their initial values."""
    generator = torch.Generator().manual_seed(seed)
    layers = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()
    )
    whole = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * SIZE**2, CLASSES)).double().eval()
    with torch.no_grad():
        for name, tensor in whole.state_dict().items():
            if tensor.is_floating_point():
                scale = 0.3 if tensor.ndim == 1 else 1.5 / tensor[0].numel() ** 0.5
                noise = scale * torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
                tensor.copy_(noise.abs() + 0.5 if name.endswith("running_var") else noise)
    return whole


def random_images() -> Images:
    return torch.rand(3, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def fold_batch_norm(network: nn.Sequential) -> nn.Sequential:
    """The same function without its BatchNorm layer."""
    convolution, norm, *rest = deepcopy(network)
    assert isinstance(convolution, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    return nn.Sequential(nn.utils.fuse_conv_bn_eval(convolution, norm), *rest).eval()


class ShiftedLogits(nn.Module):
    """A network's logits, all of them plus the same function of the image."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.shift = network, nn.Conv2d(1, 1, 3, padding=1).double()
        with torch.no_grad():
            self.shift.weight.copy_(torch.arange(9.0).view(1, 1, 3, 3) / 9)
            assert self.shift.bias is not None
            self.shift.bias.fill_(0.5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        shift: Tensor = self.shift(x)
        return logits + shift.flatten(1).mean(1, keepdim=True)


class RightHalf(nn.Module):
    """Only the right half of the image goes on."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.arange(x.shape[-1], device=x.device) >= x.shape[-1] // 2).to(x)


class AtLeastHalf(nn.Module):
    """Dark pixels all look alike: `max(x, 1/2)`."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(min=0.5)


def relative_l1(maps: Tensor, exact: Tensor) -> float:
    return float(((maps - exact).abs().sum((1, 2)) / exact.abs().sum((1, 2))).max())
