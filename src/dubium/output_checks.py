"""What networks put out, and maps, where they show a mistake that would otherwise be silent."""

from collections.abc import Sequence
from typing import NoReturn

from torch import Tensor

from dubium.checks import list_some, warn_user
from dubium.errors import OutputError
from dubium.types import Kind

BYTES_FROM = 20  # a larger value is neither in [0, 1] nor in an image with mean 0 and standard deviation 1
LOGIT_MARGIN = 40  # between logits: no loss asks for as much
SAME = 1e-6  # of the largest logit: rounding, where one network is computed several times
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


def warn_of_logits(x: Tensor, logits: Tensor, kinds: Sequence[Kind]) -> None:
    """Warn of logits (S, B, K) that show a mistake: in the images, or, if epistemic is asked for, in the networks.

    Pixels up to 255 given to networks that want up to 1 make logits far too large: on images as they were trained with,
    networks have a median margin of about 10 between their two likeliest classes; on 255 times these, of 70 to 1000.
    Logits that are the same for all networks are one network's that is in the list several times.
    """
    if len(x) == 0:
        return
    if x.max() > BYTES_FROM and x.min() >= 0 and x.max() <= 255 and median_margin(logits) > LOGIT_MARGIN:
        warn_user(
            f"x has values from {float(x.min()):g} to {float(x.max()):g}, and the networks' logits are huge: in half "
            f"of the predictions the likeliest class is ahead by more than {LOGIT_MARGIN}. Were the networks trained "
            "with images from 0 to 1? Then give x / 255."
        )
    agree = "epistemic" in kinds and len(logits) > 1 and (logits - logits[:1]).abs().max() <= SAME * logits.abs().max()
    if agree:
        warn_user(
            f"{AGREEMENT} ({len(logits)} of them): nothing disagrees, so epistemic uncertainty is zero. Is one network "
            "in the list several times, or is one weight file loaded for all? Give networks with weights of their own."
        )


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
