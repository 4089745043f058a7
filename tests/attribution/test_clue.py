"""CLUE on the embedded digits, with the embedded networks and VAE; and its search on problems with known answers."""

import pytest
import torch
from torch import nn

import dubium
from dubium import errors
from dubium.attribution._counterfactual_search import Search, minimise_rows, start_shifts
from dubium.models.saved_vae import load_vae
from dubium.posteriors.files.load import EMBEDDED
from tests.conftest import tiny_vae
from tests.networks import ensemble, images, small_cnn


@pytest.fixture(scope="module")
def demo():
    return dubium.load_posterior("demo"), load_vae(EMBEDDED / "vae")


def test_clue_lowers_the_uncertainty_of_most_uncertain_digits(demo):
    posterior, vae = demo
    x = dubium.data.load("demo").batch(slice(32))
    result = dubium.explain(posterior, x, method="clue", vae=vae, steps=30, lr=0.1, kinds="epistemic")
    found = result.extras["counterfactual"]["epistemic"]
    after = dubium.uncertainty(posterior, found).scores["epistemic"]
    assert (after < result.scores["epistemic"]).float().mean() >= 0.8
    torch.testing.assert_close(result.maps["epistemic"], (found - x).abs().mean(1))
    assert (result.maps["epistemic"].flatten(1).std(1) > 0.01).all()
    assert found.min() >= 0
    assert found.max() <= 1


def test_each_row_settles_at_its_own_minimum_and_then_costs_nothing():
    goals = torch.tensor([[0.0, 0.0], [1.0, -1.0], [3.0, 2.0]], dtype=torch.float64)
    asked = []

    def objective(z, rows):
        asked.append(rows.tolist())
        return ((z - goals[rows]) ** 2).sum(1), 2 * (z - goals[rows])

    values, found = minimise_rows(objective, torch.zeros_like(goals), goals, Search(4000, 0.01), lambda _step: None)
    torch.testing.assert_close(found, goals, rtol=0, atol=0.15)  # where Adam turns around it is nearly still, too
    torch.testing.assert_close(values, ((found - goals) ** 2).sum(1))
    assert asked[0] == [0, 1, 2]
    assert asked[1] == [1, 2]  # the first was there already
    assert len(asked) < 4000


def test_a_step_is_adams():
    start = torch.tensor([[0.5, -0.3]], dtype=torch.float64)
    parameter = start.clone().requires_grad_()
    adam, seen = torch.optim.Adam([parameter], lr=0.05), []

    def objective(z, _rows):
        seen.append(z.clone())
        return (z**4).sum(1), 4 * z**3

    minimise_rows(objective, start, start, Search(6, 0.05), lambda _step: None)
    for at in seen:
        torch.testing.assert_close(at, parameter.detach(), rtol=1e-9, atol=1e-12)
        adam.zero_grad()
        (parameter**4).sum().backward()
        adam.step()


def test_delta_clue_stays_in_its_ball():
    centre = torch.zeros(4, 3, dtype=torch.float64)
    goal = torch.full((4, 3), 5.0, dtype=torch.float64)
    _, found = minimise_rows(
        lambda z, rows: (((z - goal[rows]) ** 2).sum(1), 2 * (z - goal[rows])),
        centre,
        centre,
        Search(800, 0.05, radius=2.0),
        lambda _step: None,
    )
    torch.testing.assert_close(found, torch.full_like(found, 2 / 3**0.5), rtol=1e-3, atol=0)


def test_starts_lie_in_the_ball_and_fill_it():
    shifts = start_shifts(torch.zeros(1, 2), Search(1, 0.1, radius=2.0, starts=4000), seed=0)
    assert shifts.norm(dim=1).max() <= 2
    inner = (shifts.norm(dim=1) < 2**0.5).float().mean()
    assert inner == pytest.approx(0.5, abs=0.03)  # half of a disc's area


def test_clue_path_adds_up_to_the_change_of_uncertainty(cheap):
    networks, x = [network.double() for network in ensemble(small_cnn)], images(2, dtype=torch.float64)
    result = dubium.explain(networks, x, method="clue-path", kinds="total", vae=tiny_vae().double(), steps=5)
    start = result.extras["counterfactual"]["total"]
    exact = result.scores["total"] - dubium.uncertainty(networks, start).scores["total"]
    torch.testing.assert_close(result.maps["total"].sum((1, 2)), exact, rtol=0.02, atol=1e-3)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("vae", "message"),
    [
        (lambda: tiny_vae(8), "cannot encode"),
        (lambda: tiny_vae().train(), "eval"),
        (lambda: Foreign().eval(), r"\(1, 5, 5\)"),
    ],
)
def test_a_vae_that_does_not_fit_is_refused(vae, message):
    with pytest.raises(errors.OptionError, match=message):
        dubium.explain(ensemble(small_cnn), images(1), method="clue", vae=vae())


class Foreign(nn.Module):
    def encode(self, x):
        return x.flatten(1)[:, :2]

    def decode(self, z):
        return torch.zeros(len(z), 1, 5, 5)


class Squares(torch.autograd.Function):
    """As functions were written before torch had `setup_context`."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


class Squared(nn.Module):
    """What a network or a VAE puts out, squared by a function."""

    def __init__(self, body, square):
        super().__init__()
        self.body, self.square = body, square

    def forward(self, x):
        return self.square(self.body(x))

    def encode(self, x):
        return self.body.encode(x)

    def decode(self, z):
        return self.square(self.body.decode(z))


@pytest.mark.parametrize("method", ["clue", "delta-clue", "clue-path"])
@pytest.mark.parametrize("where", ["networks", "vae"])
def test_a_function_of_ones_own_is_searched_like_torchs(method, where):
    def found(square):
        networks, vae = ensemble(small_cnn), tiny_vae()
        if where == "vae":
            vae = Squared(vae, square).eval()
        else:
            networks = [Squared(network, square).eval() for network in networks]
        return dubium.explain(networks, images(2), method=method, vae=vae, steps=5, lr=0.1).maps["total"]

    torch.testing.assert_close(found(Squares.apply), found(lambda x: x**2), rtol=1e-4, atol=1e-6)


def test_a_vae_that_cuts_the_gradient_is_refused():
    vae = Squared(tiny_vae(), torch.no_grad()(torch.square)).eval()
    with pytest.raises(errors.OptionError, match=r"vae\.decode cuts the gradient"):
        dubium.explain(ensemble(small_cnn), images(2), method="clue", vae=vae, steps=3)
