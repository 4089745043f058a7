import subprocess
import sys

import pytest
import torch
from torch import nn

from dubium.errors import MissingExtraError, PosteriorError, PosteriorTypeError
from dubium.posteriors import Drawn, MCDropout, as_posterior, stack
from dubium.posteriors.extras import require
from tests.posteriors.cases import SAMPLES, SIZE, cnn
from tests.posteriors.third_party import imported


@pytest.fixture
def x():
    return torch.rand(3, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_lists_tuples_and_posteriors_are_taken_as_they_are():
    for posterior in ([nn.Linear(2, 2)], (nn.Linear(2, 2),), MCDropout(nn.Sequential(nn.Dropout(0.5)), 2)):
        assert as_posterior(posterior) is posterior
    modules = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    assert as_posterior(modules) == list(modules)


def test_no_other_library_is_imported_for_a_list():
    code = (
        "import sys, dubium.posteriors as p\n"
        "from torch import nn\n"
        "p.as_posterior([nn.Linear(2, 2)])\n"
        "names = {'laplace', 'posteriors', 'torchopt', 'torch_uncertainty', 'bayesian_torch', 'torchvision'}\n"
        "assert not names & set(sys.modules), names & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "given", [3, "name", {"a": nn.Linear(2, 2)}, {nn.Linear(2, 2)}, nn.Linear, iter([nn.Linear(2, 2)]), torch.zeros(2)]
)
def test_other_things_are_refused_with_what_is_expected(given):
    with pytest.raises(PosteriorTypeError, match="expected a list of networks"):
        as_posterior(given)


def test_one_network_is_no_posterior():
    with pytest.raises(PosteriorTypeError, match=r"single Sequential.*\[network\]\.$"):
        as_posterior(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(PosteriorTypeError, match=r"MCDropout\(network\)"):
        as_posterior(nn.Sequential(nn.Dropout(0.5)))


def test_a_function_says_how_many_by_its_length_or_the_caller():
    class Sampler:
        def __len__(self):
            return 7

        def __call__(self, index):
            return nn.Linear(2, 2)

    assert len(as_posterior(Sampler())) == 7
    assert len(as_posterior(lambda _index: nn.Linear(2, 2), samples=3)) == 3
    first, second = as_posterior(Sampler()), as_posterior(Sampler(), seed=1)
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(first, first, strict=True))
    assert not any(torch.equal(a.weight, b.weight) for a, b in zip(first, second, strict=True))
    with pytest.raises(PosteriorTypeError, match=r"sample\(0\) gave a int"):
        list(Drawn(lambda index: index, 2))  # type: ignore[arg-type]
    with pytest.raises(PosteriorError, match="samples is 0"):
        Drawn(lambda _index: nn.Linear(2, 2), 0)


def test_a_missing_library_names_its_extra():
    with pytest.raises(MissingExtraError, match=r"pip install 'dubium\[laplace\]'"):
        require("no_such_library", "laplace")


def estimators(model, x, count):
    """What the model itself gives: (N * B, K), estimator after estimator, as (B, N, K)."""
    return model.eval()(x).unflatten(0, (count, len(x))).movedim(0, 1)


def test_torch_uncertainty_ensembles_give_what_they_give(x):
    methods = imported("torch_uncertainty.methods")
    model = methods.deep_ensembles([cnn().eval() for _ in range(3)])
    torch.testing.assert_close(stack(as_posterior(model))(x), estimators(model, x, 3))
    collector = methods.CheckpointCollector(cnn().eval())
    for epoch in range(2):
        collector.update_wrapper(epoch)
        nn.init.normal_(collector.core_model[-1].bias)
    torch.testing.assert_close(stack(as_posterior(collector))(x), estimators(collector, x, 3))


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_ensembles_are_taken_apart_into_ordinary_networks(groups, x):
    methods, layers = imported("torch_uncertainty.methods"), imported("torch_uncertainty.layers")
    core = nn.Sequential(
        layers.BatchConv2d(1, 4, 3, SAMPLES),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        layers.BatchConv2d(4, 6, 3, SAMPLES, stride=2, padding=1, groups=groups, bias=False),
        nn.Flatten(),
        layers.BatchLinear(6 * 9, 3, SAMPLES),
    )
    model = methods.BatchEnsemble(core, SAMPLES).double()
    posterior = as_posterior(model)
    torch.testing.assert_close(stack(posterior)(x), estimators(model, x, SAMPLES))
    assert all(type(layer).__module__.startswith("torch.") for network in posterior for layer in network.modules())
    assert posterior[0][1].weight is posterior[1][1].weight


def test_models_that_repeat_their_own_input_are_taken_apart_too(x):
    resnets = imported("torch_uncertainty.models.classification.resnet")
    batched = resnets.batched_resnet(
        in_channels=1, num_classes=3, arch=18, num_estimators=2, conv_bias=False, style="cifar"
    )
    model = batched.double().eval()
    torch.testing.assert_close(stack(as_posterior(model))(x), estimators(model, x, 2))


def test_torch_uncertainty_mc_dropout_drops_out_where_it_did():
    methods = imported("torch_uncertainty.methods")
    core = nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Dropout(0.5))
    x = torch.ones(1, 1, 20, 20)
    everywhere, last = (as_posterior(methods.mc_dropout(core, 5, last_layer=last)) for last in (False, True))
    assert len(everywhere) == len(last) == 5
    assert len(as_posterior(methods.mc_dropout(core, 5), samples=2)) == 2
    assert next(iter(everywhere))(x).max() == 4
    assert next(iter(last))(x).max() == 2


