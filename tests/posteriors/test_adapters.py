import math
import subprocess
import sys

import pytest
import torch
from torch import nn

import dubium
from dubium import errors
from dubium.errors import MissingExtraError, PosteriorError, PosteriorTypeError
from dubium.posteriors import Drawn, MCDropout, as_posterior, stack
from dubium.posteriors.optional_imports import import_extra
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


@pytest.mark.parametrize("package", ["posteriors", "laplace", "skorch"])
def test_a_package_of_ones_own_may_be_called_like_a_library(package, x):
    class Net(nn.Sequential):
        __module__ = f"{package}.nets"

    class Collection:
        __module__ = f"{package}.mine"

        def __len__(self):
            return 2

        def __iter__(self):
            return iter(networks)

    networks = [Net(nn.Flatten(), nn.Linear(SIZE**2, 3).double()).eval() for _ in range(2)]
    expected = dubium.explain(networks, x, method="grad").maps["total"]
    for posterior in (networks, tuple(networks), Collection(), nn.ModuleList(networks)):
        assert torch.equal(dubium.explain(posterior, x, method="grad").maps["total"], expected)
    with pytest.raises(PosteriorTypeError, match=r"single Net, not a collection.*\[network\]\.$"):
        as_posterior(networks[0])


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
        list(Drawn(lambda index: index, 2))
    with pytest.raises(PosteriorError, match="samples is 0"):
        Drawn(lambda _index: nn.Linear(2, 2), 0)


def test_a_missing_library_names_its_extra():
    with pytest.raises(MissingExtraError, match=r"pip install 'dubium\[laplace\]'"):
        import_extra("no_such_library", "laplace")


