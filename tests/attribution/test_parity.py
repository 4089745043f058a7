"""Baselines against independent implementations: Captum on a posterior's uncertainty, and plain float64 loops."""

from functools import partial

import captum.attr
import pytest
import torch
from torch import nn
from torch.nn.functional import interpolate, relu

import dubium
from dubium import errors
from dubium.attribution import fullgrad, grad_cam, smoothgrad
from dubium.attribution.smoothgrad import GaussianNoise
from dubium.posteriors.stack import stack
from dubium.shares import UncertaintyTarget
from tests.networks import Awkward, ensemble, images, randomised, small_cnn
from tests.oracles import fullgrad_map, relative_l1, uncertainties

KINDS = ("total", "aleatoric", "epistemic")


class Uncertainty(nn.Module):
    """(B, 3) uncertainties by their definition, for Captum to explain."""

    def __init__(self, networks):
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x):
        logits = torch.stack([network(x) for network in self.networks])
        return torch.stack([uncertainties(logits[:, b]) for b in range(len(x))])


def float64_case(channels=3, batch=2):
    networks = [network.double() for network in ensemble(lambda: small_cnn(channels))]
    return networks, images(batch, channels, dtype=torch.float64)


def captums(explainer, x, **options):
    """Captum's attributions, by kind."""
    return [explainer.attribute(x.clone().requires_grad_(), target=t, **options).detach() for t in range(3)]


def assert_maps(result, exact):
    for kind, maps in zip(KINDS, exact, strict=True):
        assert relative_l1(result.maps[kind], maps).max() < 1e-5


def test_grad_equals_captums_saliency():
    networks, x = float64_case()
    exact = captums(captum.attr.Saliency(Uncertainty(networks)), x)
    assert_maps(dubium.explain(networks, x, method="grad"), [maps.mean(1) for maps in exact])


def test_input_grad_equals_captums():
    networks, x = float64_case()
    exact = captums(captum.attr.InputXGradient(Uncertainty(networks)), x)
    assert_maps(dubium.explain(networks, x, method="input-grad"), [maps.abs().mean(1) for maps in exact])


@pytest.mark.parametrize(("start", "value"), [("white", 1.0), ("black", 0.0)])
def test_ig_equals_captums_with_midpoints(start, value):
    networks, x = float64_case()
    options = {"baselines": torch.full_like(x[:1], value), "n_steps": 20, "method": "riemann_middle"}
    exact = captums(captum.attr.IntegratedGradients(Uncertainty(networks)), x, **options)
    result = dubium.explain(networks, x, method="ig", steps=20, start=start)
    assert_maps(result, [maps.sum(1) for maps in exact])


def test_ig_from_several_starts_is_their_mean():
    networks, x = float64_case()
    first, second = images(2, 3, seed=5, dtype=torch.float64)
    both = dubium.explain(networks, x, method="ig", steps=5, start=[first, second])
    each = [dubium.explain(networks, x, method="ig", steps=5, start=start) for start in (first, second[None])]
    for kind in KINDS:
        torch.testing.assert_close(both.maps[kind], (each[0].maps[kind] + each[1].maps[kind]) / 2)


def test_smoothgrad_equals_a_loop_over_the_same_noise():
    networks, x = float64_case()
    result = dubium.explain(networks, x, method="smoothgrad", samples=4, sigma=0.2, seed=3)
    shifts = 0.2 * GaussianNoise(x, 4, seed=3).draw(torch.arange(4))
    saliency = captum.attr.Saliency(Uncertainty(networks))
    by_sample = [captums(saliency, x + shift) for shift in shifts]
    assert_maps(result, [torch.stack([maps[t].mean(1) for maps in by_sample]).mean(0) for t in range(3)])


def test_smoothgrad_noise_has_the_stated_spread():
    assert GaussianNoise(images(1, 3, 32), 50, seed=0).draw(torch.arange(50)).std().item() == pytest.approx(1, abs=0.01)


def test_grad_cam_equals_captums_for_one_network():
    network, x = randomised(small_cnn(3)).double(), images(2, 3, dtype=torch.float64)
    maps = grad_cam(network, x, lambda z: z)
    for k in range(4):
        cam = captum.attr.LayerGradCam(network, network[3]).attribute(x, target=k, relu_attributions=True).detach()
        exact = interpolate(cam, size=x.shape[2:], mode="bilinear", align_corners=False)[:, 0]
        torch.testing.assert_close(maps[:, k], exact, rtol=1e-9, atol=1e-12)


