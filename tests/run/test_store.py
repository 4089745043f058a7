import json

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

from dubium.errors import DataNotFoundError, FileFormatError
from dubium.run import Row, open_results
from dubium.run import shard as shard_module
from dubium.run.shard import open_shard

COLUMNS = [
    *("id", "path", "label", "prediction", "probs", "members", "total", "aleatoric", "epistemic"),
    *("map_total", "map_aleatoric", "map_epistemic", "height", "width", "thumbnail"),
    *("regions", "advice", "image_height", "image_width", "seen"),
]


def row(number, size=(4, 6), maps=True):
    rng = np.random.default_rng(number)
    drawn = [rng.random(size, np.float32) if maps else None for _ in range(3)]
    probs, members = rng.random(3, np.float32), rng.random((2, 3), np.float32)
    scores = [float(np.float32(rng.random())) for _ in range(3)]
    return Row(number, f"{number}.png", None if number % 2 else 1, 2, probs, members, *scores, *drawn, *size, b"png")


def write(folder, rows, name="explained-00000"):
    with open_shard(folder / "results" / f"{name}.parquet", {"settings": {"kinds": ["epistemic"]}}) as out:
        for one in rows:
            out.add(one)
        out.skip("bad.png", "broken")


def same(a, b):
    for name in COLUMNS:
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None and right is None) or np.array_equal(left, right), name


def test_rows_come_back_as_they_were(tmp_path):
    rows = [row(0), row(1, (2, 3)), row(2, maps=False)]
    write(tmp_path, rows)
    results = open_results(tmp_path)
    for one, other in zip(rows, results.rows(), strict=True):
        same(one, other)
    assert len(results) == 3
    assert results.skipped() == [{"path": "bad.png", "reason": "broken"}]
    assert [one.map_total for one in results.rows(pictures=False)] == [None] * 3


def test_columns_are_those_promised_and_float32(tmp_path):
    write(tmp_path, [row(0)])
    file = tmp_path / "results" / "explained-00000.parquet"
    schema = pq.read_schema(file)
    assert schema.names == COLUMNS
    assert {str(schema.field(name).type) for name in ("total", "aleatoric", "epistemic")} == {"float"}
    assert {str(schema.field(f"map_{kind}").type.value_type) for kind in ("total", "epistemic")} == {"float"}
    assert json.loads(pq.read_metadata(file).metadata[b"dubium"])["settings"] == {"kinds": ["epistemic"]}


def test_pandas_polars_and_duckdb_read_it_as_it_is(tmp_path):
    rows = [row(0), row(1, maps=False)]
    write(tmp_path, rows)
    files = str(tmp_path / "results" / "*.parquet")
    frames = (
        pd.read_parquet(tmp_path / "results"),
        pl.read_parquet(files).to_pandas(),
        duckdb.sql(f"from '{files}'").df(),
    )
    for frame in frames:
        assert list(frame.columns) == COLUMNS
        np.testing.assert_array_equal(np.asarray(frame["map_epistemic"][0]), rows[0].map_epistemic.ravel())
        assert np.stack(frame["members"][0]).shape == (2, 3)
        assert frame["epistemic"].tolist() == [one.epistemic for one in rows]


def test_rows_go_to_disk_as_they_come(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_module, "FLUSH", 3 * 4 * 24 * 2)  # reached by two rows, not by one
    write(tmp_path, [row(n) for n in range(5)])
    assert pq.ParquetFile(tmp_path / "results" / "explained-00000.parquet").num_row_groups == 3
    assert [one.id for one in open_results(tmp_path).rows()] == list(range(5))


def test_a_shard_that_fails_leaves_nothing(tmp_path):
    def rows():
        yield row(0)
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write(tmp_path, rows())
    assert list((tmp_path / "results").iterdir()) == []


def test_ranks_are_by_score_and_ties_by_place(tmp_path):
    rows = [row(n) for n in range(6)]
    write(tmp_path, rows)
    expected = sorted(rows, key=lambda one: (-one.epistemic, one.id))[:4]
    assert list(open_results(tmp_path).ranks("epistemic", 4)) == [one.id for one in expected]


def test_damage_is_said(tmp_path):
    with pytest.raises(DataNotFoundError, match="no results in"):
        open_results(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "explained-00000.parquet").write_bytes(b"PAR1 and rubbish")
    with pytest.raises(FileFormatError, match="damaged or not a shard"):
        open_results(tmp_path)
