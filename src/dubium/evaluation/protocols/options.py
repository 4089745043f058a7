"""Options of protocols: frozen dataclasses, with defaults by scale and with what the user changed."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from dubium.errors import UnknownNameError, unknown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Options = TypeVar("Options", bound=DataclassInstance)
else:
    Options = TypeVar("Options")

SCALES = ("smoke", "cpu", "paper")


def change_options(options: Options, changes: Mapping[str, Any]) -> Options:
    """The options with those that were given; an unknown name is an error that lists what there is."""
    known = [field.name for field in fields(options)]
    for name in changes:
        if name not in known:
            raise UnknownNameError(unknown("option of this protocol", name, known))
    return replace(options, **changes)
