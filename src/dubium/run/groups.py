"""Recurrent causes of doubt: explained images that are doubtful about the same classes at the same place.

Two images are compared by what they are confused about (their mean probabilities) and by where (their map, smoothed
and summed over a coarse grid). Each is a distribution, and the distance between two distributions is Hellinger's, from
0 (the same) to 1 (nothing in common); the two are averaged as squares. Average linkage joins images into groups until
the mean distance between two groups exceeds `APART`. How stable the groups are is measured by doing it again with
images drawn at random. Images that the networks are sure of have no doubt to group, and are left out.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch.nn.functional import adaptive_avg_pool2d

from dubium.advice import NOTHING
from dubium.figures import smooth_map
from dubium.posteriors.optional_imports import import_extra
from dubium.regions import SIDE_PER_SMOOTH
from dubium.run.store import Results, Row

GRID = 6  # cells a side, on which maps are compared
FINE = 48  # pixels a side, to which larger maps are shrunk before they are smoothed
APART = 0.35  # mean distance at which two groups stay apart
FEWEST = 3  # images that make a group
ENOUGH = 12  # doubtful images below which there is nothing to group
MOST = 2000  # images that are compared; all pairs of them are
DRAWS = 20  # of the bootstrap

Features = Float[np.ndarray, "n features"]
Labels = NDArray[np.int64]
Draw = tuple[NDArray[np.int64], Labels]
"""Which images were drawn, and the group of each."""


@dataclass(frozen=True)
class Group:
    """Images that are alike in their doubt.

    Args:
        ids: of all its images, those nearest to its middle first.
        classes: the two that its images are most confused about.
        chances: the mean probability of each of the two.
        excess: the group's mean map minus that of all images, (GRID, GRID): where it has more of its doubt than they.
        stability: the mean Jaccard index with the most similar group of each bootstrap draw, from 0 to 1.
        score: the mean total uncertainty in nats.
    """

    ids: tuple[int, ...]
    classes: tuple[int, int]
    chances: tuple[float, float]
    excess: NDArray[np.float64]
    stability: float
    score: float


@dataclass(frozen=True)
class Groups:
    """The groups of a run, the most doubtful first; images in none of them are counted by `others`.

    `sure` counts the images that were left out, since the networks are sure of them: their advice is `none`.

    `stability` is the mean adjusted Rand index between the partition and those of the bootstrap draws: 1 if they are
    all the same, 0 if they are alike by chance only.
    """

    groups: tuple[Group, ...]
    others: int
    stability: float
    sure: int = 0


def find_groups(results: Results, kind: str, *, seed: int = 0) -> Groups:
    """Group the doubtful ones of a run's explained images, or the most uncertain `MOST` of them.

    Args:
        results: of a run whose images have maps.
        kind: of the maps.
        seed: of the bootstrap.
    """
    known = results.rows(results.explained, pictures=False)
    doubtful = {row.id: row.scores()[kind] for row in known if row.full_advice() != NOTHING}
    chosen = set(heapq.nlargest(MOST, doubtful, key=lambda index: (doubtful[index], -index)))
    rows = (row for row in results.rows(results.explained) if row.id in chosen and kind in row.stored_maps())
    ids, scores, probs, grid_maps = list[int](), list[float](), list[NDArray[np.float64]](), list[NDArray[np.float64]]()
    for row in rows:
        ids.append(row.id)
        scores.append(row.total)
        probs.append(row.probs.astype(np.float64))
        grid_maps.append(map_on_grid(row, kind))
    if len(ids) < ENOUGH:
        found = Groups((), len(ids), 1.0)
    else:
        found = group_images(ids, np.stack(probs), np.stack(grid_maps), scores, seed=seed)
    return replace(found, sure=results.explained_count() - len(doubtful))


def map_on_grid(row: Row, kind: str) -> NDArray[np.float64]:
    """A row's smoothed map as a distribution over GRID x GRID cells; even where the map is zero."""
    values = torch.from_numpy(row.coarse_maps()[kind].copy()).double().clamp_min(0)
    height, width = (min(side, FINE) for side in values.shape)
    smoothed = smooth_map(adaptive_avg_pool2d(values[None], (height, width))[0], max(height, width) / SIDE_PER_SMOOTH)
    cells = adaptive_avg_pool2d(smoothed[None], (GRID, GRID))[0].numpy()
    return np.asarray(cells / cells.sum() if cells.sum() > 0 else np.full((GRID, GRID), GRID**-2.0))


