"""A run made ready: networks and images opened, their facts gathered."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from platform import python_version
from typing import Any

import torch

import dubium
from dubium.errors import OptionError
from dubium._explain import choose_method
from dubium.models import load_vae
from dubium.run.demo import NAME as DEMO
from dubium.run.demo import demo_folder
from dubium.run.posterior import Opened, channels, digest, dtype, open_posterior
from dubium.run.settings import Settings
from dubium.run.sources import Source, open_source
from dubium.types import Posterior


@dataclass(frozen=True)
class Work:
    """All that a job needs: `shape` is (C, H, W) of the networks, with None for what is taken from the image."""

    settings: Settings
    posterior: Posterior
    source: Source
    shape: tuple[int | None, int | None, int | None]
    dtype: torch.dtype
    options: Mapping[str, Any]  # the method's, with what files stand for loaded
    about: Mapping[str, Any]


def open_work(settings: Settings, opened: Opened | None = None, source: Source | None = None) -> Work:
    """Open what the settings name; networks and images that are open already are taken as they are."""
    opened = opened or open_posterior(settings.posterior)
    classes = settings.classes or opened.classes
    if source is None:
        source, classes = open_source(settings.images, classes)
    settings = replace(settings, threads=settings.threads or torch.get_num_threads())
    shape = settings.input_shape or opened.input_shape or (channels(opened.posterior), None, None)
    if len(shape) != 3:
        raise OptionError(f"The posterior says its images have shape {shape}; images (C, H, W) are needed.")
    options, (channel, height, width) = loaded(settings), shape
    if settings.top != 0:
        choose_method(settings.method, options, channel or 3)  # a mistake is said before the work begins
    about = {
        "versions": {"dubium": dubium.__version__, "torch": torch.__version__, "python": python_version()},
        "settings": settings.plain(),
        "posterior": {"kind": opened.kind, "members": len(opened.posterior), "sha256": digest(opened.posterior)},
        "images": {"count": len(source), "sha256": source.digest()},
        "classes": None if classes is None else list(classes),
        "input_shape": list(shape),
    }
    size = channel, height, width
    return Work(settings, opened.posterior, source, size, dtype(opened.posterior), options, about)


def loaded(settings: Settings) -> dict[str, Any]:
    """The method's options, with the VAE that a path stands for; the embedded posterior has one of its own."""
    options = dict(settings.options)
    demo = settings.posterior.get("run") == DEMO and "clue" in settings.method
    path = options.get("vae", demo_folder() / "vae" if demo else None)
    return {**options, "vae": load_vae(path)} if isinstance(path, str | Path) else options
