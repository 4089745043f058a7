"""What an evaluation will take, from the same on a few images: nothing is kept."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

from torch import nn

from dubium.checks import count_text
from dubium.data import Dataset
from dubium.errors import lookup
from dubium.estimate import Estimate
from dubium.evaluation.methods import explain_maps
from dubium.evaluation.metrics.scoring import scorer
from dubium.evaluation.protocols import PROTOCOLS, causes, mitigation
from dubium.evaluation.protocols.causes import PAIR, VARIANTS, CausesOptions
from dubium.evaluation.protocols.causes_networks import new_cause_network
from dubium.evaluation.protocols.evaluation import Evaluation, check_can_disagree, ignore_step, labelled_sets
from dubium.evaluation.protocols.mitigation import MitigationOptions
from dubium.executor import in_turn
from dubium.output_checks import AGREEMENT
from dubium.registry import load_function
from dubium.training.estimate import epoch_seconds
from dubium.training.loop import limit_images, network_for
from dubium.training.recipe import Recipe

FEW, MORE = 1, 3  # images of two trials; their difference is what more images take
CANDIDATES = 32  # images that the trials choose from
MAP_BYTES = 4  # of a pixel


class TrialCost(NamedTuple):
    """What a trial took."""

    seconds: float
    bytes: int


class Trainings(NamedTuple):
    """Networks that a protocol trains by itself, and what it does with them."""

    networks: int
    network: nn.Module
    recipe: Recipe
    data: Dataset
    members: int  # networks in the posterior that is explained
    scored: int  # images, over and over
    explained: int


def estimate_protocol(name: str, evaluation: Evaluation, *, scale: str = "cpu", **changes: Any) -> Estimate:
    """What `run_protocol` takes with the same arguments, from its beginning to its end."""
    protocol = lookup("protocol", PROTOCOLS, name)
    if protocol.needs_posterior:
        check_can_disagree(evaluation)
    options = load_function(protocol.options_path)(scale, evaluation.data, **changes)
    evaluation = replace(
        evaluation, on_step=ignore_step, executor=in_turn, known_digests={"weights": ""}, map_folder=None
    )
    if isinstance(options, CausesOptions):
        return estimate_trainings(evaluation, causes_trainings(evaluation, options))
    if isinstance(options, MitigationOptions):
        return estimate_trainings(evaluation, mitigation_trainings(evaluation, options))
    has_choice = hasattr(options, "candidates")  # otherwise all images are explained
    candidates = len(evaluation.data.subset(slice(getattr(options, "candidates", None))))
    images = min(options.images or candidates, candidates)
    scored = candidates * (2 if name == "anomaly" else len(evaluation.kinds)) if has_choice else 0
    tried = {"candidates": CANDIDATES} if has_choice else {}
    _, few, more = (
        time_trial(load_function(protocol.evaluate_path), evaluation, replace(options, images=count, **tried))
        for count in (FEW, FEW, MORE)  # the first warms up
    )
    further = max(0.0, (images - FEW) / (MORE - FEW))
    scoring = max(0, scored - CANDIDATES) * seconds_a_score(evaluation) if scored else 0.0
    seconds = few.seconds + scoring + further * max(0.0, more.seconds - few.seconds)
    return Estimate(
        describe_work(evaluation, scored, images),
        scored or images,
        scored * len(evaluation.posterior),
        images,
        seconds,
        round(few.bytes + further * (more.bytes - few.bytes)),
    )


def time_trial(evaluate: Callable[[Evaluation, Any], Any], evaluation: Evaluation, options: Any) -> TrialCost:
    """Run a protocol on a few images, and throw away what it writes."""
    with TemporaryDirectory() as temporary:
        start = perf_counter()
        evaluate(replace(evaluation, out=Path(temporary)), options)
        seconds = perf_counter() - start
        return TrialCost(seconds, sum(file.stat().st_size for file in Path(temporary).rglob("*") if file.is_file()))


def seconds_a_score(evaluation: Evaluation) -> float:
    """Seconds in which all networks score one image."""
    x = evaluation.data.batch(slice(CANDIDATES))
    score = scorer(evaluation.posterior, evaluation.kinds[0])
    score(x)
    start = perf_counter()
    score(x)
    return (perf_counter() - start) / len(x)


def describe_work(evaluation: Evaluation, scored: int, explained: int) -> str:
    scores = f"{scored:,} scores ({scored * len(evaluation.posterior):,} forward passes), " if scored else ""
    count = len(evaluation.methods)
    return f"{scores}{explained:,} images to explain by {count} methods (controls among them) and to measure"


def causes_trainings(evaluation: Evaluation, options: CausesOptions) -> Trainings:
    source, test, _, _ = labelled_sets(evaluation, "test", causes.NO_TRAINING)
    candidates = len(test.subset(slice(options.candidates)))
    planted = options.rounds * candidates
    scored = planted * len(VARIANTS) * len(PAIR)
    network, explained = new_cause_network(source, evaluation.seed), min(2 * options.images, planted)
    return Trainings(options.members, network, options.recipe, source, options.members, scored, explained)


def mitigation_trainings(evaluation: Evaluation, options: MitigationOptions) -> Trainings:
    training, test, _, _ = labelled_sets(evaluation, "train", mitigation.NO_TRAINING)
    data = training.sample(options.images)
    arms = options.seeds * (1 + len(evaluation.methods) * len(evaluation.kinds))
    members = len(evaluation.posterior)
    count = arms + (members if options.explainer == "subset" else 0)
    scored = count * min(options.test_images or len(test), len(test)) // max(1, members)
    return Trainings(count, network_for(options.recipe, 0), options.recipe, data, members, scored, len(data))


def estimate_trainings(evaluation: Evaluation, trainings: Trainings) -> Estimate:
    """Trainings, scores and maps, each from a few."""
    network, recipe = trainings.network, trainings.recipe
    images = len(limit_images(trainings.data, recipe.images))
    seconds = trainings.networks * recipe.epochs * epoch_seconds(network, recipe, trainings.data)
    evaluation = replace(evaluation, posterior=[network.eval()] * trainings.members)
    x = evaluation.data.batch(slice(MORE))

    def seconds_of_maps() -> float:
        start = perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=AGREEMENT)  # they are one network, as the trial may be
            for method in evaluation.methods:
                explain_maps(evaluation.posterior, x, method, evaluation.kinds)
        return perf_counter() - start

    seconds_of_maps()  # warms up
    seconds += trainings.scored * seconds_a_score(evaluation) + trainings.explained * seconds_of_maps() / len(x)
    passes = trainings.networks * recipe.epochs * images + trainings.scored * trainings.members
    weights = trainings.networks * sum(tensor.nbytes for tensor in network.state_dict().values())
    maps = trainings.explained * len(evaluation.methods) * len(evaluation.kinds) * x[0, 0].numel() * MAP_BYTES
    task = (
        f"{trainings.networks} networks to train on {images:,} images for {count_text(recipe.epochs, 'epoch')}, "
        f"{passes:,} forward passes in all, at most {trainings.explained:,} images to explain by "
        f"{len(evaluation.methods)} methods"
    )
    return Estimate(task, images, passes, trainings.explained, seconds, weights + maps)
