"""Other ways to use doubt in training, each against the same thing with scores or maps that know nothing.

`weights`: more weight on doubtful images; its control shuffles the weights. `blur` and `cut`: a copy of each image with
its most doubtful pixels blurred, or set to the image's mean, takes the image's place half of the time. `gradients`: the
loss has a penalty on its own gradient at doubtful pixels. The controls of these three have random maps. `choice`: half
of the images are drawn, the others are chosen by the doubt of an ensemble trained on the first half; its control draws
them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dubium._explain import explain
from dubium.data import Dataset
from dubium.evaluation.metrics.blurring import pixel_ranks
from dubium.evaluation.metrics.gaussian_blur import gaussian_blur
from dubium.evaluation.metrics.scoring import scorer
from dubium.evaluation.protocols.evaluation import shard_slices
from dubium.evaluation.protocols.images import CHUNK
from dubium.evaluation.shards import ShardName, ShardStore
from dubium.reproduce.study import BLUR_PATH
from dubium.seeds import seed_for
from dubium.training.attention import mitigation_images
from dubium.training.loop import Objective, fit, network_for
from dubium.training.recipe import Recipe

MEMBERS, POOL = 3, 2000
PASSES = 4  # of the method whose maps are used
REPLACED, SIGMA = 0.15, 3.0  # part of the pixels that are blurred or cut out, and how much they are blurred
PENALTY = 0.03  # on squared gradients
PLAIN = "plain"


class Trial(NamedTuple):
    """What a strategy gets: images to train on, more to choose from, and how to train."""

    data: Dataset
    pool: Dataset
    recipe: Recipe
    seed: int
    is_control: bool
    store: ShardStore | None = None  # where strategies share networks


def train_plainly(trial: Trial) -> nn.Module:
    """No use of doubt at all."""
    return train_on(trial, trial.data)


def train_with_weights(trial: Trial) -> nn.Module:
    """Weights from one half to three halves, by the rank of an image's epistemic score."""
    x = trial.data.batch(slice(None))
    if trial.is_control:
        ranks = torch.randperm(len(x), generator=generator_of(trial))
    else:
        ranks = scorer(data_ensemble(trial))(x).argsort().argsort()
    weights = 0.5 + ranks / max(1, len(x) - 1)
    planes = weights.to(x).view(-1, 1, 1, 1).expand(-1, 1, *x.shape[2:])
    return train_on(trial, replace(trial.data, images=torch.cat([x, planes], 1)), weighted_objective)


def train_with_blurred_pixels(trial: Trial) -> nn.Module:
    """Half of the time an image has its most doubtful pixels blurred."""
    return train_with_pixels_from(trial, gaussian_blur(trial.data.batch(slice(None)), [SIGMA])[0])


def train_with_cut_pixels(trial: Trial) -> nn.Module:
    """Half of the time an image has its most doubtful pixels set to its mean colour."""
    x = trial.data.batch(slice(None))
    return train_with_pixels_from(trial, x.mean((2, 3), keepdim=True).expand_as(x))


def train_with_pixels_from(trial: Trial, other: Tensor) -> nn.Module:
    """Half of the time an image has its most doubtful pixels taken from the other version of it."""
    x, maps = trial.data.batch(slice(None)), doubt_maps(trial)
    chosen = (pixel_ranks(maps) < round(REPLACED * maps[0].numel()))[:, None]
    stacked = torch.cat([x, torch.where(chosen, other, x)], 1)
    return train_on(trial, replace(trial.data, images=stacked), two_copies_objective)


def train_with_flat_pixels(trial: Trial) -> nn.Module:
    """The loss shall not depend on doubtful pixels: a penalty on its gradient there."""
    x, maps = trial.data.batch(slice(None)), doubt_maps(trial).clamp_min(0)
    weights = maps / maps.mean((1, 2), keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)
    return train_on(trial, replace(trial.data, images=torch.cat([x, weights[:, None]], 1)), flat_objective)


