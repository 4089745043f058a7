"""What a shard says about itself: the settings that made it, networks, images, and what was skipped."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dubium.errors import FileFormatError
from dubium.kinds import KINDS
from dubium.run.data_config import is_prepared_config

Check = Callable[[Any], bool]
WHOLE = ("versions", "settings", "posterior", "images", "classes", "input_shape", "skipped")
"""The names that every run writes."""


def check_about(about: Any, file: Path) -> dict[str, Any]:
    """The same, if it says what was skipped and each name has a value of its kind; `FileFormatError` otherwise."""
    if not isinstance(about, dict):
        raise FileFormatError(f"{file} is damaged: its metadata is not an object. Delete it and run the command again.")
    for name, is_valid in CHECKS.items():
        if (name in about or name == "skipped") and not is_valid(about.get(name)):
            value = f"{about.get(name)!r:.200}"
            raise FileFormatError(
                f"{file} is damaged: its metadata has {name} {value}. Delete it and run the command again."
            )
    return about


def check_whole_about(about: Mapping[str, Any], folder: Path) -> None:
    """Raise an error unless nothing is missing that a page or the explorer shows."""
    settings = about.get("settings", {})
    missing = [name for name in WHOLE if name not in about]
    missing += [f"settings.{name}" for name in ("kinds", "method", "images", "posterior") if name not in settings]
    if missing:
        raise FileFormatError(f"The results in {folder} do not say their {', '.join(missing)}. Make them again.")


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_settings(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kinds, images = value.get("kinds", [KINDS[0]]), value.get("images", {"dataset": ""})
    is_named = isinstance(images, dict) and (
        any(isinstance(images.get(name), str) for name in ("dataset", "factory", "given"))
        or (_is_texts(images.get("files")) and bool(images["files"]))
    )
    others = isinstance(value.get("method", ""), str) and isinstance(value.get("options", {}), dict)
    is_kinds = _is_texts(kinds) and bool(kinds) and set(kinds) <= set(KINDS)
    posterior = value.get("posterior", {})
    is_posterior = isinstance(posterior, dict) and _is_data_config(posterior.get("data_config"))
    return is_named and others and is_kinds and is_posterior


def _is_data_config(value: Any) -> bool:
    """What `data_config.prepared_config` returned, or nothing: a file of others must not name another file."""
    return value is None or (isinstance(value, dict) and is_prepared_config(value))


def _is_posterior(value: Any) -> bool:
    return isinstance(value, dict) and type(value.get("members")) is int and isinstance(value.get("sha256"), str)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(side is None or type(side) is int for side in value)


def _is_skipped(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, dict) and isinstance(item.get("path"), str) and isinstance(item.get("reason"), str)
        for item in value
    )


CHECKS: dict[str, Check] = {
    "versions": _is_object,
    "settings": _is_settings,
    "posterior": _is_posterior,
    "images": _is_object,
    "classes": lambda value: value is None or _is_texts(value),
    "input_shape": _is_shape,
    "skipped": _is_skipped,
}
