"""The embedded images: 64 digits of MNIST's test set."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from dubium.choices import DEMO
from dubium.data.classes import DIGITS
from dubium.data.dataset import Dataset
from dubium.errors import FileFormatError

FILE = Path(__file__).parents[1] / "demo" / "digits.safetensors"


def load_demo(split: str) -> Dataset:
    """The 32 most uncertain digits of MNIST's test set, then 32 others; "train" is every second one of them."""
    try:
        tensors = load_file(FILE)
        digits = Dataset(tensors["images"], tensors["labels"].long(), DIGITS, DEMO, split)
    except (OSError, SafetensorError, KeyError) as error:
        raise FileFormatError(f"{FILE} is missing or damaged ({error}). Install dubium again.") from error
    return digits.subset(slice(0, None, 2)) if split == "train" else digits
