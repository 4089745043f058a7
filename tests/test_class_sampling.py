"""`classes=n`: fewer maps, the same on average, and complete in every draw."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dubium
from dubium import class_sampling, errors
from dubium.attribution import Context
from dubium.class_sampling import (
    PILOT,
    SAFETY_FACTOR,
    TOLERANCE,
    class_weights,
    count_points,
    enough_classes,
    start_offsets,
)
from dubium.shares import class_shares
from dubium.softmax_share import softmax_share
from tests.networks import Awkward, ensemble, images, small_cnn
from tests.oracles import relative_l1

KINDS = ("total", "aleatoric", "epistemic")


def shares_on_logits(networks=2, batch=2, classes=7, tau1=0.3, seed=0):
    logits = 3 * torch.randn(networks, batch, classes, generator=torch.Generator().manual_seed(seed))
    return softmax_share(class_shares(logits), logits, tau1)


def everywhere(value, networks=1):
    return torch.full((networks, 1, 1), value, dtype=torch.float64)


@pytest.fixture
def lines(monkeypatch):
    """The intervals that points were dropped on, as they are handed to `count_points`."""
    seen = []

    def noted(chances, offset):
        seen.append(chances)
        return count_points(chances, offset)

    monkeypatch.setattr(class_sampling, "count_points", noted)
    return seen


def partition(lines):
    """Ranges of the offset in which the same classes are drawn, as (length, middle)."""
    ends = torch.cat([line.cumsum(-1).flatten() % 1 for line in lines])
    cuts = [0.0, *sorted(set(ends.tolist())), 1.0]
    return [(after - before, (before + after) / 2) for before, after in pairwise(cuts) if after - before > 1e-12]


def test_points_fall_on_each_interval_as_often_as_it_is_long():
    chances = torch.tensor([0.3, 0.0, 1.0, 0.45, 2.25], dtype=torch.float64)[None, None]
    # intervals end at .3, .3, 1.3, 1.75 and 4
    by_hand = {0.1: [1, 0, 1, 0, 2], 0.29: [1, 0, 1, 0, 2], 0.31: [0, 0, 1, 1, 2], 0.8: [0, 0, 1, 0, 3]}
    for offset, hits in by_hand.items():
        assert count_points(chances, everywhere(offset)).flatten().tolist() == hits
    mean = sum(length * count_points(chances, everywhere(middle)) for length, middle in partition([chances]))
    torch.testing.assert_close(mean, chances, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6])
@pytest.mark.parametrize(("classes", "tau1"), [(7, 0.3), (7, 0.01), (30, 0.55), (2, 0.1)])
def test_weights_are_the_shares_on_average_over_every_offset(count, classes, tau1, lines):
    for share in shares_on_logits(classes=classes, tau1=tau1).split(1):
        wanted = torch.full((2,), count)
        class_weights(share, wanted, everywhere(0.5))
        mean = sum(length * class_weights(share, wanted, everywhere(at)) for length, at in partition(lines))
        torch.testing.assert_close(mean, share, rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=200)
@given(
    classes=st.integers(2, 300),
    count=st.integers(1, 40),
    tau1=st.floats(0.005, 10),
    networks=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_every_draw_is_complete_and_small(classes, count, tau1, networks, seed):
    share = shares_on_logits(networks, 3, classes, tau1, seed)
    weights = class_weights(share, torch.full((3,), count), start_offsets(networks, seed))
    assert (weights >= 0).all()
    assert ((weights > 0).sum(-1)[:, 1:] <= count).all()
    torch.testing.assert_close(weights.sum(-1), share.sum(-1), rtol=1e-9, atol=1e-15)
    torch.testing.assert_close(weights[:, 0], weights[:, 1] + weights[:, 2], rtol=1e-9, atol=1e-15)


def test_shares_that_are_alike_are_drawn_once():
    share = shares_on_logits(2, 3, 100, tau1=0.55)
    weights = class_weights(share, torch.full((3,), 20), start_offsets(2, 0))
    together = (weights[:, 1:] > 0).any(1).sum(-1)
    assert together.max() <= 24  # 40 if each kind had classes of its own


@pytest.mark.parametrize(("aleatoric", "epistemic"), [(1, 1), (1, 0), (0, 1)])
def test_a_class_with_more_than_its_part_is_always_there_with_its_own_share(aleatoric, epistemic):
    scores = torch.tensor([aleatoric + epistemic, aleatoric, epistemic], dtype=torch.float64)
    share = scores[None, :, None, None] * torch.tensor([0.5, 0.2, 0.1, 0.1, 0.1], dtype=torch.float64)
    for at in (0.01, 0.3, 0.77):
        found = class_weights(share, torch.tensor([3]), everywhere(at))[0, :, 0]
        for score, weights in zip(scores.tolist(), found.tolist(), strict=True):
            assert weights[0] == pytest.approx(0.5 * score)
            assert sorted(weights[1:]) == pytest.approx([0, 0, 0.25 * score, 0.25 * score])


def test_images_may_have_counts_of_their_own():
    share = shares_on_logits(2, 3, 30)
    each = class_weights(share, torch.tensor([2, 30, 9]), start_offsets(2, 1))
    for b, count in enumerate((2, 30, 9)):
        alone = class_weights(share[:, :, b : b + 1], torch.tensor([count]), start_offsets(2, 1))
        assert torch.equal(each[:, :, b : b + 1], alone)
    assert torch.equal(each[:, :, 1], share[:, :, 1])


def test_networks_draw_different_classes_of_equal_ones():
    equal = torch.tensor([2.0, 1.0, 1.0], dtype=torch.float64)[:, None, None].expand(4, 3, 1, 20) / 20
    weights = class_weights(equal, torch.tensor([5]), start_offsets(4, 0))
    assert (weights[:, 0, 0] > 0).sum(0).tolist() == [1] * 20


@pytest.mark.parametrize("relevance", ["fullgrad", "grad", "ig", "grad-cam"])
def test_maps_equal_a_loop_over_the_classes_drawn(relevance):
    networks, x = ensemble(lambda: small_cnn(3, classes=9), 2), images(3, 3)
    options = {"steps": 3} if relevance == "ig" else {}
    result = dubium.explain(networks, x, relevance=relevance, classes=3, seed=5, **options)
    logits = torch.stack([network(x) for network in networks]).detach()
    weights = class_weights(softmax_share(class_shares(logits), logits, 0.55), torch.full((3,), 3), start_offsets(2, 5))
    for t, kind in enumerate(KINDS):
        maps = torch.zeros(3, 12, 12, dtype=torch.float64)
        for s, network in enumerate(networks):
            for b in range(3):
                for k in weights[s, t, b].nonzero().flatten().tolist():
                    extra = {"context": Context(signed=False)} if relevance == "ig" else {}
                    function = dubium.attribution.RELEVANCES[relevance]
                    (where,) = function(network, x[b : b + 1], lambda z, k=k: z[:, k : k + 1], **options, **extra)[0]
                    maps[b] += weights[s, t, b, k] * (where / 0.02).flatten().softmax(0).view(12, 12) / 2
        assert relative_l1(result.maps[kind], maps).max() < 1e-5


def test_maps_are_the_exact_ones_on_average_over_every_offset(monkeypatch, lines):
    networks, x = ensemble(lambda: small_cnn(classes=5), 2), images(2)
    exact = dubium.explain(networks, x)
    monkeypatch.setattr("dubium.class_sampling.start_offsets", lambda networks, _seed: everywhere(0.5, networks))
    dubium.explain(networks, x, classes=2)
    mean = dict.fromkeys(KINDS, 0)
    for length, at in partition(lines):
        monkeypatch.setattr(
            "dubium.class_sampling.start_offsets", lambda networks, _seed, at=at: everywhere(at, networks)
        )
        maps = dubium.explain(networks, x, classes=2).maps
        mean = {kind: mean[kind] + length * maps[kind] for kind in KINDS}
    for kind in KINDS:
        assert relative_l1(mean[kind], exact.maps[kind]).max() < 1e-6


@pytest.mark.parametrize("make", [lambda: small_cnn(3, classes=40), lambda: Awkward(3, classes=40)])
@pytest.mark.parametrize("classes", [1, 2, 7, 39])
@pytest.mark.parametrize("tau1", [0.05, 0.55])
def test_sampled_maps_are_complete_positive_and_add_up(make, classes, tau1):
    result = dubium.explain(ensemble(make), images(3, 3), classes=classes, tau1=tau1)
    for kind in KINDS:
        assert (result.maps[kind] >= 0).all()
        torch.testing.assert_close(result.maps[kind].sum((1, 2)), result.scores[kind], rtol=1e-5, atol=0)
    torch.testing.assert_close(
        result.maps["total"], result.maps["aleatoric"] + result.maps["epistemic"], rtol=1e-4, atol=1e-9
    )


@pytest.mark.parametrize("classes", [6, 7, 10**30])
def test_as_many_classes_as_there_are_give_the_exact_maps(classes):
    networks, x = ensemble(lambda: small_cnn(classes=6)), images(2)
    exact, sampled = dubium.explain(networks, x), dubium.explain(networks, x, classes=classes)
    assert all(torch.equal(exact.maps[kind], sampled.maps[kind]) for kind in KINDS)


def test_two_classes_can_be_sampled():
    networks, x = ensemble(lambda: small_cnn(classes=2)), images(2)
    result = dubium.explain(networks, x, classes=1)
    torch.testing.assert_close(result.maps["total"].sum((1, 2)), result.scores["total"], rtol=1e-5, atol=0)


def test_a_seed_decides_the_draw():
    networks, x = ensemble(lambda: small_cnn(classes=40)), images(2)
    first, again, other = (dubium.explain(networks, x, classes=4, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.maps["epistemic"], again.maps["epistemic"])
    assert not torch.equal(first.maps["epistemic"], other.maps["epistemic"])


@pytest.mark.parametrize("classes", [5, "auto"])
def test_a_draw_depends_neither_on_the_batch_nor_on_the_memory_nor_on_the_kinds(classes):
    networks, x = ensemble(lambda: small_cnn(classes=40)), images(8)
    together = dubium.explain(networks, x, classes=classes)
    little = dubium.explain(networks, x, classes=classes, memory="60KiB")
    one_kind = dubium.explain(networks, x, classes=classes, kinds="epistemic")
    assert relative_l1(little.maps["total"], together.maps["total"]).max() < 1e-5
    assert relative_l1(one_kind.maps["epistemic"], together.maps["epistemic"]).max() < 1e-5
    for b in range(8):
        alone = dubium.explain(networks, x[b : b + 1], classes=classes)
        for kind in KINDS:
            assert relative_l1(together.maps[kind][b : b + 1], alone.maps[kind]).max() < 1e-5


def test_a_kind_alone_costs_n_maps_an_image_and_no_doubt_costs_none():
    networks, x = ensemble(lambda: small_cnn(classes=40)), images(2)
    rows = []

    def counted(network, x, target):
        maps = dubium.attribution.grad(network, x, target)
        rows.append(maps.shape[:2].numel())
        return maps

    dubium.explain(networks, x, relevance=counted, classes=5, kinds="epistemic")
    rows.remove(1)  # of the one call that checks, with one target, whether maps are of targets
    assert 0 < sum(rows) <= 3 * 2 * 5
    rows.clear()
    with pytest.warns(UserWarning, match="one network"):
        result = dubium.explain(networks[:1], x, relevance=counted, classes=5, kinds="epistemic")
    assert not rows
    assert (result.maps["epistemic"] == 0).all()
    with pytest.warns(UserWarning, match="one network"):
        result = dubium.explain(networks[:1], x, relevance=counted, classes=5)
    rows.remove(1)
    assert sum(rows) <= 2 * 5
    assert torch.equal(result.maps["total"], result.maps["aleatoric"])


@pytest.mark.parametrize("classes", [3, "auto"])
def test_progress_of_a_sampled_run_ends_at_the_end(classes):
    steps = []
    networks = ensemble(lambda: small_cnn(classes=40))
    dubium.explain(networks, images(4), classes=classes, progress=lambda done, total: steps.append((done, total)))
    assert steps == sorted(set(steps))
    assert steps[-1] == (12, 12)


@pytest.mark.parametrize("relevance", ["fullgrad", "grad", "input-grad"])
@pytest.mark.parametrize("memory", ["1GiB", "100KB"])
def test_images_with_classes_of_their_own_go_together_and_equal_one_by_one(relevance, memory):
    networks, x = ensemble(lambda: small_cnn(classes=40)), images(4)
    function, sizes = dubium.attribution.RELEVANCES[relevance], []

    def alone(network, x, target):  # a function of the user's is not known to take targets image by image
        sizes.append(len(x))
        return function(network, x, target)

    together, apart = (
        dubium.explain(networks, x, relevance=how, classes=7, memory=memory).maps["epistemic"]
        for how in (relevance, alone)
    )
    assert set(sizes) == {1}
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-8)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("classes", [0, -1, 1.5, "some", True, [3]])
def test_a_bad_number_of_classes_is_refused_with_what_would_do(classes):
    with pytest.raises(errors.OptionError, match="'all', 'auto' or a whole number greater than 0 is") as caught:
        dubium.explain(ensemble(small_cnn), images(1), classes=classes)
    assert f"classes={classes!r}" in str(caught.value)


def test_auto_says_what_it_chose_and_uses_it():
    networks, x = ensemble(lambda: small_cnn(classes=60)), images(3)
    auto = dubium.explain(networks, x, classes="auto", kinds=("epistemic", "total"))
    picked = auto.extras["classes"]["epistemic"]
    assert torch.equal(picked, auto.extras["classes"]["total"])
    assert ((picked >= PILOT) & (picked <= 60)).all()
    for b in range(3):
        same = dubium.explain(networks, x[b : b + 1], classes=int(picked[b]))
        assert relative_l1(auto.maps["total"][b : b + 1], same.maps["total"]).max() < 1e-5


def test_auto_traces_all_of_a_few_classes():
    networks, x = ensemble(small_cnn), images(2)
    auto = dubium.explain(networks, x, classes="auto")
    assert auto.extras["classes"]["total"].tolist() == [4, 4]
    assert torch.equal(auto.maps["total"], dubium.explain(networks, x).maps["total"])


def test_enough_classes_solves_for_the_tolerance():
    pilot = torch.rand(6, 2, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pilot[0, 1] = pilot[0, 0]
    pilot /= pilot.sum((2, 3), keepdim=True)
    count = enough_classes(pilot, 1000)
    assert count[0] == PILOT  # no difference: the fewest
    for (first, second), n in zip(pilot[1:], count[1:].double(), strict=True):
        difference = (first - second).abs().sum()

        def error(n, difference=difference):
            return SAFETY_FACTOR * difference * ((1 / n - 1 / 1000) / (1 / PILOT - 1 / 1000)) ** 0.5

        assert error(n) <= TOLERANCE + 1e-12
        assert n == PILOT or error(n - 1) > TOLERANCE
