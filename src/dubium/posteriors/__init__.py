"""Collections of networks drawn from p(weights | data): sized, repeatable, in eval mode. A list of networks is one."""

from dubium.posteriors.architecture import Architecture
from dubium.posteriors.ensemble import load_weights
from dubium.posteriors.gaussian import Gaussian
from dubium.posteriors.mc_dropout import MCDropout
from dubium.posteriors.record import Record
from dubium.posteriors.stack import stack
from dubium.posteriors.store import load_posterior, posterior_record, save_posterior
from dubium.posteriors.weights import WeightSamples

__all__ = [
    "Architecture",
    "Gaussian",
    "MCDropout",
    "Record",
    "WeightSamples",
    "load_posterior",
    "load_weights",
    "posterior_record",
    "save_posterior",
    "stack",
]
