"""One table over protocols: ranks and significance from known summaries, and maps that are computed once."""

import json

import pytest
import torch
from typer.testing import CliRunner

from dubium.cli import app
from dubium.data import Dataset
from dubium.errors import FileFormatError, UnknownNameError
from dubium.evaluation.methods import parse_method, parse_methods
from dubium.evaluation.overview import mean_ranks, overview_cells
from dubium.evaluation.protocols import Evaluation, shared_maps
from dubium.evaluation.protocols.all_protocols import evaluate_all
from dubium.registry import CONTROL_NAMES
from dubium.report.overview import write_overview_pages
from tests.networks import ensemble, images, small_cnn


def interval(value):
    return {"value": value, "low": value - 0.1, "high": value + 0.1}


def compared(a, b, effect, p):
    return {"metric": "auc-urr@2%", "a": a, "b": b, "effect": effect, "p_holm": p}


SUMMARY = {
    "protocol": "blurring",
    "results": {name: {"auc-urr@2%": interval(v)} for name, v in (("grad", 0.7), ("ig", 0.5), ("random", 0.9))},
    "better": {"auc-urr@2%": "lower"},
    "comparisons": [
        compared("grad", "ig", 0.4, 0.2),
        compared("grad", "random", -1.0, 0.01),
        compared("ig", "random", -1.0, 0.01),
    ],
}


def test_ranks_follow_the_better_direction_and_level_means_not_significantly_worse():
    cells = {cell.method: cell for cell in overview_cells(SUMMARY)}
    assert {name: (cell.rank, cell.level) for name, cell in cells.items()} == {
        "ig": (1, True),
        "grad": (2, True),
        "random": (3, False),
    }
    assert cells["ig"].beats == ("random",)
    assert cells["random"].loses_to == ("ig", "grad")
    assert [cell.is_control for cell in cells.values()] == [False, False, True]
    assert mean_ranks(list(cells.values())) == {"ig": 1.0, "grad": 2.0, "random": 3.0}


def test_a_metric_without_a_better_direction_has_no_ranks():
    cells = overview_cells({**SUMMARY, "better": {}})
    assert {cell.rank for cell in cells} == {None}
    assert mean_ranks(cells) == {}


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_values_that_are_equal_but_for_float32_share_the_mean_of_their_ranks(better):
    values = (("edges", 0.99999988), ("local-contrast", 1.0), ("grad", 0.9999995), ("ig", 0.99999))
    results = {name: {"auc-urr@2%": interval(value)} for name, value in values}
    cells = overview_cells({**SUMMARY, "results": results, "comparisons": [], "better": {"auc-urr@2%": better}})
    last = 3.0 if better == "lower" else 2.0
    assert {cell.method: cell.rank for cell in cells} == {
        "edges": last,
        "local-contrast": last,
        "grad": last,
        "ig": 1.0 if better == "lower" else 4.0,
    }


def test_equal_values_share_the_mean_of_their_ranks_whatever_their_order():
    values = (("grad", 0.1), ("ig", 0.3 - 0.2), ("edges", 0.5), ("random", 0.1))  # 0.3 - 0.2 is below 0.1
    for ordered in (values, values[::-1]):
        results = {name: {"auc-urr@2%": interval(v)} for name, v in ordered}
        lost = [compared("edges", name, 1.0, 0.01) for name in ("grad", "ig", "random")]
        cells = overview_cells({**SUMMARY, "results": results, "comparisons": lost[:1]})
        assert {cell.method: cell.rank for cell in cells} == {"grad": 2.0, "ig": 2.0, "random": 2.0, "edges": 4.0}
        assert {cell.method for cell in cells if cell.first} == {"grad", "ig", "random"}
        assert {cell.method for cell in cells if cell.level} == {"grad", "ig", "random"}


