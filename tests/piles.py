"""A small saved posterior, and piles of images to run it on."""

import numpy as np
import torch
from PIL import Image

from dubium.models import cnn
from dubium.posteriors import save_posterior

NAMES = ("ant", "bee", "<cat>")
NETWORK = {"name": "cnn", "options": {"filters": 3, "units": 6, "size": 12, "classes": 3}}


def networks(count=3):
    torch.manual_seed(0)
    return [cnn(**NETWORK["options"]).eval() for _ in range(count)]


def posterior(folder, count=3):
    """A saved ensemble for grey images of 12 x 12 pixels."""
    shape = {"classes": NAMES, "input_shape": (1, 12, 12)}
    save_posterior(networks(count), folder, architecture=NETWORK, **shape)
    return str(folder)


def arrays(path, count=20):
    """An array file of images with labels."""
    rng = np.random.default_rng(0)
    np.savez(path, images=rng.integers(0, 256, (count, 12, 12), np.uint8), labels=np.arange(count) % 3)
    return str(path)


def folder(path, count=4, size=(15, 9), broken=True):
    """PNG files in folders called like two classes, one of them broken."""
    rng = np.random.default_rng(0)
    for index in range(count):
        inner = path / NAMES[index % 2]
        inner.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, size[::-1], np.uint8)).save(inner / f"{index}.png")
    if broken:
        (path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    return str(path)
