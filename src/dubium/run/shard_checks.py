"""What a shard of results must be like before its rows are believed; a file of others may be anything."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dubium.advice import ADVICE
from dubium.errors import FileFormatError
from dubium.kinds import KINDS
from dubium.run.data_config import LEAST, is_numbers, is_prepared_config

GROUP = 2**31  # bytes of a row group: 32 MiB, and the maps of an image of 100 million pixels
NUMBERS = GROUP // 4
IMAGE = 10**8  # pixels; no larger image is read
COARSE = 2**26  # pixels of a map that is enlarged from the seen part to the whole image
TEXTS = 2**28  # bytes of names and settings in a footer, and of texts in a row group
REQUIRED = ("id", "prediction", "probs", "members", *KINDS, "height", "width")
SECOND, THIRD = ("regions", "advice"), ("image_height", "image_width", "seen")  # columns that a format added
TEXT_COLUMNS, REGION_KINDS = ("path", "thumbnail", "advice"), "regions.list.element.kind"
LONGEST = max(map(len, KINDS))
MAPS = tuple(f"map_{kind}" for kind in KINDS)
NETWORKS = ("run", "factory", "architecture", "given")  # by which settings name a posterior
WHOLE = ("versions", "settings", "posterior", "images", "classes", "input_shape", "skipped")
"""What every run says about itself in the metadata of each of its shards."""


def expand_texts(table: pa.Table) -> pa.Table:
    """A table with texts where dictionaries of texts were read, if these are not too many bytes.

    A dictionary has each text once: a file of 14 kB may say that a million rows have the same megabyte.
    """
    for name in (name for name in TEXT_COLUMNS if name in table.column_names):
        column = table[name].combine_chunks()
        lengths = pc.take(pc.binary_length(column.dictionary), column.indices)
        size = pc.sum(lengths).as_py() or 0
        if size > TEXTS:
            raise ValueError(f"{name} of {size:,} bytes in a row group, more than results have")
        table = table.set_column(table.column_names.index(name), name, column.cast(column.type.value_type))
    if "regions" in table.column_names:
        kinds = pc.struct_field(table["regions"].combine_chunks().flatten(), "kind").dictionary
        if any(length > LONGEST for length in pc.binary_length(kinds).to_pylist()):
            raise ValueError("a region that is not whole")
    return table


def check_layout(parquet: pq.ParquetFile, schema: pa.Schema) -> None:
    """Raise an error unless columns and types are a shard's, and no row group is larger than one can be."""
    found = parquet.schema_arrow
    formats = [[f for f in schema if f.name not in later] for later in ((), THIRD, SECOND + THIRD)]
    if list(found.remove_metadata()) not in formats:
        odd = [f"{field.name}: {field.type}" for field in found if field.name not in schema.names]
        odd += [f"{f.name}: {f.type}" for f in found if f.name in schema.names and f.type != schema.field(f.name).type]
        raise ValueError(f"the columns are not those of results: {', '.join(odd) or 'some are missing or twice'}")
    for index in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(index)
        columns = [group.column(index) for index in range(group.num_columns)]
        size, values = sum(c.total_uncompressed_size for c in columns), sum(c.num_values for c in columns)
        if not (0 <= size <= GROUP and 0 <= values <= NUMBERS and 0 <= group.num_rows <= NUMBERS):
            raise ValueError(f"a row group of {size:,} bytes and {values:,} values, more than results have")


def check_rows(table: pa.Table) -> None:
    """Raise an error unless the values of each row fit each other; columns that were not read are not missed."""
    table.validate(full=True)
    arrays = {name: table[name].combine_chunks() for name in table.column_names}
    for name in (name for name in (*REQUIRED, *THIRD) if name in arrays):
        if arrays[name].null_count:
            raise ValueError(f"{name} is missing in a row")
    for name in (name for name in KINDS if name in arrays):
        check_finite(name, arrays[name])
    if "probs" in arrays and len(table):
        check_probabilities(arrays)
    if "label" in arrays and (pc.min(arrays["label"]).as_py() or 0) < 0:
        raise ValueError("a label below 0")
    if "path" in arrays and any("\0" in path for path in arrays["path"].to_pylist() if path is not None):
        raise ValueError("a path that no file has")
    if {"height", "width"} <= arrays.keys():
        check_sizes(arrays)
    if "regions" in arrays:
        check_regions(arrays["regions"].to_pylist(), arrays)
    if "advice" in arrays and not set(arrays["advice"].to_pylist()) <= {None, *ADVICE}:
        raise ValueError("advice that there is not")


def check_probabilities(arrays: Mapping[str, pa.Array]) -> None:
    """Raise an error unless all rows have as many probabilities, and the prediction is one of their classes."""
    sizes = pc.list_value_length(arrays["probs"])
    classes = pc.max(sizes).as_py()
    if pc.min(sizes).as_py() != classes or classes < 2:
        raise ValueError("rows of different numbers of classes, or of fewer than two")
    check_finite("probs", arrays["probs"].flatten())
    if "members" in arrays:
        members = arrays["members"]
        inner = members.flatten()
        if pc.min(pc.list_value_length(members)).as_py() < 1 or inner.null_count:
            raise ValueError("members are missing in a row")
        if pc.min_max(pc.list_value_length(inner)).as_py() != {"min": classes, "max": classes}:
            raise ValueError("members with other classes than their mean")
        check_finite("members", inner.flatten())
    if "prediction" in arrays:
        ends = pc.min_max(arrays["prediction"]).as_py()
        if not 0 <= ends["min"] <= ends["max"] < classes:
            raise ValueError(f"a prediction that is not one of {classes} classes")


