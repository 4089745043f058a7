"""How a model's images are prepared, as timm writes it down: size, crop, interpolation, mean and std."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from math import floor, prod
from pathlib import Path
from typing import Any, TypeGuard

from torch import nn

from dubium.checks import warn_user
from dubium.choices import CROP, FITS, INTERPOLATIONS, STRETCH
from dubium.errors import FileFormatError, OptionError, lookup
from dubium.reading import read_json

MODEL = "model"
"""The data config that the networks carry, instead of a file."""

ATTRIBUTES = ("pretrained_cfg", "default_cfg")
DEFAULTS: Mapping[str, Any] = {
    "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), "interpolation": "bicubic", "crop_pct": 0.875,
}  # fmt: skip
"""timm's, where a config does not say."""
NAMES = ("input_size", "crop_mode", *DEFAULTS)
CLOSE = 0.8  # likeness of a name that is misspelt; timm's files have many names that are not read
LEAST_PART = 0.05  # a twentieth: images would be resized to 400 times the pixels that are seen
MOST = 1e30  # of a number, so that float32 holds it
LEAST = {"mean": -MOST, "std": 1 / MOST}
INPUTS = 3 * 10**8  # numbers of an input: three channels of the largest image that is read
CROP_MODES = {"center": CROP, "squash": STRETCH}
HUGGING_FACE = (
    " This is the file of a Hugging Face processor, which is not read: leave --data-config out and give what it says, "
    "by --input-shape, --mean (image_mean), --std (image_std) and --interpolation."
)


def prepared_config(
    named: Mapping[str, Any], networks: Iterable[nn.Module], input_shape: Sequence[int] | None = None
) -> dict[str, Any]:
    """`input_shape`, `fit`, `resize`, `interpolation`, `mean` and `std` that settings of a posterior ask for.

    Args:
        named: `Settings.posterior`, whose `data_config` is "model", a file, or what this function returned before.
        networks: of the posterior.
        input_shape: what a user gives instead of the config's; the size before the crop follows it.
    """
    asked = named["data_config"]
    if isinstance(asked, Mapping):
        return dict(asked)
    configs = [*map(carried_config, networks)] if asked == MODEL else [read_config(asked)]
    shape = {} if input_shape is None else {"input_size": input_shape}
    origin = "The networks" if asked == MODEL else str(asked)
    first, *others = [translate_config({**config, **shape}, origin) for config in configs]
    for index, other in enumerate(others, 1):
        differing = [f"{name} {first[name]} and {other[name]}" for name in first if first[name] != other[name]]
        if differing:
            raise OptionError(
                f"Networks 0 and {index} carry different data configs: {'; '.join(differing)}. One way of preparing "
                "images serves all networks: put mean and std into each (dubium.models.Normalized), and give "
                "--input-shape, --fit, --resize and --interpolation instead of --data-config."
            )
    if absent := [f"{name} {DEFAULTS[name]}" for name in DEFAULTS if name not in named and not configs[0].get(name)]:
        warn_user(
            f"{origin}: the data config leaves things out, for which timm's defaults are taken: {', '.join(absent)}. "
            "Options that are given win."
        )
    return first


def carried_config(network: nn.Module) -> Mapping[str, Any]:
    """The data config of a timm network, however deep it is wrapped; of a ViT, with the size that it was built for."""
    for layer in network.modules():
        for name in ATTRIBUTES:
            config = getattr(layer, name, None)
            if isinstance(config, Mapping) and (size := config.get("input_size")):
                built = getattr(getattr(layer, "patch_embed", None), "img_size", None)
                return {**config, "input_size": (size[0], *built)} if isinstance(built, tuple) else config
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
    absent = [name for name in NAMES if name not in content]
    misspelt = {name: near[0] for name in content if (near := get_close_matches(name, absent, n=1, cutoff=CLOSE))}
    if misspelt:
        meant = ", ".join(f"{name!r} (is {near} meant?)" for name, near in misspelt.items())
        warn_user(f"{path}: the data config has names that are not read: {meant}.")
    return content


def translate_config(config: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """timm's names in ours; what a config leaves out is as timm has it."""
    size, values = config.get("input_size"), {name: config.get(name) or DEFAULTS[name] for name in DEFAULTS}
    interpolation, part = values["interpolation"], values["crop_pct"]
    if not is_image_shape(size):
        raise OptionError(
            f"{origin}: the data config's input_size is {size!r:.100}; expected channels, height and width, at most "
            f"{INPUTS:,} numbers in all.{HUGGING_FACE if 'image_mean' in config else ''}"
        )
    mode = lookup(f"crop_mode (in {origin})", CROP_MODES, config.get("crop_mode") or "center")
    lookup(f"interpolation (in {origin})", dict.fromkeys(INTERPOLATIONS), interpolation)
    if not is_number(part) or not LEAST_PART <= part <= 1:
        raise OptionError(
            f"{origin}: the data config's crop_pct is {part!r:.100}; expected a number from {LEAST_PART} to 1."
        )
    for name, least in LEAST.items():
        if not is_numbers(values[name], least):
            raise OptionError(
                f"{origin}: the data config's {name} is {values[name]!r:.100}; expected a number for each channel"
                f"{', above 0' * (least > 0)}."
            )
    resize = None if mode == STRETCH and part == 1 else floor(max(size[1:]) / part)
    prepared = {"input_shape": list(size), "fit": mode, "resize": resize, "interpolation": interpolation}
    return prepared | {name: list(values[name]) for name in LEAST}


def is_prepared_config(config: Mapping[str, Any]) -> bool:
    """Whether this is what `translate_config` returns, as results have it."""
    resize = config.get("resize")
    return (
        is_image_shape(config.get("input_shape"))
        and config.get("fit") in FITS
        and (resize is None or (type(resize) is int and 0 < resize <= INPUTS))
        and config.get("interpolation") in INTERPOLATIONS
        and all(is_numbers(config.get(name), least) for name, least in LEAST.items())
    )


def is_image_shape(value: Any) -> TypeGuard[Sequence[int]]:
    """Whether this is channels, height and width of an image that can be had."""
    if not isinstance(value, list | tuple) or len(value) != 3 or not all(type(n) is int and n > 0 for n in value):
        return False
    return prod(value) <= INPUTS


def is_numbers(value: Any, least: float) -> bool:
    """Whether this is a list of numbers that float32 holds, each at least `least`."""
    return isinstance(value, list | tuple) and bool(value) and all(is_number(n) and n >= least for n in value)


def is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < MOST
