"""Forward passes of networks: with a graph that leads from the output back to the images, or for logits alone."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from dubium.attribution._autograd.nodes import disable_torch_function
from dubium.attribution._budget import forward_batch_size
from dubium.attribution._structure import list_modules
from dubium.checks import list_some
from dubium.errors import OutputError, PosteriorError
from dubium.posteriors.stack import check_class_counts
from dubium.types import Images, Logits, Posterior, Scores, Target


def forward_with_graph(network: nn.Module, x: Images, target: Target | None = None) -> tuple[Images, Any]:
    """A copy of x, and the network's output there, or a target of it, with a graph from one to the other.

    The parameters are frozen meanwhile, so that nothing is kept or computed for their sake.
    """
    tensors = [tensor for module in list_modules(network) for tensor in module._parameters.values()]
    with disable_torch_function():
        learning = [tensor for tensor in tensors if tensor is not None and tensor.requires_grad]
    try:
        for parameter in learning:
            parameter.requires_grad_(False)
        with torch.enable_grad():
            leaf = x.detach().clone().requires_grad_()
            output = network(leaf.clone())  # copied again, since a first layer may work in place
        return leaf, output if target is None else apply_target(target, output, leaf)
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


def apply_target(target: Target, output: Any, leaf: Images) -> Scores:
    """The targets of a network's output, with a graph that leads to the leaf even if they ignore it."""
    with torch.enable_grad():
        scores = target(output)
        if scores.ndim != 2:
            raise OutputError(
                f"The target gave {tuple(scores.shape)} for {len(leaf)} images; T scores an image, (B, T), are needed: "
                "logits[:, :1] keeps the axis that logits[:, 0] drops."
            )
        return scores if scores.requires_grad else scores + 0 * leaf.flatten(1)[:, :1]


def predict_logits(networks: Posterior, x: Images, memory: int, *, logits_so_far: Sequence[Tensor] = ()) -> Logits:
    """Logits (S, B, K) of all networks; those of the first `len(logits_so_far)` are taken from `logits_so_far`.

    Checked: there are `len(networks)` networks, with equal numbers of classes, and all logits are finite.
    """
    images = x if len(x) else x.new_zeros(1, *x.shape[1:])  # no images: one of zeros tells K
    by_network = [*logits_so_far]
    for network in islice(networks, len(logits_so_far), None) if len(logits_so_far) < len(networks) else ():
        size = forward_batch_size(network, images, memory)
        by_network.append(torch.cat([network(some.clone()) for some in images.split(size)]))
    check_class_counts(by_network)
    if len(by_network) != len(networks):
        raise PosteriorError(f"The posterior says it has {len(networks)} networks, but gave {len(by_network)}.")
    logits = torch.stack(by_network)
    finite = logits.isfinite().all(-1)
    if not finite.all():
        index = int((~finite).any(1).int().argmax())
        bad = (~finite[index]).nonzero().flatten().tolist()
        raise OutputError(
            f"Network {index} gives NaN or infinite logits for image {list_some(bad)}. Has its training diverged?"
        )
    return logits[:, : len(x)]
