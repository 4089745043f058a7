"""A device that is full says so itself: nothing of ours calls it a mistake in networks or images."""

import pytest
import torch
from torch import nn

import dubium
from dubium.models import vae_dense
from dubium.posteriors.weights import snapshot
from tests.networks import images, randomised, small_cnn


def fail(*_args, **_kwargs):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


class FullOnTheWayBack(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return x.clone()

    backward = staticmethod(fail)


class Full(nn.Module):
    """A network that fails where it is told to."""

    def __init__(self, where):
        super().__init__()
        self.body, self.where = small_cnn(), where

    def forward(self, x):
        return fail() if self.where == "forward" else self.body(FullOnTheWayBack.apply(x))

    def __deepcopy__(self, _memo):
        fail()


@pytest.mark.parametrize("method", ["ua-backprop", "auto", "grad"])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_networks_may_run_out_of_memory(where, method):
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        dubium.explain([randomised(Full(where))], images(1), method=method, kinds="total")


def test_copies_may_run_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError):
        snapshot(Full("forward"))
    with pytest.raises(torch.OutOfMemoryError):
        dubium.uncertainty([Full("forward").half().eval()], images(1).half(), kinds="total")


@pytest.mark.parametrize("part", ["encode", "decode"])
def test_a_generative_model_may_run_out_of_memory(part, monkeypatch):
    vae = vae_dense(size=12, latent=3, hidden=(8,)).eval()
    monkeypatch.setattr(vae, part, fail)
    with pytest.raises(torch.OutOfMemoryError):
        dubium.explain([randomised(small_cnn())], images(1), method="clue", kinds="total", vae=vae, steps=2)


@pytest.mark.parametrize("wrong", [lambda x: "code", lambda x: {"mean": x}, lambda x: x.missing, lambda x: 1 / 0])
def test_what_a_generative_model_raises_is_said_to_be_its(wrong, monkeypatch, unchecked):
    vae = vae_dense(size=12, latent=3, hidden=(8,)).eval()
    monkeypatch.setattr(vae, "encode", wrong)
    with pytest.raises(dubium.errors.OptionError, match=r"vae cannot encode images of shape \(1, 12, 12\)"):
        dubium.explain([randomised(small_cnn())], images(1), method="clue", kinds="total", vae=vae, steps=2)


def test_codes_that_are_no_rows_of_numbers_are_refused(unchecked):
    class Images(nn.Module):
        def encode(self, x):
            return x

        def decode(self, z):
            return z

    with pytest.raises(
        dubium.errors.OptionError, match=r"codes \(2, 1, 12, 12\) of 2 images; \(B, latent\) are needed"
    ):
        dubium.explain([randomised(small_cnn())], images(2), method="clue", kinds="total", vae=Images().eval())
