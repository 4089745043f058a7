import copy
import warnings
from collections import UserDict
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import dubium
import dubium.data
from dubium import errors
from dubium.attribution import CONTROLS, fullgrad
from dubium.attribution.fullgrad import keep_passes
from dubium.models import Normalized
from dubium.softmax_share import scale_tau1
from tests.networks import Awkward, ensemble, images, randomised, small_cnn
from tests.oracles import fullgrad_map, relative_l1, ua_backprop_maps

KINDS = ("total", "aleatoric", "epistemic")
FULLGRAD_MODULE = import_module("dubium.attribution.fullgrad")  # the package exports the function of that name


def oracle_relevance(rescale):
    return lambda network, image, k: fullgrad_map(network, image, lambda z: z[0, k], rescale, ["0", "1", "3"])


@pytest.mark.parametrize("rescale", ["reference", "none"])
@pytest.mark.parametrize(("channels", "tau1", "tau2"), [(1, 0.08, 0.3), (3, 0.55, 0.02)])
def test_maps_equal_algorithm_1_by_loops_in_float64(rescale, channels, tau1, tau2):
    networks = [network.double() for network in ensemble(lambda: small_cnn(channels))]
    x = images(2, channels, dtype=torch.float64)
    exact = ua_backprop_maps(networks, x, oracle_relevance(rescale), tau1, tau2)
    result = dubium.explain(networks, x, rescale=rescale)  # the taus of the paper are the defaults
    for kind, maps in zip(KINDS, exact, strict=True):
        assert relative_l1(result.maps[kind], maps).max() < 1e-8


@pytest.mark.parametrize("name", ["grad", "input-grad"])
def test_plain_relevances_equal_loops_over_classes(name):
    networks, x = [network.double() for network in ensemble(small_cnn)], images(2, dtype=torch.float64)

    def relevance(network, image, k):
        at = image[None].clone().requires_grad_()
        (slope,) = torch.autograd.grad(network(at)[0, k], at)
        return (slope * at if name == "input-grad" else slope)[0].abs().mean(0).detach()

    exact = ua_backprop_maps(networks, x, relevance, 0.08, 0.3)
    result = dubium.explain(networks, x, relevance=name)
    for kind, maps in zip(KINDS, exact, strict=True):
        assert relative_l1(result.maps[kind], maps).max() < 1e-8


def test_without_normalisation_the_relevance_is_used_as_it_is():
    networks, x = [network.double() for network in ensemble(small_cnn)], images(2, dtype=torch.float64)
    exact = ua_backprop_maps(networks, x, oracle_relevance("reference"), 0.08, 0.3, normalize=False)
    result = dubium.explain(networks, x, normalize=False)
    assert relative_l1(result.maps["epistemic"], exact[2]).max() < 1e-8


@pytest.mark.parametrize(("channels", "ten"), [(1, 0.08), (3, 0.55)])
def test_tau1_auto_depends_on_the_classes_and_is_told(channels, ten):
    networks, x = ensemble(lambda: small_cnn(channels, classes=30)), images(2, channels)
    auto, by_hand = dubium.explain(networks, x, tau1="auto"), dubium.explain(networks, x, tau1=scale_tau1(30, ten))
    assert auto.options["tau1"] == scale_tau1(30, ten)
    assert torch.equal(auto.maps["total"], by_hand.maps["total"])
    assert dubium.explain(networks, x[:0], tau1="auto").options["tau1"] == scale_tau1(30, ten)


@pytest.mark.parametrize("make", [small_cnn, lambda: small_cnn(3), lambda: Awkward(3)])
@pytest.mark.parametrize(("tau1", "tau2"), [(1e-9, 1e-9), (0.005, 0.001), (0.55, 0.02), (10.0, 5.0)])
def test_maps_are_complete_and_positive(make, tau1, tau2):
    networks = ensemble(make, 4)
    x = images(3, networks[0].get_submodule("first" if isinstance(networks[0], Awkward) else "0").in_channels)
    result = dubium.explain(networks, x, tau1=tau1, tau2=tau2)
    for kind in KINDS:
        assert (result.maps[kind] >= 0).all()
        torch.testing.assert_close(result.maps[kind].sum((1, 2)), result.scores[kind], rtol=1e-5, atol=0)
    torch.testing.assert_close(
        result.maps["total"], result.maps["aleatoric"] + result.maps["epistemic"], rtol=1e-4, atol=1e-9
    )