def test_grad_cam_takes_the_convolution_executed_last_and_its_last_execution():
    network, x = randomised(Awkward()), images(2, 3)
    assert torch.equal(grad_cam(network, x, lambda z: z), grad_cam(network, x, lambda z: z, layer="late"))
    assert torch.equal(
        grad_cam(network, x, lambda z: z, layer="twice"), grad_cam(network, x, lambda z: z, layer=network.twice)
    )
    assert not torch.equal(grad_cam(network, x, lambda z: z), grad_cam(network, x, lambda z: z, layer="twice"))


def test_grad_cam_of_a_posterior_is_the_mean_over_its_networks():
    networks, x = float64_case()
    maps = dubium.explain(networks, x, method="grad-cam").maps["epistemic"]
    target, exact = UncertaintyTarget(("epistemic",)), 0
    for network in networks:
        features = []
        handle = network[3].register_forward_hook(lambda _m, _a, out, features=features: features.append(out))
        value = target(stack(networks)(x)).sum()
        handle.remove()
        (slope,) = torch.autograd.grad(value, features[0])
        cam = (slope.mean((2, 3), keepdim=True) * features[0]).sum(1, keepdim=True).relu().detach()
        exact = exact + interpolate(cam, size=x.shape[2:], mode="bilinear", align_corners=False)[:, 0] / 3
    torch.testing.assert_close(maps, exact, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rescale", ["reference", "none"])
def test_fullgrad_on_uncertainty_equals_a_loop_with_the_biases_of_all_members(rescale):
    networks, x = float64_case()
    biased = [f"networks.{s}.{layer}" for s in range(3) for layer in (0, 1, 3)]
    result = dubium.explain(networks, x, method="fullgrad", rescale=rescale)
    for t, kind in enumerate(KINDS):
        for b in range(2):
            exact = fullgrad_map(Uncertainty(networks), x[b], lambda u, t=t: u[0, t], rescale, biased)
            torch.testing.assert_close(result.maps[kind][b], exact, rtol=1e-8, atol=1e-11)


@pytest.mark.filterwarnings("ignore:Setting forward, backward hooks")  # DeepLift says what it does
@pytest.mark.parametrize("name", ["Saliency", "InputXGradient", "DeepLift"])
def test_a_captum_class_can_be_the_relevance(name):
    networks, x = ensemble(lambda: small_cnn(3, norm=False)), images(2, 3)
    result = dubium.explain(networks, x, relevance=getattr(captum.attr, name))
    for kind in KINDS:
        torch.testing.assert_close(result.maps[kind].sum((1, 2)), result.scores[kind], rtol=1e-5, atol=0)


def test_captums_saliency_as_relevance_and_as_method_equals_ours():
    networks, x = float64_case()
    theirs, ours = (dubium.explain(networks, x, relevance=what) for what in (captum.attr.Saliency, "grad"))
    assert_maps(theirs, [ours.maps[kind] for kind in KINDS])
    theirs, ours = (dubium.explain(networks, x, method=what) for what in (captum.attr.Saliency, "grad"))
    assert_maps(theirs, [3 * ours.maps[kind] for kind in KINDS])  # a sum over three channels, not a mean
    assert theirs.method == "captum.Saliency"


def test_methods_explain_a_logit_as_well_as_an_uncertainty():
    network, x = randomised(small_cnn()), images(2)
    for attribute in (fullgrad, smoothgrad):
        assert attribute(network, x, lambda z: z[:, :2]).shape == (2, 2, 12, 12)


def test_grad_cam_passes_over_convolutions_after_global_pooling():
    body = [nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 8, 1), nn.Flatten(), nn.Linear(8, 4)]
    network, x = randomised(nn.Sequential(*body)), images(2, 3)
    assert torch.equal(grad_cam(network, x, lambda z: z), grad_cam(network, x, lambda z: z, layer="0"))


OCCLUSION = {"sliding_window_shapes": (1, 4, 4), "strides": (1, 4, 4)}


def test_a_captum_class_takes_its_options_partials_and_objects():
    networks, x = ensemble(small_cnn), images(2)
    exact = captums(captum.attr.Occlusion(Uncertainty(networks)), x, **OCCLUSION)
    as_lists = {name: list(value) for name, value in OCCLUSION.items()}  # as a command line gives them
    for method, options in (
        (captum.attr.Occlusion, OCCLUSION),
        (captum.attr.Occlusion, as_lists),
        ("captum.attr:Occlusion", OCCLUSION),
        (partial(captum.attr.Occlusion, sliding_window_shapes=(1, 4, 4)), {"strides": (1, 4, 4)}),
        (captum.attr.Occlusion(networks[0]), OCCLUSION),
    ):
        result = dubium.explain(networks, x, method=method, **options)
        assert result.method == "captum.Occlusion"
        assert result.options["sliding_window_shapes"] in ((1, 4, 4), [1, 4, 4])
        for maps, kind in zip(exact, KINDS, strict=True):
            torch.testing.assert_close(result.maps[kind], maps.sum(1), rtol=1e-4, atol=1e-6)


