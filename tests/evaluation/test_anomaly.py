import math

import numpy as np
import pytest
import torch

from dubium.data import Dataset
from dubium.errors import ImagesError, OptionError
from dubium.evaluation.methods import parse_methods
from dubium.evaluation.metrics.anomaly import best_boxes, box_iou, box_masks, localisation, plant, recovery
from dubium.evaluation.protocols import Evaluation, run_protocol
from tests.evaluation.handmade import Judge


def test_a_planted_box_that_is_marked_is_found_with_iou_one():
    x, corners = plant(torch.zeros(20, 1, 16, 16), torch.ones(3, 1, 16, 16), box=5, seed=1)
    assert torch.equal(best_boxes(x[:, 0], 5), corners)
    assert torch.equal(box_iou(best_boxes(x[:, 0], 5), corners, 5), torch.ones(20, dtype=torch.float64))


def test_planting_changes_the_box_alone_and_repeats_itself():
    x, source = torch.rand(10, 3, 16, 16), torch.rand(4, 3, 16, 16) + 2
    first, again = plant(x, source, box=6, seed=3), plant(x, source, box=6, seed=3)
    assert torch.equal(first.x, again.x)
    inside = box_masks(first.corners, 6, 16, 16)[:, None].expand_as(x)
    assert inside.sum() == 10 * 3 * 36
    assert torch.equal(first.x[~inside], x[~inside])
    assert (first.x[inside] >= 2).all()
    assert not torch.equal(plant(x, source, box=6, seed=4).corners, first.corners)


def test_patches_keep_their_place():
    source = torch.arange(64.0).view(1, 1, 8, 8) + 100
    x, _ = plant(torch.zeros(5, 1, 8, 8), source, box=3)
    assert ((x == 0) | (x == source)).all()


def test_equal_windows_give_the_first_row_by_row():
    assert best_boxes(torch.zeros(1, 8, 8), 3).tolist() == [[0, 0]]
    spot = torch.zeros(1, 8, 8)
    spot[0, 5, 6] = 1.0
    assert best_boxes(spot, 3).tolist() == [[3, 4]]  # nine windows hold the spot


def test_best_box_is_brute_forces_in_float64():
    maps = torch.randn(6, 13, 11, generator=torch.Generator().manual_seed(0)) * 1e4 + 1e6
    for found, one in zip(best_boxes(maps, 4), maps.double().numpy(), strict=True):
        means = {(r, c): one[r : r + 4, c : c + 4].sum() for r in range(10) for c in range(8)}
        assert tuple(found.tolist()) == max(means, key=means.get)


def test_sums_are_taken_in_float64():
    maps = torch.full((1, 9, 9), 1e7)
    maps[0, 6, 6] += 1  # lost in a float32 sum of sixteen
    assert best_boxes(maps, 4).tolist() == [[3, 3]]


def test_iou_by_hand():
    a, b = torch.tensor([[0, 0], [0, 0], [0, 0]]), torch.tensor([[0, 5], [10, 0], [9, 9]])
    np.testing.assert_allclose(box_iou(a, b).numpy(), [50 / 150, 0, 1 / 199])


def test_a_box_larger_than_the_image_is_refused(unchecked):
    with pytest.raises(OptionError, match="box"):
        best_boxes(torch.zeros(1, 8, 8), 9)
    with pytest.raises(ImagesError, match="source"):
        plant(torch.zeros(1, 1, 8, 8), torch.zeros(1, 3, 8, 8), box=2)


def test_localisation_against_masks():
    masks = torch.zeros(3, 4, 4, dtype=torch.bool)
    masks[:2, 1, 1:3] = True
    maps = masks.float()
    maps[1] = 0
    maps[1, 0, 0], maps[1, 1, 1], maps[1, 3, 3] = 2.0, 1.0, -4.0
    found = localisation(maps, masks)
    assert found["mask-iou"][:2].tolist() == [1.0, pytest.approx(1 / 3)]
    assert found["pointing"][:2].tolist() == [1.0, 0.0]
    assert found["mass"][:2].tolist() == [1.0, pytest.approx(1 / 3)]
    assert all(math.isnan(values[2]) for values in found.values())


def is_lit(x):
    return (x.amax((1, 2, 3)) > 0.5).long()


def test_recovery_is_one_where_the_box_that_goes_is_the_cause():
    x = torch.zeros(2, 1, 10, 10)
    x[:, :, 3:6, 4:7] = 1
    clean = torch.zeros(2, dtype=torch.long)
    found = recovery(is_lit, x, clean, torch.tensor([[3, 4], [0, 0]]), box=3)
    assert found.tolist() == [1.0, 0.0]


@pytest.mark.filterwarnings("ignore:All networks give the same")
def test_the_protocol_counts_recovery_where_the_patch_changed_the_prediction(tmp_path):
    dark = torch.zeros(24, 1, 8, 8)
    light = dark.clone()
    light[:, 0, 2, 3] = 1  # the one pixel that the networks look at: a patch that covers it makes them disagree
    data, donors = Dataset(dark, None, (), "dark", "test"), Dataset(light, None, (), "light", "train")
    networks = [Judge((2, 3), sign, strength=strength).eval() for sign, strength in ((-1.0, 9.0), (-1.0, 4.0))]
    methods = parse_methods(["grad"], 1)
    evaluation = Evaluation(networks, data, methods, ("epistemic",), tmp_path, other_data=donors)
    found = run_protocol("anomaly", evaluation, images=24, candidates=24, box=4)
    covers = [row <= 2 < row + 4 and column <= 3 < column + 4 for row, column in zip_corners(found["images"])]
    assert found["notes"] == [
        f"{sum(covers)} of 24 patches change the prediction: `recovery` is about these.",
        "With the planted box removed, `recovery` is 1.",
    ]
    assert 0 < sum(covers) < 24
    assert len(found["images"]["values"]["grad"]["recovery"]) == sum(covers) == len(found["images"]["index/recovery"])
    assert found["results"]["grad"]["recovery"]["value"] == 1.0  # its map is the one pixel, in any of its windows


def zip_corners(columns):
    return zip(columns["row"], columns["column"], strict=True)
