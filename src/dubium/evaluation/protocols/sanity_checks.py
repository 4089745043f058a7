"""The checks of the sanity protocol: each compares a method's maps with those of other posteriors or kinds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dubium.evaluation.metrics.randomisation import Randomised, Side, unused_layers
from dubium.evaluation.metrics.sanity import (
    area_left,
    effective_pixels,
    entropy_rise,
    halves,
    rank_agreement,
    redrawn,
    top_overlap,
    uncertainty_curves,
)
from dubium.evaluation.metrics.scoring import scorer
from dubium.types import Images, Kind, Posterior

if TYPE_CHECKING:
    from dubium.evaluation.protocols.sanity import SanityOptions

STAGES = (0.25, 0.5, 0.75, 1.0)
STEPS = 21
PAIR: tuple[Kind, ...] = ("aleatoric", "epistemic")
"""The kinds whose maps should not be the same picture."""

SEEDS_APART = 1_000_000  # between two draws of random weights

ExplainPosterior = Callable[[Posterior, int], Tensor]
"""Maps (B, H, W) of the same images for another posterior, with a seed."""


@dataclass(frozen=True)
class Subject:
    """A posterior, images, and one method's maps of them by kind; `kind` is the one that is checked."""

    posterior: Posterior
    x: Images
    maps: Mapping[str, Tensor]
    kind: Kind
    seed: int


def check_cascade(
    subject: Subject, explain_posterior: ExplainPosterior, options: "SanityOptions", side: Side = "top"
) -> dict[str, Tensor]:
    """How much of the map stays when weights are drawn anew, layer after layer from one side; mean of some draws.

    Layers that the logits do not depend on are left out: to draw them anew would change nothing.
    """
    unused = [unused_layers(network, subject.x[:1]) for network in subject.posterior]
    as_is = Randomised(subject.posterior, 0.0, subject.seed, side, unused)
    draws = [_cascade_of_draw(subject, explain_posterior, options, as_is, draw) for draw in range(options.redraws)]
    return {name: torch.stack([values[name] for values in draws]).mean(0) for name in draws[0]}


def check_bottom_cascade(
    subject: Subject, explain_posterior: ExplainPosterior, options: "SanityOptions"
) -> dict[str, Tensor]:
    """The same from the image's side; with all layers drawn anew there is no side."""
    found = check_cascade(subject, explain_posterior, options, "bottom")
    return {f"bottom-{name}": value for name, value in found.items() if name != "emprt"}


def _cascade_of_draw(
    subject: Subject, explain_posterior: ExplainPosterior, options: "SanityOptions", as_is: Randomised, draw: int
) -> dict[str, Tensor]:
    maps, values, seed = subject.maps[subject.kind], {}, subject.seed + SEEDS_APART * draw
    for fraction in options.stages:
        if as_is.side == "bottom" and fraction == 1:
            continue
        randomised = explain_posterior(replace(as_is, fraction=fraction, seed=seed), seed + 1)
        at = f"{100 * fraction:g}%"
        values[f"cascade@{at}"] = rank_agreement(maps, randomised)
        values[f"top5@{at}"] = top_overlap(maps, randomised, seed=seed)
        if fraction == 1:
            values["emprt"] = entropy_rise(maps, randomised)
    return values


def check_repeats(subject: Subject, explain_posterior: ExplainPosterior, options: "SanityOptions") -> dict[str, Tensor]:
    """Whether halves of the posterior, and posteriors drawn again, give the same maps."""
    posterior, seed, maps, values = subject.posterior, subject.seed, subject.maps[subject.kind], {}
    if len(posterior) >= 4:
        first, second = halves(posterior)
        values["halves"] = rank_agreement(explain_posterior(first, seed + 1), explain_posterior(second, seed + 2))
    if len(posterior) > 1:
        others = [explain_posterior(redrawn(posterior, draw), seed + 1 + draw) for draw in range(options.draws)]
        values["repeatability"] = torch.stack([rank_agreement(maps, other) for other in others]).mean(0)
    return values


def compare_kinds(subject: Subject, _explain: ExplainPosterior, _options: "SanityOptions") -> dict[str, Tensor]:
    """How alike the aleatoric and the epistemic map of an image are."""
    first, second = (subject.maps[kind] for kind in PAIR)
    return {
        "kinds": rank_agreement(first, second),
        "kinds-top5": top_overlap(first, second, seed=subject.seed),
    }


def check_curves(subject: Subject, _explain: ExplainPosterior, _options: "SanityOptions") -> dict[str, Tensor]:
    """How many pixels the map speaks of, and the areas under its deletion and insertion curves."""
    maps, uncertainty = subject.maps[subject.kind], scorer(subject.posterior, subject.kind)
    fractions, before = [step / (STEPS - 1) for step in range(STEPS)], uncertainty(subject.x).numpy()
    values = {"effective-pixels": effective_pixels(maps)}
    for name in ("deletion", "insertion"):
        curves = uncertainty_curves(uncertainty, subject.x, maps, fractions, insert=name == "insertion")
        values[name] = torch.from_numpy(area_left(curves.numpy(), before))
    return values


CHECK_FUNCTIONS: dict[str, Callable[[Subject, ExplainPosterior, "SanityOptions"], dict[str, Tensor]]] = {
    "top": check_cascade,
    "bottom": check_bottom_cascade,
    "repeat": check_repeats,
    "kinds": compare_kinds,
    "curves": check_curves,
}
CHECKS = tuple(CHECK_FUNCTIONS)
