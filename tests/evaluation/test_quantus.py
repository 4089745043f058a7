"""Metrics that Quantus has, too, against Quantus (extra `test-adapters`)."""

import numpy as np
import pytest
import torch

from dubium.evaluation.metrics.anomaly import localisation
from dubium.evaluation.metrics.sanity import effective_pixels, rank_agreement

pytestmark = pytest.mark.libraries

SETTINGS = {"abs": False, "normalise": False, "disable_warnings": True}


@pytest.fixture
def quantus():
    return pytest.importorskip("quantus", reason="metrics are compared with Quantus's", exc_type=ImportError)


@pytest.fixture
def maps() -> torch.Tensor:
    return torch.rand(6, 9, 7, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def masks() -> torch.Tensor:
    masks = torch.rand(6, 9, 7, generator=torch.Generator().manual_seed(1)) < 0.3
    assert masks.flatten(1).any(1).all()
    return masks


def batches(maps: torch.Tensor, masks: torch.Tensor) -> dict[str, np.ndarray]:
    return {"x_batch": maps[:, None].numpy(), "a_batch": maps[:, None].numpy(), "s_batch": masks[:, None].numpy()}


def test_complexity_is_the_logarithm_of_the_effective_pixels(quantus, maps):
    theirs = quantus.Complexity(**SETTINGS).evaluate_batch(maps[:, None].numpy(), maps[:, None].numpy())
    np.testing.assert_allclose(effective_pixels(maps).log().numpy(), theirs, rtol=1e-5)


def test_rank_agreement_is_their_correlation(quantus, maps):
    others = maps.flip(0) + maps
    theirs = [quantus.correlation_spearman(a, b) for a, b in zip(maps.flatten(1), others.flatten(1), strict=True)]
    np.testing.assert_allclose(rank_agreement(maps, others).numpy(), theirs, rtol=1e-6)


def test_mass_and_pointing(quantus, maps, masks):
    ours, given = localisation(maps, masks), batches(maps, masks)
    np.testing.assert_allclose(
        ours["mass"], quantus.RelevanceMassAccuracy(**SETTINGS).evaluate_batch(**given), rtol=1e-5
    )
    pointing = quantus.PointingGame(**SETTINGS).evaluate_batch(**given)
    assert ours["pointing"].bool().tolist() == np.asarray(pointing).astype(bool).tolist()


def test_mask_iou_follows_from_their_rank_accuracy(quantus, maps, masks):
    hits = np.asarray(quantus.RelevanceRankAccuracy(**SETTINGS).evaluate_batch(**batches(maps, masks)))
    np.testing.assert_allclose(localisation(maps, masks)["mask-iou"], hits / (2 - hits), rtol=1e-5)
