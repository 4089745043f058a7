import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dubium.shares import UncertaintyTarget, class_shares
from dubium.softmax_share import diagonal_weight, scale_tau1, softmax_share
from tests.oracles import coefficients, entropy_shares, logit_shares, uncertainties


def logits(samples=3, images=2, classes=5, scale=3.0, seed=0):
    return scale * torch.randn(samples, images, classes, generator=torch.Generator().manual_seed(seed))


def test_shares_equal_equation_4_by_loops():
    z = logits()
    torch.testing.assert_close(class_shares(z), entropy_shares(z), rtol=1e-12, atol=1e-14)


def test_two_opposite_certain_networks_have_one_bit_of_purely_epistemic_doubt():
    z = torch.tensor([[[1000.0, -1000.0]], [[-1000.0, 1000.0]]])
    total, aleatoric, epistemic = class_shares(z).sum(-1)[:, 0].tolist()
    assert total == pytest.approx(math.log(2), rel=1e-14)
    assert epistemic == pytest.approx(math.log(2), rel=1e-14)
    assert aleatoric == 0


def test_undecided_networks_that_agree_have_only_aleatoric_doubt():
    z = torch.zeros(4, 1, 10)
    total, aleatoric, epistemic = class_shares(z).sum(-1)[:, 0].tolist()
    assert total == pytest.approx(math.log(10))
    assert aleatoric == pytest.approx(math.log(10))
    assert 0 <= epistemic < 1e-14


def test_one_network_has_exactly_no_epistemic_share():
    assert (class_shares(logits(samples=1))[2] == 0).all()


def test_a_class_of_probability_zero_has_no_share_and_no_nan():
    z = torch.tensor([[[500.0, -500.0, -500.0]]])
    assert class_shares(z).isfinite().all()
    assert class_shares(z).sum() == 0


def test_shares_are_never_negative_even_where_networks_are_equal():
    z = logits(samples=1, images=50, classes=30).expand(7, -1, -1)
    assert (class_shares(z) >= 0).all()


def test_target_equals_the_definition_and_its_gradient_equals_autograd_in_float64():
    z = logits().double().transpose(0, 1).contiguous()  # (B, S, K)
    z.requires_grad_()
    target = UncertaintyTarget(("total", "aleatoric", "epistemic"))(z)
    exact = torch.stack([uncertainties(one) for one in z])
    torch.testing.assert_close(target, exact, rtol=1e-12, atol=1e-13)
    for kind in range(3):
        (ours,) = torch.autograd.grad(target[:, kind].sum(), z, retain_graph=True)
        (theirs,) = torch.autograd.grad(exact[:, kind].sum(), z, retain_graph=True)
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_target_of_sure_networks_has_its_slopes_in_float32_too():
    z = torch.tensor([[[16.0, 0.0, -1.0], [15.0, 0.5, -2.0], [17.0, -1.0, 0.0]]], requires_grad=True)  # about 1e-6 nats
    exact = z.detach().double().requires_grad_()
    for kind in ("total", "aleatoric", "epistemic"):
        (ours,) = torch.autograd.grad(UncertaintyTarget((kind,))(z).sum(), z)
        (theirs,) = torch.autograd.grad(UncertaintyTarget((kind,))(exact).sum(), exact)
        torch.testing.assert_close(ours, theirs.float(), rtol=1e-6, atol=0)


def test_target_has_finite_gradients_at_probability_one():
    z = torch.tensor([[[900.0, -900.0], [900.0, -900.0]]], requires_grad=True)
    (gradient,) = torch.autograd.grad(UncertaintyTarget(("total", "epistemic"))(z).sum(), z)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("tau1", [0.05, 0.08, 0.55, 3.0])
def test_logit_shares_equal_the_k_by_k_sum_of_equations_5_to_8(tau1):
    z = logits(classes=6, scale=1.5)
    torch.testing.assert_close(
        softmax_share(class_shares(z), z, tau1), logit_shares(entropy_shares(z), z, tau1), rtol=1e-10, atol=1e-13
    )


def test_coefficients_are_what_the_closed_form_says():
    g = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    exact = torch.stack([((torch.eye(3, dtype=torch.float64)[j] - g) / 0.55).softmax(0) for j in range(3)])
    torch.testing.assert_close(coefficients(g, 0.55), exact, rtol=1e-12, atol=1e-14)


@settings(deadline=None, max_examples=60)
@given(
    classes=st.integers(2, 1000),
    tau1=st.floats(0.005, 10),
    scale=st.floats(0.01, 60),
    samples=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
def test_shares_on_logits_are_complete_and_non_negative(classes, tau1, scale, samples, seed):
    z = logits(samples, 2, classes, scale, seed)
    on_probs = class_shares(z)
    on_logits = softmax_share(on_probs, z, tau1)
    assert on_logits.isfinite().all()
    assert (on_logits >= 0).all()
    sums = on_probs.sum(-1).expand(samples, -1, -1)
    torch.testing.assert_close(on_logits.sum(-1), sums, rtol=1e-9, atol=1e-15)


def test_a_tiny_tau_hands_each_share_to_its_own_logit():
    z = logits()
    on_logits = softmax_share(class_shares(z), z, 1e-4)  # exp(1 / tau) overflows float64 by far
    torch.testing.assert_close(on_logits, class_shares(z).expand(3, -1, -1, -1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 10, 300])
@pytest.mark.parametrize("tau1", [0.08, 0.55])
def test_own_weight_is_what_softmax_share_hands_over_between_equal_classes(classes, tau1):
    only_first = torch.eye(classes, dtype=torch.float64)[:1, None]
    on_logits = softmax_share(only_first, torch.zeros(1, 1, classes), tau1)
    assert diagonal_weight(classes, tau1) == pytest.approx(on_logits[0, 0, 0, 0].item(), rel=1e-12)


@pytest.mark.parametrize("ten", [0.08, 0.55])
def test_tau1_for_keeps_the_own_weight_of_ten_classes(ten):
    assert scale_tau1(10, ten) == pytest.approx(ten)
    for classes in (3, 4, 9, 11, 100, 1000, 20_000):
        assert diagonal_weight(classes, scale_tau1(classes, ten)) == pytest.approx(diagonal_weight(10, ten))
    assert diagonal_weight(1000, 0.55) < 0.01
    assert 0.5 < diagonal_weight(2, scale_tau1(2, 0.55)) < 0.53  # less than half, as ten classes have it, cannot be
