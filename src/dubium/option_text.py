"""Options and methods as people type them: `steps=50`, `ua-backprop:tau1=.08`. The one place that reads such text."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from dubium.errors import OptionError
from dubium.registry import REGISTERED, method_names

PYTHON_WORDS = {"True": True, "False": False, "None": None}
LAYER = "layer"
"""An option whose value is a name, though many are called 0, 1 or 3.10."""


def parse_options(texts: Iterable[str], method: str = "") -> dict[str, Any]:
    """`name=value` texts as a dict, see `parse_value`; `layer` stays a text, unless the method is the user's own."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise OptionError(f"The option is {text!r}; expected name=value.")
        name = name.strip()
        if name in values:
            raise OptionError(f"{name} is given twice: {name}={values[name]} and {name}={value}. Give it once.")
        values[name] = value
    options = {name: parse_value(value) for name, value in values.items()}
    if isinstance(options.get(LAYER), int | float) and has_layer_names(values.get("relevance", method)):
        options[LAYER] = values[LAYER].strip()
    return options


def has_layer_names(method: str) -> bool:
    """Whether a method's `layer` is a name: that of dubium's methods and of Captum's is."""
    if method in REGISTERED:
        return hasattr(REGISTERED[method], "attribute")
    return bool(method) and (":" not in method or method.startswith("captum."))


def parse_value(text: str) -> Any:
    """JSON or one of Python's words where it is one, a number where people read one, else the text itself.

    >>> [parse_value(text) for text in ("[1, 2]", ".5", "1e2", "True", "none")]
    [[1, 2], 0.5, 100, True, 'none']
    """
    if text.strip() in PYTHON_WORDS:
        return PYTHON_WORDS[text.strip()]
    if re.fullmatch(r"\s*-?\d{1,9}[eE]\+?\d{1,2}\s*", text):
        return int(float(text))
    try:
        return json.loads(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def split_outside_brackets(text: str, separator: str) -> list[str]:
    """The parts of a text between separators that are in no brackets.

    >>> split_outside_brackets("grad,captum.attr:Occlusion:sliding_window_shapes=[1,4,4]", ",")
    ['grad', 'captum.attr:Occlusion:sliding_window_shapes=[1,4,4]']
    """
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[{(") - (character in "]})")
        if character == separator and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def split_method(text: str) -> tuple[str, list[str]]:
    """The name of a method, which may be "package.module:name", and its options as texts.

    >>> split_method("captum.attr:Occlusion:sliding_window_shapes=[1,4,4]")
    ('captum.attr:Occlusion', ['sliding_window_shapes=[1,4,4]'])
    """
    name, *rest = split_outside_brackets(text, ":")
    if rest and "=" not in rest[0] and name not in method_names():
        name = f"{name}:{rest.pop(0)}"
    options: list[str] = []
    for part in rest:
        if options and "=" not in part and options[-1].startswith("relevance="):
            options[-1] += f":{part}"  # a relevance of the user's own: relevance=package.module:name
        else:
            options.append(part)
    return name, options


def read_method(text: str, given: Mapping[str, Any], noun: str = "method") -> tuple[str, dict[str, Any]]:
    """The name of a method, and its options: those in its text, and those that are given beside it.

    Args:
        noun: the argument that the text was given as: "method" or "relevance".

    >>> read_method("mine:squares:power=3:patch=4", {"seed": 1})
    ('mine:squares', {'power': 3, 'patch': 4, 'seed': 1})
    """
    name, texts = split_method(text)
    for part in texts:
        if "=" not in part:
            raise OptionError(f"The {noun} {text!r} has the part {part!r}; expected name:option=value:option=value.")
    options = parse_options(texts, name)
    if twice := options.keys() & given.keys():
        raise OptionError(f"{', '.join(sorted(twice))} is given twice: in {noun}={text!r} and as an option of its own.")
    return name, {**options, **given}