def test_options_of_captums_constructors_and_of_relevances():
    networks, x = ensemble(small_cnn), images(2)
    plain, scaled = (
        dubium.explain(
            networks, x, method=captum.attr.IntegratedGradients, n_steps=4, baselines=0, multiply_by_inputs=times
        ).maps["total"]
        for times in (False, True)
    )
    torch.testing.assert_close(plain * x[:, 0], scaled, rtol=1e-4, atol=1e-6)
    result = dubium.explain(networks, x, relevance=captum.attr.Occlusion, sliding_window_shapes=(1, 3, 3), strides=3)
    torch.testing.assert_close(result.maps["total"].sum((1, 2)), result.scores["total"])
    named = dubium.explain(networks, x, relevance=captum.attr.LayerGradCam, layer="3", relu_attributions=True)
    ours = dubium.explain(networks, x, relevance="grad-cam", layer="3")
    torch.testing.assert_close(named.maps["total"], ours.maps["total"], rtol=1e-4, atol=1e-6)
    tunnel = captum.attr.NoiseTunnel(captum.attr.Saliency(networks[0]))
    exact = dubium.explain(networks, x, method="grad").maps["total"]
    found = dubium.explain(networks, x, method=tunnel, nt_samples=2, stdevs=0.0).maps["total"]
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-6)


LAYERED = {"LayerGradCam": {}, "LayerConductance": {"n_steps": 3}, "GuidedGradCam": {}}


@pytest.mark.filterwarnings("ignore:Setting backward hooks")  # GuidedGradCam says what it does
@pytest.mark.parametrize("name", LAYERED)
def test_a_layer_of_captums_is_that_of_each_network_and_maps_are_averaged(name):
    networks, x = ensemble(small_cnn), images(2)
    method, options = getattr(captum.attr, name), LAYERED[name]
    exact = torch.zeros(3, *x[:, 0].shape)
    for network in networks:
        explainer = method(Uncertainty(networks), network[3])
        for t in range(3):
            found = explainer.attribute(x.clone().requires_grad_(), target=t, **options).detach()
            exact[t] += interpolate(found, size=x.shape[2:], mode="bilinear", align_corners=False).sum(1) / 3
    for what in (method, partial(method, layer="3")):
        given = {"layer": "3"} if what is method else {}
        result = dubium.explain(networks, x, method=what, **given, **options)
        for t, kind in enumerate(KINDS):
            torch.testing.assert_close(result.maps[kind], exact[t], rtol=1e-4, atol=1e-7)
    one = dubium.explain(networks[:1], x, method=method, kinds="total", layer="3", **options).maps["total"]
    for what, given in ((method, {"layer": networks[0][3]}), (method(networks[0], networks[0][3]), {})):
        same = dubium.explain(networks[:1], x, method=what, kinds="total", **given, **options).maps["total"]
        assert torch.equal(same, one)


class WithFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.relu, self.head = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Linear(400, 3)

    def forward(self, x):
        return self.head(relu(self.relu(self.conv(x)).flatten(1)))


@pytest.mark.filterwarnings("ignore:Setting")  # Captum says what it does
@pytest.mark.parametrize("name", ["DeepLift", "GuidedBackprop", "Deconvolution"])
def test_a_relu_that_captum_does_not_see_brings_a_warning(name):
    method, x = getattr(captum.attr, name), images(2)
    networks = [randomised(WithFunction(), seed) for seed in range(2)]
    for where, calls in (("method", "2 times"), ("relevance", "1 time")):
        with pytest.warns(UserWarning, match=rf"captum\.{name} changes .* call relu as a function {calls}, which"):
            dubium.explain(networks, x, **{where: method})
    assert not any(module._forward_hooks for network in networks for module in network.modules())
    dubium.explain(ensemble(small_cnn), x, method=method)  # warnings are errors


