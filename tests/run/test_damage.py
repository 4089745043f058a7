"""Shards of results that are damaged, or that somebody else wrote."""

import dataclasses
import hashlib
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dubium import seals
from dubium.errors import FileFormatError
from dubium.report import write_page
from dubium.run import open_results
from dubium.run.row import RegionRow
from dubium.run.shard import SCHEMA, open_shard, read_rows, table_of_rows
from dubium.seals import MARK, check_seal
from tests.limits import IS_LINUX, assert_refused
from tests.run.test_store import row, write

NAME = "explained-00000.parquet"
SETTINGS = {"kinds": ["epistemic"], "method": "grad", "images": {"dataset": "demo"}, "posterior": {"run": "demo"}}
ABOUT = {
    "versions": {"dubium": "0"},
    "settings": SETTINGS,
    "posterior": {"members": 2, "sha256": ""},
    "images": {"count": 2},
    "classes": None,
    "input_shape": [1, 4, 6],
}


REGION = RegionRow("total", 0, 0, 4, 6, 24, 1.0, False, (0, 24))


def good_rows():
    return [dataclasses.replace(row(n), thumbnail=None) for n in range(3)]


@pytest.fixture
def shard(tmp_path):
    with open_shard(tmp_path / "results" / NAME, ABOUT) as out:
        for one in good_rows():
            out.add(one)
    return tmp_path / "results" / NAME


def write_foreign(shard, rows, about=None, schema=SCHEMA):
    """A shard of an older dubium, without seal and without page checksums."""
    table = table_of_rows(rows) if schema is SCHEMA else pa.table(rows, schema=schema)
    with pq.ParquetWriter(shard, schema, compression="zstd") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"dubium": json.dumps({"format": 1, **ABOUT, "skipped": [], **(about or {})})})


def read_all(folder):
    results = open_results(folder)
    list(results.rows())
    list(results.columns(["id", "label", "prediction", "probs", "epistemic"]))
    results.skipped()
    results.ranks("epistemic", 5)
    write_page(folder)


def test_a_whole_shard_is_read_and_drawn(shard):
    read_all(shard.parents[1])
    assert check_seal(shard)


def test_every_flipped_bit_is_noticed(shard):
    whole = shard.read_bytes()
    for at in range(0, len(whole), 11):
        content = bytearray(whole)
        content[at] ^= 1 << at % 8
        shard.write_bytes(content)
        if MARK in content:
            with pytest.raises(FileFormatError, match="explained-00000"):
                open_results(shard.parents[1])
    shard.write_bytes(whole)
    open_results(shard.parents[1])


def test_page_checksums_are_verified_where_the_seal_was_not(shard):
    group = pq.read_metadata(shard).row_group(0)
    place = next(i for i in range(group.num_columns) if group.column(i).path_in_schema.startswith("map_total"))
    column = group.column(place)
    content = bytearray(shard.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 9] ^= 8
    shard.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"explained-00000.*(CRC|checksum|corrupt)"):
        list(read_rows(shard))


