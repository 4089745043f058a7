"""Networks whose slope is NaN at some image: every method says so, and ends."""

import pytest
import torch
from torch import nn

import dubium
from dubium.attribution import CONTROLS
from dubium.attribution.guided_ig import integrate_guided
from dubium.errors import OutputError
from dubium.types import Attribution
from tests.networks import images

REFUSED = "NaN or infinite for image 0"


class Norm(nn.Module):
    """The length of the features at each pixel, whose slope at zero is 0 / 0."""

    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(1, 4, 3, bias=False)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head((self.features(x) ** 2).sum(1).sqrt().flatten(1))


@pytest.fixture
def networks():
    torch.manual_seed(0)
    return [Norm().eval() for _ in range(2)]


@pytest.mark.parametrize("name", [name for name in dubium.methods() if name not in CONTROLS and "clue" not in name])
def test_slopes_that_are_no_numbers_are_refused(name, networks):
    few = {"steps": 3, "start": "black"} if name in ("ig", "guided-ig") else {}
    few |= {"steps": 3} if name == "blur-ig" else {"samples": 3, "sigma": 1e-30} if name == "smoothgrad" else {}
    with pytest.raises(OutputError, match=REFUSED):
        dubium.explain(networks, torch.zeros(1, 1, 6, 6), method=name, **few)


def test_signed_maps_that_are_no_numbers_are_refused(networks):
    def lowered_without_end(network, x, target):
        maps = torch.zeros(len(x), target(network(x)).shape[1], 6, 6)
        return Attribution(maps, {"signed": maps - torch.inf})

    with pytest.raises(OutputError, match=REFUSED):
        dubium.explain(networks, images(size=6), method=lowered_without_end)


def test_guided_ig_ends_where_no_slope_is_a_number():
    begin, end = torch.zeros(2, 9), torch.rand(2, 9, generator=torch.Generator().manual_seed(0)) + 0.1
    calls = []

    def slope(at):
        calls.append(at)
        return torch.stack([torch.full((9,), torch.nan), torch.ones(9)])  # of the first row, none is

    moved = integrate_guided(slope, begin, end, steps=4)
    assert len(calls) == 4
    assert moved[0].isnan().all()
    torch.testing.assert_close(moved[1], end[1])


def test_guided_ig_from_an_image_without_slope_is_refused(networks):
    with pytest.raises(OutputError, match=REFUSED):
        dubium.explain(networks, images(1, size=6), method="guided-ig", start="black", steps=3)


class Dark(nn.Module):
    """A generative model of one image, black."""

    def encode(self, x):
        return x.flatten(1)[:, :2]

    def decode(self, z):
        return (0 * z.sum(1)).view(-1, 1, 1, 1).expand(-1, 1, 6, 6)


class Lost(Dark):
    """One whose images are no numbers."""

    def decode(self, z):
        return super().decode(z) + torch.nan


@pytest.mark.parametrize("name", ["clue", "delta-clue", "clue-path"])
@pytest.mark.parametrize("vae", [Dark(), Lost()])
def test_a_search_without_numbers_is_an_error_and_not_its_start(name, vae, networks):
    with pytest.raises(OutputError, match=r"counterfactual of image 0, 1 came to a value or slope that is NaN"):
        dubium.explain(networks, images(2, size=6), method=name, vae=vae.eval(), steps=3)
