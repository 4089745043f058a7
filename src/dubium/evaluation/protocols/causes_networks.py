"""Networks for images with two causes: small, trained on marks that make labels ambiguous, and able to see them."""

from functools import partial

import torch
from torch import Tensor, nn

from dubium.data import Dataset
from dubium.evaluation.metrics.causes import cause_sides, draw_corners, plant_mark
from dubium.evaluation.protocols.evaluation import Evaluation, run_items
from dubium.evaluation.shards import ShardStore, cause_network_shard
from dubium.seeds import seed_for, temporary_seed
from dubium.training.loop import classify, fit
from dubium.training.recipe import Recipe

MARKED = 0.4  # of the training images, drawn anew for each batch
FILTERS, UNITS = 16, 64


class MaxBranchCNN(nn.Module):
    """Two convolutions and a dense branch, and beside it the maximum of a third one over the whole image.

    The maximum says whether a small thing is there at all, wherever it is; the dense branch alone hardly learns that.
    """

    def __init__(self, channels: int, height: int, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, FILTERS, 5, padding=2)
        self.conv2 = nn.Conv2d(FILTERS, 2 * FILTERS, 3, padding=1)
        self.conv3 = nn.Conv2d(2 * FILTERS, 2 * FILTERS, 3, padding=1)
        self.dense = nn.Linear(2 * FILTERS * (height // 4) * (width // 4), UNITS)
        self.output = nn.Linear(UNITS + 2 * FILTERS, classes)
        self.pool, self.maximum = nn.MaxPool2d(2), nn.AdaptiveMaxPool2d(1)
        self.relu, self.flatten = nn.ReLU(), nn.Flatten()

    def forward(self, x: Tensor) -> Tensor:
        features = self.pool(self.relu(self.conv1(x)))
        features = self.pool(self.relu(self.conv2(features)))
        dense = self.relu(self.dense(self.flatten(features)))
        highest = self.flatten(self.maximum(self.relu(self.conv3(features))))
        logits: Tensor = self.output(torch.cat([dense, highest], 1))
        return logits


def classify_with_marks(network: nn.Module, x: Tensor, labels: Tensor, *, classes: int) -> tuple[Tensor, Tensor]:
    """Cross-entropy where marked images are of their class or of the next one, with equal chance; an `Objective`."""
    draws = torch.Generator().manual_seed(int(torch.randint(2**31, ())))  # `fit` has seeded torch for this epoch
    marked = torch.rand(len(x), generator=draws, dtype=torch.float32) < MARKED
    side = cause_sides(*x.shape[2:]).mark
    corners = draw_corners(int(marked.sum()), side, x.shape[2:], draws)
    x, labels = x.clone(), labels.clone()
    x[marked] = plant_mark(x[marked], corners, side)
    labels[marked] = (labels[marked] + torch.randint(2, (len(corners),), generator=draws)) % classes
    return classify(network, x, labels)


def train_cause_networks(
    evaluation: Evaluation, store: ShardStore, data: Dataset, recipe: Recipe, members: int
) -> list[nn.Module]:
    """So many networks, each with a seed of its own; those that an earlier start has trained are read."""
    train = partial(_train_cause_network, store, data, recipe)
    return run_items(evaluation, train, range(members), "training networks")


def _train_cause_network(
    store: ShardStore, data: Dataset, recipe: Recipe, evaluation: Evaluation, member: int
) -> nn.Module:
    seed = seed_for(evaluation.seed, "causes", member)
    network = new_cause_network(data, seed)

    def train() -> dict[str, Tensor]:
        fit(network, data, recipe, seed=seed, objective=partial(classify_with_marks, classes=class_count(data)))
        return dict(network.state_dict())

    network.load_state_dict(store.compute_tensors(cause_network_shard(member), train))
    return network.eval()


def new_cause_network(data: Dataset, seed: int) -> nn.Module:
    """A network that has not been trained yet, for images and labels like these."""
    with temporary_seed(seed):
        return MaxBranchCNN(*data.shape, class_count(data))


def class_count(data: Dataset) -> int:
    assert data.labels is not None
    return int(data.labels.max()) + 1
