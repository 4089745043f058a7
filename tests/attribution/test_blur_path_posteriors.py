"""`auto` on one network, other posteriors, large and coloured images and attention: signed maps add up everywhere."""

import pytest
import torch
from torch import nn

import dubium
from dubium.attribution._blur import blurred_copies
from dubium.posteriors import MCDropout
from tests.networks import ensemble, images, small_cnn
from tests.posteriors.cases import CASES, SIZE

KINDS = ("total", "aleatoric", "epistemic")
FINE = 400  # points: the sums have converged


class TinyViT(nn.Module):
    """Patches, a class token, one block of attention."""

    def __init__(self, classes=4, width=16, patch=4, size=24):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 1 + (size // patch) ** 2, width) / 4)
        self.block = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).mT
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1) + self.places
        return self.head(self.block(tokens)[:, 0])


def vits(members=2):
    torch.manual_seed(0)
    return [TinyViT().double().eval() for _ in range(members)]


def check_maps(posterior, x, rtol=0.02):
    """Non-negative parts of the score; signed maps that sum to U(x) less the mean of U over the blurred copies."""
    found = dubium.explain(posterior, x, method="auto", passes=FINE)
    starts = [dubium.uncertainty(posterior, copy).scores for copy in blurred_copies(x)]
    for kind in KINDS:
        maps, signed = found.maps[kind], found.extras["signed"][kind]
        assert (maps >= 0).all()
        torch.testing.assert_close(maps.sum((1, 2)).double(), found.scores[kind].double(), rtol=1e-5, atol=1e-8)
        rise = found.scores[kind] - torch.stack([start[kind] for start in starts]).mean(0)
        size = float(signed.abs().sum((1, 2)).max())
        torch.testing.assert_close(signed.sum((1, 2)).double(), rise.double(), rtol=0, atol=rtol * size + 1e-8)
    return found


@pytest.mark.parametrize("case", ["mc dropout", "gaussian", "swag", "laplace, last layer, kron", "laplace, all, diag"])
def test_posteriors_of_every_kind_have_maps_that_add_up(case, tmp_path):
    torch.manual_seed(0)
    _, make = CASES[case](tmp_path)
    check_maps(make(), images(2, size=SIZE, dtype=torch.float64))


def test_one_network_has_no_epistemic_map_and_the_aleatoric_one_twice():
    with pytest.warns(UserWarning, match="one network"):
        found = check_maps(ensemble(small_cnn, members=1), images(2))
    assert not found.maps["epistemic"].any()
    torch.testing.assert_close(found.maps["total"], found.maps["aleatoric"])


def test_attention_has_maps_that_add_up():
    check_maps(vits(), torch.rand(2, 3, 24, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64))


def test_an_image_of_four_times_the_size_has_the_map_of_the_small_one_in_larger_pixels():
    """Networks that look at means of 4 x 4 pixels see the same, since blurs are in proportion to the image's size."""
    small = images(2, channels=3, size=24)
    large = small.repeat_interleave(4, 2).repeat_interleave(4, 3)
    networks = ensemble(lambda: small_cnn(channels=3, size=24))
    pooled = [nn.Sequential(nn.AvgPool2d(4), network).eval() for network in networks]
    here = dubium.explain(networks, small, method="auto").maps["epistemic"]
    there = dubium.explain(pooled, large, method="auto").maps["epistemic"]
    coarse = nn.functional.avg_pool2d(there[:, None], 4)[:, 0] * 16
    assert float((coarse - here).abs().sum() / here.sum()) < 0.05  # .23 with blurs of the same width in pixels


def test_masks_of_dropout_are_the_same_along_the_whole_path():
    network = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3)).double()
    x = images(1, size=8, dtype=torch.float64)
    first, second = (dubium.explain(MCDropout(network, 5, seed=2), x, method="auto") for _ in range(2))
    assert torch.equal(first.maps["epistemic"], second.maps["epistemic"])
