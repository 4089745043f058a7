"""What every method promises, present and future: run over the registry."""

import pytest
import torch
from torch import nn

import dubium
from dubium import errors
from dubium._methods import default_options
from dubium.attribution import ATTRIBUTORS, CONTROLS, RELEVANCES
from dubium.registry import METHODS, RECOMMENDED
from tests.networks import ensemble, images, randomised, small_cnn
from tests.oracles import relative_l1

ALL = dubium.methods()
NETWORK_FREE = tuple(CONTROLS)


def explained(method, cheap, networks=None, x=None, **options):
    networks = ensemble(small_cnn) if networks is None else networks
    return dubium.explain(networks, images(3) if x is None else x, method=method, **cheap(method), **options)


@pytest.mark.parametrize("method", ALL)
def test_maps_have_the_right_shape_and_are_finite(method, cheap):
    result = explained(method, cheap)
    for kind in ("total", "aleatoric", "epistemic"):
        assert result.maps[kind].shape == (3, 12, 12)
        assert result.maps[kind].isfinite().all()
        assert result.maps[kind].dtype == torch.float32
        assert not result.maps[kind].requires_grad
    assert result.method == (RECOMMENDED if method == "auto" else method)


@pytest.mark.parametrize("method", ALL)
def test_maps_are_not_trivial(method, cheap):
    maps = explained(method, cheap).maps["epistemic"]
    assert (maps.flatten(1).std(1) > 0).all()
    assert (maps[0] - maps[1]).abs().max() > 0


