"""Which methods find the pixels that make networks unsure, where those are known exactly."""

import math

import pytest
import torch
from torch.special import entr

import dubium
from dubium.attribution import CONTROLS
from dubium.attribution._context import DEFAULT_CONTEXT
from dubium.attribution.blur_path import PARTS_OF_TOTAL, blur_credits
from dubium.posteriors import stack
from dubium.shares import UncertaintyTarget
from tests.known_causes import LESS, MORE, SURE, known_causes

KINDS = ("total", "aleatoric", "epistemic")
FIND_BOTH = ("grad", "input-grad", "smoothgrad", "blur-path", "ig:blur")
"""Those whose maps lie on the true causes alone, where causes are not mixed: total and epistemic."""


def explained(case, method, cheap):
    name, _, start = method.partition(":")
    options = cheap(name) | ({"start": start} if start else {})
    return dubium.explain(case.networks, case.x, method=name, **options)


def mass(maps, inside):
    """The part of the positive attribution inside, mean over images."""
    positive = maps.clamp_min(0)
    return float(((positive * inside).sum((1, 2)) / positive.sum((1, 2)).clamp_min(1e-30)).mean())


def test_the_uncertainties_are_those_of_the_construction():
    case = known_causes()
    a, b = (case.x[:, 0][:, case.raised[kind]].mean(1) for kind in ("total", "epistemic"))
    first, second = (torch.stack([p, 1 - p]) for p in ((2 * (SURE - a * LESS)).sigmoid(), (2 * b * MORE).sigmoid()))
    found = dubium.uncertainty(case.networks, case.x).scores
    torch.testing.assert_close(found["total"], entr(first).sum(0) + math.log(2))
    torch.testing.assert_close(found["aleatoric"], entr(first).sum(0) + entr(second).sum(0))
    torch.testing.assert_close(found["epistemic"], math.log(2) - entr(second).sum(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["total", "epistemic"])
@pytest.mark.parametrize("method", FIND_BOTH)
def test_methods_that_follow_the_uncertainty_find_its_cause(method, kind, cheap):
    case = known_causes()
    assert mass(explained(case, method, cheap).maps[kind], case.raised[kind]) > 0.99


@pytest.mark.parametrize("kind", KINDS)
def test_blur_path_tells_what_raises_doubt_from_what_lowers_it(kind, cheap):
    case = known_causes()
    result = explained(case, "blur-path", cheap)
    signed = result.extras["signed"][kind]
    assert mass(result.maps[kind], case.raised[kind]) > 0.99
    assert (signed[:, case.raised[kind]] > 0).all()
    assert (signed[:, case.lowered[kind]] < 0).all()
    assert signed[:, case.ignored].abs().max() < 1e-6


def test_absolute_gradients_do_not_tell_them_apart(cheap):
    case = known_causes()
    assert mass(explained(case, "grad", cheap).maps["aleatoric"], case.raised["aleatoric"]) < 0.9


def test_ua_backprop_blames_what_moves_logits_and_no_uncertainty(cheap):
    case = known_causes()
    maps = explained(case, "ua-backprop", cheap).maps
    assert mass(maps["epistemic"], case.ignored) > mass(maps["epistemic"], case.raised["epistemic"])
    torch.testing.assert_close(  # its kinds are alike
        maps["epistemic"] / maps["epistemic"].sum((1, 2), keepdim=True),
        maps["aleatoric"] / maps["aleatoric"].sum((1, 2), keepdim=True),
        rtol=0.2,
        atol=1e-3,
    )


@pytest.mark.parametrize("control", CONTROLS)
def test_controls_do_not_find_the_cause(control, cheap):
    case = known_causes()
    assert mass(explained(case, control, cheap).maps["epistemic"], case.raised["epistemic"]) < 0.5


def test_a_shift_of_all_logits_changes_no_line():
    case = known_causes()
    without = [torch.nn.Sequential(*network) for network in known_causes().networks]
    for network in without:
        with torch.no_grad():
            network[2].weight[:, case.ignored.flatten()] = 0
    target = UncertaintyTarget(PARTS_OF_TOTAL)
    here, there = (
        blur_credits(stack(networks), case.x, target, 8, DEFAULT_CONTEXT) for networks in (case.networks, without)
    )
    torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-6)