def test_a_second_shard_that_is_damaged_is_named(shard, tmp_path):
    write(tmp_path, [row(5)], "explained-00001")
    other = shard.with_name("explained-00001.parquet")
    whole = other.read_bytes()
    for content in (b"", whole[: len(whole) // 2], whole[:-1]):
        other.write_bytes(content)
        with pytest.raises(FileFormatError, match="explained-00001"):
            open_results(tmp_path)


def test_a_shard_of_an_older_dubium_is_read(shard):
    write_foreign(shard, good_rows())
    read_all(shard.parents[1])


def change(**values):
    rows = good_rows()
    for name, value in values.items():
        object.__setattr__(rows[0], name, value)  # around the types, which refuse what a file may hold
    return rows


@pytest.mark.parametrize(
    "values",
    [
        {"prediction": 3},
        {"prediction": -1},
        {"prediction": None},
        {"probs": np.ones(2, np.float32)},
        {"probs": np.full(3, np.nan, np.float32)},
        {"members": np.ones((2, 2), np.float32)},
        {"members": np.full((2, 3), np.inf, np.float32)},
        {"members": np.ones((0, 3), np.float32)},
        {"epistemic": float("nan")},
        {"total": None},
        {"height": 5},
        {"height": 0, "width": 0},
        {"height": None},
        {"height": 2**31 - 1, "width": 2**31 - 1},
        {"height": 2**20, "width": 2**20, "map_total": None, "map_aleatoric": None, "map_epistemic": None},
        {"regions": (dataclasses.replace(REGION, counts=(2**30, 2**30)),)},
        {"regions": (dataclasses.replace(REGION, counts=(-1, 25)),)},
        {"regions": (dataclasses.replace(REGION, counts=(24,), kind="doubt"),)},
        {"regions": (dataclasses.replace(REGION, share=float("nan")),)},
        {"advice": "run rm"},
        {"label": -4},
        {"thumbnail": b"not a picture"},
        {"thumbnail": b"/etc/hostname"},
    ],
)
def test_rows_that_do_not_fit_themselves_are_refused(values, shard):
    write_foreign(shard, change(**values))
    with pytest.raises(FileFormatError):
        read_all(shard.parents[1])


def test_a_thumbnail_that_is_a_path_is_not_opened(shard, tmp_path):
    rows = {name: table_of_rows(good_rows())[name] for name in SCHEMA.names}
    rows["thumbnail"] = pa.array(["/etc/hostname"] * 3)
    schema = pa.schema([pa.field(n, pa.string()) if n == "thumbnail" else SCHEMA.field(n) for n in SCHEMA.names])
    write_foreign(shard, rows, schema=schema)
    with pytest.raises(FileFormatError, match=r"explained-00000.*not those of results: thumbnail"):
        list(read_rows(shard))


@pytest.mark.parametrize(
    "about",
    [
        {"settings": None},
        {"settings": {}},
        {"settings": {**SETTINGS, "kinds": []}},
        {"settings": {**SETTINGS, "kinds": ["doubt"]}},
        {"settings": {**SETTINGS, "kinds": [["total"]]}},
        {"settings": {**SETTINGS, "images": {"files": []}}},
        {"settings": {**SETTINGS, "images": [1]}},
        {"posterior": {"members": "2", "sha256": ""}},
        {"posterior": 3},
        {"classes": [1]},
        {"classes": {"0": "a"}},
        {"input_shape": [1]},
        {"skipped": [{"path": 1}]},
        {"skipped": {}},
        {"versions": []},
        {"images": None},
        {"format": 3},
        {"format": [1]},
    ],
)
def test_metadata_of_nonsense_is_refused(about, shard):
    write_foreign(shard, good_rows(), about)
    with pytest.raises(FileFormatError):
        read_all(shard.parents[1])


def test_a_shard_that_does_not_say_what_was_skipped_is_refused_by_name(shard):
    with pq.ParquetWriter(shard, SCHEMA) as writer:
        writer.write_table(table_of_rows(good_rows()))
        writer.add_key_value_metadata({"dubium": json.dumps({"format": 1, **ABOUT})})
    with pytest.raises(FileFormatError, match=r"explained-00000.*skipped None"):
        open_results(shard.parents[1])


def test_a_shard_without_rows_and_a_row_group_without_rows_are_read_and_drawn(shard):
    for groups in ([good_rows(), []], [[]]):
        with pq.ParquetWriter(shard, SCHEMA) as writer:
            for rows in groups:
                writer.write_table(table_of_rows(rows) if rows else SCHEMA.empty_table())
            writer.add_key_value_metadata({"dubium": json.dumps({"format": 1, **ABOUT, "skipped": []})})
        read_all(shard.parents[1])
        assert len(open_results(shard.parents[1])) == len(groups[0])


@pytest.mark.parametrize("metadata", [b"[" * 10**5, b"\xff\xfe", b"3", b"", b"{"])
def test_metadata_that_is_not_json_is_refused(metadata, shard):
    with pq.ParquetWriter(shard, SCHEMA) as writer:
        writer.write_table(table_of_rows(good_rows()))
        writer.add_key_value_metadata({"dubium": metadata})
    with pytest.raises(FileFormatError, match="explained-00000"):
        open_results(shard.parents[1])


@pytest.mark.skipif(not IS_LINUX, reason="processes are forked and measured as Linux does it")
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_pipe_or_a_device_as_shard_is_refused(make, shard):
    shard.unlink()
    make(shard)
    assert_refused(lambda: open_results(shard.parents[1]), f"{NAME} cannot be read", seconds=5)


@pytest.mark.skipif(not IS_LINUX, reason="processes are forked and measured as Linux does it")
def test_a_small_shard_of_a_huge_map_is_refused(shard):
    rows = {name: table_of_rows(good_rows()[:1])[name] for name in SCHEMA.names}
    zeros = pa.array(np.zeros(3 * 2**28, np.float32))
    rows["map_total"] = pa.ListArray.from_arrays(pa.array([0, len(zeros)], pa.int32()), zeros)
    write_foreign_columns(shard, rows)
    del rows, zeros
    assert shard.stat().st_size < 2**24
    assert_refused(lambda: read_all(shard.parents[1]), NAME, seconds=60)


def write_foreign_columns(shard, rows):
    with pq.ParquetWriter(shard, SCHEMA, compression="zstd") as writer:
        writer.write_table(pa.table(rows, schema=SCHEMA))
        writer.add_key_value_metadata({"dubium": json.dumps({"format": 1, **ABOUT, "skipped": []})})


@pytest.mark.skipif(not IS_LINUX, reason="processes are forked and measured as Linux does it")
@pytest.mark.parametrize(
    ("size", "seen"),
    [
        ((9_999, 9_999), (0, 0, 1, 1)),  # on the whole image, its map would have 2.4 thousand million pixels
        ((2, 99_999_999), (0, 5, 2, 6)),
        ((20_000, 20_000), (0, 0, 20_000, 20_000)),
        ((4, 6), (0, 0, 5, 6)),
        ((4, 6), (2, 0, 2, 6)),
        ((4, 6), (-1, 0, 4, 6)),
    ],
)
def test_a_small_shard_of_a_huge_image_or_a_part_that_is_none_is_refused(size, seen, shard):
    height, width = size
    with open_shard(shard, ABOUT) as out:
        out.add(dataclasses.replace(good_rows()[0], image_height=height, image_width=width, seen=seen, regions=None))
    assert_refused(lambda: read_all(shard.parents[1]), "explained-00000", most=2**28)


@pytest.mark.skipif(not IS_LINUX, reason="processes are forked and measured as Linux does it")
@pytest.mark.parametrize("name", ["path", "thumbnail", "advice", "regions"])
@pytest.mark.parametrize("encoding", ["dictionary", "DELTA_BYTE_ARRAY"])
def test_a_small_shard_of_one_long_text_for_many_rows_is_refused(name, encoding, shard):
    rows, text = 300, "x" * 10**6  # 300 MB, in a file of some kB; it could as well be 300 GB
    one = table_of_rows([dataclasses.replace(good_rows()[0], regions=(dataclasses.replace(REGION, kind=text),))])
    columns = {column: pa.concat_arrays([one[column].combine_chunks()] * rows) for column in one.column_names}
    if name != "regions":
        columns[name] = pa.array([text if SCHEMA.field(name).type == pa.string() else text.encode()] * rows)
        columns["regions"] = pa.nulls(rows, SCHEMA.field("regions").type)
    changed = "regions.list.element.kind" if name == "regions" else name
    how = {"use_dictionary": [changed]}
    if encoding != "dictionary":
        how = {"use_dictionary": False, "column_encoding": {changed: encoding}}
    with pq.ParquetWriter(shard, SCHEMA, compression="zstd", **how) as writer:
        writer.write_table(pa.table(columns, schema=SCHEMA))
        writer.add_key_value_metadata({"dubium": json.dumps({"format": 1, **ABOUT, "skipped": []})})
    del columns, one
    assert shard.stat().st_size < 2**20
    assert_refused(lambda: read_all(shard.parents[1]), "explained-00000", most=2**28)


@pytest.mark.skipif(not IS_LINUX, reason="processes are forked and measured as Linux does it")
def test_a_shard_that_is_cut_while_it_is_checked_is_damaged(shard, monkeypatch):
    def cut_and_begin():
        os.truncate(shard, 100)
        return hashlib.sha256()

    monkeypatch.setattr(seals, "sha256", cut_and_begin)
    assert_refused(lambda: open_results(shard.parents[1]), "explained-00000")  # mapped into memory, it ends the process


@pytest.mark.parametrize("before", [0, 1, seals.PART - 20, seals.PART - 14, seals.PART - 1, seals.PART, 2 * seals.PART])
def test_a_seal_is_found_wherever_it_lies(before, tmp_path):
    content = b"a" * before + seals.BLANK_SEAL.encode() + b"z" * 100
    (tmp_path / "a").write_bytes(content)
    seals.seal_file(tmp_path / "a")
    sealed = (tmp_path / "a").read_bytes()
    assert sealed == content.replace(b"0" * seals.DIGITS, hashlib.sha256(content).hexdigest().encode())
    assert check_seal(tmp_path / "a")
    assert seals.is_sealed(sealed)
    (tmp_path / "a").write_bytes(sealed[:-1])
    with pytest.raises(FileFormatError, match="is damaged"):
        check_seal(tmp_path / "a")
