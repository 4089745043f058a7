"""One small posterior of every kind, in float64: the user's model, and how the posterior is made from it."""

import warnings

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from dubium.posteriors import (
    SWAG,
    Drawn,
    Gaussian,
    MCDropout,
    WeightSamples,
    as_posterior,
    load_weights,
    mean_field_vi,
    sghmc,
)
from tests.posteriors.third_party import imported

CLASSES, SIZE, SAMPLES = 3, 8, 4


def cnn(norm=False, dropout=0.0):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4) if norm else nn.Identity(),
        nn.ReLU(inplace=True),
        nn.Dropout2d(dropout),
        nn.Conv2d(4, 4, 3),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(4 * (SIZE - 4) ** 2, CLASSES),
    ).double()


def batches():
    rng = torch.Generator().manual_seed(7)
    x = torch.rand(24, 1, SIZE, SIZE, generator=rng, dtype=torch.float64)
    y = torch.randint(0, CLASSES, (24,), generator=rng)
    return [(x[:12], y[:12]), (x[12:], y[12:])]


def nudged(network):
    with torch.no_grad():
        for weight in network.parameters():
            weight += 0.05 * torch.randn_like(weight)
    return network


def ensemble(folder):
    networks = [cnn() for _ in range(SAMPLES)]
    for index, network in enumerate(networks):
        save_file(network.state_dict(), folder / f"{index}.safetensors")
    files = [folder / f"{index}.safetensors" for index in range(SAMPLES)]
    return networks[0], lambda: load_weights(cnn, files, 0.5, 0.5)


def weight_samples(_folder):
    network = cnn(norm=True)
    last = network[-1].weight
    weights = [{"7.weight": last + torch.randn_like(last)} for _ in range(SAMPLES)]
    return network, lambda: WeightSamples(network, weights)


def mc_dropout(_folder):
    network = cnn(dropout=0.4)
    return network, lambda: MCDropout(network, SAMPLES, seed=3)


def gaussian(_folder):
    network = cnn()
    return network, lambda: Gaussian(network, {"0.weight": torch.full((4, 1, 3, 3), 0.3)}, samples=SAMPLES)


def swag(_folder):
    network, collector = cnn(), SWAG(rank=3)
    for _ in range(5):
        collector.collect(nudged(network))
    return network, lambda: collector.posterior(network, samples=SAMPLES)


def swag_batchnorm(_folder):
    network, collector = cnn(norm=True), SWAG(rank=3)
    for _ in range(5):
        collector.collect(nudged(network))
    return network, lambda: collector.posterior(network, samples=SAMPLES, batches=batches())


def fitted_laplace(subset, structure):
    library = imported("laplace")
    network = cnn()
    laplace = library.Laplace(network, "classification", subset_of_weights=subset, hessian_structure=structure)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        laplace.fit(
            torch.utils.data.DataLoader(list(zip(*map(torch.cat, zip(*batches(), strict=True)), strict=True)), 12)
        )
    return network, laplace


def laplace(subset, structure):
    def case(_folder):
        network, fitted = fitted_laplace(subset, structure)
        return network, lambda: as_posterior(fitted, SAMPLES)

    return case


def sghmc_chain(_folder):
    imported("posteriors")
    network = cnn()
    return network, lambda: sghmc(network, batches(), samples=SAMPLES, burn_in=1)


def vi(_folder):
    imported("posteriors")
    network = cnn(norm=True)
    return network, lambda: mean_field_vi(network, batches(), epochs=1, start_std=0.1, samples=SAMPLES)


def drawn(_folder):
    network = cnn()

    def sample(_index):  # one network, whose weights are swapped in place: the trap
        for weight in network.parameters():
            weight.data = torch.randn_like(weight.data) / 4
        return network

    return None, lambda: Drawn(sample, SAMPLES)


def tu_ensemble(_folder):
    models = imported("torch_uncertainty.methods").deep_ensembles([cnn().eval() for _ in range(SAMPLES)])
    return models, lambda: as_posterior(models)


def tu_batch_ensemble(_folder):
    model = imported("torch_uncertainty.methods").BatchEnsemble(cnn().float(), SAMPLES, convert_layers=True).double()
    return model, lambda: as_posterior(model)


def tu_mc_dropout(_folder):
    model = imported("torch_uncertainty.methods").mc_dropout(cnn(dropout=0.4), SAMPLES)
    return model, lambda: as_posterior(model)


def tu_bayesian(_folder):
    methods, layers = imported("torch_uncertainty.methods"), imported("torch_uncertainty.layers.bayesian")
    core = nn.Sequential(
        layers.BayesConv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), layers.BayesLinear(4 * (SIZE - 2) ** 2, CLASSES)
    )
    model = methods.StochasticModel(core.double(), SAMPLES)
    return model, lambda: as_posterior(model)


def bayesian_torch(kind):
    def case(_folder):
        convert = imported("bayesian_torch.models.dnn_to_bnn").dnn_to_bnn
        model = cnn(norm=True)
        settings = {"prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0, "posterior_rho_init": -2.0}
        convert(model, settings | {"type": kind, "moped_enable": False, "moped_delta": 0.5})
        model.double()
        return model, lambda: as_posterior(model, SAMPLES)

    return case


def bayesian_torch_with_divergence(_folder):
    layers = imported("bayesian_torch.layers")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = layers.Conv2dReparameterization(1, 4, 3)
            self.linear = layers.LinearFlipout(4 * (SIZE - 2) ** 2, CLASSES)

        def forward(self, x):
            x, one = self.conv(x)
            x, two = self.linear(x.relu().flatten(1))
            return x, one + two

    model = Model().double()
    return model, lambda: as_posterior(model, SAMPLES)


def fingerprint(model):
    """Everything about a model that must not change."""
    state = {name: tensor.clone() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    modules = [(name, type(m), m.training, len(m._forward_hooks)) for name, m in model.named_modules()]
    gradients = [(p.requires_grad, p.grad is None) for p in model.parameters()]
    return state, modules, gradients


CASES = {
    "ensemble": ensemble,
    "weight samples": weight_samples,
    "mc dropout": mc_dropout,
    "gaussian": gaussian,
    "swag": swag,
    "swag with batchnorm": swag_batchnorm,
    "laplace, last layer, kron": laplace("last_layer", "kron"),
    "laplace, last layer, full": laplace("last_layer", "full"),
    "laplace, all, kron": laplace("all", "kron"),
    "laplace, all, diag": laplace("all", "diag"),
    "sghmc": sghmc_chain,
    "vi": vi,
    "function": drawn,
    "torch-uncertainty ensemble": tu_ensemble,
    "torch-uncertainty batch ensemble": tu_batch_ensemble,
    "torch-uncertainty mc dropout": tu_mc_dropout,
    "torch-uncertainty bayesian": tu_bayesian,
    "bayesian-torch": bayesian_torch("Reparameterization"),
    "bayesian-torch flipout": bayesian_torch("Flipout"),
    "bayesian-torch with divergence": bayesian_torch_with_divergence,
}

OTHER_LIBRARIES = ("torch-uncertainty", "bayesian-torch")
MARKED = [
    pytest.param(name, marks=pytest.mark.libraries) if name.startswith(OTHER_LIBRARIES) else name for name in CASES
]
"""The names of all cases; those that need libraries which `make check` installs are marked."""