def test_torch_uncertainty_swag_and_frozen_layers(x):
    methods, layers = imported("torch_uncertainty.methods"), imported("torch_uncertainty.layers.bayesian")
    swag = methods.SWAG(cnn().float(), cycle_start=0, cycle_length=1, num_estimators=3)
    with pytest.raises(PosteriorError, match="drawn no samples"):
        as_posterior(swag)
    swag.update_wrapper(1)
    assert len(as_posterior(swag)) == 3
    assert not any(network.training for network in as_posterior(swag))
    core = nn.Sequential(nn.Flatten(), layers.BayesLinear(SIZE**2, 3, frozen=True)).double()
    first, second = as_posterior(methods.StochasticModel(core, 2))
    assert torch.equal(first(x), core(x))
    assert torch.equal(second(x), core(x))


def test_bayesian_layers_have_the_drawn_weights_of_their_distribution():
    layers = imported("torch_uncertainty.layers.bayesian")
    layer = layers.BayesLinear(30, 40).double()
    layer(torch.rand(1, 30).double())  # leaves a drawn weight behind, which cannot be copied
    posterior = as_posterior(nn.Sequential(layer), samples=200)
    weights = torch.stack([network[0].weight for network in posterior])
    noise = (weights - layer.weight_mu) / torch.log1p(layer.weight_sigma.exp())
    assert noise.std().item() == pytest.approx(1, abs=0.01)
    assert noise.mean().item() == pytest.approx(0, abs=0.01)


def test_torch_uncertainty_models_that_cannot_be_taken_apart_are_refused():
    layers = imported("torch_uncertainty.layers")
    with pytest.raises(PosteriorTypeError, match="cannot be taken apart"):
        as_posterior(nn.Sequential(layers.PackedLinear(4, 3, alpha=2, num_estimators=2, first=True)))


@pytest.mark.parametrize("kind", ["Reparameterization", "Flipout"])
def test_bayesian_torch_layers_have_the_drawn_weights_of_their_distribution(kind):
    layers = imported("bayesian_torch.layers")
    layer = getattr(layers, f"Conv2d{kind}")(4, 6, 3, stride=2, padding=1, groups=2).double()
    posterior = as_posterior(nn.Sequential(layer), samples=300)
    convolutions = [network.network[0].layer for network in posterior]
    assert (convolutions[0].stride, convolutions[0].padding, convolutions[0].groups) == ((2, 2), (1, 1), 2)
    noise = (torch.stack([c.weight for c in convolutions]) - layer.mu_kernel) / torch.log1p(layer.rho_kernel.exp())
    assert noise.std().item() == pytest.approx(1, abs=0.02)


def test_bayesian_torch_layers_that_cannot_be_fixed_are_refused():
    layers = imported("bayesian_torch.layers")
    with pytest.raises(PosteriorTypeError, match="'0' is a LSTMReparameterization"):
        as_posterior(nn.Sequential(layers.LSTMReparameterization(4, 4)))
