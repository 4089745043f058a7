"""Whether one output an image is the logit of a sigmoid, as `output="sigmoid"` says, or has been through it."""

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from dubium.attribution._autograd.graph import last_operation
from dubium.attribution._autograd.nodes import COPIES, RESHAPES
from dubium.checks import warn_user
from dubium.errors import NetworkError, OutputError
from dubium.types import Images

MOVES = {*COPIES, *RESHAPES, "StackBackward0", "SelectBackward0", "SliceBackward0", "SqueezeBackward0"}
MOVES |= {"SqueezeBackward1", "UnsqueezeBackward0", "IndexBackward0", "TBackward0", "UnbindBackward0"}
"""Nodes of autograd's whose outputs are some of their inputs."""
SQUASHES = {"SigmoidBackward0": "a sigmoid", "SoftmaxBackward0": "a softmax"}
"""Nodes whose outputs are probabilities."""
LINEAR = ("AddmmBackward0", "MmBackward0", "ConvolutionBackward0", "MkldnnConvolutionBackward0")
"""Nodes of layers whose outputs may be any number."""
LOOKED_AT = 16  # images


def check_sigmoid_logit(compute_logits: Callable[[Images], Tensor], x: Images, index: int) -> None:
    """Refuse outputs that come from a sigmoid; warn of outputs that lie in [0, 1] and may.

    Args:
        compute_logits: gives the logits (0, z) of images.
        x: all images; some are looked at.
        index: the network's.
    """
    with torch.no_grad():
        if not all(is_within_unit(compute_logits(x[b : b + 1].clone())) for b in range(min(len(x), LOOKED_AT))):
            return
    operation = output_operation(compute_logits, x)
    if operation in SQUASHES:
        raise OutputError(
            f"output='sigmoid' takes the logit z of a sigmoid, but network {index} ends in {SQUASHES[operation]} "
            "itself: its output p is a probability. Say output='probabilities' (--network-output probabilities), which "
            "takes it as those of two classes, (1 - p, p)."
        )
    if operation not in LINEAR:
        warn_user(
            f"output='sigmoid' takes the logit z of a sigmoid, but all outputs of network {index} are from 0 to 1, as "
            "if they had been through the sigmoid. If they have, scores and maps are wrong: say output='probabilities' "
            "(--network-output probabilities)."
        )


def output_operation(
    compute_logits: Callable[[Images], Tensor], x: Images, skip: Collection[str] = frozenset(MOVES)
) -> str:
    """The operation that made the last of a network's outputs, as autograd calls it; "" of one without gradients."""
    try:
        with torch.enable_grad():
            return last_operation(compute_logits(x[:1].clone().requires_grad_().clone()), skip=skip)
    except NetworkError:  # scores alone are asked for
        return ""


def ends_in_sigmoid(compute_logits: Callable[[Images], Tensor], x: Images) -> bool:
    joined = {*MOVES, "CatBackward0", "ClampBackward0", "ClampBackward1"}
    return output_operation(compute_logits, x, skip=joined) == "SigmoidBackward0"


def is_within_unit(logits: Tensor) -> bool:
    """Whether all z of logits (0, z) lie in [0, 1]."""
    return bool(((logits[:, 1] >= 0) & (logits[:, 1] <= 1)).all())
