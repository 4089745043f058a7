"""Retraining on few images under attention, against no attention and random maps, over several seeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from dubium.checks import check_number
from dubium.data import Dataset
from dubium.errors import DivergedError, OptionError, lookup
from dubium.evaluation.metrics.calibration import BINS
from dubium.evaluation.protocols.evaluation import Evaluation, few_images_notes, labelled_sets, run_items, skipped_notes
from dubium.evaluation.protocols.images import compute_maps
from dubium.evaluation.protocols.mitigation_arm import NO_ATTENTION, Arm, Attention, arm_measurements, train_arm
from dubium.evaluation.protocols.options import change_options
from dubium.evaluation.shards import ShardStore, arm_shard, example_shard, explainer_shard, method_shard
from dubium.evaluation.summary import EvaluationSummary, Measurement
from dubium.fingerprint import dataset_fingerprint
from dubium.seeds import seed_for
from dubium.training.attention import MITIGATION, attention_weights
from dubium.training.loop import fit, network_for
from dubium.training.recipe import Recipe
from dubium.training.recipes import RECIPES, network_sizes
from dubium.types import Images

IMAGES = {"mnist": 500, "cifar-10": 1000, "svhn": 2000, "cifar-100": 4000}  # Sec. 5.2.2
MAPS = 50  # images explained at a time
NO_TRAINING = "nothing can be trained or tested on them"
EXAMPLES = 6  # images that figures show


@dataclass(frozen=True)
class MitigationOptions:
    """`explainer`: whose maps; "subset" (an ensemble trained on the same few images) or "run" (the posterior)."""

    images: int = 500
    seeds: int = 5
    recipe: Recipe = MITIGATION
    attention: Attention = field(default_factory=Attention)
    explainer: str = "subset"
    test_images: int | None = None

    def settings(self) -> dict[str, Any]:
        """What decides a shard's content; the number of seeds does not, since more may be added."""
        return {
            "images": self.images,
            "recipe": self.recipe.to_json(),
            "how": vars(self.attention),
            "explainer": self.explainer,
            "test_images": self.test_images,
        }


def mitigation_options(scale: str, data: Dataset, *, epochs: int | None = None, **changes: Any) -> MitigationOptions:
    """The paper's; half its epochs for a CPU; next to nothing for a test.

    Args:
        epochs: of each training; the recipe's milestones move with them.
        changes: fields of `MitigationOptions` and of `Attention`.
    """
    options = _default_options(scale, data)
    if epochs is not None:
        milestones = tuple(round(epochs * at / options.recipe.epochs) for at in options.recipe.milestones)
        changes["recipe"] = options.recipe.changed(epochs=epochs, milestones=milestones)
    attention = {name: changes.pop(name) for name in ("alpha", "normalisation", "space") if name in changes}
    if "alpha" in attention:
        check_number("alpha", attention["alpha"])
    options = change_options(options, changes)
    lookup("explainer", dict.fromkeys(("subset", "run")), options.explainer)
    return replace(options, attention=replace(options.attention, **attention))


def _default_options(scale: str, data: Dataset) -> MitigationOptions:
    channels, height, width = data.shape
    if height != width:
        raise OptionError(
            f"The images are {height} x {width}; the new networks that mitigation trains (cnn3) take square ones. If "
            f"yours take these too: --input-shape {channels},{height},{height} (input_shape= in Python). Networks that "
            "take no square images have no part in this protocol; dubium.mitigate(network, maps, images, labels) in "
            "Python trains one of them with attention."
        )
    known = RECIPES.get(data.name, {}).get("paper", MITIGATION)
    recipe = replace(MITIGATION, options=network_sizes("cnn3", data), mean=known.mean, std=known.std)
    if scale == "smoke":
        tiny = {**recipe.options, "filters": 4, "units": 16, "dropout": 0.1}
        recipe = recipe.changed(options=tiny, epochs=2, batch_size=16, milestones=(), lr=0.05)
        return MitigationOptions(24, 2, recipe, test_images=24)
    if scale == "cpu":
        recipe = recipe.changed(epochs=60, milestones=(15, 30, 45))
    return MitigationOptions(IMAGES.get(data.name, 500), 5, recipe)


class Experiment(NamedTuple):
    """What every training needs."""

    arms: list[Arm]
    data: Dataset
    test: Dataset
    options: MitigationOptions


