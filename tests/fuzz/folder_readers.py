"""Folders of results: Parquet stores of `dubium explain`, and folders of `dubium evaluate`."""

import io
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from dubium.evaluation.shards import ShardStore, method_shard, score_shard
from dubium.evaluation.summary import EvaluationSummary, Measurement, read_summary
from dubium.report.evaluation import write_evaluation_page
from dubium.report.exports import WRITERS, write_export
from dubium.report.page import run_page
from dubium.run import Row, open_results
from dubium.run.job import thumbnail_png
from dubium.run.row import RegionRow
from dubium.run.shard import open_shard
from dubium.run.signed import rows_with_signs, signed_row, signed_shard
from dubium.seals import BLANK_SEAL, seal_file
from dubium.web.session import open_results_session
from tests.fuzz.mutations import VALUES, mutate_bytes, mutate_json, mutate_safetensors, reseal
from tests.fuzz.reader import Files, FuzzReader, maybe_reseal, seal_covers

SHARD = "results/explained-00000.parquet"
SETTINGS = {
    "posterior": {"run": "nowhere"},
    "images": {"dataset": "demo"},
    "method": "grad",
    "kinds": ["epistemic"],
    "options": {},
    "fit": "stretch",
}
ABOUT = {
    "versions": {"dubium": "0.1.0", "torch": "2", "python": "3"},
    "settings": SETTINGS,
    "posterior": {"kind": "ensemble", "members": 2, "sha256": "00"},
    "images": {"count": 3, "sha256": "00"},
    "classes": ["a", "b", "c"],
    "input_shape": [1, 4, 5],
}


def example_row(number: int) -> Row:
    rng = np.random.default_rng(number)
    maps = [rng.random((4, 5), np.float32) for _ in range(3)]
    picture = thumbnail_png(torch.from_numpy(rng.random((1, 4, 5), np.float32)))
    probs, members = rng.random(3, np.float32), rng.random((2, 3), np.float32)
    region = RegionRow("epistemic", 0, 0, 4, 5, 20, 1.0, False, (0, 20))
    numbers = (1, probs, members, 0.5, 0.25, 0.25, *maps, 4, 5)
    height, width, *seen = ((4, 5, 0, 0, 4, 5), (8, 10, 0, 0, 8, 10), (9, 10, 1, 0, 8, 10))[number]
    region = replace(region, area=height * width, counts=(0, height * width))
    on_image = {"image_height": height, "image_width": width, "seen": tuple(seen)}
    return Row(number, f"{number}.png", number, *numbers, picture, (region,), "look", **on_image)


def write_store(folder: Path) -> None:
    with open_shard(folder / SHARD, ABOUT) as shard:
        for number in range(3):
            shard.add(example_row(number))
        shard.skip("bad.png", "broken")


def write_second_format(folder: Path) -> None:
    """A store of the format before, whose maps have the size of their images."""
    write_store(folder)
    table = pq.read_table(folder / SHARD).drop_columns(["image_height", "image_width", "seen"])
    about = json.loads(pq.read_metadata(folder / SHARD).metadata[b"dubium"]) | {"format": 2, "seal": BLANK_SEAL}
    table = table.set_column(table.column_names.index("regions"), table.schema.field("regions"), pa.nulls(
        len(table), table.schema.field("regions").type))  # fmt: skip
    with pq.ParquetWriter(folder / SHARD, table.schema, write_page_checksum=True) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"dubium": json.dumps(about)})
    seal_file(folder / SHARD)


def write_signed_store(folder: Path) -> None:
    """A store of a method with signed maps, which are beside the results."""
    write_store(folder)
    with open_shard(signed_shard(folder / SHARD), ABOUT) as shard:
        for number in range(3):
            row = example_row(number)
            shard.add(signed_row(replace(row, signed={kind: -values for kind, values in row.stored_maps().items()})))


def damage_store(files: Files, random: Random) -> Files:
    """Damage to bytes, or a Parquet file of other columns, values and metadata; then perhaps the right seal."""
    name = random.choice(sorted(files))
    try:
        content = rewrite_shard(files[name], random) if random.random() < 0.6 else mutate_bytes(files[name], random)
    except pa.ArrowException:  # a table that cannot be written as Parquet
        content = mutate_bytes(files[name], random)
    return {**files, name: content}


