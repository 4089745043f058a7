"""Methods with their options, as a command line names them: `ua-backprop:rescale=none`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from dubium._explain import explain
from dubium._methods import choose_method
from dubium.checks import plain_number
from dubium.errors import OptionError
from dubium.explanation import json_value
from dubium.models import load_vae
from dubium.option_text import read_method
from dubium.registry import CONTROL_NAMES
from dubium.types import Images, Kind, Posterior

DEFAULTS = {
    "smoke": ("ua-backprop", "grad"),
    "cpu": ("auto", "ua-backprop", "grad", "smoothgrad", "fullgrad", "ig"),
    "paper": (
        "auto",
        "ua-backprop",
        "grad",
        "smoothgrad",
        "fullgrad",
        "ig",
        "blur-ig",
    ),  # and CLUE, where there is a VAE
}


CLUES = ("clue", "delta-clue", "clue-path")
"""Methods that need a VAE."""


@dataclass(frozen=True)
class LabelledMethod:
    """A method with its options, and the text that asked for both.

    `method` is what `explain(method=)` takes: a name, a function, or a Captum class.
    """

    label: str
    method: Any
    options: dict[str, Any]


def parse_methods(
    texts: Iterable[str], channels: int, *, control: bool = True, vae: Path | None = None
) -> tuple[LabelledMethod, ...]:
    """Methods from their texts, each checked and each once.

    Args:
        texts: such as `ua-backprop:rescale=none`.
        channels: of the images, which some defaults depend on.
        control: add the maps that know nothing of the networks, `registry.CONTROL_NAMES`.
        vae: a folder, for CLUE and its kin where no other is named.
    """
    labels = dict.fromkeys(text.strip() for text in texts if text.strip())
    labels |= dict.fromkeys(CONTROL_NAMES if control else ())
    return tuple(parse_method(label, channels, vae) for label in labels)


def label_methods(methods: Iterable[Any], channels: int, vae: Path | None = None) -> tuple[LabelledMethod, ...]:
    """Methods as a program has them: texts, functions, Captum classes, or pairs of one of these and a dict of options.

    Each is checked, and the controls come along.
    """
    found: dict[str, LabelledMethod] = {}
    for method in methods:
        what, given = method if isinstance(method, tuple) else (method, {})
        options = {name: plain_number(value) for name, value in given.items()}
        if isinstance(what, str):
            read_method(what, options)  # raises what is given twice
            parsed = parse_method(what, channels, None if "vae" in options else vae)
            one = replace(parsed, options={**parsed.options, **options})
        else:
            one = LabelledMethod(choose_method(what, options, channels).name, what, options)
        words = [one.label, *(f"{name}={json_value(value)}" for name, value in options.items())]
        label = ":".join(words)
        if label in found:
            raise OptionError(f"Two of the methods are called {label!r}. Give each a name: dubium.register_method.")
        choose_method(what if not isinstance(what, str) else one.method, one.options, channels)
        found[label] = replace(one, label=label)
    controls = [parse_method(name, channels) for name in CONTROL_NAMES if name not in found]
    return (*found.values(), *controls)


def parse_method(text: str, channels: int, vae: Path | None = None) -> LabelledMethod:
    """`name:option=value:...`, where the name may be package.module:name.

    Values are JSON where they can be, else text, and `vae` is the folder of one; CLUE and its kin have one of their own
    if no other is named.
    """
    name, options = read_method(text, {})
    if vae is not None and name in CLUES:
        options = {"vae": str(vae), **options}
    choose_method(name, options, channels)  # raises what a user should know before anything is computed
    options |= {"vae": load_vae(options["vae"])} if "vae" in options else {}  # once for all images
    return LabelledMethod(text, name, options)


def explain_maps(
    posterior: Posterior, x: Images, method: LabelledMethod, kinds: Sequence[Kind], *, seed: int = 0
) -> dict[str, Tensor]:
    """Maps (B, H, W) of one method, by kind."""
    maps = explain(posterior, x, method=method.method, kinds=kinds, seed=seed, **method.options).maps
    return {kind: maps[kind] for kind in kinds}
