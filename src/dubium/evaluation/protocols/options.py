"""Options of protocols: frozen dataclasses, with defaults by scale and with what the user changed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from dubium.errors import UnknownNameError, unknown

Options = TypeVar("Options")


def change_options(options: Options, changes: Mapping[str, Any]) -> Options:
    """A dataclass of options with those that were given; an unknown name is an error that lists what there is."""
    for name in changes:
        if name not in vars(options):
            raise UnknownNameError(unknown("option of this protocol", name, vars(options)))
    return replace(options, **changes)  # type: ignore[type-var]  # its bound, DataclassInstance, is typeshed's alone
