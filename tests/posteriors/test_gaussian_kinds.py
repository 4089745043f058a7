"""SWAG, Laplace, SGHMC and variational inference against closed forms and against the libraries themselves."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from dubium.errors import DivergedError, NetworkStateError, OptionError, OutputError, PosteriorError, PosteriorTypeError
from dubium.posteriors import SWAG, Gaussian, WeightSamples, as_posterior, fit_laplace, mean_field_vi, sghmc
from dubium.posteriors.swag import measure_batch_norm
from tests.posteriors.cases import SIZE, batches, cnn, fitted_laplace, nudged
from tests.posteriors.third_party import imported


def draws(posterior, name):
    return torch.stack([network.get_parameter(name).flatten() for network in posterior])


def test_gaussian_has_the_covariance_it_is_told():
    network = nn.Linear(2, 1, bias=False).double()
    factors = torch.tensor([[[0.5, -0.5]]])
    posterior = Gaussian(network, {"weight": torch.tensor([[0.3, 0.1]])}, {"weight": factors}, samples=5000)
    weights = torch.stack([sample["weight"].flatten() for sample in posterior.draw()])
    expected = torch.tensor([[0.09 + 0.25, -0.25], [-0.25, 0.01 + 0.25]], dtype=torch.float64)
    torch.testing.assert_close(weights.T.cov(), expected, atol=0.03, rtol=0)
    torch.testing.assert_close(weights.mean(0), network.weight[0].detach(), atol=0.02, rtol=0)


def test_low_rank_noise_is_common_to_all_weights():
    network = nn.Linear(3, 3)
    factors = {"weight": torch.ones(1, 3, 3), "bias": torch.ones(1, 3)}
    for sample in Gaussian(network, {}, factors, samples=5).draw():
        noise = torch.cat([(sample[name] - network.get_parameter(name)).flatten() for name in factors])
        torch.testing.assert_close(noise, noise[:1].expand_as(noise))


def test_gaussian_refuses_names_and_shapes_that_are_not_the_networks():
    with pytest.raises(PosteriorError, match=r"names 'weights'.*has weight, bias"):
        Gaussian(nn.Linear(2, 2), {"weights": torch.ones(2, 2)})
    with pytest.raises(PosteriorError, match=r"shape \(3,\) for 'bias'"):
        Gaussian(nn.Linear(2, 2), {"bias": torch.ones(3)})
    with pytest.raises(PosteriorError, match="no weights"):
        WeightSamples(nn.Linear(2, 2), [])


def test_tied_weights_stay_tied():
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    network[1].weight = network[0].weight
    for sample in Gaussian(network, {"0.weight": torch.ones(2, 2)}, samples=2):
        assert sample[0].weight is sample[1].weight


def test_a_network_that_cannot_be_copied_is_refused_with_advice():
    network = nn.Linear(2, 2)
    network.computed = network.weight * 2
    with pytest.raises(NetworkStateError, match="parametrizations"):
        Gaussian(network, {})


def test_swag_moments_are_those_of_the_collected_weights():
    network, swag, seen = nn.Linear(3, 2).double(), SWAG(rank=3), []
    for _ in range(6):
        swag.collect(nudged(network))
        seen.append(network.weight.detach().clone())
    posterior = swag.posterior(network)
    assert isinstance(posterior, Gaussian)
    weights = torch.stack(seen)
    torch.testing.assert_close(posterior.mean.weight.detach(), weights.mean(0))
    torch.testing.assert_close(posterior.std["weight"] ** 2, weights.var(0, correction=0) / 2)
    latest = torch.stack([weights[t] - weights[: t + 1].mean(0) for t in (3, 4, 5)])
    torch.testing.assert_close(posterior.factors["weight"], latest / 2)  # sqrt(2 (rank - 1)) = 2


def test_swag_goes_on_from_a_checkpoint():
    network, whole, halves = nn.Linear(3, 2), SWAG(rank=3), SWAG(rank=3)
    for step in range(5):
        nudged(network)
        if step == 2:
            kept = {name: tensor.clone() for name, tensor in halves.tensors().items()}
            halves = SWAG(rank=3)
            halves.restore(kept)
        whole.collect(network)
        halves.collect(network)
    assert whole.tensors().keys() == halves.tensors().keys()
    assert all(torch.equal(whole.tensors()[name], halves.tensors()[name]) for name in whole.tensors())


def test_swag_measures_batchnorm_statistics_for_every_sample():
    torch.manual_seed(0)
    network, swag = cnn(norm=True), SWAG(rank=2)
    for _ in range(3):
        swag.collect(nudged(network))
    posterior = swag.posterior(network, samples=2, batches=batches())
    x = torch.cat([x for x, _ in batches()])
    for sample in posterior:
        features = sample[0](x)
        torch.testing.assert_close(sample[1].running_mean, features.mean((0, 2, 3)))
        assert sample[1].momentum == network[1].momentum
    with pytest.raises(PosteriorError, match="batches="):
        swag.posterior(network)
    assert (
        measure_batch_norm(next(iter(posterior)), [x for x, _ in batches()]).keys() == dict(posterior.weights[0]).keys()
    )


def test_swag_needs_two_networks():
    swag = SWAG()
    swag.collect(nn.Linear(2, 2))
    with pytest.raises(PosteriorError, match="collected 1"):
        swag.posterior(nn.Linear(2, 2))


@pytest.mark.parametrize(("subset", "structure"), [("last_layer", "kron"), ("last_layer", "diag"), ("all", "kron")])
def test_laplace_samples_are_those_that_laplace_torch_predicts_with(subset, structure):
    torch.manual_seed(0)
    _, laplace = fitted_laplace(subset, structure)
    x = torch.rand(2, 1, SIZE, SIZE, dtype=torch.float64)
    rng = torch.Generator().manual_seed(5)
    expected = laplace._nn_predictive_samples(x, 3, generator=rng)
    posterior = as_posterior(laplace, 3, seed=5)
    torch.testing.assert_close(torch.stack([network(x).softmax(-1) for network in posterior]), expected)


def test_last_layer_laplace_shares_the_features():
    _, laplace = fitted_laplace("last_layer", "diag")
    first, second = as_posterior(laplace, 2)
    assert first[0].weight is second[0].weight
    assert first[-1].weight is not second[-1].weight
    assert not any(module._forward_hooks for module in first.modules())


def test_subnetwork_laplace_moves_its_own_weights_only():
    library = imported("laplace")
    network = cnn()
    chosen = torch.arange(3)  # of the first convolution
    laplace = library.Laplace(
        network, "classification", subset_of_weights="subnetwork", hessian_structure="full", subnetwork_indices=chosen
    )
    laplace.fit(torch.utils.data.DataLoader(list(zip(*batches()[0], strict=True)), 12))
    first, second = as_posterior(laplace, 2)
    moved = (first[0].weight != second[0].weight).flatten()
    assert moved.nonzero().flatten().tolist() == [0, 1, 2]
    assert torch.equal(first[-1].weight, network[-1].weight)


def test_laplace_objects_that_cannot_be_drawn_from_are_refused():
    library = imported("laplace")
    with pytest.raises(PosteriorError, match="not fitted"):
        as_posterior(library.Laplace(cnn(), "classification", hessian_structure="diag"))
    with pytest.raises(PosteriorError, match="not fitted"):
        as_posterior(library.Laplace(cnn(), "classification", subset_of_weights="all", hessian_structure="diag"))
    with pytest.raises(PosteriorTypeError, match="regression"):
        as_posterior(library.Laplace(cnn(), "regression", hessian_structure="diag"))


def test_fit_laplace_draws_around_the_network():
    imported("laplace")
    torch.manual_seed(0)
    network = cnn()
    posterior = fit_laplace(network, batches(), hessian_structure="diag", prior_precision=1e8, samples=3)
    assert set(posterior.weights[0]) == {"7.weight", "7.bias"}
    torch.testing.assert_close(draws(posterior, "7.bias"), network[7].bias.detach().expand(3, 3), atol=1e-3, rtol=0)
    tuned = fit_laplace(network, batches(), hessian_structure="diag", samples=3)
    assert draws(tuned, "7.bias").std(0).min() > 1e-3


def test_fit_laplace_takes_the_logits_of_an_output_as_hugging_face_has_it():
    imported("laplace")

    class Output(nn.Module):
        def __init__(self, network, wrap):
            super().__init__()
            self.network, self.wrap = network, wrap

        def forward(self, x):
            return self.wrap(self.network(x))

    torch.manual_seed(0)
    network, options = cnn(), {"hessian_structure": "diag", "prior_precision": 1.0, "samples": 3}
    plain = fit_laplace(network, batches(), **options)
    x = batches()[0][0]
    for wrap in (lambda logits: {"logits": logits}, lambda logits: SimpleNamespace(logits=logits)):
        for mine, expected in zip(fit_laplace(Output(network, wrap), batches(), **options), plain, strict=True):
            torch.testing.assert_close(mine(x), expected(x))
    with pytest.raises(OutputError, match="a tuple without logits"):
        fit_laplace(Output(network, lambda logits: (logits, 1)), batches(), **options)


def blank():
    """Black images: they say nothing about the weights of a linear network, whose posterior is then the prior."""
    return [(torch.zeros(10, 40, dtype=torch.float64), torch.arange(10))] * 10


def test_sghmc_samples_the_prior_where_the_data_say_nothing():
    imported("posteriors")
    torch.manual_seed(0)
    posterior = sghmc(nn.Linear(40, 30).double(), blank(), samples=5, burn_in=8, thinning=2, lr=0.3, prior_std=0.4)
    weights = draws(posterior, "weight")
    assert weights.std().item() == pytest.approx(0.4, rel=0.04)
    assert weights.mean().item() == pytest.approx(0, abs=0.02)


def test_variational_inference_finds_the_prior_where_the_data_say_nothing():
    imported("posteriors")
    torch.manual_seed(0)
    posterior = mean_field_vi(nn.Linear(40, 30).double(), blank(), epochs=20, lr=0.02, start_std=0.1, prior_std=0.4)
    torch.testing.assert_close(posterior.std["weight"], torch.full((30, 40), 0.4).double(), rtol=0.25, atol=0)
    assert posterior.std["weight"].mean().item() == pytest.approx(0.4, rel=0.03)
    assert posterior.mean.weight.abs().max() < 0.1


@pytest.mark.parametrize(
    "method", [lambda *a, **k: sghmc(*a, samples=3, burn_in=2, **k), lambda *a, **k: mean_field_vi(*a, epochs=5, **k)]
)
def test_an_interrupted_run_ends_like_an_uninterrupted_one(method):
    imported("posteriors")
    network, kept = cnn(), []
    whole = method(network, batches(), on_epoch=lambda epoch, tensors: kept.append((epoch, tensors)))
    assert [epoch for epoch, _ in kept] == [1, 2, 3, 4, 5]
    for resume in (kept[0], kept[3], kept[4]):
        again = method(network, batches(), resume=resume)
        assert torch.equal(draws(again, "7.weight"), draws(whole, "7.weight"))


@pytest.mark.parametrize("method", [sghmc, mean_field_vi])
def test_divergence_and_batches_that_can_be_read_once_are_refused(method):
    imported("posteriors")
    with pytest.raises(DivergedError, match="smaller"):
        method(cnn(), [(x / 0, y) for x, y in batches()])
    with pytest.raises(OptionError, match="not a generator"):
        method(cnn(), (batch for batch in batches()))
