"""Two causes at known places: planting, pointing and reacting with exact oracles, and the protocol from end to end."""

import json

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from dubium.cli import app
from dubium.data import Dataset
from dubium.errors import ImagesError, OptionError
from dubium.evaluation.methods import parse_methods
from dubium.evaluation.metrics.causes import (
    Reactions,
    are_apart,
    cause_sides,
    plant_mark,
    plant_patch,
    plant_two_causes,
    points_at,
    ring_mark,
    score_reactions,
)
from dubium.evaluation.protocols import Evaluation, run_protocol
from dubium.evaluation.protocols.causes import cause_measurements, first_rows
from dubium.evaluation.protocols.causes_networks import classify_with_marks
from dubium.report.protocols import write_figures


def test_the_mark_is_a_ring_with_a_dot():
    assert ring_mark(7).int().tolist() == [
        [0, 0, 1, 1, 1, 0, 0],
        [0, 1, 1, 0, 1, 1, 0],
        [1, 1, 0, 0, 0, 1, 1],
        [1, 0, 0, 1, 0, 0, 1],
        [1, 1, 0, 0, 0, 1, 1],
        [0, 1, 1, 0, 1, 1, 0],
        [0, 0, 1, 1, 1, 0, 0],
    ]


def test_a_mark_brightens_its_box_alone():
    x = torch.full((2, 1, 12, 12), 0.5)
    found = plant_mark(x, torch.tensor([[0, 0], [4, 5]]), 7)
    expected = x.clone()
    expected[0, 0, :7, :7] = expected[1, 0, 4:11, 5:12] = 0.5 + 0.5 * ring_mark(7)
    assert torch.equal(found, expected)


def test_a_patch_is_the_middle_of_its_donor():
    donors = torch.arange(2 * 2 * 64.0).view(2, 2, 8, 8)
    found = plant_patch(torch.zeros(2, 2, 8, 8), donors, torch.tensor([[0, 0], [5, 4]]), 3)
    assert torch.equal(found[0, :, :3, :3], donors[0, :, 2:5, 2:5])
    assert torch.equal(found[1, :, 5:8, 4:7], donors[1, :, 2:5, 2:5])
    assert found.count_nonzero() == 2 * 2 * 9


