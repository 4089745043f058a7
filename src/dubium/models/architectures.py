"""Networks by the names that files may refer to them by.

Of a network that a file describes, the options are checked, and the shapes known, before it takes memory.
"""

from collections.abc import Callable, Mapping
from inspect import signature
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dubium.errors import DubiumError, FileFormatError, OptionError, lookup, unknown_name_text
from dubium.models.cnn import SvhnCnn, cnn, cnn3
from dubium.models.resnet import cifar_resnet, resnet18
from dubium.models.vae import vae_conv, vae_dense

NUMBER, DEPTH, LENGTH = 100_000, 2_000, 100  # of the options that a file may name: the largest, layers, entries
ARCHITECTURES: dict[str, Callable[..., nn.Module]] = {
    "cnn": cnn,
    "cnn3": cnn3,
    "svhn-cnn": SvhnCnn,
    "resnet18": resnet18,
    "cifar-resnet": cifar_resnet,
    "vae-dense": vae_dense,
    "vae-conv": vae_conv,
}


def build(name: str, **options: object) -> nn.Module:
    """Build a network by name.

    Args:
        name: one of `ARCHITECTURES`.
        options: of the function that the name stands for.

    Returns:
        The network with new weights, in training mode.

    >>> type(build("resnet18", classes=3, width=8)).__name__
    'ResNet'
    """
    factory = lookup("architecture", ARCHITECTURES, name)
    known = signature(factory).parameters
    for option in options.keys() - known.keys():
        raise OptionError(unknown_name_text(f"option of {name!r}", option, known))
    try:
        return factory(**options)
    except DubiumError:
        raise
    except (ArithmeticError, RuntimeError, TypeError, ValueError) as error:
        raise OptionError(f"The architecture {name!r} cannot be built with {options}: {error}.") from error


def stored_outline(factory: Callable[..., nn.Module], options: Any, file: Path | str) -> nn.Module:
    """The network that a file describes, without memory for its tensors; `FileFormatError` if it cannot be built."""
    if not isinstance(options, Mapping) or not all(map(is_small_option, options, options.values())):
        raise FileFormatError(
            f"{file} names an architecture with the options {options!r:.200}; expected texts, numbers of at most "
            f"{NUMBER:,} and short lists of them."
        )
    try:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            return factory(**options)
    except Exception as error:  # what torch raises depends on the option that is wrong
        raise FileFormatError(
            f"{file} names an architecture that cannot be built with the options {options!r:.200}: {error!s:.300}."
        ) from error


def is_small_option(name: object, value: object) -> bool:
    """Whether a file may ask for this option: of a network that a computer can hold, built in seconds."""
    if isinstance(value, list):
        return len(value) <= LENGTH and all(is_small_option(name, one) for one in value)
    if isinstance(value, int | float):
        return abs(value) <= (DEPTH if name == "depth" else NUMBER)  # also false for NaN
    return value is None or (isinstance(value, str) and len(value) <= LENGTH)


def misfits(network: nn.Module, tensors: Mapping[str, Tensor]) -> list[str]:
    """Every way in which names and shapes of tensors differ from those of a network's state.

    Names that are missing and names that are not expected take turns: the first ones show what differs.
    """
    wanted = network.state_dict()
    missing = [f"{name} is missing" for name in wanted if name not in tensors]
    unexpected = [f"{name} is not expected" for name in tensors if name not in wanted]
    return [*filter(None, chain.from_iterable(zip_longest(missing, unexpected)))] + [
        f"{name} has shape {tuple(tensors[name].shape)} instead of {tuple(value.shape)}"
        for name, value in wanted.items()
        if name in tensors and isinstance(value, Tensor) and tensors[name].shape != value.shape
    ]
