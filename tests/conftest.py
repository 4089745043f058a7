import jaxtyping
import pytest
import torch

from dubium.models import VAE, vae_dense
from dubium.registry import REGISTERED

CHEAP = {
    "smoothgrad": {"samples": 3},
    "ig": {"steps": 4},
    "guided-ig": {"steps": 4},
    "blur-ig": {"steps": 4},
    "clue": {"steps": 3},
    "delta-clue": {"steps": 3, "starts": 2},
    "clue-path": {"steps": 3},
}


@pytest.fixture(autouse=True)
def forget_registered_methods():
    """A method that one test registers is unknown to the next."""
    yield
    REGISTERED.clear()


@pytest.fixture
def cheap():
    """Options that keep a method cheap, with the VAE that some need, for images (1, 12, 12)."""

    def options(method):
        needs = {"vae": tiny_vae()} if "clue" in method else {}
        return {**CHEAP.get(method, {}), **needs}

    return options


def tiny_vae(size: int = 12) -> VAE:
    torch.manual_seed(0)
    return vae_dense(size=size, latent=3, hidden=(20, 10)).eval()


@pytest.fixture
def unchecked():
    """What users get: the shapes in signatures are checked in tests only."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