@settings(deadline=None, max_examples=25)
@given(
    classes=st.integers(2, 1000),
    tau1=st.floats(0.005, 10),
    tau2=st.floats(0.005, 5),
    members=st.integers(2, 4),
    channels=st.sampled_from([1, 3]),
    norm=st.booleans(),
    inplace=st.booleans(),
    rescale=st.sampled_from(["reference", "none"]),
    sharpness=st.floats(0.1, 30),
)
def test_maps_of_any_network_are_complete_and_positive(
    classes, tau1, tau2, members, channels, norm, inplace, rescale, sharpness
):
    networks = ensemble(lambda: small_cnn(channels, classes, 8, inplace, norm), members)
    with torch.no_grad():
        for network in networks:
            network[-1].weight.mul_(sharpness)
    result = dubium.explain(networks, images(2, channels, 8), tau1=tau1, tau2=tau2, rescale=rescale)
    for kind in KINDS:
        assert (result.maps[kind] >= 0).all()
        torch.testing.assert_close(result.maps[kind].sum((1, 2)), result.scores[kind], rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("rescale", ["reference", "none"])
@pytest.mark.parametrize("make", [small_cnn, lambda: small_cnn(norm=False, inplace=True)])
def test_one_call_on_a_batch_equals_calls_on_single_images(make, rescale):
    networks, x = ensemble(make), images(5)
    together = dubium.explain(networks, x, rescale=rescale)
    for b in range(5):
        alone = dubium.explain(networks, x[b : b + 1], rescale=rescale)
        for kind in KINDS:
            assert relative_l1(together.maps[kind][b : b + 1], alone.maps[kind]).max() < 1e-5


def test_maps_do_not_depend_on_the_memory_limit():
    networks, x = ensemble(lambda: small_cnn(3, classes=30)), images(4, 3)
    plenty, little = (dubium.explain(networks, x, memory=memory) for memory in ("1GiB", "40KiB"))
    for kind in KINDS:
        assert relative_l1(little.maps[kind], plenty.maps[kind]).max() < 1e-5


@pytest.mark.parametrize(
    ("options", "each", "compared"),
    [({}, 2, 2), ({"classes": 2}, 2, 2), ({"memory": "200KiB"}, 1 + 2 * 2, 3)],  # 1: what one image's features take
)
def test_one_forward_pass_serves_logits_and_relevance_where_it_fits(options, each, compared):
    networks, seen = ensemble(small_cnn), []
    for network in networks:
        network.register_forward_hook(lambda _network, args, _out: seen.append(len(args[0])))
    dubium.explain(networks, images(2), **options)
    assert sum(seen) == len(networks) * each + compared  # once: the first and the last image, alone


def test_passes_ahead_are_of_as_many_networks_as_fit():
    small, large = small_cnn().eval(), nn.Sequential(nn.Conv2d(1, 500, 3), nn.ReLU(), small_cnn(500, size=10)).eval()
    posteriors = [small] * 2, [small, large, small], [large, small]
    assert [len(keep_passes(each, images(1), 2**20)) for each in posteriors] == [2, 1, 0]


def test_a_posterior_makes_its_networks_only_to_check_them_to_pass_ahead_and_two_to_see_that_they_are_the_same():
    made, networks = [], ensemble(small_cnn, 3)

    class Made:
        def __len__(self):
            return 3

        def __iter__(self):
            for index, network in enumerate(networks):
                made.append(index)
                yield network

    dubium.explain(Made(), images(20))  # too many images to be walked together
    assert made == [0, 1, 2, 0, 1, 2, 0, 1]


def test_maps_do_not_depend_on_how_many_networks_pass_ahead(monkeypatch):
    networks, x = ensemble(small_cnn, 3), images(2)
    expected = dubium.explain(networks, x)
    for most in range(3):
        monkeypatch.setattr(FULLGRAD_MODULE, "keep_passes", lambda *args, most=most: keep_passes(*args)[:most])
        found = dubium.explain(networks, x)
        torch.testing.assert_close(found.maps, expected.maps, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(found.members, expected.members)


def test_a_mistake_in_a_kept_forward_pass_is_not_hidden_by_a_slower_way(monkeypatch):
    def broken(*_args, **_options):
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(FULLGRAD_MODULE, "FullGradPass", broken)
    with pytest.raises(ZeroDivisionError, match="a mistake of ours"):
        dubium.explain(ensemble(small_cnn), images(2))


def test_result_has_the_promised_fields_and_shapes():
    result = dubium.explain(ensemble(small_cnn, 3), images(2))
    assert set(result.scores) == set(result.maps) == set(KINDS)
    assert result.scores["total"].shape == (2,)
    assert result.maps["total"].shape == (2, 12, 12)
    assert result.probs.shape == (2, 4)
    assert result.members.shape == (3, 2, 4)
    torch.testing.assert_close(result.members.mean(0), result.probs)
    torch.testing.assert_close(result.probs.sum(-1), torch.ones(2))
    assert result.method == "ua-backprop"
    assert result.options["tau1"] == 0.08
    scores = dubium.uncertainty(ensemble(small_cnn, 3), images(2))
    assert scores.maps == {}
    torch.testing.assert_close(scores.scores["epistemic"], result.scores["epistemic"])


@pytest.mark.filterwarnings("ignore:All networks give the same")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("compiled", [lambda network: torch.jit.trace(network, images(1)), torch.jit.script])
def test_networks_whose_layers_cannot_be_seen_are_scored_but_not_explained(compiled):
    network, x = small_cnn().eval(), images(2)
    hidden = compiled(network)
    with pytest.raises(errors.PosteriorTypeError, match=r"torch\.jit: network 1.*made from"):
        dubium.explain([network, hidden], x)
    with pytest.raises(errors.PosteriorTypeError, match=r"torch\.jit"):
        dubium.fullgrad_completeness(hidden, x)
    scores = dubium.uncertainty([network, hidden], x).scores["total"]
    torch.testing.assert_close(scores, dubium.uncertainty([network, network], x).scores["total"])


def test_only_the_kinds_asked_for_are_returned_in_their_order():
    result = dubium.explain(ensemble(small_cnn), images(1), kinds=("epistemic", "total"))
    assert list(result.maps) == list(result.scores) == ["epistemic", "total"]
    everything = dubium.explain(ensemble(small_cnn), images(1))
    torch.testing.assert_close(result.maps["epistemic"], everything.maps["epistemic"])
    assert list(dubium.explain(ensemble(small_cnn), images(1), kinds="total").maps) == ["total"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_networks_give_float32_maps_near_those_of_their_float32_copies(dtype):
    half = [network.to(dtype) for network in ensemble(small_cnn)]
    with torch.no_grad():
        for network in half:
            network[-1].weight.mul_(300)  # logits whose gradients leave the range of float16
    full, x = [copy.deepcopy(network).float() for network in half], images(2).to(dtype)
    result, exact = dubium.explain(half, x), dubium.explain(full, x.float())
    assert result.maps["total"].dtype == torch.float32
    assert result.maps["total"].isfinite().all()
    for kind in KINDS:
        torch.testing.assert_close(result.maps[kind], exact.maps[kind])
    assert {p.dtype for network in half for p in network.parameters()} == {dtype}


def test_float64_stays_float64():
    result = dubium.explain([n.double() for n in ensemble(small_cnn)], images(1, dtype=torch.float64))
    assert result.maps["total"].dtype == result.scores["total"].dtype == torch.float64


def state_of(networks):
    return [
        (
            {name: module.training for name, module in network.named_modules()},
            {
                name: (p.requires_grad, None if p.grad is None else p.grad.clone())
                for name, p in network.named_parameters()
            },
            {name: tensor.clone() for name, tensor in network.state_dict().items()},
            [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in network.modules()],
        )
        for network in networks
    ]


def assert_same_state(before, after):
    for (modes, grads, tensors, hooks), (modes2, grads2, tensors2, hooks2) in zip(before, after, strict=True):
        assert modes == modes2
        assert hooks == hooks2
        assert {n: g[0] for n, g in grads.items()} == {n: g[0] for n, g in grads2.items()}
        for name, (_, grad) in grads.items():
            assert (grad is None) == (grads2[name][1] is None)
            assert grad is None or torch.equal(grad, grads2[name][1])
        assert all(torch.equal(tensor, tensors2[name]) for name, tensor in tensors.items())


@pytest.mark.parametrize("method", dubium.methods())
def test_networks_come_back_as_they_were(method, cheap):
    networks = ensemble(small_cnn)
    networks[0][0].weight.requires_grad_(False)
    networks[1](images(1)).sum().backward()
    networks[2][0].register_forward_hook(lambda _m, _a, _o: None)
    before = state_of(networks)
    dubium.explain(networks, images(2), method=method, **cheap(method))
    assert_same_state(before, state_of(networks))


@pytest.mark.parametrize("method", dubium.methods())
def test_networks_come_back_as_they_were_after_a_failure(method, cheap):
    class Fails(nn.Module):
        def __init__(self, allowed):
            super().__init__()
            self.allowed = allowed

        def forward(self, x):
            self.allowed -= 1
            if self.allowed < 0:
                raise RuntimeError("broken on purpose")
            return x

    # in predicting, in measuring, in differentiating, which random maps do without
    for allowed in (0, 1) if method in CONTROLS else (0, 1, 2):
        networks = [nn.Sequential(*small_cnn()[:5], Fails(allowed), *small_cnn()[5:]).eval() for _ in range(2)]
        before = state_of(networks)
        with pytest.raises(RuntimeError, match="broken on purpose"):
            dubium.explain(networks, images(9), method=method, **cheap(method))
        assert_same_state(before, state_of(networks))


def test_works_inside_no_grad_and_inference_mode_and_on_inference_tensors():
    networks, x = ensemble(small_cnn), images(2)
    exact = dubium.explain(networks, x).maps["total"]
    with torch.no_grad():
        assert torch.equal(dubium.explain(networks, x).maps["total"], exact)
    with torch.inference_mode():
        assert torch.equal(dubium.explain(networks, x.clone()).maps["total"], exact)


def test_results_carry_no_graph():
    result = dubium.explain(ensemble(small_cnn), images(1).requires_grad_())
    tensors = [*result.maps.values(), *result.scores.values(), result.probs, result.members]
    assert not any(tensor.requires_grad for tensor in tensors)


def test_no_images_give_empty_maps():
    result = dubium.explain(ensemble(small_cnn), images(2)[:0])
    assert result.maps["total"].shape == (0, 12, 12)
    assert result.scores["total"].shape == (0,)
    assert result.probs.shape == (0, 4)
    assert result.members.shape == (3, 0, 4)


def test_one_network_has_no_epistemic_doubt_and_says_so_once():
    with pytest.warns(UserWarning, match="one network") as caught:
        result = dubium.explain(ensemble(small_cnn, 1), images(2))
    assert len(caught) == 1
    assert (result.maps["epistemic"] == 0).all()
    assert (result.scores["epistemic"] == 0).all()
    assert torch.equal(result.maps["total"], result.maps["aleatoric"])


def test_certain_predictions_give_finite_maps():
    networks = ensemble(small_cnn)
    with torch.no_grad():
        for network in networks:
            network[-1].weight.mul_(1000)
    result = dubium.explain(networks, images(2))
    assert result.members.max() == 1
    for method in ("ua-backprop", "grad", "input-grad", "fullgrad"):
        result = dubium.explain(networks, images(2), method=method)
        assert all(maps.isfinite().all() for maps in result.maps.values())


def test_progress_ends_at_the_end():
    steps = []
    dubium.explain(ensemble(small_cnn), images(4), progress=lambda done, total: steps.append((done, total)))
    assert steps[-1][0] == steps[-1][1] > 0
    assert steps == sorted(steps)


def test_a_function_can_be_method_and_relevance():
    networks, x = ensemble(small_cnn), images(2)

    def mine(network, x, target):
        return fullgrad(network, x, target)

    own, known = dubium.explain(networks, x, relevance=mine), dubium.explain(networks, x)
    assert relative_l1(own.maps["total"], known.maps["total"]).max() < 1e-6  # the known one takes all networks together
    result = dubium.explain(networks, x, method=mine)
    assert result.method == "mine"
    assert torch.equal(result.maps["total"], dubium.explain(networks, x, method="fullgrad").maps["total"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile's own
def test_a_compiled_network_is_explained_as_the_network_it_wraps():
    networks, x = ensemble(small_cnn), images(1)
    compiled = [torch.compile(network, backend="eager") for network in networks]
    assert torch.equal(dubium.explain(compiled, x).maps["total"], dubium.explain(networks, x).maps["total"])


class Output(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.training = False

    def forward(self, x):
        return self.function(x)


def mean_pairs(x):
    means = x.mean((1, 2, 3))
    return torch.stack([means, -means], 1)


def nan_for_the_third_image(x):
    third = x[:, 0, 0, 0] == images(3)[2, 0, 0, 0]
    return mean_pairs(x).masked_fill(third[:, None], float("nan"))


GOOD = partial(ensemble, small_cnn)
BAD = {
    "not a tensor": (GOOD, lambda: [[1.0]], errors.ImagesTypeError, "torch.as_tensor"),
    "integers": (GOOD, lambda: torch.zeros(1, 1, 12, 12, dtype=torch.uint8), errors.ImagesTypeError, "255"),
    "three axes": (GOOD, lambda: images(1)[0], errors.ImagesError, r"x\[None\].*x\[:, None\].*Signals \(B, C, L\)"),
    "a table": (GOOD, lambda: torch.rand(4, 7), errors.ImagesError, "tables.*not supported yet"),
    "a processor's dict": (
        GOOD,
        lambda: UserDict(pixel_values=images(1)),
        errors.ImagesTypeError,
        r"UserDict of pixel_values.*x\['pixel_values'\]",
    ),
    "no pixels": (GOOD, lambda: images(1)[..., :0], errors.ImagesError, "no pixels"),
    "NaN": (GOOD, lambda: images(4).index_fill_(0, torch.tensor([2]), float("nan")), errors.ImagesError, "index 2"),
    "infinity": (
        GOOD,
        lambda: images(4).index_fill_(0, torch.tensor([3]), float("inf")),
        errors.ImagesError,
        "index 3",
    ),
    "empty": (list, lambda: images(1), errors.PosteriorError, "empty"),
    "a network": (lambda: small_cnn().eval(), lambda: images(1), errors.PosteriorTypeError, r"\[network\]"),
    "a number": (lambda: 3, lambda: images(1), errors.PosteriorTypeError, "list of networks"),
    "numbers": (lambda: [1, 2], lambda: images(1), errors.PosteriorTypeError, "Element 0"),
    "a generator": (lambda: (n for n in GOOD()), lambda: images(1), errors.PosteriorTypeError, "list"),
    "no statistics": (
        lambda: [nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False), *small_cnn()).eval()],
        lambda: images(1),
        errors.NetworkStateError,
        "running statistics",
    ),
    "dtype": (GOOD, lambda: images(1, dtype=torch.float64), errors.DtypeError, "float64.*network 0.*float32"),
    "dtype of an early layer": (
        lambda: [nn.Sequential(small_cnn(1), nn.Flatten()).eval()],
        lambda: images(1, dtype=torch.float64),
        errors.DtypeError,
        "float64.*network 0.*float32",
    ),
    "training": (
        lambda: [*GOOD(), small_cnn().train()],
        lambda: images(1),
        errors.NetworkStateError,
        r"network 3.*eval\(\)",
    ),
    "dropout on": (
        lambda: [nn.Sequential(*GOOD()[0], nn.Dropout().train())],
        lambda: images(1),
        errors.NetworkStateError,
        "eval",
    ),
    "different K": (
        lambda: [*GOOD(), randomised(small_cnn(classes=7))],
        lambda: images(1),
        errors.PosteriorError,
        "network 0 has 4, network 3 has 7",
    ),
    "K = 1": (
        lambda: [randomised(small_cnn(classes=1))] * 2,
        lambda: images(1),
        errors.OutputError,
        "K = 1.*output='sigmoid'",
    ),
    "not (B, K)": (
        lambda: [Output(lambda x: x)] * 2,
        lambda: images(1),
        errors.OutputError,
        r"\(1, 1, 12, 12\)",
    ),
    "a tuple": (lambda: [Output(lambda x: (x,))] * 2, lambda: images(1), errors.OutputError, "tuple"),
    "NaN logits": (
        lambda: [Output(mean_pairs), Output(nan_for_the_third_image)],
        lambda: images(3),
        errors.OutputError,
        "Network 1.*image 2",
    ),
    "other device": (lambda: [small_cnn().eval().to("meta")] * 2, lambda: images(1), errors.DeviceError, "cpu.*meta"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("call", [dubium.explain, dubium.uncertainty])
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_advice(name, call):
    posterior, x, error, message = BAD[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(error, match=message) as caught:
            call(posterior(), x())
    assert isinstance(caught.value, errors.DubiumError)
    assert isinstance(caught.value, ValueError | TypeError)


BAD_OPTIONS = {
    "tau1": ({"tau1": 0}, errors.OptionError, "tau1=0"),
    "tiny tau1": ({"tau1": 1e-12}, errors.OptionError, "tau1=1e-12 is too small"),
    "tiny tau2": ({"tau2": 1e-42}, errors.OptionError, "tau2=1e-42 is too small"),
    "vae of a method without": ({"method": "grad", "vae": "no/such/folder"}, errors.UnknownNameError, "'vae'"),
    "vae of a relevance without": ({"vae": "no/such/folder"}, errors.UnknownNameError, "'vae'"),
    "tau1 text": ({"tau1": "some"}, errors.OptionError, "tau1='some'; 'auto' or a number greater than 0"),
    "tau2": ({"tau2": -1.0}, errors.OptionError, "tau2=-1.0"),
    "tau2 auto": ({"tau2": "auto"}, errors.OptionError, "tau2='auto'"),
    "tau2 text": ({"tau2": "x"}, errors.OptionError, "tau2='x'"),
    "tau1 nan": ({"tau1": float("nan")}, errors.OptionError, "tau1=nan"),
    "method": ({"method": "ua-backprob"}, errors.UnknownNameError, "Did you mean 'ua-backprop'"),
    "kind": ({"kinds": ("epistemc",)}, errors.UnknownNameError, "Did you mean 'epistemic'"),
    "no kinds": ({"kinds": ()}, errors.OptionError, "kinds is empty"),
    "relevance": ({"relevance": "input_grad"}, errors.UnknownNameError, "Did you mean 'input-grad'"),
    "rescale": ({"rescale": "refrence"}, errors.UnknownNameError, "Did you mean 'reference'"),
    "option": ({"rescal": 1.0}, errors.UnknownNameError, "Did you mean 'rescale'"),
    "option of another relevance": (
        {"relevance": "grad", "rescale": "none"},
        errors.UnknownNameError,
        "option of 'ua-backprop by grad' called 'rescale'.*Available: relevance, tau1, tau2, normalize, classes, of",
    ),
    "option of another method": ({"method": "grad", "tau1": 1.0}, errors.UnknownNameError, "'tau1'"),
    "memory": ({"memory": "lots"}, errors.OptionError, "512MiB"),
    "negative memory": ({"memory": -1}, errors.OptionError, "512MiB"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_a_bad_option_is_refused_with_advice(name):
    options, error, message = BAD_OPTIONS[name]
    with pytest.raises(error, match=message):
        dubium.explain(ensemble(small_cnn), images(1), **options)


@pytest.mark.parametrize("call", [dubium.explain, dubium.uncertainty])
def test_networks_that_end_in_a_softmax_are_refused_with_the_way_out(call):
    networks = [nn.Sequential(network, nn.Softmax(-1)).eval() for network in ensemble(small_cnn)]
    with pytest.raises(errors.OutputError, match=r"look like probabilities.*output='probabilities'"):
        call(networks, images(2))


@pytest.mark.parametrize("call", [dubium.explain, dubium.uncertainty])
def test_a_network_that_cannot_take_the_images_is_named_with_their_shape(call):
    with pytest.raises(errors.NetworkError, match=r"Network 0.*\(2, 3, 12, 12\)"):
        call(ensemble(small_cnn), images(2, 3))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("role", ["method", "relevance"])
def test_a_users_method_that_gives_no_maps_is_refused(role):
    with pytest.raises(errors.OutputError, match=r"returned \(2, 12, 12\)"):
        dubium.explain(ensemble(small_cnn), images(2), **{role: lambda _n, x, _t: x[:, 0]})


def test_normalisation_for_other_channels_is_refused():
    networks = [Normalized(network, [0.5, 0.5], [0.2, 0.2]).eval() for network in ensemble(lambda: small_cnn(3))]
    with pytest.raises(errors.OptionError, match="2 channels, the images have 3"):
        dubium.explain(networks, images(1, 3))


@pytest.mark.parametrize("call", [partial(dubium.explain, method="grad"), dubium.uncertainty])
def test_pixels_up_to_255_for_networks_that_want_up_to_1_bring_a_warning(call):
    posterior, x = dubium.load_posterior("demo"), dubium.data.load("demo").batch(range(8))
    with pytest.warns(UserWarning, match=r"from 0 to 255, and the networks' logits are huge.*give x / 255") as warned:
        call(posterior, 255 * x)
    assert [Path(one.filename) for one in warned] == [Path(__file__)]
    with pytest.warns(UserWarning, match="x / 255"):
        call(posterior, 254.5 * x[:1])


class TellsLeftFromRight(nn.Module):
    """Its logits are at most 16 apart, however bright the image; half of that at a contrast of `scale / 2`."""

    def __init__(self, scale):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x):
        contrast = x[..., :6].mean((1, 2, 3)) - x[..., 6:].mean((1, 2, 3))
        return torch.stack([torch.tanh(contrast / self.scale), -torch.tanh(contrast / self.scale)], 1) * 8


@pytest.mark.parametrize("call", [partial(dubium.explain, method="grad"), dubium.uncertainty])
@pytest.mark.parametrize("image_count", [1, 9])
def test_pixels_up_to_255_are_warned_of_where_networks_tell_such_images_from_plain_ones_up_to_1(call, image_count):
    x = torch.zeros(image_count, 1, 12, 12)
    x[..., :6] = 0.1
    with pytest.warns(errors.DubiumWarning, match="give x / 255"):
        call([TellsLeftFromRight(0.2).eval()], 255 * x, kinds="total")
    call([TellsLeftFromRight(0.2).eval()], x, kinds="total")  # warnings are errors
    call([TellsLeftFromRight(51.0).eval()], 255 * x, kinds="total")


class TakesBytes(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(x / 255)


def test_networks_that_take_pixels_up_to_255_or_standardised_ones_bring_no_warning():
    posterior, x = dubium.load_posterior("demo"), dubium.data.load("demo").batch(slice(None))  # warnings are errors
    dubium.uncertainty([TakesBytes(network).eval() for network in posterior], 255 * x)
    dubium.uncertainty(posterior, 255 * (x - x.mean()))
    dubium.uncertainty(posterior, 5 * x)
    dubium.uncertainty(posterior, 255 * x[:0])


def test_bytes_are_told_the_line_that_does_what_explain_dataset_does_with_them(tmp_path, unchecked):
    networks, x = ensemble(small_cnn), (255 * images(3)).to(torch.uint8)
    for call in (dubium.explain, dubium.uncertainty):
        with pytest.raises(errors.ImagesTypeError, match=r"x / 255\. dubium\.explain_dataset .* take bytes"):
            call(networks, x)
    with pytest.raises(errors.ImagesTypeError, match=r"x / 255\."):
        dubium.explain_dataset(networks, x.long(), tmp_path / "long")
    found = dubium.explain_dataset(networks, x, tmp_path / "bytes", top=0)
    scores = dubium.uncertainty(networks, x / 255).scores["epistemic"]
    torch.testing.assert_close(torch.tensor([row.epistemic for row in found.rows()]), scores)