def test_a_library_that_is_there_but_fails_is_not_to_be_installed(tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text("raise ImportError('needs another torch')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError, match="is installed but cannot be imported: needs another torch") as raised:
        import_extra("broken_library", "laplace")
    assert "pip" not in str(raised.value)


def estimators(model, x, count):
    """What the model itself gives: (N * B, K), estimator after estimator, as (B, N, K)."""
    return model.eval()(x).unflatten(0, (count, len(x))).movedim(0, 1)


@pytest.mark.libraries
def test_torch_uncertainty_ensembles_give_what_they_give(x):
    methods = imported("torch_uncertainty.methods")
    model = methods.deep_ensembles([cnn().eval() for _ in range(3)])
    torch.testing.assert_close(stack(as_posterior(model))(x), estimators(model, x, 3))
    collector = methods.CheckpointCollector(cnn().eval())
    for epoch in range(2):
        collector.update_wrapper(epoch)
        nn.init.normal_(collector.core_model[-1].bias)
    torch.testing.assert_close(stack(as_posterior(collector))(x), estimators(collector, x, 3))


@pytest.mark.libraries
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


@pytest.mark.libraries
def test_models_that_repeat_their_own_input_are_taken_apart_too(x):
    resnets = imported("torch_uncertainty.models.classification.resnet")
    batched = resnets.batched_resnet(
        in_channels=1, num_classes=3, arch=18, num_estimators=2, conv_bias=False, style="cifar"
    )
    model = batched.double().eval()
    torch.testing.assert_close(stack(as_posterior(model))(x), estimators(model, x, 2))


@pytest.mark.libraries
def test_torch_uncertainty_mc_dropout_drops_out_where_it_did():
    methods = imported("torch_uncertainty.methods")
    core = nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Dropout(0.5))
    x = torch.ones(1, 1, 20, 20)
    everywhere, last = (as_posterior(methods.mc_dropout(core, 5, last_layer=last)) for last in (False, True))
    assert len(everywhere) == len(last) == 5
    assert len(as_posterior(methods.mc_dropout(core, 5), samples=2)) == 2
    assert next(iter(everywhere))(x).max() == 4
    assert next(iter(last))(x).max() == 2


@pytest.mark.libraries
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


@pytest.mark.libraries
def test_bayesian_layers_have_the_drawn_weights_of_their_distribution():
    layers = imported("torch_uncertainty.layers.bayesian")
    layer = layers.BayesLinear(30, 40).double()
    layer(torch.rand(1, 30).double())  # leaves a drawn weight behind, which cannot be copied
    posterior = as_posterior(nn.Sequential(layer), samples=200)
    weights = torch.stack([network[0].weight for network in posterior])
    noise = (weights - layer.weight_mu) / torch.log1p(layer.weight_sigma.exp())
    assert noise.std().item() == pytest.approx(1, abs=0.01)
    assert noise.mean().item() == pytest.approx(0, abs=0.01)


@pytest.mark.libraries
def test_torch_uncertainty_models_that_cannot_be_taken_apart_are_refused():
    layers = imported("torch_uncertainty.layers")
    with pytest.raises(PosteriorTypeError, match="cannot be taken apart"):
        as_posterior(nn.Sequential(layers.PackedLinear(4, 3, alpha=2, num_estimators=2, first=True)))


@pytest.mark.libraries
@pytest.mark.parametrize("kind", ["Reparameterization", "Flipout"])
def test_bayesian_torch_layers_have_the_drawn_weights_of_their_distribution(kind):
    layers = imported("bayesian_torch.layers")
    layer = getattr(layers, f"Conv2d{kind}")(4, 6, 3, stride=2, padding=1, groups=2).double()
    posterior = as_posterior(nn.Sequential(layer), samples=300)
    convolutions = [network.network[0].layer for network in posterior]
    assert (convolutions[0].stride, convolutions[0].padding, convolutions[0].groups) == ((2, 2), (1, 1), 2)
    noise = (torch.stack([c.weight for c in convolutions]) - layer.mu_kernel) / torch.log1p(layer.rho_kernel.exp())
    assert noise.std().item() == pytest.approx(1, abs=0.02)


@pytest.mark.libraries
def test_bayesian_torch_layers_that_cannot_be_fixed_are_refused():
    layers = imported("bayesian_torch.layers")
    with pytest.raises(PosteriorTypeError, match="'0' is a LSTMReparameterization"):
        as_posterior(nn.Sequential(layers.LSTMReparameterization(4, 4)))


def packed_cnn(layers):
    return nn.Sequential(
        layers.PackedConv2d(1, 4, 3, alpha=2, num_estimators=2, minimum_channels_per_group=1, first=True),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        layers.PackedConv2d(4, 4, 3, alpha=2, num_estimators=2, minimum_channels_per_group=1),
        nn.Flatten(),
        layers.PackedLinear(4 * 16, 3, alpha=2, num_estimators=2, last=True),
    ).double()


@pytest.mark.libraries
def test_packed_ensembles_have_a_network_for_each_estimator(x):
    layers = imported("torch_uncertainty.layers")
    model = packed_cnn(layers).eval()
    posterior = as_posterior(model)
    assert len(posterior) == 2
    torch.testing.assert_close(stack(posterior)(x), estimators(model, x, 2))
    result = dubium.explain(model, x)
    torch.testing.assert_close(result.maps["total"].sum((1, 2)), result.scores["total"])


@pytest.mark.libraries
@pytest.mark.parametrize("kind", ["packed", "masked", "mimo"])
def test_resnets_of_packed_masked_and_mimo_ensembles_are_taken_apart(kind, x):
    resnets = imported("torch_uncertainty.models.classification.resnet")
    own = {
        "packed": {"alpha": 2, "gamma": 1},
        "masked": {"scale": 2.0, "repeat_strategy": "legacy"},
        "mimo": {},
    }[kind]
    make = getattr(resnets, f"{kind}_resnet")
    model = make(in_channels=1, num_classes=3, arch=18, num_estimators=2, conv_bias=False, style="cifar", **own)
    model = model.double().eval()
    torch.testing.assert_close(stack(as_posterior(model))(x), estimators(model, x, 2))


@pytest.mark.libraries
def test_a_routine_stands_for_its_model(x):
    routines, methods = imported("torch_uncertainty.routines"), imported("torch_uncertainty.methods")
    model = methods.deep_ensembles([cnn().eval() for _ in range(3)])
    routine = routines.ClassificationRoutine(model, num_classes=3, loss=nn.CrossEntropyLoss(), is_ensemble=True)
    torch.testing.assert_close(stack(as_posterior(routine))(x), estimators(model, x, 3))
    with pytest.raises(PosteriorTypeError, match=r"single Sequential.*\[network\]"):
        as_posterior(routines.ClassificationRoutine(cnn().eval(), num_classes=3, loss=nn.CrossEntropyLoss()))
    scaler = imported("torch_uncertainty.post_processing").TemperatureScaler()
    routine = routines.ClassificationRoutine(
        cnn().eval(), num_classes=3, loss=nn.CrossEntropyLoss(), post_processing=scaler
    )
    with pytest.raises(PosteriorTypeError, match=r"post-processing.*routine\.model"):
        as_posterior(routine)
    with pytest.raises(PosteriorTypeError, match="not supported yet"):
        as_posterior(routines.RegressionRoutine(model, output_dim=1, loss=nn.MSELoss()))


def test_states_of_the_library_posteriors_need_their_network(x):
    library = imported("posteriors")
    network = cnn().eval()
    params = {name: weight.detach() for name, weight in network.named_parameters()}
    state = library.vi.diag.VIDiagState(params, {n: torch.full_like(w, -3.0) for n, w in params.items()}, (), 0)
    for alone in (state, [state], (state, state)):
        with pytest.raises(PosteriorTypeError, match=r"\(network, state\)"):
            as_posterior(alone)


def normal_states(library, params):
    """States of each kind whose standard deviation is 0.1 everywhere."""

    def everywhere(number):
        return {name: torch.full_like(weight, number) for name, weight in params.items()}

    size = sum(weight.numel() for weight in params.values())
    return {
        "vi": library.vi.diag.VIDiagState(params, everywhere(math.log(0.1)), ()),
        "laplace": library.laplace.diag_fisher.DiagLaplaceState(params, everywhere(100.0)),
        "kalman": library.ekf.diag_fisher.EKFDiagState(params, everywhere(0.1)),
        "dense laplace": library.laplace.dense_fisher.DenseLaplaceState(params, 100 * torch.eye(size)),
        "dense vi": library.vi.dense.VIDenseState(params, library.utils.L_to_flat(0.1 * torch.eye(size)), ()),
        "dense kalman": library.ekf.dense_fisher.EKFDenseState(params, 0.01 * torch.eye(size)),
    }


@pytest.mark.parametrize("kind", ["vi", "laplace", "kalman", "dense laplace", "dense vi", "dense kalman"])
def test_networks_are_drawn_from_gaussian_states(kind):
    library = imported("posteriors")
    network = nn.Sequential(nn.Flatten(), nn.Linear(20, 3)).eval()
    params = {name: weight.detach() for name, weight in network.named_parameters()}
    posterior = as_posterior((network, normal_states(library, params)[kind]), samples=200)
    assert len(posterior) == 200
    weights = torch.stack([sample[1].weight for sample in posterior])
    assert ((weights - network[1].weight) / 0.1).std().item() == pytest.approx(1, abs=0.03)
    again = torch.stack([sample[1].weight for sample in posterior])
    assert torch.equal(weights, again)


def test_dense_states_have_the_covariance_that_they_say():
    library = imported("posteriors")
    network = nn.Sequential(nn.Flatten(), nn.Linear(2, 2)).double().eval()
    params = {name: weight.detach() for name, weight in network.named_parameters()}
    root = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cov = root @ root.T + torch.eye(6)
    flat, _ = imported("optree.integrations.torch").tree_ravel(params)
    ekf = library.ekf.dense_fisher.EKFDenseState(params, cov)
    laplace = library.laplace.dense_fisher.DenseLaplaceState(params, torch.linalg.inv(cov))
    for state in (ekf, laplace):
        factors = as_posterior((network, state)).factors
        ravel = imported("optree.integrations.torch").tree_ravel
        rows = torch.stack([ravel({name: value[r] for name, value in factors.items()})[0] for r in range(6)])
        torch.testing.assert_close(rows.T @ rows, cov)
        assert rows.shape[1] == len(flat)


def test_a_chain_of_states_is_a_network_each(x):
    library = imported("posteriors")
    network, others = cnn().eval(), [cnn().eval() for _ in range(3)]
    states = [library.sgmcmc.sgld.init(dict(other.named_parameters())) for other in others]
    torch.testing.assert_close(stack(as_posterior((network, states)))(x), stack(others)(x))
    assert len(as_posterior((network, states[0]))) == 1


@pytest.mark.libraries
def test_probly_models_are_taken_apart(x):
    representation = imported("probly.representation")
    ensemble = representation.Ensemble(cnn(), 3)
    ensemble.eval()
    torch.testing.assert_close(stack(as_posterior(ensemble))(x), ensemble.predict_representation(x, logits=True))
    dropout = representation.Dropout(nn.Sequential(nn.Flatten(), nn.Linear(64, 50), nn.Linear(50, 3)).double(), 0.5)
    dropout.eval()
    assert len(as_posterior(dropout, samples=4)) == 4
    with pytest.raises(PosteriorTypeError, match="cannot be taken apart"):
        as_posterior(imported("probly.representation.classification").Evidential(cnn()))


@pytest.mark.libraries
def test_probly_layers_have_the_drawn_weights_of_their_distribution(x):
    representation = imported("probly.representation")
    base = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Flatten(), nn.Linear(36, 20), nn.Linear(20, 30))
    bayesian = representation.Bayesian(base, use_base_weights=True, posterior_std=0.05)
    weights = torch.stack([network[3].weight for network in as_posterior(bayesian, samples=200)])
    noise = (weights - bayesian.model[3].weight_mu) / 0.05
    assert noise.std().item() == pytest.approx(1, abs=0.02)
    assert next(iter(as_posterior(bayesian)))(x.float()).shape == (3, 30)
    connect = representation.DropConnect(base, 0.25)
    kept = torch.stack([network[3].weight != 0 for network in as_posterior(connect, samples=200)])
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.01)


