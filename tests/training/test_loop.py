"""The loop against the plainest one, and its promises."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dubium.data import Dataset
from dubium.errors import DivergedError, FileFormatError, OptionError
from dubium.training import RECIPES, Recipe, fit, network_for, predict, recipe_for
from dubium.training.augment import random_crop, random_flip

TINY = {"filters": 2, "units": 8, "size": 12, "dropout": 0.25}


def make(count=50, seed=0, size=12):
    draws = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 1, size, size), generator=draws, dtype=torch.uint8)
    return Dataset(images, torch.arange(count) % 10, tuple("0123456789"), "made", "train")


def weights(network):
    return torch.cat([w.flatten() for w in network.state_dict().values()])


def test_one_epoch_is_the_plain_loop_exactly():
    data, recipe = make(), Recipe(options={**TINY, "dropout": 0.0}, epochs=1, batch_size=50, lr=0.1, weight_decay=1e-3)
    network, plain = network_for(recipe, 3), network_for(recipe, 3)
    record = fit(network, data, recipe, seed=3).history[0]
    optimizer = torch.optim.SGD(plain.parameters(), 0.1, 0.9, weight_decay=1e-3)
    loss = F.cross_entropy(plain(data.images.float() / 255), data.labels)
    loss.backward()
    optimizer.step()
    torch.testing.assert_close(weights(network), weights(plain))
    assert record["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert not network.training


def test_it_learns_what_can_be_learnt():
    data = make(40)
    recipe = Recipe(options={**TINY, "filters": 8, "units": 32, "dropout": 0.0}, epochs=40, batch_size=10, lr=0.05)
    network = network_for(recipe, 0)
    fit(network, data, recipe)
    assert (predict(network, data).argmax(1) == data.labels).float().mean() > 0.95


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_cut_after_any_epoch_ends_with_the_same_bits(optimizer, stop, tmp_path):
    data = make()
    recipe = Recipe(options=TINY, epochs=4, batch_size=16, lr=0.01, cycles=1, crop=2, flip=True, optimizer=optimizer)

    class Cut(Exception):
        pass

    def cut(epoch, _network, kept):
        kept["seen"] = kept.get("seen", torch.zeros(())) + epoch
        if epoch == stop + 1 and cutting:
            raise Cut

    whole = network_for(recipe, 0)
    cutting = False
    expected = fit(whole, data, recipe, on_epoch=cut)
    cutting = True
    with pytest.raises(Cut):
        fit(network_for(recipe, 0), data, recipe, checkpoint=tmp_path / "c.safetensors", on_epoch=cut)
    cutting = False
    torch.rand(7)  # what others draw does not matter
    resumed = network_for(recipe, 0)
    progress = fit(resumed, data, recipe, checkpoint=tmp_path / "c.safetensors", on_epoch=cut)
    assert torch.equal(weights(resumed), weights(whole))
    assert progress.kept["seen"] == expected.kept["seen"] == 10
    assert [h["loss"] for h in progress.history] == [h["loss"] for h in expected.history]


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    recipe = Recipe(options=TINY, epochs=1)
    fit(network_for(recipe, 1), make(), recipe)
    assert torch.equal(torch.rand(3), expected)


def test_seeds_differ_and_repeat():
    recipe, data = Recipe(options=TINY, epochs=1, batch_size=16, lr=0.01), make()
    runs = []
    for seed in (0, 1, 0):
        network = network_for(recipe, seed)
        fit(network, data, recipe, seed=seed)
        runs.append(weights(network))
    assert torch.equal(runs[0], runs[2])
    assert not torch.equal(runs[0], runs[1])


def test_a_loss_that_is_no_number_stops_with_advice():
    recipe = Recipe(options=TINY, epochs=2, lr=1e30)
    with pytest.raises(DivergedError, match=r"epoch 2.*Try a lower learning rate \(lr 1e\+29"):
        fit(network_for(recipe, 0), make(), recipe)


@pytest.mark.parametrize(
    ("epochs", "lr", "said"),
    [(1, 1e30, "The loss is no longer a number"), (1, 1e4, r"The loss is .*e\+"), (2, 1e4, r"The loss is .*e\+")],
)
def test_a_network_that_its_last_step_lost_is_no_result(epochs, lr, said, tmp_path):
    recipe = Recipe(options=TINY, epochs=epochs, lr=lr)
    for _ in range(2):  # also where the checkpoint has all epochs
        with pytest.raises(DivergedError, match=rf"{said}.*Try a lower learning rate"):
            fit(network_for(recipe, 0), make(), recipe, checkpoint=tmp_path / "c.safetensors")


def test_a_checkpoint_of_another_network_or_a_damaged_one_is_refused(tmp_path):
    path, recipe = tmp_path / "c.safetensors", Recipe(options=TINY, epochs=1)
    fit(network_for(recipe, 0), make(), recipe, checkpoint=path)
    other = recipe.changed(options={**TINY, "units": 9})
    with pytest.raises(FileFormatError, match="does not fit"):
        fit(network_for(other, 0), make(), other, checkpoint=path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(FileFormatError, match="damaged"):
        fit(network_for(recipe, 0), make(), recipe, checkpoint=path)


def test_crops_are_shifts_of_the_padded_image_and_flips_mirror():
    x = torch.randint(1, 256, (200, 2, 6, 6), dtype=torch.uint8)
    padded = F.pad(x, (2, 2, 2, 2))
    crops = random_crop(x, 2, torch.Generator().manual_seed(0))
    found = set()
    for image, crop in zip(padded, crops, strict=True):
        shifts = [(i, j) for i in range(5) for j in range(5) if torch.equal(image[:, i : i + 6, j : j + 6], crop)]
        assert len(shifts) == 1
        found |= set(shifts)
    assert len(found) == 25
    flips = random_flip(x, torch.Generator().manual_seed(0))
    mirrored = [torch.equal(a.flip(-1), b) for a, b in zip(x, flips, strict=True)]
    same = [torch.equal(a, b) for a, b in zip(x, flips, strict=True)]
    assert all(m != s for m, s in zip(mirrored, same, strict=True))
    assert 60 < sum(mirrored) < 140


def test_learning_rates_fall_as_the_paper_says():
    recipe = RECIPES["cifar-10"]["paper"]
    rates = [recipe.learning_rate(epoch) for epoch in (0.0, 29.9, 30.0, 60.0, 90.0)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.001, 0.0001])
    cosine = Recipe(epochs=10, lr=0.2, cycles=2)
    assert [cosine.learning_rate(t) for t in (0.0, 2.5, 5.0, 7.5)] == pytest.approx([0.2, 0.1, 0.2, 0.1])
    tailed = Recipe(epochs=12, tail=2, tail_lr=0.03, cycles=1, lr=0.2)
    assert [tailed.learning_rate(t) for t in (0.0, 5.0, 10.0, 11.9)] == pytest.approx([0.2, 0.1, 0.03, 0.03])


def test_the_papers_recipes_are_those_of_appendix_b():
    found = {
        name: (
            r.architecture,
            r.epochs,
            r.batch_size,
            r.optimizer,
            r.lr,
            r.momentum,
            r.milestones,
            bool(r.crop),
            r.flip,
        )
        for name, scales in RECIPES.items()
        for r in [scales["paper"]]
        if name != "fashion-mnist"
    }
    assert found == {
        "mnist": ("cnn", 30, 128, "sgd", 0.1, 0.9, (), False, False),
        "svhn": ("cnn", 50, 64, "sgd", 0.1, 0.9, (15, 30), True, True),
        "cifar-10": ("resnet18", 100, 128, "sgd", 0.1, 0.9, (30, 60, 90), True, True),
        "cifar-100": ("resnet18", 200, 64, "sgd", 0.1, 0.9, (60, 120, 160), True, True),
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "at least 1"),
        ({"lr": math.nan}, "above 0"),
        ({"optimizer": "sdg"}, "'sgd' or 'adam'"),
        ({"cycles": 1, "milestones": (3,)}, "one of them"),
        ({"mean": (0.5,)}, "both or neither"),
        ({"learning": 1}, "No training option called 'learning'"),
    ],
)
def test_impossible_recipes_are_refused(values, message):
    with pytest.raises(OptionError, match=message):
        Recipe().changed(**values)


def test_recipes_survive_json_and_fit_their_images():
    recipe = Recipe(mean=(0.5,), std=(0.25,), milestones=(1, 2), options={"filters": 3})
    assert Recipe.from_json(recipe.to_json()) == recipe
    made = recipe_for(make(size=16), "smoke", {"lr": 0.5, "options": {"units": 5}})
    assert (made.lr, made.options["units"], made.options["size"], made.options["classes"]) == (0.5, 5, 16, 10)
    other = recipe_for(make(size=16), "smoke", {"architecture": "cifar-resnet"})
    assert dict(other.options) == {"channels": 1, "classes": 10}
    assert isinstance(network_for(other, 0), nn.Module)
