"""Two causes at known places: does each kind's map find its own?"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from dubium.data import Dataset
from dubium.evaluation.metrics.causes import (
    Reactions,
    TwoCauses,
    cause_sides,
    plant_two_causes,
    points_at,
    score_reactions,
)
from dubium.evaluation.metrics.scoring import scorer
from dubium.evaluation.protocols.causes_networks import train_cause_networks
from dubium.evaluation.protocols.evaluation import Evaluation, labelled_sets, metric_name, skipped_notes
from dubium.evaluation.protocols.images import compute_maps, labels_at
from dubium.evaluation.protocols.options import change_options
from dubium.evaluation.shards import PLANTED_SHARD, ShardStore, method_shard
from dubium.evaluation.statistics import bootstrap, mean
from dubium.evaluation.summary import EvaluationSummary, Measurement
from dubium.fingerprint import dataset_fingerprint
from dubium.training.recipe import Recipe
from dubium.types import Images, Kind

PAIR: tuple[Kind, ...] = ("aleatoric", "epistemic")
OWN = {"aleatoric": "mark", "epistemic": "patch"}
NO_TRAINING = "no network can be trained on them"
SETS = ("strict", "loose")
VARIANTS = ("clean", "mark", "patch", "both")
EXAMPLES = 6  # images that figures show
RECIPE = Recipe(architecture="max-branch-cnn", epochs=6, batch_size=64, optimizer="adam", lr=2e-3, cycles=1)


@dataclass(frozen=True)
class CausesOptions:
    """How many images of each set, of how many candidates (None: all), each planted with causes in so many rounds; how
    many networks, and how they are trained."""

    images: int = 1000
    candidates: int | None = None
    rounds: int = 5
    members: int = 4
    recipe: Recipe = RECIPE

    def settings(self) -> dict[str, Any]:
        return {**vars(self), "recipe": self.recipe.to_json()}


def causes_options(scale: str, _data: Dataset, *, epochs: int | None = None, **changes: Any) -> CausesOptions:
    """Not the paper's: 16,000 images and 6 epochs for a CPU, all images and 12 epochs where time allows."""
    options = CausesOptions(recipe=RECIPE.changed(images=16000))
    if scale == "paper":
        options = replace(options, recipe=RECIPE.changed(epochs=12))
    if scale == "smoke":
        options = CausesOptions(4, 24, 1, 2, RECIPE.changed(epochs=1, images=24, batch_size=8))
    return change_options(replace(options, recipe=options.recipe.changed(epochs=epochs)), changes)


def evaluate_causes(evaluation: Evaluation, options: CausesOptions) -> dict[str, Any]:
    """Train networks, plant two causes in each image, and look for each of them in each kind's map.

    The evaluation's own posterior is not asked: networks must have learned what the mark means.

    Returns:
        What is in `summary.json`; `reactions` there says how the scores themselves react.
    """
    source, data, places, about_sets = labelled_sets(evaluation, "test", NO_TRAINING)
    kinds = tuple(dict.fromkeys([*PAIR, *evaluation.kinds]))
    evaluation = replace(evaluation, data=data, kinds=kinds, posterior=(), known_digests={}, posterior_name="")
    settings = {**evaluation.settings(), **options.settings(), "training": f"{source.name}:{source.split}"}
    settings["training data"] = dataset_fingerprint(source)
    store = ShardStore.open(evaluation.out, settings)
    networks = train_cause_networks(evaluation, store, source, options.recipe, options.members)
    evaluation = replace(evaluation, posterior=networks)
    planted = store.compute_tensors(PLANTED_SHARD, partial(_plant_causes, evaluation, options))
    sets = {name: planted[name] for name in SETS}
    measurements: dict[str, dict[str, Measurement]] = {}
    for label, maps in compute_maps(evaluation, store, planted["x"]).items():
        measurements[label] = {}
        for kind in kinds:
            measurements[label] |= cause_measurements(maps[kind], planted, sets, kind)
    images: dict[str, list[Any]] = {
        "index": (planted["index"] if places is None else places[planted["index"]]).tolist(),
        "label": labels_at(data, planted["index"]),
        **{name: member.tolist() for name, member in sets.items()},
    }
    settings |= {"methods": evaluation.method_labels()}
    reactions = reaction_table(planted["scores"])
    notes = reaction_notes(reactions, planted, len(planted["scores"]))
    notes += [*about_sets, *skipped_notes(data, source)]
    extra = {"reactions": reactions}
    return EvaluationSummary("causes", settings, images, measurements, notes=notes, extra=extra).write(evaluation.out)


