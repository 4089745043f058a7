"""Maps are complete, non-negative and finite far from the usual numbers; not at all extremes at once."""

import warnings
from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

import dubium

METHODS = ("ua-backprop", "auto")
WORK = {"quick": 3 * 10**5, "slow": 2 * 10**7}  # numbers in the maps of all classes and members
IMAGES = ("random", "black", "white", "grey", "denormal", "one pixel", "huge")
MEMBERS = ("different", "identical", "one-hot", "one-hot apart")
pytestmark = pytest.mark.filterwarnings("ignore:All networks give the same")  # some are one network on purpose


@dataclass(frozen=True)
class Case:
    """A posterior and an image at some extreme."""

    members: int
    classes: int
    height: int
    width: int
    channels: int
    scale: float  # of the logits
    relation: str
    image: str
    dtype: torch.dtype
    seed: int

    def networks(self):
        torch.manual_seed(self.seed)
        found = []
        for index in range(self.members):
            if index and self.relation == "identical":
                found.append(found[0])
                continue
            size = 3 if min(self.height, self.width) >= 3 else 1
            layers = [nn.Conv2d(self.channels, 4, size), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
            network = nn.Sequential(*layers, nn.Linear(4, self.classes))
            with torch.no_grad():
                last = network[-1]
                last.weight.mul_(self.scale)
                last.bias.mul_(self.scale)
                if self.relation.startswith("one-hot"):
                    last.bias[index % self.classes if self.relation.endswith("apart") else 0] = 1e4
            found.append(network.to(self.dtype).eval())
        return found

    def x(self):
        shape = (1, self.channels, self.height, self.width)
        random = torch.rand(shape, generator=torch.Generator().manual_seed(self.seed), dtype=torch.float64)
        value = {"black": 0.0, "white": 1.0, "grey": 0.5}.get(self.image)
        if value is not None:
            random = torch.full(shape, value, dtype=torch.float64)
        if self.image == "denormal":
            random = random * 1e-40
        if self.image == "huge":
            random = (random - 0.5) * 1e4
        if self.image == "one pixel":
            random = torch.zeros(shape, dtype=torch.float64)
            random[0, :, self.height // 2, self.width // 2] = 1
        return random.to(self.dtype)


@st.composite
def cases(draw, work):
    """Cases of bounded work: one extreme of size at a time."""
    members = draw(st.sampled_from([1, 2, 3, 10, 100]))
    classes = draw(st.sampled_from([2, 3, 10, 100, 1000, 5000]))
    height = draw(st.sampled_from([1, 2, 3, 7, 28, 64, 512]))
    width = draw(st.sampled_from([1, 2, 5, 28, 64, 512]))
    while members * classes * height * width > work:  # the largest gives way
        sizes = {"members": members, "classes": classes, "height": height, "width": width}
        largest = max(sizes, key=lambda name: sizes[name])
        members = members // 2 if largest == "members" else members
        classes = max(2, classes // 2) if largest == "classes" else classes
        height = height // 2 if largest == "height" else height
        width = width // 2 if largest == "width" else width
    return Case(
        max(1, members),
        classes,
        max(1, height),
        max(1, width),
        draw(st.sampled_from([1, 3])),
        draw(st.sampled_from([1e-6, 1.0, 30.0, 1e3, 1e4])),
        draw(st.sampled_from(MEMBERS)),
        draw(st.sampled_from(IMAGES)),
        draw(st.sampled_from([torch.float32, torch.float64])),
        draw(st.integers(0, 99)),
    )


def check_case(case, method):
    """Explain, and look at every number."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The posterior has one network")
        found = dubium.explain(case.networks(), case.x(), method=method)
    for kind, maps in found.maps.items():
        score = found.scores[kind].double()
        assert maps.shape == (1, case.height, case.width)
        assert maps.isfinite().all()
        assert score.isfinite().all()
        assert (score >= 0).all()
        assert (maps >= 0).all(), float(maps.min())
        gap = (maps.double().sum((1, 2)) - score).abs()
        assert (gap <= 1e-4 * score + 1e-7).all(), (kind, float(gap), float(score))
    assert found.probs.sum() == pytest.approx(1, abs=1e-4)


def quick(count):
    return settings(
        max_examples=count, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
@quick(25)
@given(case=cases(WORK["quick"]))
def test_maps_are_complete_positive_and_finite(method, case):
    check_case(case, method)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@quick(400)
@given(case=cases(WORK["slow"]))
def test_maps_are_complete_positive_and_finite_in_large_cases(method, case):
    check_case(case, method)


EXTREMES = [
    Case(100, 10, 16, 16, 1, 1.0, "different", "random", torch.float32, 0),
    Case(2, 5000, 8, 8, 1, 1.0, "different", "random", torch.float32, 0),
    Case(2, 3, 512, 512, 1, 1.0, "different", "random", torch.float32, 0),
    Case(3, 10, 1, 1, 3, 1e4, "different", "random", torch.float32, 0),
    Case(3, 10, 28, 28, 1, 1e4, "one-hot apart", "random", torch.float32, 0),
    Case(5, 10, 28, 28, 1, 1.0, "identical", "grey", torch.float32, 0),
    Case(3, 10, 28, 28, 1, 1.0, "different", "denormal", torch.float32, 0),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "case", EXTREMES, ids=lambda case: f"{case.relation}-{case.image}-{case.classes}-{case.height}"
)
def test_each_extreme_by_itself(case, method):
    check_case(case, method)


@pytest.mark.parametrize("method", METHODS)
def test_autocast_around_the_call_changes_nothing(method):
    networks, x = dubium.load_posterior("demo"), dubium.data.load("demo").batch([0, 1, 2])
    plain = dubium.explain(networks, x, method=method)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = dubium.explain(networks, x, method=method)
        scores = dubium.uncertainty(networks, x).scores
        gap = dubium.fullgrad_completeness(networks[0], x)
    for kind in plain.maps:
        assert torch.equal(inside.maps[kind], plain.maps[kind])
        torch.testing.assert_close(scores[kind], plain.scores[kind])
    assert gap.max() < 1e-4
