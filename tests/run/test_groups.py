from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubium.advice import LOOK, NOTHING
from dubium.report import causes
from dubium.report.causes import causes_section, group_name
from dubium.run import Settings, explain_dataset, open_results, open_work
from dubium.run import groups as groups_module
from dubium.run.groups import GRID, Groups, adjusted_rand_index, cut_tree, find_groups, group_images, hellinger_features
from dubium.run.row import Row
from tests import piles


def planted(noise=0.02):
    """Ten images of 4 or 9 with doubt at the top, seven of 3 or 5 at the top, five of 4 or 9 at the bottom."""
    rng = np.random.default_rng(0)
    probs, places = np.full((22, 10), 1e-3), np.full((22, GRID, GRID), 1e-3)
    for index in range(22):
        classes = (3, 5) if 10 <= index < 17 else (4, 9)
        probs[index, list(classes)] = 0.6 + noise * rng.normal(), 0.4 + noise * rng.normal()
        rows = slice(0, 2) if index < 17 else slice(4, 6)
        places[index, rows, 2:4] = 1 + noise * rng.random((2, 2))
    return probs / probs.sum(1, keepdims=True), places / places.sum((1, 2), keepdims=True)


def test_planted_groups_are_found_named_and_stable():
    probs, places = planted()
    scores = [0.9] * 10 + [0.7] * 7 + [0.5] * 5
    found = group_images([100 + n for n in range(22)], probs, places, scores)
    assert [sorted(group.ids) for group in found.groups] == [
        list(range(100, 110)),
        list(range(110, 117)),
        list(range(117, 122)),
    ]
    assert [group.classes for group in found.groups] == [(4, 9), (3, 5), (4, 9)]
    assert found.others == 0
    assert found.stability == 1
    assert [group.stability for group in found.groups] == [1, 1, 1]
    assert found.groups[0].chances == pytest.approx(probs[:10, [4, 9]].mean(0).tolist())
    np.testing.assert_allclose(found.groups[2].excess, places[17:].mean(0) - places.mean(0))
    assert group_name(found.groups[0], str) == "10 images: 4 or 9, top centre"
    assert group_name(found.groups[2], str) == "5 images: 4 or 9, bottom centre"


def test_groups_come_by_their_mean_total_score_not_by_their_size():
    probs, places = planted()
    scores = np.array([0.1] * 10 + [0.2] * 7 + [0.6, 0.2, 0.1, 0.4, 0.2])
    found = group_images(range(22), probs, places, scores.tolist())
    assert [len(group.ids) for group in found.groups] == [5, 7, 10]
    assert [group.score for group in found.groups] == pytest.approx([0.3, 0.2, 0.1])


def test_images_that_are_like_no_other_are_in_no_group():
    probs, places = np.eye(6) + 1e-6, np.full((6, GRID, GRID), GRID**-2.0)
    found = group_images(range(6), probs, places, [1.0] * 6)
    assert found.groups == ()
    assert found.others == 6


def test_distances_are_the_mean_square_of_hellingers():
    rng = np.random.default_rng(1)
    probs, places = rng.dirichlet(np.ones(4), 5), rng.dirichlet(np.ones(GRID**2), 5).reshape(5, GRID, GRID)
    points = hellinger_features(probs, places)
    for a, b in combinations(range(5), 2):
        of_probs = 1 - np.sqrt(probs[a] * probs[b]).sum()
        of_places = 1 - np.sqrt(places[a] * places[b]).sum()
        assert ((points[a] - points[b]) ** 2).sum() == pytest.approx((of_probs + of_places) / 2)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=12))
def test_the_adjusted_rand_index_counts_pairs(labels):
    one, other = (np.array(column) for column in zip(*labels, strict=True))
    pairs = list(combinations(range(len(labels)), 2))
    both = sum(one[a] == one[b] and other[a] == other[b] for a, b in pairs)
    first, second = sum(one[a] == one[b] for a, b in pairs), sum(other[a] == other[b] for a, b in pairs)
    expected, most = first * second / len(pairs), (first + second) / 2
    index = 1.0 if most == expected else (both - expected) / (most - expected)
    assert adjusted_rand_index(one, other) == pytest.approx(index)


def test_partitions_without_relation_have_an_index_near_zero():
    rng = np.random.default_rng(0)
    found = [adjusted_rand_index(rng.integers(0, 4, 200), rng.integers(0, 4, 200)) for _ in range(50)]
    assert abs(np.mean(found)) < 0.01


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    posterior = {"run": piles.posterior(folder / "posterior")}
    explain_dataset(open_work(Settings(posterior, {"dataset": piles.arrays(folder / "images.npz")})), folder / "a")
    return folder


def test_a_run_is_grouped_the_same_way_every_time(out):
    results = open_results(out / "a")
    first, again = find_groups(results, "epistemic"), find_groups(results, "epistemic")
    assert [group.ids for group in first.groups] == [group.ids for group in again.groups]
    assert first.stability == again.stability
    assert first.others + sum(len(group.ids) for group in first.groups) == 20
    text = causes_section(results, "epistemic", lambda k: piles.NAMES[k])
    assert f"drawn again: {first.stability:.2f} (1: always the same" in text
    assert "<cat>" not in text
    assert text.count("<section") == min(len(first.groups), causes.SHOWN) > 0
    example = first.groups[0].ids[0]
    assert "href=" not in text
    assert f'<a href="#image-{example}"><img' in causes_section(results, "epistemic", str, [example])


def test_images_that_the_networks_are_sure_of_are_in_no_group_and_counted_on_the_page(out, monkeypatch):
    results = open_results(out / "a")
    monkeypatch.setattr(Row, "full_advice", lambda row: NOTHING if row.id in (0, 3, 7) else LOOK)
    found = find_groups(results, "epistemic")
    assert not {0, 3, 7} & {index for group in found.groups for index in group.ids}
    assert found.sure == 3
    assert found.others + sum(len(group.ids) for group in found.groups) == 17
    assert "3 images that the networks are sure of were left out." in causes_section(results, "epistemic", str)
    monkeypatch.setattr(Row, "full_advice", lambda row: NOTHING if row.id > 10 else LOOK)
    assert find_groups(results, "epistemic") == Groups((), 11, 1.0, sure=9)


def test_without_scipy_the_page_says_how_to_have_groups(out, monkeypatch):
    def missing(_features):
        raise groups_module.import_extra("no_such_library", "groups")

    monkeypatch.setattr(groups_module, "cut_tree", missing)
    assert "pip install 'dubium[groups]'" in causes_section(open_results(out / "a"), "epistemic", str)


def test_one_image_is_one_group():
    assert cut_tree(np.zeros((1, 4))).tolist() == [0]
