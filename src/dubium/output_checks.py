"""What networks put out, and maps, where they show a mistake that would otherwise be silent."""

from collections.abc import Callable, Sequence
from typing import NoReturn

import torch
from torch import Tensor

from dubium.checks import list_some, warn_user
from dubium.errors import OutputError
from dubium.types import Images, Kind, Logits

BYTES_FROM = 20  # a larger value is neither in [0, 1] nor in an image with mean 0 and standard deviation 1
MOST_BYTE = 255
HUGE_MARGIN = 40  # between the two likeliest classes' logits: no loss asks for as much
SURE_MARGIN = 4  # 98 % to 2 %
CONTENT_EFFECT = 0.5  # of a picture on logits: half as much as in a network that was hardly trained
ASKED_IMAGES = 8
SAME = 1e-6  # of the largest logit: rounding, where one network is computed several times
ROUNDING_OF_SUMS = 1e-5  # of probabilities
AGREEMENT = "All networks give the same outputs"
"""How the warning of networks that are one begins."""


def refuse_maps(maps: Tensor, name: str, *, is_users: bool = False) -> NoReturn:
    """Maps (B, ...) of which some are not numbers: autograd gives NaN where an operation has no finite slope.

    Args:
        is_users: whether a function of the user's made them.
    """
    bad = (~maps.isfinite().flatten(1).all(1)).nonzero().flatten().tolist()
    raise OutputError(
        f"The maps of {name} are NaN or infinite for image {list_some(bad)}: "
        f"{'your function returned such numbers, or ' * is_users}a gradient in the networks is, as of "
        "sqrt, norm or a division at 0. Give that operation a finite slope (an epsilon), or leave those images out."
    )


def warn_of_logits(x: Images, logits: Logits, kinds: Sequence[Kind], predict: Callable[[Images], Logits]) -> None:
    """Warn of logits (S, B, K) that show a mistake: in the images, or, if epistemic is asked for, in the networks.

    Logits that are the same for all networks are one network's that is in the list several times.

    Args:
        predict: gives the same networks' logits of other images.
    """
    if len(x) == 0:
        return
    if has_bytes(x) and wants_unit_range(x, median_margin(logits), predict):
        warn_user(
            f"x has values from {float(x.min()):g} to {float(x.max()):g}, and the networks' logits are huge for them: "
            f"in half of the predictions the likeliest class is ahead by more than {SURE_MARGIN}. Were the networks "
            "trained with images from 0 to 1? Then give x / 255."
        )
    agree = "epistemic" in kinds and len(logits) > 1 and (logits - logits[:1]).abs().max() <= SAME * logits.abs().max()
    if agree:
        warn_user(
            f"{AGREEMENT} ({len(logits)} of them): nothing disagrees, so epistemic uncertainty is zero. Is one network "
            "in the list several times, or is one weight file loaded for all? Give networks with weights of their own."
        )


def has_bytes(x: Images) -> bool:
    """Whether x may be pixels from 0 to 255."""
    return bool(x.max() > BYTES_FROM and x.min() >= 0 and x.max() <= MOST_BYTE)


def wants_unit_range(x: Images, margin: float, predict: Callable[[Images], Logits]) -> bool:
    """Whether networks whose logits have this margin at pixels up to 255 seem to be made for pixels up to 1."""
    return margin > HUGE_MARGIN or (margin > SURE_MARGIN and sees_content(x[:ASKED_IMAGES] / MOST_BYTE, predict))


def sees_content(x: Images, predict: Callable[[Images], Logits]) -> bool:
    """Whether logits of x differ from those of images that have its mean colour everywhere.

    To a network that wants pixels up to 255, all images up to 1 are nearly the same: the effect was 0.2 at most for
    five ensembles on photographs and digits, and 1 to 39 for the same ones where they want pixels up to 1.
    """
    plain = x.mean((2, 3), keepdim=True).expand_as(x)
    effect = torch.sub(*predict(torch.cat([x, plain])).chunk(2, 1))
    return float((effect - effect.mean(-1, keepdim=True)).abs().amax(-1).median()) > CONTENT_EFFECT


def median_margin(logits: Tensor) -> float:
    """Between the logits of the two likeliest classes, over all images and networks."""
    best, second = logits.topk(2, -1).values.unbind(-1)
    return float((best - second).median())


def check_is_tensor(output: object) -> None:
    """Raise an error unless a network puts out a tensor, where `output=` cannot choose a part of what it puts out."""
    if not isinstance(output, Tensor):
        raise OutputError(
            f"The network puts out a {type(output).__name__}; a tensor of logits (B, K) is needed. Wrap it in a module "
            "whose forward pass returns that: of Hugging Face's, network(x).logits."
        )


def are_distributions(logits: Tensor) -> bool:
    """Whether no number is negative, and each row sums to 1."""
    return are_from_zero_to_one(logits) and bool((logits.sum(-1) - 1).abs().max() < ROUNDING_OF_SUMS)


def are_from_zero_to_one(logits: Tensor) -> bool:
    return bool(logits.numel()) and float(logits.amin()) >= 0 and float(logits.amax()) <= 1 + ROUNDING_OF_SUMS