def rewrite_shard(content: bytes, random: Random) -> bytes:
    """The shard written anew, with columns or metadata that no run would write."""
    table = pq.read_table(io.BytesIO(content), use_threads=False)
    about = json.loads(pq.read_metadata(io.BytesIO(content)).metadata[b"dubium"])
    for _ in range(random.choice((0, 1, 1, 2))):
        table = mutate_table(table, random)
    text = json.dumps({**about, "seal": BLANK_SEAL}).encode()
    text = mutate_json(text, random) if random.random() < 0.6 else text
    stream = io.BytesIO()
    codec = random.choice(("zstd", "snappy", "none", "gzip"))
    with pq.ParquetWriter(stream, table.schema, compression=codec, write_page_checksum=random.random() < 0.5) as writer:
        writer.write_table(table, row_group_size=random.choice((None, 1)))
        writer.add_key_value_metadata({"dubium": text})
    return reseal(stream.getvalue())


def mutate_table(table: pa.Table, random: Random) -> pa.Table:
    """A table with a column dropped, twice, of another name or type, or with other values in a row."""
    place = random.randrange(table.num_columns)
    field, kind = table.schema.field(place), random.random()
    if kind < 0.08 and table.num_columns > 1:
        return table.remove_column(place)
    if kind < 0.14:
        return table.append_column(random.choice(("extra", field.name)), table.column(place))
    if kind < 0.2:
        return table.rename_columns([name + "x" * (i == place) for i, name in enumerate(table.column_names)])
    if kind < 0.26:
        return table.slice(0, random.choice((0, 1)))
    values = table.column(place).to_pylist()
    at = random.randrange(len(values)) if values else 0
    if values:
        values[at] = other_value(values[at], random)
    column_type = random.choice((field.type, field.type, field.type, None, pa.string(), pa.int64(), pa.float64()))
    try:
        column = pa.array(values, column_type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        column = pa.nulls(len(values), field.type)
    return table.set_column(place, pa.field(field.name, column.type), column)


def other_value(value: Any, random: Random) -> Any:
    """Another value of a cell: shorter, longer, missing, or far too large."""
    if isinstance(value, list) and random.random() < 0.7:
        others = [*value[:-1], None], [*value[:-1], float("nan")], [value], [0, 0, 1, 1], [3, 4, 4, 5]
        return random.choice(([], value[:-1], value * 2, *others))
    if isinstance(value, bytes):
        return random.choice((b"", mutate_bytes(value, random), b"/etc/hostname"))
    return random.choice((*VALUES, -1, 3, 5, 9_999, 1e30))


def read_store(folder: Path) -> Any:
    """Rows, page, exports, and what the explorer opens."""
    results = open_results(folder)
    rows = [*results.rows(), *rows_with_signs(results)]
    ranks = results.ranks("epistemic", 5)
    found = [vars(row) for row in rows], results.skipped(), len(results), ranks, results.about
    run_page(results)
    for name in WRITERS:
        write_export(folder, name, folder / "exports" / name)
    open_results_session(folder, None)
    return found


# evaluations


def write_evaluation(folder: Path) -> None:
    store = ShardStore.open(folder, {"seed": 0, "images": 3, "methods": {"grad": {"version": 1}}})
    store.compute_values(score_shard("total", 0), lambda: {"scores": [0.5, 0.25, 0.125], "labels": [1, 2, None]})
    store.compute_tensors(method_shard("grad", 0), lambda: {"maps": torch.ones(3, 2, 2), "curves": torch.zeros(3, 4)})
    found = {
        method: {"aurr": Measurement(values, np.mean, values, True)}
        for method, values in {"grad": np.array([0.5, 0.25, 0.75]), "random": np.array([0.1, 0.2, 0.3])}.items()
    }
    EvaluationSummary("removal", {"seed": 0}, {"index": [1, 2, 3]}, found, notes=["a note"]).write(folder)
    (folder / "figure.png").write_bytes(thumbnail_png(torch.ones(1, 2, 2)))


def damage_evaluation(files: Files, random: Random) -> Files:
    """Damage to one file of the folder."""
    name = random.choice(sorted(name for name in files if name.endswith((".json", ".safetensors", ".png"))))
    mutate = {".json": mutate_json, ".png": mutate_bytes}.get(Path(name).suffix, mutate_safetensors)
    return {**files, name: mutate(files[name], random)}


def read_evaluation(folder: Path) -> Any:
    store = ShardStore.open(folder, {"seed": 0, "images": 3, "methods": {"grad": {"version": 1}}})
    values = store.read_values(score_shard("total", 0))
    tensors = store.read_tensors(method_shard("grad", 0))
    summary = read_summary(folder)
    write_evaluation_page(folder)
    return values, tensors, summary


FOLDER_READERS: dict[str, FuzzReader] = {
    "Parquet store": FuzzReader(
        (write_store, write_second_format, write_signed_store), damage_store, read_store, seal_covers
    ),
    "evaluation folder": FuzzReader((write_evaluation,), maybe_reseal(damage_evaluation), read_evaluation, seal_covers),
}
