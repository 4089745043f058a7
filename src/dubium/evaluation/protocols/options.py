"""Options of protocols: frozen dataclasses, with defaults by scale and with what the user changed."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from dubium.checks import check_number
from dubium.errors import OptionError, UnknownNameError, unknown_name_text

COUNTS = ("images", "candidates", "test_images")
Options = TypeVar("Options")


def change_options(options: Options, changes: Mapping[str, Any]) -> Options:
    """A dataclass of options with those that were given; an unknown name is an error that lists what there is."""
    for name in changes:
        if name not in vars(options):
            raise UnknownNameError(unknown_name_text("option of this protocol", name, vars(options)))
    checked = {name: check_like(name, value, vars(options)[name]) for name, value in changes.items()}
    return replace(options, **checked)  # type: ignore[type-var]  # its bound, DataclassInstance, is typeshed's alone


def check_like(name: str, value: Any, default: Any) -> Any:
    """The value of an option, if it is of its default's type: a number above 0, or several of something."""
    if name in COUNTS and value is None:  # as many as there are
        return None
    default = 1 if name in COUNTS else default
    if isinstance(default, tuple):
        return tuple([check_like(name, item, default[0]) for item in list_values(value)])
    if isinstance(default, int | float) and not isinstance(default, bool):
        check_number(name, value, whole=isinstance(default, int))
        return type(default)(value)
    if isinstance(default, str) and not isinstance(value, str):
        raise OptionError(f"{name}={value!r}; a word such as {default!r} is needed.")
    return value


def list_values(value: Any) -> tuple[Any, ...]:
    """One value, or several, as a tuple; a word is one.

    >>> list_values("mean"), list_values([0.02, 0.05]), list_values(0.02)
    (('mean',), (0.02, 0.05), (0.02,))
    """
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