def train_on_chosen_images(trial: Trial) -> nn.Module:
    """The second half of the images is chosen from a pool by epistemic score."""
    assert trial.data.labels is not None
    assert trial.pool.labels is not None
    half = len(trial.data) // 2
    first = trial.data.subset(slice(half))
    if trial.is_control:
        order = torch.randperm(len(trial.pool), generator=generator_of(trial))
    else:
        score = scorer(train_ensemble(trial, first))
        scores = torch.cat([score(trial.pool.batch(rows)) for rows in shard_slices(len(trial.pool), CHUNK)])
        order = scores.argsort(descending=True)
    second = trial.pool.subset(order[: len(trial.data) - half])
    assert first.labels is not None
    assert second.labels is not None
    together = torch.cat([first.images, second.images])
    return train_on(trial, replace(first, images=together, labels=torch.cat([first.labels, second.labels])))


STRATEGIES: Mapping[str, Callable[[Trial], nn.Module]] = {
    PLAIN: train_plainly,
    "weights": train_with_weights,
    "blur": train_with_blurred_pixels,
    "cut": train_with_cut_pixels,
    "gradients": train_with_flat_pixels,
    "choice": train_on_chosen_images,
}


def doubt_maps(trial: Trial) -> Tensor:
    """Epistemic maps of the trial's images (B, H, W), of networks trained on them; random ones for a control."""
    x = trial.data.batch(slice(None))
    if trial.is_control:
        return torch.rand(len(x), *x.shape[2:], generator=generator_of(trial))

    def compute() -> dict[str, Tensor]:
        return dict(explain(data_ensemble(trial), x, method=BLUR_PATH, kinds="epistemic", passes=PASSES).maps)

    shard = ShardName("maps", f"seed-{trial.seed}")
    found = compute() if trial.store is None else trial.store.compute_tensors(shard, compute)
    return found["epistemic"]


def generator_of(trial: Trial) -> torch.Generator:
    return torch.Generator().manual_seed(seed_for(trial.seed, "control", 0))


def train_on(trial: Trial, data: Dataset, objective: Objective | None = None) -> nn.Module:
    """A fresh network, the same first weights for all strategies of a seed."""
    assert data.labels is not None
    network = network_for(trial.recipe, trial.seed)
    images = mitigation_images(data.batch(slice(None)), data.labels)
    fit(network, images, trial.recipe, seed=trial.seed, objective=objective)
    return network.eval()


def train_ensemble(trial: Trial, data: Dataset) -> list[nn.Module]:
    """The networks whose doubt is used."""
    seeds = [seed_for(trial.seed, "explainer", member) for member in range(MEMBERS)]
    return [train_on(trial._replace(seed=seed), data) for seed in seeds]


def data_ensemble(trial: Trial) -> list[nn.Module]:
    """Networks trained on the trial's images; all strategies of a seed share them."""
    if trial.store is None:
        return train_ensemble(trial, trial.data)

    def train() -> dict[str, Tensor]:
        members = enumerate(train_ensemble(trial, trial.data))
        return {f"{index}/{name}": value for index, each in members for name, value in each.state_dict().items()}

    weights = trial.store.compute_tensors(ShardName("explainer", f"seed-{trial.seed}"), train)
    members = [network_for(trial.recipe, 0).eval() for _ in range(MEMBERS)]
    for index, network in enumerate(members):
        network.load_state_dict({name: weights[f"{index}/{name}"] for name in network.state_dict()})
    return members


def weighted_objective(network: nn.Module, stacked: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy times the weight of each image, which is its last channel."""
    x, weights = stacked[:, :-1], stacked[:, -1, 0, 0]
    logits = network(x)
    loss = (weights * F.cross_entropy(logits, labels, reduction="none")).mean()
    return loss, (logits.detach().argmax(1) == labels).sum()


def two_copies_objective(network: nn.Module, stacked: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy on one of the two copies of each image that are its channels, drawn anew each time."""
    x, other = stacked.chunk(2, 1)
    take_other = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
    logits = network(torch.where(take_other, other, x))
    return F.cross_entropy(logits, labels), (logits.detach().argmax(1) == labels).sum()


def flat_objective(network: nn.Module, stacked: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy, and the squares of its gradient times the weight of each pixel, which is the last channel."""
    x, weights = stacked[:, :-1].detach().requires_grad_(), stacked[:, -1:]
    logits = network(x)
    losses = F.cross_entropy(logits, labels, reduction="none")
    (slopes,) = torch.autograd.grad(losses.sum(), x, create_graph=True)
    penalty = (weights * slopes.square()).sum((1, 2, 3)).mean()
    return losses.mean() + PENALTY * penalty, (logits.detach().argmax(1) == labels).sum()
