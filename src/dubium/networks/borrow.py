"""The networks of a posterior, borrowed for one call: as the methods want them, and handed back as they were."""

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from weakref import ref

import torch
from torch import nn

from dubium.attribution._budget import keep_freed_memory
from dubium.checks import check_network, check_posterior
from dubium.networks.class_choice import Pair
from dubium.networks.logits import FirstPasses, LogitsNetwork
from dubium.networks.outputs import OutputChoice, check_output_choice
from dubium.posteriors.adapters import as_posterior
from dubium.types import Images, Kind, Posterior

LEAF = "torch::autograd::AccumulateGrad"
ONE_CALL = threading.RLock()
"""Calls from several threads take turns: hooks and frozen parameters belong to networks that they may share, and
torch's random numbers, by which some posteriors are drawn, to all."""


@dataclass
class PlainNetworks:
    """A posterior's networks with logits as output and frozen parameters, without what torch.compile wrapped around.

    They are copies where autograd cannot work with their weights (made in inference mode), or would overflow (half
    precision: the copies are in float32).
    """

    posterior: Posterior
    half: bool
    passes: FirstPasses
    frozen: list[ref[nn.Parameter]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.posterior)

    def __iter__(self) -> Iterator[nn.Module]:
        for index, network in enumerate(self.posterior):
            plain: nn.Module = getattr(network, "_orig_mod", network)
            parameters = list(plain.parameters())
            if self.half or any(tensor.is_inference() for tensor in (*parameters, *plain.buffers())):
                plain = deepcopy(plain).float() if self.half else deepcopy(plain)
                parameters = list(plain.parameters())
            for parameter in parameters:
                if parameter.requires_grad:
                    self.frozen.append(ref(parameter))
                    parameter.requires_grad_(False)
            yield plain if index in self.passes.plain else LogitsNetwork(plain, index, self.passes)

    def with_other_operations(self, known: Collection[str]) -> list[tuple[int, nn.Module]]:
        """Networks, one of each class, whose first pass left other nodes in autograd's graph; with their numbers."""
        others = {index for index, names in self.passes.operations.items() if not names <= {*known, LEAF}}
        return [numbered for numbered in enumerate(self if others else ()) if numbered[0] in others]

    def unfreeze(self) -> None:
        for reference in self.frozen:
            parameter = reference()
            if parameter is not None:
                parameter.requires_grad_(True)


@contextmanager
def borrow_networks(
    posterior: object,
    x: Images,
    kinds: Sequence[Kind] = (),
    *,
    output: OutputChoice = None,
    layers: bool = True,
    gradients: bool = True,
    pair: Pair | None = None,
) -> Iterator[tuple[PlainNetworks, Images]]:
    """Within, checked networks and images that autograd may save, both in at least float32.

    Args:
        output: what to take of a network's output.
        layers: whether the networks' layers must be visible.
        gradients: whether their logits must have a gradient at the image.
        pair: two classes, if the networks' logits are to be of these alone.
    """
    check_output_choice(output)
    own_precision = torch.autocast(x.device.type, enabled=False)  # bfloat16 sums would be off by per cents
    with ONE_CALL, own_precision, torch.inference_mode(False), torch.no_grad():
        networks = as_posterior(posterior)
        check_posterior(networks, kinds)
        for index, network in enumerate(networks):
            check_network(network, index, x, layers=layers)
        keep_freed_memory()
        half = x.dtype in (torch.float16, torch.bfloat16)
        plain = PlainNetworks(networks, half, FirstPasses(output, gradients, pair))
        try:
            yield plain, x.float() if half else x.clone() if x.is_inference() else x.detach()
        finally:
            plain.unfreeze()
