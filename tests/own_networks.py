"""Networks that a user brings: a module of code and weight files in the working folder, and commands that take them."""

import sys

import numpy as np
import torch
from PIL import Image
from typer.testing import CliRunner

from dubium.cli import app

CODE = """
from torch import nn

def network():
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, 3))
"""


def own_networks():
    """Two networks of `CODE`, of three classes, which take colour images of any size."""
    torch.manual_seed(0)
    space = {}
    exec(CODE, space)
    return [space["network"]().eval() for _ in range(2)]


def own_images():
    return torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def bring_networks(folder, monkeypatch, module, networks):
    """Make this the working folder: the code is in `module`, the weights in a.pt and b.pt."""
    (folder / f"{module}.py").write_text(CODE)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, module, raising=False)
    for name, network in zip("ab", networks, strict=True):
        torch.save(network.state_dict(), f"{name}.pt")


def write_photos(folders, count, size):
    """Noise as PNG files, in these folders, which are made."""
    rng = np.random.default_rng(0)
    for folder in folders:
        folder.mkdir(parents=True)
        for number in range(count):
            Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8)).save(folder / f"{number}.png")


def say(*words, code=0):
    """The output of a command, in one line."""
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())
