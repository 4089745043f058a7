"""What a user would write today: loops over members and classes with Captum and pytorch-grad-cam.

Each takes the whole batch at a time, and the networks' parameters are frozen: grad-cam would else compute their
gradients, too. Captum's Integrated Gradients explains the epistemic uncertainty itself, one kind, without any class.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.special import entr

from benchmarks.suite.cells import Cell, Fraction

STEPS, ROWS = 100, 128  # of Integrated Gradients; images that go through the networks at a time


@dataclass(frozen=True)
class Peer:
    """A method: `run(networks, x, classes)`, or without classes if it explains the uncertainty itself."""

    run: Callable[..., object]
    classwise: bool = True

    def part(self, networks: list[nn.Module], x: Tensor, part: Fraction, classes: int) -> Callable[[], object]:
        """That fraction of the work."""
        if not self.classwise:
            return lambda: self.run(networks, x[: part.images])
        return lambda: self.run(networks[: part.members], x, range(min(classes, part.classes)))

    def least(self, networks: list[nn.Module], x: Tensor) -> Callable[[], object]:
        """As little work as takes as much memory as the whole."""
        return (lambda: self.run(networks[:1], x, range(1))) if self.classwise else lambda: self.run(networks, x, 4)

    def share(self, cell: Cell, part: Fraction) -> float:
        """Of the whole that `part` is."""
        return part.members * part.classes / (cell.S * cell.K) if self.classwise else part.images / cell.B

    def says(self, cell: Cell, part: Fraction) -> str:
        if self.share(cell, part) == 1:
            return "all"
        if self.classwise:
            return f"{part.members} of {cell.S} networks, {part.classes} of {cell.K} classes"
        return f"{part.images} of {cell.B} images"


class Epistemic(nn.Module):
    """Entropy of the mean prediction minus mean entropy, as one module."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Tensor) -> Tensor:
        probs = torch.stack([network(x) for network in self.networks]).softmax(-1)
        return entr(probs.mean(0)).sum(-1) - entr(probs).sum(-1).mean(0)


def captum_loop(name: str) -> Peer:
    import captum.attr

    method = getattr(captum.attr, name)

    def run(networks: Sequence[nn.Module], x: Tensor, classes: Sequence[int]) -> None:
        x = x.clone().requires_grad_()
        for network in networks:
            explainer = method(network)
            for k in classes:
                explainer.attribute(x, target=k)

    return Peer(run)


def captum_ig() -> Peer:
    from captum.attr import IntegratedGradients

    def run(networks: Sequence[nn.Module], x: Tensor, steps: int = STEPS) -> None:
        IntegratedGradients(Epistemic(networks)).attribute(x, baselines=1.0, n_steps=steps, internal_batch_size=ROWS)

    return Peer(run, classwise=False)


def fullgrad_loop() -> Peer:
    load_torchvision()
    from pytorch_grad_cam import FullGrad
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    def run(networks: Sequence[nn.Module], x: Tensor, classes: Sequence[int]) -> None:
        for network in networks:
            with FullGrad(network, target_layers=[]) as explainer:
                for k in classes:
                    explainer(x, [ClassifierOutputTarget(k)] * len(x))

    return Peer(run)


_operators: list[Any] = []  # they live as long as this


def load_torchvision() -> None:
    """grad-cam imports it; beside a torch that it was not built with, it asks for two operators that it never uses."""
    try:
        import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _operators.append(library)


IG, FULLGRAD = f"Captum IntegratedGradients, {STEPS} steps, on U", "pytorch-grad-cam FullGrad loop"
PEERS: dict[str, Callable[[], Peer]] = {
    "Captum Saliency loop": lambda: captum_loop("Saliency"),
    "Captum InputXGradient loop": lambda: captum_loop("InputXGradient"),
    IG: captum_ig,
    FULLGRAD: fullgrad_loop,
}
