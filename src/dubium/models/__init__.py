"""Networks as plain modules, and the names that files may refer to them by."""

from collections.abc import Callable

from torch import nn

from dubium.errors import OptionError, lookup
from dubium.models.cnn import SvhnCnn, cnn, cnn3
from dubium.models.normalized import Normalized
from dubium.models.resnet import ResNet, cifar_resnet, resnet18
from dubium.models.saved_vae import load_vae, save_vae
from dubium.models.vae import VAE, vae_conv, vae_dense

__all__ = [
    "ARCHITECTURES",
    "VAE",
    "Normalized",
    "ResNet",
    "SvhnCnn",
    "build",
    "cifar_resnet",
    "cnn",
    "cnn3",
    "load_vae",
    "resnet18",
    "save_vae",
    "vae_conv",
    "vae_dense",
]

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
    try:
        return factory(**options)
    except TypeError as error:
        raise OptionError(f"The architecture {name!r} cannot be built with {options}: {error}.") from error
