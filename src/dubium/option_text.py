"""Options as people type them: `steps=50`, `tau1=.08`, `start=black`. The one place that reads such text."""

import json
from collections.abc import Iterable
from typing import Any

from dubium.errors import OptionError


def parse_options(texts: Iterable[str]) -> dict[str, Any]:
    """`name=value` texts as a dict; see `parse_value`."""
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise OptionError(f"The option is {text!r}; expected name=value.")
        options[name.strip()] = parse_value(value)
    return options


def parse_value(text: str) -> Any:
    """JSON where it is JSON, a number where people read one (`.5`, which JSON does not know), else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text
