"""Settings, versions and skipped files, as tables for pages."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any


def two_column_table(rows: Mapping[str, Any]) -> str:
    """A table of two columns, names and values."""
    lines = "".join(
        f"<tr><th scope=row>{escape(name)}</th><td>{value_html(value)}</td></tr>" for name, value in rows.items()
    )
    return f"<table>{lines}</table>"


def value_html(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, Mapping):
        return "<br>".join(f"{escape(str(name))}: {value_html(item)}" for name, item in value.items()) or "—"
    if isinstance(value, list | tuple):
        short = [str(item) for item in value[:24]] + (["…"] if len(value) > 24 else [])
        return escape(", ".join(short)) or "—"
    return escape(value if isinstance(value, str) else json.dumps(value))


def settings_table(about: Mapping[str, Any]) -> str:
    """What made these results, in words a person can repeat."""
    settings = dict(about["settings"])
    posterior = {**settings.pop("posterior"), **about["posterior"]}
    images = {**settings.pop("images"), **about["images"]}
    rows = {"posterior": posterior, "images": images, **settings, "classes": about["classes"]}
    rows["input_shape"] = about["input_shape"]
    return two_column_table({name.replace("_", " "): value for name, value in {**rows, **about["versions"]}.items()})


def skipped_table(skipped: Sequence[Mapping[str, str]], most: int = 50) -> str:
    """Which files could not be read, and why."""
    more = f"<p>… and {len(skipped) - most} more.</p>" if len(skipped) > most else ""
    return two_column_table({item["path"]: item["reason"] for item in skipped[:most]}) + more
