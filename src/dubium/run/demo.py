"""What is embedded in the package: an ensemble of five small networks, and 64 MNIST test images."""

from pathlib import Path

from dubium.data.dataset import Dataset
from dubium.errors import FileFormatError
from dubium.posteriors.files.weight_files import read_tensors
from dubium.posteriors.files.store import EMBEDDED

NAME = "demo"


def demo_folder() -> Path:
    """Where the embedded files are."""
    return EMBEDDED.parent


def demo_digits() -> Dataset:
    """The embedded digits: the 32 most uncertain ones of the test set first, then 32 others."""
    file = demo_folder() / "digits.safetensors"
    tensors = read_tensors(file)
    if {"images", "labels"} - tensors.keys():
        raise FileFormatError(f"{file} holds {', '.join(tensors)}; expected images and labels. Install dubium again.")
    images = tensors["images"]
    images = images if images.ndim == 4 else images[:, None]
    return Dataset(images, tensors["labels"].long(), tuple("0123456789"), NAME, "test")