def test_causes_lie_apart_and_repeat_themselves():
    x = torch.rand(300, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    planted, again = plant_two_causes(x, x, seed=4), plant_two_causes(x, x, seed=4)
    assert torch.equal(planted.both, again.both)
    assert are_apart(planted.mark, planted.patch, cause_sides(28, 28)).all()
    changed = [(a != x).flatten(1).sum(1) for a in (planted.both, planted.with_mark, planted.with_patch)]
    assert torch.equal(changed[0], changed[1] + changed[2])
    assert not torch.equal(planted.mark, plant_two_causes(x, x, seed=5).mark)


@pytest.mark.parametrize(
    ("mark", "patch", "apart"), [((0, 0), (0, 8), True), ((0, 0), (0, 7), False), ((12, 0), (1, 0), True)]
)
def test_apart_leaves_a_pixel_between(mark, patch, apart):
    sides = cause_sides(28, 28)
    assert are_apart(torch.tensor([mark]), torch.tensor([patch]), sides).item() is apart


def test_a_map_points_at_the_box_that_its_best_window_lies_in():
    maps = torch.zeros(3, 28, 28)
    maps[0, 10:13, 4:7] = 1  # several windows hold it: the first, row by row, has its middle at 9.5, 3.5
    maps[1, 2:8, 20:26] = 1
    mark, patch = torch.tensor([[8, 2]] * 3), torch.tensor([[0, 18]] * 3)
    assert points_at(maps, mark, 7, 6).tolist() == [1.0, 0.0, 0.0]
    assert points_at(maps, patch, 10, 6).tolist() == [0.0, 1.0, 0.0]


def test_strict_reactions_leave_the_other_kind_alone():
    with_mark = torch.tensor([[0.5, 0.0], [0.5, 0.0], [0.5, 0.0], [0.1, 0.0]])
    with_patch = torch.tensor([[0.1, 0.1], [0.1, 0.0], [0.1, 0.1], [0.1, 0.1]])
    both = torch.tensor([[0.5, 0.1], [0.5, 0.1], [0.7, 0.1], [0.1, 0.1]])
    found = score_reactions(both, with_mark, with_patch)
    assert found.loose.tolist() == [True, True, True, False]
    assert found.strict.tolist() == [True, False, False, False]


def test_each_set_has_its_own_first_images():
    reactions = Reactions(torch.tensor([True, True, True, True]), torch.tensor([False, False, True, True]))
    assert {name: rows.tolist() for name, rows in first_rows(reactions, 2).items()} == {
        "strict": [2, 3],
        "loose": [0, 1],  # not the strict ones besides
    }


def test_the_two_by_two_table_of_perfect_maps():
    mark, patch = torch.tensor([[0, 0]] * 3), torch.tensor([[15, 15]] * 3)
    at_mark, at_patch = torch.zeros(2, 3, 28, 28)
    at_mark[:, :7, :7], at_patch[:, 15:25, 15:25] = 1, 1
    planted, sets = {"mark": mark, "patch": patch}, {"strict": torch.tensor([True, True, False])}
    aleatoric = cause_measurements(at_mark, planted, sets, "aleatoric")
    epistemic = cause_measurements(at_patch, planted, sets, "epistemic")
    assert {name: found.per_image.tolist() for name, found in (aleatoric | epistemic).items()} == {
        "mark@strict/aleatoric": [1, 1],
        "patch@strict/aleatoric": [0, 0],
        "own-other@strict/aleatoric": [1, 1],
        "mark@strict": [0, 0],
        "patch@strict": [1, 1],
        "own-other@strict": [1, 1],
    }


class Recorder(nn.Module):
    """Keeps what it is shown."""

    def forward(self, x):
        self.seen = x
        return torch.zeros(len(x), 10, requires_grad=True)


def test_marked_images_have_their_label_or_the_next_one():
    network, x = Recorder(), torch.zeros(4000, 1, 28, 28)
    labels = torch.full((4000,), 9)
    torch.manual_seed(0)
    classify_with_marks(network, x, labels, classes=10)
    marked = network.seen.flatten(1).any(1)
    assert marked.double().mean().item() == pytest.approx(0.4, abs=0.03)
    assert (network.seen[marked].sum((1, 2, 3)) == ring_mark(7).sum()).all()
    assert not x.any()
    assert (labels == 9).all()  # the caller's own


def quarters():
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 4
    x = torch.rand(40, 1, 16, 16, generator=draws) * 0.2
    for image, label in zip(x, labels, strict=True):
        image[0, 4 * label : 4 * label + 4, 6:10] = 1
    return Dataset(x, labels, tuple("abcd"), "quarters", "test")


def test_the_protocol_repeats_itself_and_trains_no_network_twice(tmp_path):
    data = quarters()
    summaries = []
    for out in ("first", "again"):
        evaluation = Evaluation((), data, parse_methods(["grad"], 1), ("epistemic",), tmp_path / out, other_data=data)
        summaries.append(run_protocol("causes", evaluation, scale="smoke"))
    assert summaries[0]["results"] == summaries[1]["results"]
    weights = list((tmp_path / "first" / "shards" / "causes").iterdir())
    before = [file.stat().st_mtime_ns for file in weights]
    evaluation = Evaluation(
        (), data, parse_methods(["input-grad"], 1), ("epistemic",), tmp_path / "first", other_data=data
    )
    run_protocol("causes", evaluation, scale="smoke")
    assert len(before) == 2
    assert [file.stat().st_mtime_ns for file in weights] == before
    assert {path.name for path in write_figures(tmp_path / "first")} == {"causes.png", "two-by-two.png"}
    assert set(summaries[0]["reactions"]) == {"clean", "mark", "patch", "both"}


def test_images_without_labels_or_too_small_are_refused(tmp_path):
    small = Dataset(torch.rand(8, 1, 8, 8), torch.arange(8) % 2, ("a", "b"), "small", "test")
    for data, error in ((small, ImagesError), (Dataset(small.images, None, (), "blank", "test"), OptionError)):
        evaluation = Evaluation((), data, (), ("epistemic",), tmp_path / data.name, other_data=data)
        with pytest.raises(error):
            run_protocol("causes", evaluation, scale="smoke")


def test_the_command_needs_no_posterior(own, tmp_path):
    arguments = ["--dataset", str(own / "images.npz"), "--scale", "smoke", "--methods", "grad", "--out", str(tmp_path)]
    found = CliRunner().invoke(app, ["evaluate", "causes", *arguments, "--threads", "1"])
    assert found.exit_code == 0, found.output
    assert json.loads((tmp_path / "summary.json").read_text())["protocol"] == "causes"