@pytest.mark.parametrize("method", ALL)
def test_the_same_seed_gives_the_same_maps(method, cheap):
    first, second = (explained(method, cheap, seed=7).maps["epistemic"] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("method", ["smoothgrad", "random", "smooth-random", "delta-clue"])
def test_another_seed_gives_other_maps(method, cheap):
    first, second = (explained(method, cheap, seed=seed).maps["epistemic"] for seed in (1, 2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("method", ALL)
def test_a_map_depends_on_its_image_alone(method, cheap):
    together = explained(method, cheap)
    for b in range(3):
        alone = explained(method, cheap, x=images(3)[b : b + 1])
        assert relative_l1(together.maps["epistemic"][b], alone.maps["epistemic"][0]) < 1e-4


@pytest.mark.parametrize("method", ALL)
def test_maps_do_not_depend_on_the_chunks_that_memory_forces(method, cheap):
    plenty, little = (explained(method, cheap, memory=memory).maps["epistemic"] for memory in ("1GiB", 2))
    assert relative_l1(little, plenty).max() < 1e-4


@pytest.mark.parametrize("method", ALL)
def test_a_kind_asked_for_alone_is_the_same_as_in_company(method, cheap):
    together, alone = explained(method, cheap), explained(method, cheap, kinds=("total", "aleatoric"))
    torch.testing.assert_close(alone.maps["aleatoric"], together.maps["aleatoric"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "method", [method for method in ALL if "clue" not in method]
)  # whose VAE is for square grey ones
def test_colour_images_that_are_not_square_are_fine(method, cheap):
    def make():
        return nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(20, 3))

    result = explained(method, cheap, ensemble(make), torch.rand(2, 3, 9, 14))
    assert result.maps["total"].shape == (2, 9, 14)


@pytest.mark.parametrize("name", ATTRIBUTORS)
def test_no_hooks_are_left_after_a_failing_target(name, cheap):
    network = randomised(small_cnn())
    calls = []

    def broken(output):
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("target failed")
        return output

    if name in NETWORK_FREE or name.endswith("-variance"):  # which need their target once, to count
        calls.append(1)
    with pytest.raises(RuntimeError, match="target failed"):
        ATTRIBUTORS[name](network, images(9), broken, **cheap(name))  # of fewer, the cost is not measured
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in network.modules())


@pytest.mark.parametrize("name", RELEVANCES)
def test_every_relevance_gives_complete_and_positive_maps(name, cheap):
    result = dubium.explain(ensemble(small_cnn), images(2), relevance=name, **cheap(name))
    for kind in ("total", "aleatoric", "epistemic"):
        assert (result.maps[kind] >= 0).all()
        torch.testing.assert_close(result.maps[kind].sum((1, 2)), result.scores[kind], rtol=1e-5, atol=0)


@pytest.mark.parametrize("method", sorted(name for name in METHODS if METHODS[name].is_scaled))
def test_scaled_maps_are_positive_and_sum_to_the_scores(method, cheap):
    result = explained(method, cheap)
    for kind in ("total", "aleatoric", "epistemic"):
        assert (result.maps[kind] >= 0).all()
        torch.testing.assert_close(result.maps[kind].sum((1, 2)), result.scores[kind], rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    "method", ["smoothgrad", "ig", "blur-ig", "blur-path", "guided-ig", "clue", "delta-clue", "clue-path"]
)
def test_slow_methods_report_progress_to_the_end(method, cheap):
    steps = []
    explained(method, cheap, progress=lambda done, total: steps.append((done, total)))
    assert steps[-1][0] == steps[-1][1] > 0
    assert steps == sorted(steps)


def test_the_options_are_those_of_the_design():
    listed = {name: set(default_options(function)) for name, function in ATTRIBUTORS.items()}
    assert listed["grad"] == listed["input-grad"] == listed["random"] == set()
    assert listed["smoothgrad"] == {"samples", "sigma"}
    assert listed["fullgrad"] == {"rescale"}
    assert listed["grad-cam"] == {"layer"}
    assert listed["ig"] == listed["guided-ig"] == {"steps", "start"}
    assert listed["blur-ig"] == {"steps", "sigma_max"}
    assert listed["blur-path"] == {"passes", "net"}
    assert all(listed[name] == set() for name in (*CONTROLS, "map-variance", "effect-variance"))
    assert listed["delta-clue"] == {"vae", "steps", "lr", "radius", "starts"}


BAD = {
    "no steps": ({"method": "ig", "steps": 0}, errors.OptionError, "steps=0"),
    "half a step": ({"method": "ig", "steps": 1.5}, errors.OptionError, "whole number"),
    "no samples": ({"method": "smoothgrad", "samples": 0}, errors.OptionError, "samples=0"),
    "no noise": ({"method": "smoothgrad", "sigma": 0}, errors.OptionError, "sigma=0"),
    "no passes": ({"method": "blur-path", "passes": 0}, errors.OptionError, "passes=0"),
    "no blur": ({"method": "blur-ig", "sigma_max": -1}, errors.OptionError, "sigma_max=-1"),
    "start": ({"method": "ig", "start": "wite"}, errors.UnknownNameError, "Did you mean 'white'"),
    "start's shape": ({"method": "ig", "start": torch.zeros(1, 5, 5)}, errors.OptionError, r"\(1, 12, 12\)"),
    "start's NaN": ({"method": "ig", "start": torch.full((1, 12, 12), torch.nan)}, errors.OptionError, "NaN"),
    "no starts": ({"method": "guided-ig", "start": []}, errors.OptionError, "empty"),
    "no layer": ({"method": "grad-cam", "layer": "33"}, errors.UnknownNameError, "Available"),
    "a flat layer": ({"method": "grad-cam", "layer": "7"}, errors.OptionError, "feature maps"),
    "another's layer": ({"method": "grad-cam", "layer": nn.Conv2d(1, 1, 1)}, errors.OptionError, "every network"),
    "no VAE": ({"method": "clue"}, errors.OptionError, "train-vae"),
    "not a VAE": ({"method": "clue", "vae": nn.Identity()}, errors.OptionError, "encode"),
    "no radius": ({"method": "delta-clue", "radius": 0}, errors.OptionError, "radius=0"),
    "clue as relevance": ({"relevance": "clue"}, errors.UnknownNameError, "relevance"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_methods_bad_option_is_refused_with_advice(name, unchecked):
    options, error, message = BAD[name]
    with pytest.raises(error, match=message):
        dubium.explain(ensemble(small_cnn), images(1), **options)


@pytest.fixture
def restored_default():
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("restored_default")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ALL)
def test_maps_do_not_depend_on_the_default_type(method, dtype, cheap):
    networks, x, options = [network.to(dtype) for network in ensemble(small_cnn)], images(3, dtype=dtype), cheap(method)
    if "vae" in options:
        options["vae"].to(dtype)
    if "steps" in options:
        options["steps"] = 7  # sevenths are rounded
    expected = dubium.explain(networks, x, method=method, **options).maps
    torch.set_default_dtype(torch.float64)
    found = dubium.explain(networks, x, method=method, **options).maps
    assert all(torch.equal(found[kind], expected[kind]) for kind in expected)


@pytest.mark.parametrize("size", [16, 256])  # the larger one is measured before anything is computed
@pytest.mark.parametrize("method", [method for method in ALL if "clue" not in method])
def test_networks_of_different_classes_are_refused_at_any_size(method, size, cheap):
    def make(classes):
        return nn.Sequential(nn.Conv2d(1, 4, 3, stride=4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))

    networks = [randomised(make(classes)) for classes in (3, 4)]
    with pytest.raises(errors.PosteriorError, match="network 0 has 3, network 1 has 4"):
        explained(method, cheap, networks, images(1, size=size))


class Overwriting(nn.Module):
    """Adds 1 in place to what a sigmoid needs for its slope."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(400, 3)

    def forward(self, x):
        hidden = torch.sigmoid(self.conv(x))
        hidden += 1
        return self.head(hidden.flatten(1))


@pytest.mark.parametrize("method", [method for method in ALL if method not in NETWORK_FREE])
def test_what_a_network_overwrites_is_said_to_be_its(method, cheap):
    with pytest.raises(errors.NetworkError, match="What it needs was overwritten"):
        explained(method, cheap, ensemble(Overwriting))