def _plant_causes(evaluation: Evaluation, options: CausesOptions) -> dict[str, Tensor]:
    """The first images of each set with their causes, and the scores of all candidates in every variant."""
    data = evaluation.data if options.candidates is None else evaluation.data.subset(slice(options.candidates))
    rounds = [_plant_round(evaluation, data.batch(slice(None)), number) for number in range(options.rounds)]
    scores = torch.cat([found for _, found in rounds])  # (rounds * B, variants, kinds)
    reactions = score_reactions(scores[:, 3], scores[:, 1], scores[:, 2])
    sets = first_rows(reactions, options.images)
    chosen = torch.cat(list(sets.values())).unique()
    if not len(chosen):  # where nothing reacts, there is something to look at all the same
        chosen = torch.arange(min(options.images, len(scores)))
    return {
        "x": torch.cat([planted.both for planted, _ in rounds])[chosen],
        "mark": torch.cat([planted.mark for planted, _ in rounds])[chosen],
        "patch": torch.cat([planted.patch for planted, _ in rounds])[chosen],
        "index": chosen % len(data),
        "scores": scores,
        "count": torch.tensor([int(reactions.strict.sum()), int(reactions.loose.sum())]),
        **{name: torch.isin(chosen, rows) for name, rows in sets.items()},
    }


def _plant_round(evaluation: Evaluation, x: Images, number: int) -> tuple[TwoCauses, Tensor]:
    """Every image with causes at places of this round, and its scores in every variant, (B, variants, kinds)."""
    planted = plant_two_causes(x, x, seed=evaluation.seed + number)
    variants = (x, planted.with_mark, planted.with_patch, planted.both)
    scores = torch.stack([_scores_of_pair(evaluation, images) for images in variants], 1)
    evaluation.on_step(f"causes planted: round {number + 1}")
    return planted, scores


def _scores_of_pair(evaluation: Evaluation, x: Images) -> Float[Tensor, "B kinds=2"]:
    return torch.stack([scorer(evaluation.posterior, kind)(x) for kind in PAIR], 1)


def first_rows(reactions: Reactions, count: int) -> dict[str, Int64[Tensor, " n"]]:
    """The first `count` images of each set, whatever the other set has."""
    return {name: getattr(reactions, name).nonzero()[:count, 0] for name in SETS}


def cause_measurements(
    maps: Tensor, planted: Mapping[str, Tensor], sets: Mapping[str, Tensor], kind: Kind
) -> dict[str, Measurement]:
    """How often one kind's map points at each cause, over each set of images that is not empty."""
    sides = cause_sides(*maps.shape[1:])
    found = {
        "mark": points_at(maps, planted["mark"], sides.mark, sides.window).numpy(),
        "patch": points_at(maps, planted["patch"], sides.patch, sides.window).numpy(),
    }
    if kind in OWN:
        own, other = (OWN[kind], "patch" if OWN[kind] == "mark" else "mark")
        found["own-other"] = found[own] - found[other]
    members = {name: member.numpy() for name, member in sets.items()}
    members |= {} if any(member.any() for member in members.values()) else {"none": np.ones(len(maps), bool)}
    return {
        metric_name(f"{name}@{which}", kind): Measurement(v[member], mean, v[member], name == "own-other" or None)
        for which, member in members.items()
        if member.any()
        for name, v in found.items()
    }


def reaction_table(scores: Float[Tensor, "B variants=4 kinds=2"]) -> dict[str, dict[str, Any]]:
    """Mean score of each kind in each variant of all candidates, with its interval."""
    return {
        variant: {kind: vars(bootstrap(scores[:, v, k].numpy(), mean)) for k, kind in enumerate(PAIR)}
        for v, variant in enumerate(VARIANTS)
    }


def reaction_notes(reactions: Mapping[str, Any], planted: Mapping[str, Tensor], candidates: int) -> list[str]:
    """What the scores do, in sentences: where they do not react, no map can be right."""
    means = [
        f"{kind}: " + ", ".join(f"{variant} {reactions[variant][kind]['value']:.3g}" for variant in VARIANTS)
        for kind in PAIR
    ]
    strict, loose = planted["count"].tolist()
    return [
        f"Mean scores of {candidates} images with causes, in nats. {'; '.join(means)}.",
        f"On {loose} images the mark raises aleatoric and the patch epistemic uncertainty (@loose); "
        f"on {strict} of them neither raises the other kind (@strict).",
    ]


@dataclass(frozen=True)
class CausesExamples:
    """A few images with both causes, the places of the causes, and each method's maps by kind."""

    x: Images
    corners: dict[str, Tensor]
    maps: dict[str, dict[Kind, Tensor]]


def read_causes_examples(store: ShardStore, settings: Mapping[str, Any]) -> CausesExamples:
    """What figures show: images of the strict set first."""
    planted = store.read_tensors(PLANTED_SHARD)
    rows = planted["strict"].int().argsort(descending=True, stable=True)[:EXAMPLES]
    maps = {}
    for label in settings["methods"]:
        starts = range(0, len(planted["x"]), settings["shard"])
        shards = [store.read_tensors(method_shard(label, start)) for start in starts]
        maps[label] = {kind: torch.cat([shard[kind] for shard in shards])[rows] for kind in PAIR}
    return CausesExamples(planted["x"][rows], {name: planted[name][rows] for name in ("mark", "patch")}, maps)
