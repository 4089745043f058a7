"""Networks, images, and the relevance maps of all their classes: what estimates from fewer classes are measured on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

import dubium
from dubium.attribution import fullgrad
from dubium.data import load
from dubium.models import cifar_resnet
from dubium.shares import class_shares
from dubium.softmax_share import softmax_share
from dubium.types import Posterior
from dubium.ua_backprop import PAPER_TAUS, pixel_softmax


@dataclass
class Population:
    """All maps at once, (S, B, K, pixels), from which any draw can be added up without another backward pass."""

    name: str
    posterior: Posterior
    x: Tensor
    tau1: float | None = None

    @cached_property
    def taus(self) -> tuple[float, float]:
        first, second = PAPER_TAUS[self.x.shape[1] == 1]
        return self.tau1 or first, second

    @cached_property
    def logits(self) -> Tensor:
        with torch.no_grad():
            return torch.stack([network(self.x) for network in self.posterior])

    @cached_property
    def share(self) -> Tensor:
        return softmax_share(class_shares(self.logits), self.logits, self.taus[0])  # (S, kinds, B, K)

    @cached_property
    def where(self) -> Tensor:
        with torch.no_grad():
            return torch.stack([self.maps_of(network, lambda logits: logits) for network in self.posterior])

    @cached_property
    def exact(self) -> Tensor:
        return self.added(self.share)

    def maps_of(self, network: nn.Module, target: Callable[[Tensor], Tensor]) -> Tensor:
        maps = [pixel_softmax(fullgrad(network, image[None], target), self.taus[1])[0].flatten(1) for image in self.x]
        return torch.stack(maps)  # (B, K, pixels)

    def added(self, weights: Tensor) -> Tensor:
        """Maps from weights on classes, (kinds, B, pixels)."""
        return torch.einsum("stbk,sbkp->tbp", weights.float(), self.where) / len(weights)

    def errors(self, maps: Tensor) -> dict[str, list[float]]:
        """Relative L1 and overlap of the top 5 % of pixels with the exact maps: mean over images, by kind."""
        l1 = (maps - self.exact).abs().sum(-1) / self.exact.sum(-1)
        most = round(0.05 * maps.shape[-1])
        tops = [torch.zeros_like(m).scatter(-1, m.topk(most, -1).indices, 1) for m in (maps, self.exact)]
        overlap = (tops[0] * tops[1]).sum(-1) / most
        return {"l1": l1.mean(-1).tolist(), "overlap": overlap.mean(-1).tolist()}


def populations() -> dict[str, Callable[[], Population]]:
    return {"mnist-10": demo, "cifar-100": cifar100, "random-1000": random1000}


def demo() -> Population:
    return Population("mnist-10", dubium.load_posterior("demo"), dubium.data.load("demo").batch(slice(24)))


def cifar100(tau1: float | None = None) -> Population:
    """The twelve most uncertain of 300 images and twelve others."""
    posterior, images = list(dubium.load_posterior("cifar100-resnets")), load("cifar-100").batch(slice(300))
    order = dubium.uncertainty(posterior, images).scores["epistemic"].argsort(descending=True)
    return Population("cifar-100", posterior, images[torch.cat([order[:12], order[12::24]])], tau1)


def random1000(members: int = 3, images: int = 4) -> Population:
    """Untrained ResNet-20s of 1000 classes, their BatchNorms set to what random images make of them, with biases."""
    torch.manual_seed(0)
    posterior = [cifar_resnet(depth=20, classes=1000) for _ in range(members)]
    with torch.no_grad():
        for network in posterior:
            for layer in network.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    layer.bias.normal_(std=0.3)
            network.linear.weight.mul_(10)  # else every class is as likely as any other
            for _ in range(20):
                network.train()(torch.rand(32, 3, 32, 32))
            network.eval()
    return Population("random-1000", posterior, torch.rand(images, 3, 32, 32))
