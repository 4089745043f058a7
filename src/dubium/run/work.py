"""The networks and images that settings name, opened, and the facts about them that are stored with the results."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

import torch
from torch import nn

from dubium._methods import choose_method
from dubium.data.samples import GIVEN
from dubium.errors import OptionError, PosteriorTypeError
from dubium.fingerprint import method_fingerprint, posterior_digest
from dubium.models import Normalized, load_vae
from dubium.posteriors import Record, as_posterior, load_posterior, load_weights, posterior_record
from dubium.posteriors.files.architecture import import_path
from dubium.posteriors.files.store import posterior_folder
from dubium.run.settings import Settings
from dubium.run.sources import ImageSource, open_source
from dubium.types import Posterior

Shape = tuple[int | None, int | None, int | None]
"""(C, H, W) of the networks' images; None for what is taken from the image."""


@dataclass(frozen=True)
class Work:
    """All that a job needs. `options` are the method's, with the objects that file names stand for."""

    settings: Settings
    posterior: Posterior
    source: ImageSource
    shape: Shape
    dtype: torch.dtype
    options: Mapping[str, Any]
    about: Mapping[str, Any]


def open_work(settings: Settings, source: ImageSource | None = None, posterior: Posterior | None = None) -> Work:
    """Open what the settings name; images and networks that are open already are taken as they are."""
    settings = replace(settings, threads=settings.threads or torch.get_num_threads())
    record: Record | None = None
    if posterior is None:
        posterior, record = open_posterior(settings.posterior)
    channels, height, width = settings.input_shape or input_shape(posterior, record)
    weights = {
        "kind": record.kind if record else None,
        "members": len(posterior),
        "sha256": posterior_digest(posterior),
    }
    dtype, options = weight_dtype(posterior), open_options(settings)
    if settings.top != 0:
        choose_method(settings.method, options, channels or 3)  # a mistake is reported before the work begins
    classes = settings.classes or (record.classes if record else None)
    if source is None:
        source, classes = open_source(settings.images, classes)
    about = {
        "versions": {"dubium": version("dubium"), "torch": torch.__version__, "python": python_version()},
        "settings": asdict(settings),
        "posterior": weights,
        "images": {"count": len(source), "sha256": source.digest()},
        "method": method_fingerprint(settings.method, options) if settings.top != 0 else {},
        "classes": None if classes is None else list(classes),
        "input_shape": [channels, height, width],
    }
    return Work(settings, posterior, source, (channels, height, width), dtype, options, about)


def open_posterior(named: Mapping[str, Any]) -> tuple[Posterior, Record | None]:
    """The networks, and the record of a saved posterior; see `Settings.posterior` for how they are named.

    A factory is imported, so pass only what the user typed, never what a file says.
    """
    if GIVEN in named:
        raise OptionError(
            f"The networks of this run were given in Python ({named[GIVEN]}), and no file has them. Name them: a "
            "folder of dubium.save_posterior, or --posterior module:factory."
        )
    if "run" in named:
        record = posterior_record(named["run"])
        return normalize_inputs(load_posterior(named["run"], named.get("architecture")), named), record
    factory, weights = import_path(named["factory"]), list(named.get("weights") or ())
    if weights:
        return load_weights(factory, weights, named.get("mean"), named.get("std")), None
    try:
        with torch.random.fork_rng(devices=[]):
            built = factory()
    except Exception as error:
        raise OptionError(f"{named['factory']} raised {type(error).__name__}: {error}.") from error
    try:
        return normalize_inputs(as_posterior(built), named), None
    except PosteriorTypeError as error:
        raise OptionError(
            f"{named['factory']} gave a {type(built).__name__}. If it is one network, name its weight files with "
            f"--weights; otherwise let it return a list of trained networks. ({error})"
        ) from error


def normalize_inputs(posterior: Posterior, named: Mapping[str, Any]) -> Posterior:
    """Networks that standardise their images with `mean` and `std`, where these are given."""
    mean, std = named.get("mean"), named.get("std")
    if (mean is None) != (std is None):
        raise OptionError(f"mean is {mean} and std is {std}; give both, or neither.")
    if mean is None or std is None:
        return posterior
    return [Normalized(network, mean, std).eval() for network in posterior]


def input_shape(posterior: Posterior, record: Record | None) -> Shape:
    """What the record says, or else the channels of the first convolution."""
    if record is not None and record.input_shape is not None:
        if len(record.input_shape) != 3:
            raise OptionError(f"The posterior's images have shape {record.input_shape}; (C, H, W) is needed.")
        channels, height, width = record.input_shape
        return channels, height, width
    layers = next(iter(posterior)).modules()
    return next((layer.in_channels for layer in layers if isinstance(layer, nn.Conv2d)), None), None, None


def open_options(settings: Settings) -> dict[str, Any]:
    """The method's options with the VAE itself: the one that is named, or the one in the posterior's folder."""
    options, run = dict(settings.options), settings.posterior.get("run")
    beside = posterior_folder(run) / "vae" if run and "clue" in settings.method else None
    path = options.get("vae", beside if beside and beside.is_dir() else None)
    return {**options, "vae": load_vae(path)} if isinstance(path, str | Path) else options


def weight_dtype(posterior: Posterior) -> torch.dtype:
    """The floating type of the weights."""
    parameters = (p for p in next(iter(posterior)).parameters() if p.is_floating_point())
    return next((p.dtype for p in parameters), torch.float32)


@dataclass(frozen=True)
class PosteriorOnDevice:
    """A posterior's networks on another device; those that are there already cost nothing."""

    posterior: Posterior
    device: str

    def __len__(self) -> int:
        return len(self.posterior)

    def __iter__(self) -> Iterator[nn.Module]:
        return (network.to(self.device) for network in self.posterior)
