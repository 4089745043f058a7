"""How a model's images are prepared, as timm writes it down: size, crop, interpolation, mean and std."""

from collections.abc import Iterable, Mapping
from math import floor
from pathlib import Path
from typing import Any

from torch import nn

from dubium.choices import CROP, INTERPOLATIONS, STRETCH
from dubium.errors import FileFormatError, OptionError, lookup
from dubium.reading import read_json

MODEL = "model"
"""The data config that the networks carry, instead of a file."""

ATTRIBUTES = ("pretrained_cfg", "default_cfg")
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
CROP_PART = 0.875  # of an image's shorter side, where a config does not say
CROP_MODES = {"center": CROP, "squash": STRETCH}


def prepared_config(named: Mapping[str, Any], networks: Iterable[nn.Module]) -> dict[str, Any]:
    """`input_shape`, `fit`, `resize`, `interpolation`, `mean` and `std` that settings of a posterior ask for.

    Args:
        named: `Settings.posterior`, whose `data_config` is "model", a file, or what this function returned before.
        networks: of the posterior.
    """
    asked = named["data_config"]
    if isinstance(asked, Mapping):
        return dict(asked)
    if asked == MODEL:
        return translate_config(carried_config(next(iter(networks))), "The networks")
    return translate_config(read_config(asked), str(asked))


def carried_config(network: nn.Module) -> Mapping[str, Any]:
    """The data config of a timm network, however deep it is wrapped."""
    for layer in network.modules():
        for name in ATTRIBUTES:
            config = getattr(layer, name, None)
            if isinstance(config, Mapping) and config.get("input_size"):
                return config
    raise OptionError(
        f"The networks ({type(network).__name__}) carry no data config, as timm's do. Give a JSON file of one instead, "
        "or --input-shape, --fit, --resize, --interpolation, --mean and --std."
    )


def read_config(path: str) -> Mapping[str, Any]:
    """A data config in JSON, as it is or inside of timm's `config.json`."""
    content = read_json(Path(path))
    content = content.get("pretrained_cfg", content) if isinstance(content, dict) else content
    if not isinstance(content, dict):
        raise FileFormatError(f"{path} holds a {type(content).__name__}; expected an object with input_size, mean, ...")
    return content


def translate_config(config: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """timm's names in ours; what a config leaves out is as timm has it."""
    size = config.get("input_size")
    if not isinstance(size, list | tuple) or len(size) != 3 or not all(type(n) is int and n > 0 for n in size):
        raise OptionError(f"{origin}: the data config's input_size is {size!r}; expected channels, height and width.")
    part = config.get("crop_pct") or CROP_PART
    mode = lookup("crop_mode", CROP_MODES, config.get("crop_mode") or "center")
    interpolation = config.get("interpolation") or "bicubic"
    lookup("interpolation", dict.fromkeys(INTERPOLATIONS), interpolation)
    values = {name: list(config.get(name) or IMAGENET[name]) for name in ("mean", "std")}
    if not isinstance(part, int | float) or not 0 < part <= 1:
        raise OptionError(f"{origin}: the data config's crop_pct is {part!r}; expected a number above 0, at most 1.")
    resize = None if mode == STRETCH and part == 1 else floor(max(size[1:]) / part)
    return {"input_shape": list(size), "fit": mode, "resize": resize, "interpolation": interpolation, **values}