@pytest.mark.libraries
def test_skorch_gets_advice():
    skorch = imported("skorch")
    net = skorch.NeuralNetClassifier(cnn()).initialize()
    with pytest.raises(PosteriorTypeError, match=r"net\.module_"):
        as_posterior(net)
    with pytest.raises(PosteriorTypeError, match="module_"):
        dubium.explain([net, net], torch.rand(1, 1, SIZE, SIZE))


class Pipeline:
    """A pipeline of Hugging Face, as far as it is looked at."""

    __module__ = "transformers.pipelines.image_classification"

    def __init__(self, model):
        self.model = model

    def __call__(self, images):
        raise TypeError("Incorrect format used for image.")


def test_a_pipeline_is_told_to_give_its_network():
    pipe = Pipeline(cnn())
    with pytest.raises(PosteriorTypeError, match=r"a Hugging Face Pipeline.* in a list: \[pipe\.model\.eval\(\)\]"):
        as_posterior(pipe)
    with pytest.raises(
        PosteriorTypeError, match=r"needed\. Its network is element\.model \(a pipeline of Hugging Face"
    ):
        dubium.explain([pipe, pipe], torch.rand(1, 1, SIZE, SIZE))


@pytest.mark.libraries
@pytest.mark.usefixtures("unchecked")
def test_a_list_of_hugging_face_classifiers_is_explained():
    transformers = imported("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(image_size=16, patch_size=4, num_labels=3, **sizes)
    models = [transformers.ViTForImageClassification(config).eval() for _ in range(2)]
    pixels = {"pixel_values": torch.rand(2, 3, 16, 16)}
    result = dubium.explain(models, pixels["pixel_values"])
    with torch.no_grad():
        expected = torch.stack([model(**pixels).logits.softmax(-1) for model in models])
    torch.testing.assert_close(result.members, expected)
    with pytest.raises(errors.ImagesTypeError, match=r"x\['pixel_values'\]"):
        dubium.explain(models, pixels)
