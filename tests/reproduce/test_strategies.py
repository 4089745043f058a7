"""Uses of doubt in training, with networks that are watched instead of trained."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from dubium.data import Dataset
from dubium.evaluation.shards import ShardStore
from dubium.reproduce import strategies
from dubium.reproduce.added_jobs import strategy_jobs, strategy_labels
from dubium.reproduce.strategies import (
    STRATEGIES,
    Trial,
    flat_objective,
    train_on_chosen_images,
    train_with_blurred_pixels,
    train_with_cut_pixels,
    train_with_flat_pixels,
    train_with_weights,
    two_copies_objective,
    weighted_objective,
)
from dubium.training.loop import network_for
from dubium.training.recipe import Recipe


def dataset(count, start=0):
    images = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(start))
    return Dataset(images, torch.arange(start, start + count) % 2, ("a", "b"), "mine", "train")


@pytest.fixture
def watched(monkeypatch):
    """The data of every training; doubt is the mean brightness of an image."""
    found = []

    def train_on(trial, data, objective=None):
        found.append((data, objective))
        return torch.nn.Identity()

    monkeypatch.setattr(strategies, "train_on", train_on)
    monkeypatch.setattr(strategies, "train_ensemble", lambda trial, data: [])
    monkeypatch.setattr(strategies, "scorer", lambda posterior: lambda x: x.mean((1, 2, 3)))
    return found


def trial(*, is_control=False):
    return Trial(dataset(6), dataset(20, 100), Recipe(epochs=1), 0, is_control)


def test_weights_follow_the_rank_of_doubt_and_their_control_is_the_same_weights_shuffled(watched):
    train_with_weights(trial())
    train_with_weights(trial(is_control=True))
    weights, shuffled = (data.images[:, -1, 0, 0] for data, _ in watched)
    order = dataset(6).images.mean((1, 2, 3)).argsort()
    assert torch.allclose(weights[order], torch.linspace(0.5, 1.5, 6))
    assert torch.allclose(shuffled.sort().values, torch.linspace(0.5, 1.5, 6))
    assert not torch.equal(weights, shuffled)


def test_chosen_images_are_the_most_doubtful_of_the_pool_and_the_first_half_stays(watched):
    train_on_chosen_images(trial())
    data, _ = watched[0]
    pool = dataset(20, 100)
    order = pool.images.mean((1, 2, 3)).argsort(descending=True)[:3]
    assert torch.equal(data.images[:3], dataset(6).images[:3])
    assert torch.equal(data.images[3:], pool.images[order])
    assert torch.equal(data.labels[3:], pool.labels[order])


def test_the_control_of_a_choice_has_as_many_images(watched):
    train_on_chosen_images(trial(is_control=True))
    assert len(watched[0][0]) == 6


def test_blurred_copies_differ_in_the_highest_pixels_only(watched, monkeypatch):
    top_row = torch.zeros(6, 8, 8)
    top_row[:, 0, :] = 1.0
    found = SimpleNamespace(maps={"epistemic": top_row})
    monkeypatch.setattr(strategies, "explain", lambda *args, **options: found)
    monkeypatch.setattr(strategies, "REPLACED", 8 / 64)
    train_with_blurred_pixels(trial())
    x, blurred = watched[0][0].images.chunk(2, 1)
    assert torch.equal(x[:, :, 1:], blurred[:, :, 1:])
    assert (x[:, :, 0] != blurred[:, :, 0]).all()


def test_cut_copies_have_the_mean_in_the_highest_pixels_only(watched, monkeypatch):
    top_row = torch.zeros(6, 8, 8)
    top_row[:, 0, :] = 1.0
    monkeypatch.setattr(strategies, "explain", lambda *args, **options: SimpleNamespace(maps={"epistemic": top_row}))
    monkeypatch.setattr(strategies, "REPLACED", 8 / 64)
    train_with_cut_pixels(trial())
    x, cut = watched[0][0].images.chunk(2, 1)
    assert torch.equal(x[:, :, 1:], cut[:, :, 1:])
    assert torch.allclose(cut[:, :, 0], x.mean((2, 3))[..., None].expand(6, 1, 8))


def test_the_controls_of_maps_are_random_and_do_not_ask_the_networks(watched, monkeypatch):
    monkeypatch.setattr(strategies, "explain", None)
    for train in (train_with_blurred_pixels, train_with_cut_pixels, train_with_flat_pixels):
        train(trial(is_control=True))
    weights = watched[-1][0].images[:, -1]
    assert torch.allclose(weights.mean((1, 2)), torch.ones(6), atol=1e-5)


def test_the_penalty_is_the_squared_gradient_of_each_image_times_its_weights():
    x, labels = dataset(4).images, torch.tensor([0, 1, 0, 1])
    weights = torch.rand(4, 1, 8, 8)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    loss, right = flat_objective(network, torch.cat([x, weights], 1), labels)
    logits = network(x)
    errors = logits.softmax(1) - F.one_hot(labels, 2)  # the gradient of cross-entropy at the logits
    slopes = (errors @ network[1].weight).view_as(x)
    expected = F.cross_entropy(logits, labels) + strategies.PENALTY * (weights * slopes**2).sum((1, 2, 3)).mean()
    assert torch.allclose(loss, expected)
    assert right == (logits.argmax(1) == labels).sum()
    loss.backward()
    assert network[1].weight.grad.abs().sum() > 0


def test_strategies_of_a_seed_share_their_ensemble(tmp_path, monkeypatch):
    calls = []

    def train_on(trial, data, objective=None):
        calls.append(trial.seed)
        return network_for(trial.recipe, trial.seed).eval()

    monkeypatch.setattr(strategies, "train_on", train_on)
    recipe = Recipe("cnn", {"classes": 2, "filters": 2, "units": 4, "size": 8}, epochs=1)
    stored = trial()._replace(recipe=recipe, store=ShardStore.open(tmp_path, {}))
    first, again = strategies.data_ensemble(stored), strategies.data_ensemble(stored)
    alone = strategies.data_ensemble(stored._replace(store=None))
    assert len(calls) == 2 * strategies.MEMBERS  # once with the store, once without
    x = dataset(6).images
    for one, two, three in zip(first, again, alone, strict=True):
        assert torch.equal(one(x), three(x))
        assert torch.equal(two(x), three(x))


def test_weighted_objective():
    x, labels = dataset(4).images, torch.tensor([0, 1, 0, 1])
    weights = torch.tensor([0.5, 1.0, 1.5, 1.0])
    stacked = torch.cat([x, weights.view(-1, 1, 1, 1).expand(-1, 1, 8, 8)], 1)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    loss, _ = weighted_objective(network, stacked, labels)
    expected = (weights * F.cross_entropy(network(x), labels, reduction="none")).mean()
    assert torch.allclose(loss, expected)


def test_each_image_is_one_of_its_two_copies():
    seen = []

    class Watch(torch.nn.Module):
        def forward(self, x):
            seen.append(x)
            return torch.zeros(len(x), 2, requires_grad=True)

    x, other = torch.zeros(64, 1, 2, 2), torch.ones(64, 1, 2, 2)
    torch.manual_seed(0)
    two_copies_objective(Watch(), torch.cat([x, other], 1), torch.zeros(64, dtype=torch.long))
    means = seen[0].mean((1, 2, 3))
    assert set(means.tolist()) == {0.0, 1.0}
    assert 16 < means.sum() < 48


def test_every_strategy_has_its_control_in_the_table():
    assert strategy_labels() == (
        "plain", "weights", "weights: control", "blur", "blur: control", "cut", "cut: control",
        "gradients", "gradients: control", "choice", "choice: control",
    )  # fmt: skip
    assert set(STRATEGIES) == {label.partition(":")[0] for label in strategy_labels()}


def test_fresh_seeds_and_the_other_dataset_have_what_helped_and_its_control():
    jobs = {job.name: job for job in strategy_jobs("cpu")}
    assert jobs.pop("strategies-mnist").methods == strategy_labels()
    assert list(jobs) == ["strategies-cifar-10", "strategies-mnist-again", "strategies-cifar-10-again"]
    assert {job.methods for job in jobs.values()} == {("plain", "choice", "choice: control")}
    assert [job.options["first seed"] for job in jobs.values()] == [0, 10, 10]