def evaluate_mitigation(evaluation: Evaluation, options: MitigationOptions) -> dict[str, Any]:
    """Train every arm with every seed on a few images, and test each on images it has not seen.

    Returns:
        What is in `summary.json`.
    """
    sets = labelled_sets(evaluation, "train", NO_TRAINING)
    evaluation, test = replace(evaluation, data=sets.training), sets.test
    settings = {**evaluation.settings(), **options.settings(), "test": f"{test.name}:{test.split}"}
    settings["test data"] = dataset_fingerprint(test)
    store = ShardStore.open(evaluation.out, settings)
    about_sets = few_images_notes(evaluation, evaluation.data) + skipped_notes(evaluation.data, test)
    data = evaluation.data.sample(options.images, seed=evaluation.seed)
    test = test if options.test_images is None else test.sample(options.test_images, seed=evaluation.seed)
    arms = _prepare_arms(evaluation, store, data, options)
    items = [(arm, seed) for seed in range(options.seeds) for arm in range(len(arms))]
    train = partial(_evaluate_arm, store, Experiment(arms, data, test, options))
    values = dict(zip(items, run_items(evaluation, train, items, "training arms"), strict=True))
    diverged = sorted({seed for (_, seed), found in values.items() if "diverged" in found})
    seeds = [seed for seed in range(options.seeds) if seed not in diverged]
    if not seeds:
        raise DivergedError(f"Training diverged with every seed. Try a lower learning rate than {options.recipe.lr}.")
    notes = [f"Seed {seed} is left out: an arm's loss was no longer a number." for seed in diverged]
    notes += ["One seed has no interval. Train more: --seeds 5."] * (len(seeds) == 1)
    notes += [f"ece is the expected calibration error over {BINS} bins of confidence.", *sets.notes, *about_sets]
    measurements: dict[str, dict[str, Measurement]] = {}
    for number, arm in enumerate(arms):
        results = [values[number, seed] for seed in seeds]
        measurements.setdefault(arm.method, {}).update(arm_measurements(results, arm.kind))
    settings |= {"seeds": options.seeds, "methods": [NO_ATTENTION, *evaluation.method_labels()]}
    summary = EvaluationSummary("mitigation", settings, {"seed": seeds}, measurements, few_runs=True, notes=notes)
    return summary.write(evaluation.out)


def _prepare_arms(evaluation: Evaluation, store: ShardStore, data: Dataset, options: MitigationOptions) -> list[Arm]:
    """The arm without attention, and one for each method and kind with the maps of the training images."""
    if options.explainer == "subset":
        networks = train_explainer(evaluation, store, data, options.recipe, len(evaluation.posterior))
        evaluation = replace(evaluation, posterior=networks)
    x = data.batch(slice(None))
    store.compute_tensors(example_shard("training"), lambda: {"x": x[:EXAMPLES]})
    maps = compute_maps(evaluation, store, x, MAPS)
    arms = [Arm(label, kind, by_kind[kind]) for label, by_kind in maps.items() for kind in evaluation.kinds]
    return [Arm(NO_ATTENTION, None, None), *arms]


def train_explainer(
    evaluation: Evaluation, store: ShardStore, data: Dataset, recipe: Recipe, count: int
) -> list[nn.Module]:
    """So many networks, trained plainly on the few images, whose maps are the attention; what is trained is read."""
    train = partial(_train_explainer_member, store, data, recipe)
    return run_items(evaluation, train, range(count), "training the explainer")


def _train_explainer_member(
    store: ShardStore, data: Dataset, recipe: Recipe, evaluation: Evaluation, member: int
) -> nn.Module:
    seed = seed_for(evaluation.seed, "explainer", member)
    network = network_for(recipe, seed)

    def train() -> dict[str, Tensor]:
        fit(network, data, recipe, seed=seed)
        return dict(network.state_dict())

    network.load_state_dict(store.compute_tensors(explainer_shard(member), train))
    return network.eval()


def _evaluate_arm(
    store: ShardStore, experiment: Experiment, _evaluation: Evaluation, item: tuple[int, int]
) -> dict[str, Any]:
    """Test results of one arm and seed, computed or read; what went wrong where training diverged."""
    arms, data, test, options = experiment
    arm, seed = arms[item[0]], item[1]

    def compute() -> dict[str, Any]:
        train = partial(train_arm, recipe=options.recipe, attention=options.attention, seed=seed)
        try:
            return dict(train(data, arm.maps, test))
        except DivergedError as error:
            return {"diverged": str(error)}

    return store.compute_values(arm_shard(arm.method, seed, arm.kind), compute)


@dataclass(frozen=True)
class MitigationExamples:
    """A few training images, and the attention that each arm gives them."""

    x: Images
    attention: dict[str, Tensor]


def read_mitigation_examples(store: ShardStore, settings: Mapping[str, Any]) -> MitigationExamples:
    """What figures show, by the arm's name `method@kind`."""
    x = store.read_tensors(example_shard("training"))["x"]
    attention = {}
    for label in settings["methods"]:
        if label != NO_ATTENTION:
            maps = store.read_tensors(method_shard(label, 0))
            for kind in settings["kinds"]:
                weights = attention_weights(maps[kind][: len(x)], settings["how"]["normalisation"])
                attention[f"{label}@{kind}"] = weights
    return MitigationExamples(x, attention)