def test_shared_maps_are_computed_once_for_each_kind(tmp_path, monkeypatch):
    calls = []

    def explain_maps(_posterior, x, method, kinds, *, seed):
        calls.append((method.label, tuple(kinds), len(x)))
        return {kind: torch.full((len(x), 4, 4), float(len(calls))) for kind in kinds}

    monkeypatch.setattr(shared_maps, "explain_maps", explain_maps)
    data = Dataset(torch.rand(3, 1, 4, 4), None, (), "noise", "test")
    evaluation = Evaluation((), data, (), ("epistemic",), tmp_path, map_folder=tmp_path / "maps")
    grad, x = parse_method("grad", 1), data.batch(slice(None))
    for kinds in (["epistemic"], ["aleatoric", "epistemic"], ["epistemic", "aleatoric"]):
        found = shared_maps.shared_maps(evaluation, grad, x, kinds)
    assert calls == [("grad", ("epistemic",), 3), ("grad", ("aleatoric",), 3)]
    assert [found[kind][0, 0, 0].item() for kind in ("epistemic", "aleatoric")] == [1.0, 2.0]
    shared_maps.shared_maps(evaluation, grad, x[:2], ["epistemic"])
    assert calls[2:] == [("grad", ("epistemic",), 2)]  # other images


def test_several_protocols_share_their_maps_and_give_what_they_give_alone(tmp_path):
    data = Dataset(images(8), torch.arange(8) % 3, tuple("abc"), "own", "test")
    evaluation = Evaluation(list(ensemble(small_cnn)), data, parse_methods(["grad"], 1), ("epistemic",), tmp_path)
    found = evaluate_all(evaluation, ("blurring", "removal"), scale="smoke")
    assert {cell["protocol"] for cell in found["cells"]} == {"blurring", "removal"}
    assert set(found["mean ranks"]) == {"grad", *CONTROL_NAMES}
    assert len(list((tmp_path / "maps" / "shards" / "grad").iterdir())) == 1  # the same four images
    assert (tmp_path / "overview.csv").read_text().startswith("protocol,metric,method,value,")
    with pytest.raises(UnknownNameError, match="No protocol that can be run together"):
        evaluate_all(evaluation, ("mitigation",))


def test_the_command_prints_one_table(own, tmp_path):
    arguments = [str(own / "posterior"), "--dataset", str(own / "images.npz"), "--scale", "smoke", "--methods", "grad"]
    chosen = ["--protocols", "removal,anomaly", "--out", str(tmp_path), "--threads", "1"]
    found = CliRunner().invoke(app, ["evaluate", "all", *arguments, *chosen])
    assert found.exit_code == 0, found.output
    overview = json.loads((tmp_path / "overview.json").read_text())
    assert {cell["metric"] for cell in overview["cells"]} >= {"srg/mean", "iou"}
    assert (tmp_path / "removal" / "removal.png").exists()
    assert "mean rank" in found.output
    assert "[1.0" not in found.output
    page = (tmp_path / "index.html").read_bytes()
    for name in ("index.html", "removal/index.html"):
        (tmp_path / name).unlink()
    again = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert again.exit_code == 0, again.output
    assert (tmp_path / "index.html").read_bytes() == page
    assert (tmp_path / "removal" / "index.html").exists()
    titled = CliRunner().invoke(app, ["report", str(tmp_path), "--title", "All <of> it"])
    assert titled.exit_code == 0, titled.output
    assert "<h1>All &lt;of&gt; it</h1>" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cells": None}, "cells is not what it should be"),
        ({"mean ranks": {"grad": "1"}}, "mean ranks is not what it should be"),
        ({"notes": {"removal": [1]}}, "notes is not what it should be"),
        ({"images": {"../x": "1"}}, "images is not what it should be"),
    ],
)
def test_a_table_that_is_damaged_is_named(change, said, tmp_path):
    content = {"cells": [], "mean ranks": {}, "notes": {}, "images": {"../x": 1}}
    (tmp_path / "overview.json").write_text(json.dumps(content))
    assert "../x" not in write_overview_pages(tmp_path).read_text()
    (tmp_path / "overview.json").write_text(json.dumps(content | change))
    with pytest.raises(FileFormatError, match=rf"overview\.json is damaged, .*{said}"):
        write_overview_pages(tmp_path)
