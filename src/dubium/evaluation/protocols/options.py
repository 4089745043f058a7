"""Options of protocols: frozen dataclasses, with defaults by scale and with what the user changed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from dubium.checks import check_number
from dubium.errors import UnknownNameError, unknown_name_text

COUNTS = ("images", "candidates")
Options = TypeVar("Options")


def change_options(options: Options, changes: Mapping[str, Any]) -> Options:
    """A dataclass of options with those that were given; an unknown name is an error that lists what there is."""
    for name in changes:
        if name not in vars(options):
            raise UnknownNameError(unknown_name_text("option of this protocol", name, vars(options)))
        if name in COUNTS and changes[name] is not None:
            check_number(name, changes[name], whole=True)
    return replace(options, **changes)  # type: ignore[type-var]  # its bound, DataclassInstance, is typeshed's alone
