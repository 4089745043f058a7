"""The networks that settings name: loaded, normalised, and what they say about their images."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dubium.data.dataset import GIVEN
from dubium.errors import OptionError, PosteriorTypeError
from dubium.models import Normalized
from dubium.models.normalized import Normalise, refuse_second_normalisation
from dubium.posteriors import Record, as_posterior, load_weights
from dubium.posteriors.files.architecture import arguments_hint, import_path
from dubium.posteriors.files.load import load_with_record
from dubium.run.data_config import prepared_config
from dubium.types import Posterior

Shape = tuple[int | None, int | None, int | None]
"""(C, H, W) of the networks' images; None for what is taken from the image."""


def open_posterior(named: Mapping[str, Any]) -> tuple[Posterior, Record | None]:
    """The networks, and the record of a saved posterior; `named` is `Settings.posterior`, which says how to name them.

    A factory is imported, so pass only what the user typed, never what a file says.
    """
    if GIVEN in named:
        raise OptionError(
            f"The networks of this run were given in Python ({named[GIVEN]}), and no file has them. Name them: a "
            "folder of dubium.save_posterior, or --posterior module:factory."
        )
    if "run" in named:
        posterior, record = load_with_record(named["run"], named.get("architecture"))
        is_plain = not {"mean", "std", "data_config"} & named.keys()
        return (posterior if is_plain else normalize_inputs(posterior, named)), record
    if "factory" not in named:
        raise OptionError(
            "No networks are named: give a folder of dubium.save_posterior, or --posterior module:factory; in Python "
            "Settings(posterior={'run': folder}), or {'factory': 'module:factory', 'weights': [files]}."
        )
    factory, weights = import_path(named["factory"], "MODULE:FACTORY"), list(named.get("weights") or ())
    if weights:
        return normalize_inputs(load_weights(factory, weights), named), None
    try:
        with torch.random.fork_rng(devices=[]):
            built = factory if isinstance(factory, nn.Module) else factory()
    except Exception as error:
        hint = arguments_hint(factory)
        raise OptionError(f"{named['factory']} raised {type(error).__name__}: {error}.{hint}") from error
    try:
        return normalize_inputs(as_posterior(built), named), None
    except PosteriorTypeError as error:
        raise OptionError(
            f"{named['factory']} gave a {type(built).__name__}. If it is one network, name its weight files: --weights "
            f"a.pt b.pt, or {named['factory']}@a.pt,b.pt; otherwise let it return a list of trained networks. ({error})"
        ) from error


def normalize_inputs(posterior: Posterior, named: Mapping[str, Any]) -> Posterior:
    """Networks that standardise their images with `mean` and `std`, where these are given.

    Those of a data config are for networks that do not standardise their images themselves.
    """
    mean, std = named.get("mean"), named.get("std")
    if mean is None and std is None and "data_config" in named:
        config = prepared_config(named, posterior)
        if any(isinstance(layer, Normalise) for layer in next(iter(posterior)).modules()):
            return posterior
        mean, std = config["mean"], config["std"]
    if mean is not None or std is not None:
        refuse_second_normalisation(next(iter(posterior)))
    if (mean is None) != (std is None):
        raise OptionError(f"mean is {mean} and std is {std}; give both, or neither.")
    if mean is None or std is None:
        return posterior
    mean, std = (values_per_channel(values, posterior) for values in (mean, std))
    if max(mean) > 1:
        raise OptionError(
            f"mean is {list(mean)}, of pixels from 0 to 255; images are read as numbers from 0 to 1. Divide mean and "
            f"std by 255: --mean {','.join(f'{value / 255:.3g}' for value in mean)}."
        )
    return [Normalized(network, mean, std).eval() for network in posterior]


def values_per_channel(values: Sequence[float], posterior: Posterior) -> list[float]:
    """One value for each channel: a single one is that of all, so that both ways to say it give the same results."""
    channels = input_shape(posterior, None)[0] or 1
    return [*values] * (channels if len(values) == 1 else 1)


def input_shape(posterior: Posterior, record: Record | None) -> Shape:
    """What the record says, or else the channels of the first convolution."""
    if record is not None and record.input_shape is not None:
        if len(record.input_shape) != 3:
            raise OptionError(f"The posterior's images have shape {record.input_shape}; (C, H, W) is needed.")
        channels, height, width = record.input_shape
        return channels, height, width
    layers = next(iter(posterior)).modules()
    return next((layer.in_channels for layer in layers if isinstance(layer, nn.Conv2d)), None), None, None


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