def test_layers_of_captums_may_differ_in_size_and_channels():
    x = images(2)
    networks = [
        randomised(nn.Sequential(nn.Conv2d(1, width, size), nn.ReLU(), nn.Flatten(), nn.Linear(width * side**2, 3)))
        for width, size, side in ((4, 3, 10), (6, 5, 8))
    ]
    method, target = captum.attr.LayerGradientXActivation, Uncertainty(networks)
    exact = 0
    for network in networks:
        found = method(target, network[0]).attribute(x, target=2).detach()
        exact = exact + interpolate(found, size=x.shape[2:], mode="bilinear", align_corners=False).sum(1) / 2
    maps = dubium.explain(networks, x, method=method, layer="0").maps["epistemic"]
    torch.testing.assert_close(maps, exact, rtol=1e-4, atol=1e-7)


LAYER_GRAD_CAM = captum.attr.LayerGradCam


@pytest.mark.parametrize("where", ["method", "relevance"])
def test_a_layer_of_one_network_is_not_taken_for_others(where):
    networks, x = ensemble(small_cnn), images(2)
    for layer in (networks[0][3], networks[1][3], nn.Conv2d(1, 1, 1)):
        with pytest.raises(errors.OptionError, match="The layer Conv2d is not part of every network"):
            dubium.explain(networks, x, **{where: LAYER_GRAD_CAM}, layer=layer)
        explainer = LAYER_GRAD_CAM(networks[0], layer)
        with pytest.raises(errors.OptionError, match=r"has a layer of one network.*captum\.attr\.LayerGradCam, layer="):
            dubium.explain(networks, x, **{where: explainer})
    with pytest.raises(errors.UnknownNameError, match=r"No layer called 'l9'\. Available: 0, 1, 2"):
        dubium.explain(networks, x, **{where: LAYER_GRAD_CAM}, layer="l9")


def test_a_layer_that_networks_share_is_refused_where_captum_would_see_one_of_them():
    body, x = randomised(small_cnn()), images(2)
    networks = [nn.Sequential(body, randomised(nn.Linear(4, 3), seed)).eval() for seed in range(2)]
    with pytest.raises(errors.OptionError, match=r"one object in several networks.*relevance= instead"):
        dubium.explain(networks, x, method=LAYER_GRAD_CAM, layer="0.3")
    dubium.explain(networks, x, relevance=LAYER_GRAD_CAM, layer="0.3")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"method": captum.attr.Occlusion},
            errors.OptionError,
            "captum.Occlusion needs the option sliding_window_shapes",
        ),
        ({"relevance": captum.attr.Occlusion}, errors.OptionError, "needs the option sliding_window_shapes"),
        ({"method": captum.attr.Occlusion, "window": 1}, errors.UnknownNameError, r"'window'\..*sliding_window_shapes"),
        ({"method": partial(captum.attr.Saliency, steps=1)}, errors.OptionError, "'steps'; it takes abs"),
        ({"method": "captum.attr:Oclusion"}, errors.UnknownNameError, "cannot be imported.*Oclusion"),
        ({"method": "no.such.module:name"}, errors.UnknownNameError, "cannot be imported"),
        ({"method": lambda network, x: x}, errors.OptionError, r"called with \(network, x, target\).*`x` the images"),
        ({"method": lambda n, x, t, more: x}, errors.OptionError, r"`target` a function.*maps \(B, T, H, W\)"),
        ({"relevance": lambda x: x}, errors.OptionError, r"called with \(network, x, target\)"),
        ({"method": lambda n, x, t, *, power: x}, errors.OptionError, "needs the option power"),
    ],
)
def test_methods_that_cannot_be_called_are_refused_with_what_they_get(options, error, message):
    with pytest.raises(error, match=message):
        dubium.explain(ensemble(small_cnn), images(1), **options)


def test_a_partial_of_a_users_function_is_a_method_with_its_options():
    def power(network, x, target, *, power, scale=1.0):
        return scale * dubium.attribution.grad(network, x, target) ** power

    networks, x = ensemble(small_cnn), images(2)
    result = dubium.explain(networks, x, method=partial(power, power=2), scale=3.0)
    assert (result.method, result.options) == ("power", {"power": 2, "scale": 3.0})
    torch.testing.assert_close(result.maps["total"], 3 * dubium.explain(networks, x, method="grad").maps["total"] ** 2)


@pytest.mark.parametrize("shape", [(1, 6, 6), (3, 5, 7), (3, 32, 32), (1, 28, 28)])
def test_noise_in_any_order_is_that_of_one_draw(shape):
    x, order = torch.rand(2, *shape), torch.tensor([7, 0, 36, 18, 19, 36])
    drawn = GaussianNoise(x, 37, seed=5)
    everything = torch.randn(37, *shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(x)
    assert torch.equal(drawn.draw(order), everything[order])
    assert torch.equal(drawn.draw(torch.arange(37)), everything)
