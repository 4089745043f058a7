"""The quick part of the zoo: networks written by hand, which need no other library. `make zoo` runs all of it."""

import warnings

import pytest
import torch

import dubium
from dubium.attribution._completeness import MISSING
from dubium.errors import NetworkStateError
from tests.zoo.architectures import Architecture, zoo
from tests.zoo.measure import gradient_errors, make_members, measure, placed_share, sum_error
from tests.zoo.odd_networks import MixedWindows, Trunk
from tests.zoo.page import COMPLETE, REASONS, RIGHT, write_page

BY_HAND = {key: entry for key, entry in zoo().items() if entry.library == "by hand"}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # of torch's reentrant checkpoints
@pytest.mark.parametrize("key", BY_HAND)
def test_networks_by_hand_are_complete_and_their_gradients_are_right(key):
    members, x = make_members(BY_HAND[key])
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", "FullGrad misses")
        result = dubium.explain(members, x)
    gaps = dubium.fullgrad_completeness(members[0], x)
    assert len(caught) == (gaps[0].median() > MISSING)
    errors = gradient_errors(members[0], x)
    assert max(sum_error(result, kind) for kind in result.maps) < 1e-5
    assert max(errors.values()) < RIGHT
    assert (gaps.median() < COMPLETE) != (key in REASONS)
    assert 0 < placed_share(members[0], x) <= 1


@pytest.mark.parametrize("method", ["grad", "ig"])  # FullGrad takes one image at a time here
def test_a_network_that_mixes_the_images_of_a_batch_is_refused(method):
    members, x = make_members(Architecture("by hand", "mixed", lambda: Trunk(MixedWindows()), 16, attention=False))
    with pytest.raises(NetworkStateError, match="mixes the images"):
        dubium.explain(members, x, method=method)
    dubium.explain(members, x[:1], method=method)


def test_the_zoo_has_at_least_sixty_named_architectures_of_four_libraries():
    entries = zoo().values()
    assert len(entries) >= 60
    assert {entry.library for entry in entries} == {"by hand", "timm", "torchvision", "transformers"}


def test_the_page_names_networks_figures_and_failures():
    torch.manual_seed(0)
    line = measure(BY_HAND["by hand/small CNN"], repeats=1)
    page = write_page(
        [line, {"key": "timm/none", "error": "ValueError: no"}, {"key": "timm/mixed", "error": "NetworkStateError: so"}]
    )
    assert "| small CNN | 16 |" in page
    assert "1 networks run, 1 are refused, 1 fail" in page
    assert "the reason\n\n- timm/mixed: NetworkStateError: so" in page
    assert "timm/none: ValueError: no" in page
