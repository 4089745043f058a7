"""What `summary.json` and `overview.json` must be like before they are shown; a file of others may be anything."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dubium.errors import FileFormatError


def check_summary(content: Mapping[str, Any], file: Path) -> None:
    """Raise an error unless each part that is there has values of its kind."""
    check_parts(content, SUMMARY_PARTS, file)


def check_overview(content: Mapping[str, Any], file: Path) -> None:
    """The same of `overview.json`."""
    check_parts(content, OVERVIEW_PARTS, file)


def check_parts(content: Mapping[str, Any], parts: Mapping[str, Callable[[Any], bool]], file: Path) -> None:
    """Raise an error unless each part of `content` is what `parts` say."""
    for name, is_valid in parts.items():
        if name in content and not is_valid(content[name]):
            raise FileFormatError(f"{file} is damaged, or not of dubium evaluate: {name} is not what it should be.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _has(kinds: Mapping[str, Callable[[Any], bool]]) -> Callable[[Any], bool]:
    """Whether a value is an object with these names, each with a value of its kind."""
    return lambda value: isinstance(value, dict) and all(n in value and kind(value[n]) for n, kind in kinds.items())


def _all_values(kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether a value is an object, or a list, whose values are all of one kind."""
    return lambda value: (
        isinstance(value, dict | list) and all(map(kind, value.values() if isinstance(value, dict) else value))
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


INTERVAL = dict.fromkeys(("value", "low", "high"), _is_number)
COMPARISON = dict.fromkeys(("metric", "a", "b"), _is_text)
COMPARISON |= dict.fromkeys(("difference", "low", "high", "p_holm", "effect"), _is_number)
SUMMARY_PARTS: dict[str, Callable[[Any], bool]] = {
    "protocol": _is_text,
    "settings": _has({}),
    "versions": _all_values(_is_text),
    "results": lambda value: isinstance(value, dict) and _all_values(_all_values(_has(INTERVAL)))(value),
    "better": lambda value: isinstance(value, dict) and all(word in ("higher", "lower") for word in value.values()),
    "comparisons": lambda value: isinstance(value, list) and _all_values(_has(COMPARISON))(value),
    "notes": lambda value: isinstance(value, list) and _all_values(_is_text)(value),
    "images": _has({}),
}
CELL: dict[str, Callable[[Any], bool]] = dict.fromkeys(("protocol", "metric", "method"), _is_text)
CELL |= {"value": _is_number, "level": lambda value: isinstance(value, bool)}
CELL |= {"rank": lambda value: value is None or _is_number(value)}
OVERVIEW_PARTS: dict[str, Callable[[Any], bool]] = {
    "scale": _is_text,
    "dataset": _is_text,
    "images": lambda value: isinstance(value, dict) and _all_values(_is_number)(value),
    "cells": lambda value: isinstance(value, list) and _all_values(_has(CELL))(value),
    "mean ranks": lambda value: isinstance(value, dict) and _all_values(_is_number)(value),
    "notes": lambda value: isinstance(value, dict) and _all_values(SUMMARY_PARTS["notes"])(value),
}