def group_images(
    ids: Sequence[int],
    probs: Float[np.ndarray, "n K"],
    grid_maps: Float[np.ndarray, "n GRID GRID"],
    scores: Sequence[float],
    *,
    seed: int = 0,
) -> Groups:
    """Groups of images, from what they are confused about and where; by their mean score, highest first."""
    features = hellinger_features(probs, grid_maps)
    labels = cut_tree(features)
    draws = bootstrap_partitions(features, seed)
    rand = [adjusted_rand_index(labels[drawn], other) for drawn, other in draws]
    groups = []
    for number in np.unique(labels):
        members = np.flatnonzero(labels == number)
        if len(members) >= FEWEST:
            ordered = members[np.argsort(distances_to_mean(features[members]), kind="stable")]
            about = describe_members(probs[members], grid_maps[members], grid_maps.mean(0))
            about |= {"stability": mean_jaccard(members, draws), "score": float(np.asarray(scores)[members].mean())}
            groups.append(Group(tuple(ids[n] for n in ordered), **about))
    groups.sort(key=lambda group: (-group.score, group.ids))
    return Groups(tuple(groups), len(ids) - sum(len(group.ids) for group in groups), float(np.mean(rand)))


def distances_to_mean(features: Features) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(features - features.mean(0), axis=1))


def describe_members(
    probs: Float[np.ndarray, "n K"], grid_maps: Float[np.ndarray, "n GRID GRID"], usual: Float[np.ndarray, "GRID GRID"]
) -> dict[str, Any]:
    """What a group's images are confused about, and where, beside where images of the run usually are."""
    mean = probs.mean(0)
    first, second = (int(k) for k in np.argsort(-mean, kind="stable")[:2])
    chances = float(mean[first]), float(mean[second])
    return {"classes": (first, second), "chances": chances, "excess": grid_maps.mean(0) - usual}


def hellinger_features(probs: Float[np.ndarray, "n K"], grid_maps: Float[np.ndarray, "n GRID GRID"]) -> Features:
    """Points whose Euclidean distance is the root mean square of the two Hellinger distances."""
    parts = np.sqrt(probs / probs.sum(1, keepdims=True)), np.sqrt(grid_maps.reshape(len(grid_maps), -1))
    return np.concatenate(parts, 1) / 2


def cut_tree(features: Features) -> Labels:
    """The number of each point's group, by average linkage."""
    if len(features) < 2:
        return np.zeros(len(features), np.int64)
    hierarchy = import_extra("scipy.cluster.hierarchy", "groups")
    tree = hierarchy.linkage(features, method="average")
    return np.asarray(hierarchy.fcluster(tree, APART, criterion="distance"), np.int64)


def bootstrap_partitions(features: Features, seed: int) -> list[Draw]:
    """Groups of images drawn with replacement, each counted once."""
    rng, draws = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        drawn = np.unique(rng.integers(0, len(features), len(features)))
        draws.append((drawn, cut_tree(features[drawn])))
    return draws


def mean_jaccard(members: NDArray[np.int64], draws: Sequence[Draw]) -> float:
    """How well a group is found again: its Jaccard index with the most similar group of a draw, on average."""
    found = []
    for drawn, labels in draws:
        inside = np.isin(drawn, members)
        if inside.any():
            numbers = np.unique(labels[inside])
            overlaps = [(inside & (labels == n)).sum() / (inside | (labels == n)).sum() for n in numbers]
            found.append(float(max(overlaps)))
    return float(np.mean(found)) if found else 0.0


def adjusted_rand_index(one: Labels, other: Labels) -> float:
    """How far two partitions agree about pairs, with chance as 0 and equality as 1 (Hubert and Arabie, 1985).

    >>> round(adjusted_rand_index(np.array([0, 0, 1, 2]), np.array([0, 0, 1, 1])), 6)
    0.571429
    """
    _, rows = np.unique(one, return_inverse=True)
    _, columns = np.unique(other, return_inverse=True)
    table = np.zeros((rows.max() + 1, columns.max() + 1))
    np.add.at(table, (rows, columns), 1)
    together, in_one, in_other = (float((n * (n - 1) / 2).sum()) for n in (table, table.sum(1), table.sum(0)))
    pairs = len(one) * (len(one) - 1) / 2
    expected, most = in_one * in_other / pairs if pairs else 0.0, (in_one + in_other) / 2
    return 1.0 if most == expected else (together - expected) / (most - expected)
