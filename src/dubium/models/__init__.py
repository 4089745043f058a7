"""Networks as plain modules, and the names that files may refer to them by."""

from dubium.models.architectures import ARCHITECTURES, build
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