def check_sizes(arrays: Mapping[str, pa.Array]) -> None:
    """Raise an error unless maps have as many numbers as their height and width say, and lie on their image.

    The part that the networks saw must be one of the image, and large enough for its map.
    """
    height, width = (arrays[name].to_numpy().astype(np.int64) for name in ("height", "width"))
    sizes = [(height, width)]
    if set(THIRD) <= arrays.keys():
        if set(pc.list_value_length(arrays["seen"]).to_pylist()) - {4} or arrays["seen"].flatten().null_count:
            raise ValueError("a part of an image without its four sides")
        rows, columns = (arrays[name].to_numpy().astype(np.int64) for name in THIRD[:2])
        top, left, bottom, right = arrays["seen"].flatten().to_numpy().reshape(-1, 4).T.astype(np.int64)
        inside = (top >= 0) & (top < bottom) & (bottom <= rows) & (left >= 0) & (left < right) & (right <= columns)
        if not inside.all():
            raise ValueError("a part of an image that is not one of it")
        whole = height * width * (rows / (bottom - top)) * (columns / (right - left))
        if not ((whole <= height * width * 1.01) | (whole <= COARSE)).all():
            raise ValueError("a part of an image that is too small for its map")
        sizes.append((rows, columns))
    for rows, columns in sizes:
        if len(rows) and not (min(rows.min(), columns.min()) >= 1 and (rows * columns).max() <= IMAGE):
            raise ValueError("an image without pixels, or of more than there can be")
    for name in (name for name in MAPS if name in arrays):
        lengths = pc.list_value_length(arrays[name]).to_pylist()
        if any(length is not None and length != pixels for length, pixels in zip(lengths, height * width, strict=True)):
            raise ValueError(f"{name} has not the size of its image")
        if arrays[name].flatten().null_count:
            raise ValueError(f"{name} has pixels without a number")


def check_regions(cells: Sequence[Any], arrays: Mapping[str, pa.Array]) -> None:
    """Raise an error unless each region is whole, and its run lengths fill its image."""
    sides = next((names for names in (THIRD[:2], ("height", "width")) if set(names) <= arrays.keys()), None)
    sizes = zip(*(arrays[name].to_pylist() for name in sides), strict=True) if sides else ()
    pixels = [height * width for height, width in sizes] or [None] * len(cells)
    for cell, count in zip(cells, pixels, strict=True):
        for region in cell or ():
            if region is None or None in region.values() or region["kind"] not in KINDS:
                raise ValueError("a region that is not whole")
            lengths = region["counts"]
            if None in lengths or min(lengths, default=0) < 0 or count not in (None, sum(lengths)):
                raise ValueError("a region that is not one of its image")
            if not math.isfinite(region["share"]):
                raise ValueError("a region whose share is not a number")


def check_finite(name: str, values: pa.Array) -> None:
    """Raise an error where a number is missing, infinite or NaN."""
    if values.null_count or not np.isfinite(values.to_numpy()).all():
        raise ValueError(f"{name} is not a number in a row")


def check_about(about: Any, file: Path) -> dict[str, Any]:
    """What a shard says about itself, if it says what was skipped and each name has a value of its kind."""
    if not isinstance(about, dict):
        raise FileFormatError(f"{file} is damaged: its metadata is not an object. Delete it and run the command again.")
    versions, settings, posterior, images, classes, shape, skipped = (about.get(name) for name in WHOLE)
    answers = {
        "versions": isinstance(versions, dict),
        "settings": is_settings(settings),
        "posterior": isinstance(posterior, dict)
        and type(posterior.get("members")) is int
        and isinstance(posterior.get("sha256"), str),
        "images": isinstance(images, dict),
        "classes": classes is None or is_texts(classes),
        "input_shape": isinstance(shape, list)
        and len(shape) == 3
        and all(side is None or type(side) is int for side in shape),
        "skipped": isinstance(skipped, list)
        and all(isinstance(item, dict) and is_texts([item.get("path"), item.get("reason")]) for item in skipped),
    }
    for name, is_valid in answers.items():
        if (name in about or name == "skipped") and not is_valid:
            value = f"{about.get(name)!r:.200}"
            raise FileFormatError(
                f"{file} is damaged: its metadata has {name} {value}. Delete it and run the command again."
            )
    return about


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def is_settings(value: Any) -> bool:
    """Whether the parts of settings that are used again are of their kind, where they are given."""
    if not isinstance(value, dict):
        return False
    kinds, images, posterior = value.get("kinds", [KINDS[0]]), value.get("images"), value.get("posterior", {})
    is_named = "images" not in value or (
        isinstance(images, dict)
        and (
            any(isinstance(images.get(name), str) for name in ("dataset", "factory", "given"))
            or (is_texts(images.get("files")) and bool(images["files"]))
        )
    )
    others = isinstance(value.get("method", ""), str) and isinstance(value.get("options", {}), dict)
    is_kinds = is_texts(kinds) and bool(kinds) and set(kinds) <= set(KINDS)
    if not isinstance(posterior, dict):
        return False
    config = posterior.get("data_config")
    is_config = config is None or (isinstance(config, dict) and is_prepared_config(config))  # not the name of a file
    is_networks = all(isinstance(posterior.get(name), str | None) for name in NETWORKS)
    is_scaled = all(posterior.get(name) is None or is_numbers(posterior[name], LEAST[name]) for name in LEAST)
    return is_named and others and is_kinds and is_config and is_networks and is_scaled


def check_whole_about(about: Mapping[str, Any], folder: Path) -> None:
    """Raise an error unless nothing is missing that a page or the explorer shows."""
    settings = about.get("settings", {})
    missing = [name for name in WHOLE if name not in about]
    missing += [f"settings.{name}" for name in ("kinds", "method", "images", "posterior") if name not in settings]
    if missing:
        raise FileFormatError(f"The results in {folder} do not say their {', '.join(missing)}. Make them again.")
