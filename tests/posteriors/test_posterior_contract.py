"""What every posterior promises: sized, repeatable, distinct, fixed functions of one image, nothing else touched."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import dubium
from dubium.posteriors import as_posterior, stack
from dubium.types import Posterior
from tests.posteriors.cases import CASES, MARKED, SAMPLES, SIZE, cnn, fingerprint


@pytest.fixture(params=MARKED, scope="module")
def case(request, tmp_path_factory):
    torch.manual_seed(0)
    model, make = CASES[request.param](tmp_path_factory.mktemp("weights"))
    before = None if model is None else fingerprint(model)
    return model, before, make()


@pytest.fixture
def posterior(case):
    return case[2]


@pytest.fixture
def x():
    return torch.rand(3, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def logits(posterior, x):
    return torch.stack([network(x.clone()) for network in posterior])


def test_it_is_sized_and_yields_networks_in_eval_mode(posterior):
    assert isinstance(posterior, Posterior)
    networks = list(posterior)
    assert len(posterior) == len(networks) == SAMPLES
    assert all(isinstance(network, nn.Module) for network in networks)
    assert not any(module.training for network in networks for module in network.modules())
    assert as_posterior(posterior) is posterior


def test_its_text_is_one_short_line(posterior):
    if not isinstance(posterior, list):  # Python writes out what is in a list
        assert repr(posterior).startswith(f"{type(posterior).__name__}(")
        assert f": {SAMPLES} networks" in repr(posterior)
        assert len(repr(posterior)) < 80


def test_samples_are_the_same_on_every_pass_whatever_the_random_state(posterior, x):
    first = logits(posterior, x)
    torch.manual_seed(99)
    assert torch.equal(logits(posterior, x), first)
    network = next(iter(posterior))
    assert torch.equal(network(x), network(x))


def test_samples_are_distinct(posterior, x):
    out = logits(posterior, x)
    differences = (out[:, None] - out).abs().amax((2, 3))
    assert (differences + torch.eye(SAMPLES) > 1e-9).all()


def test_a_sample_is_a_function_of_one_image(posterior, x):
    together = logits(posterior, x)
    alone = torch.cat([logits(posterior, image[None]) for image in x], 1)
    torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-10)


def test_drawing_leaves_the_random_state_as_it_was(posterior, x):
    before = torch.get_rng_state()
    logits(posterior, x)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_users_model_is_untouched(case, x):
    model, before, posterior = case
    if model is None:
        pytest.skip("the user's function itself swaps weights in its network")
    x.requires_grad_()
    torch.autograd.grad(stack(posterior)(x).sum(), x)
    after = fingerprint(model)
    for name, tensor in before[0].items():
        assert torch.equal(tensor.nan_to_num(), after[0][name].nan_to_num()), name
    assert before[1:] == after[1:]


def test_gradients_of_all_samples_in_one_backward_equal_a_loop_over_samples(posterior, x):
    def doubt(out):  # (B, S, K) -> epistemic uncertainty, which mixes the samples
        probs = out.softmax(-1)
        return torch.special.entr(probs.mean(1)).sum() - torch.special.entr(probs).sum(-1).mean(1).sum()

    x.requires_grad_()
    (together,) = torch.autograd.grad(doubt(stack(posterior)(x)), x)
    out = logits(posterior, x.detach()).movedim(0, 1).requires_grad_()
    (slopes,) = torch.autograd.grad(doubt(out), out)
    alone = torch.zeros_like(x)
    for index, network in enumerate(posterior):
        alone += torch.autograd.grad(network(x.clone()), x, slopes[:, index])[0]
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-12)

    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(2), dtype=x.dtype)
    with torch.no_grad():
        ahead, behind = (doubt(stack(posterior)(x + sign * 1e-6 * direction)) for sign in (1, -1))
    torch.testing.assert_close((ahead - behind) / 2e-6, (together * direction).sum(), rtol=1e-3, atol=1e-6)


def test_hooks_on_layers_see_tensors_of_every_sample(posterior, x):
    seen = []
    for network in posterior:
        seen.clear()
        convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
        handles = [layer.register_forward_hook(lambda _m, _args, out: seen.append(out)) for layer in convolutions]
        network(x)
        assert seen
        assert all(isinstance(out, torch.Tensor) and len(out) == len(x) for out in seen)
        for handle in handles:
            handle.remove()


def test_its_own_networks_are_explained_and_maps_sum_to_the_scores(posterior, x):
    result = dubium.explain(posterior, x)
    members = torch.stack([network(x).softmax(-1) for network in as_posterior(posterior)]).detach()
    torch.testing.assert_close(result.members, members, rtol=1e-6, atol=1e-9)
    for kind, maps in result.maps.items():
        torch.testing.assert_close(maps.sum((1, 2)), result.scores[kind], rtol=1e-9, atol=1e-12)


def test_swapping_weights_in_place_would_fail_the_gradient_test(x):
    torch.manual_seed(0)
    network = cnn().eval()
    weights = [torch.randn_like(parameters_to_vector(network.parameters())) for _ in range(2)]
    x.requires_grad_()
    outs, right = [], torch.zeros_like(x)
    for vector in weights:
        vector_to_parameters(vector, network.parameters())
        outs.append(network(x.clone()))
        right += torch.autograd.grad(network(x.clone()).sum(), x)[0]
    (wrong,) = torch.autograd.grad(torch.stack(outs).sum(), x)
    assert (wrong - right).abs().max() > 0.01 * right.abs().max()
