"""What is measured of an architecture: whether it works, completeness, what has a place, gradients, time."""

import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import dubium
from benchmarks.suite.measure import processor
from dubium.attribution import grad, input_grad
from dubium.attribution._biases import Bias
from dubium.attribution._context import DEFAULT_MEMORY, Context
from dubium.attribution._target import ALL_LOGITS
from dubium.attribution.fullgrad import FullGradPass, reduce_at_biases
from dubium.networks.borrow import borrow_networks
from tests.zoo.architectures import Architecture

MEMBERS, CLASSES, BATCH = 2, 10, 2
LOGIT_SPREAD = 3.0  # standard deviation
ROOMY = Context(memory=4 * DEFAULT_MEMORY)  # a large network in float64 needs more than the default


def wake(network: nn.Module, x: Tensor, seed: int) -> nn.Module:
    """Eval mode, with random numbers where a fresh network has zeros or ones, and BatchNorm statistics of a batch.

    The last layer is scaled, so that logits differ as they do in a network that has learned something.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.is_floating_point() and (parameter == parameter.flatten()[0]).all():
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    network.eval()
    norms = [layer for layer in network.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    for layer in norms:
        layer.train().momentum = 1.0
    heads = [layer for layer in network.modules() if is_head(layer)]
    biases = [layer.bias for layer in heads if layer.bias is not None]
    with torch.no_grad():
        network(torch.rand(16, *x.shape[1:], generator=generator))
        network.eval()
        for bias in biases:
            bias.zero_()
        spread = logits_of(network(x)).std()
        for layer in heads:
            layer.weight *= LOGIT_SPREAD / spread
        for bias in biases:
            bias += torch.randn(bias.shape, generator=generator)
    return network


def is_head(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear | nn.Conv2d) and layer.weight.shape[0] == CLASSES


def make_members(architecture: Architecture) -> tuple[list[nn.Module], Tensor]:
    """Two networks that are awake, and images."""
    x = torch.rand(BATCH, 3, architecture.size, architecture.size, generator=torch.Generator().manual_seed(0))
    members = []
    for seed in range(MEMBERS):
        torch.manual_seed(seed)
        members.append(wake(architecture.build(), x, seed))
    return members, x


def logits_of(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.logits


def measure(architecture: Architecture, repeats: int = 3) -> dict[str, Any]:
    """Figures of an architecture; `error` instead of them if something fails."""
    found: dict[str, Any] = {
        "key": architecture.key,
        "library": architecture.library,
        "name": architecture.name,
        "size": architecture.size,
        "attention": architecture.attention,
        "cpu": processor(),
    }
    members, x = make_members(architecture)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = dubium.explain(members, x)
            found["sums"] = max(sum_error(result, kind) for kind in result.maps)
            gaps = dubium.fullgrad_completeness(members[0], x)
            found |= {"completeness": gaps.median().item(), "worst": gaps.max().item()}
            found["placed"] = placed_share(members[0], x)
            found |= gradient_errors(members[0], x)
        except Exception as error:
            found["error"] = f"{type(error).__name__}: {error}"[:400]
    found["warnings"] = sorted({f"{w.category.__name__}: {w.message}"[:200] for w in caught})
    if "error" not in found:
        found |= time_units(members, x, repeats)
    return found


def sum_error(result: dubium.Explanation, kind: str) -> float:
    """How far maps are from summing up to their score."""
    return (result.maps[kind].sum((1, 2)) - result.scores[kind]).abs().max().item()


def placed_share(network: nn.Module, x: Tensor) -> float:
    """The share of the absolute terms that has a place in the image."""
    with borrow_networks([network], x) as (networks, x), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (one,) = [FullGradPass(own, x, only_spatial=False) for own in networks]
        sums = torch.zeros(2, dtype=torch.float64)
        for terms in reduce_at_biases([one], ALL_LOGITS, absolute_sums, DEFAULT_MEMORY):
            sums += torch.stack([*terms]).double().sum(0)
    return (sums[0] / sums[1]).item()


def absolute_sums(bias: Bias, gradient: Tensor) -> Tensor:
    """Sums of the absolute numbers of a term: of those that have a place in the image, and of all."""
    value = bias.value
    if not bias.is_full_size:
        axis = gradient.ndim - 1 if bias.channel_axis == -1 else 3
        value = value.view(len(value), *[1] * (axis - 2), -1, *[1] * (gradient.ndim - 1 - axis))
    term = (gradient * value).abs()
    placed = term.new_zeros(()) if bias.place is None else bias.place.to_maps(term).sum()
    return torch.stack([placed, term.sum()])


def gradient_errors(network: nn.Module, x: Tensor) -> dict[str, float]:
    """`grad` and `input-grad` against autograd in float64, image by image and target by target."""
    network, x = in_double(network), x.double()
    expected = torch.stack([torch.stack(class_gradients(network, image[None])) for image in x])
    with borrow_networks([network], x) as (networks, x):
        (own,) = networks
        found = {
            "grad": grad(own, x, ALL_LOGITS, context=ROOMY),
            "input-grad": input_grad(own, x, ALL_LOGITS, context=ROOMY),
        }
    oracles = {"grad": expected.abs().mean(2), "input-grad": (expected * x[:, None]).abs().mean(2)}
    return {name: ((maps - oracles[name]).abs().max() / oracles[name].max()).item() for name, maps in found.items()}


def in_double(network: nn.Module) -> nn.Module:
    """A copy in float64, with tensors that are neither parameters nor buffers (ConViT keeps its positions so)."""
    network = deepcopy(network).double().requires_grad_(False)
    for module in network.modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                setattr(module, name, value.double())
    return network


def class_gradients(network: nn.Module, image: Tensor) -> list[Tensor]:
    """By `backward`, since reentrant checkpoints know no `grad`.

    The image goes twice: of one alone, torch's BatchNorm in eval mode gives a wrong gradient where the gradient that it
    receives has its channels last and its input has not (torch 2.13, in LeViT).
    """
    leaf, found = image.repeat(2, 1, 1, 1).requires_grad_(), []
    with torch.enable_grad():
        logits = logits_of(network(leaf.clone()))[0]
    for logit in logits:
        leaf.grad = None
        logit.backward(retain_graph=True)
        found.append(leaf.grad[0])
    return found


def time_units(members: list[nn.Module], x: Tensor, repeats: int) -> dict[str, float]:
    """Processor time of an explanation over that of S * K forward passes of the batch; the two take turns."""

    def forward() -> None:
        with torch.no_grad():
            for network in members:
                network(x)

    def explain() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dubium.explain(members, x)

    forward()  # the explanation is warm already
    forwards, explanations = [], []
    for _ in range(repeats):
        forwards.append(seconds(forward, at_least=0.2) / MEMBERS)
        explanations.append(seconds(explain))
        forwards.append(seconds(forward, at_least=0.2) / MEMBERS)
    return {
        "units": median(explanations) / (MEMBERS * CLASSES * median(forwards)),
        "forward_ms": 1e3 * median(forwards),
    }


def seconds(function: Callable[[], None], at_least: float = 0.0) -> float:
    """Processor time of a call."""
    start, calls, taken = time.process_time(), 0, 0.0
    while calls == 0 or taken < at_least:
        function()
        calls, taken = calls + 1, time.process_time() - start
    return taken / calls
