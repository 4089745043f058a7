"""Collections of networks drawn from p(weights | data): sized, repeatable, in eval mode. A list of networks is one."""

from dubium.posteriors.adapters import as_posterior
from dubium.posteriors.adapters.laplace import from_laplace
from dubium.posteriors.drawn import Drawn
from dubium.posteriors.files.architecture import Architecture
from dubium.posteriors.files.load import load_posterior, posterior_record
from dubium.posteriors.files.record import Record
from dubium.posteriors.files.save import save_posterior
from dubium.posteriors.files.weight_files import load_weights
from dubium.posteriors.gaussian import Gaussian
from dubium.posteriors.laplace import fit_laplace
from dubium.posteriors.mc_dropout import MCDropout
from dubium.posteriors.sghmc import sghmc
from dubium.posteriors.stack import stack
from dubium.posteriors.swag import SWAG
from dubium.posteriors.vi import mean_field_vi
from dubium.posteriors.weights import WeightSamples

__all__ = [
    "SWAG",
    "Architecture",
    "Drawn",
    "Gaussian",
    "MCDropout",
    "Record",
    "WeightSamples",
    "as_posterior",
    "fit_laplace",
    "from_laplace",
    "load_posterior",
    "load_weights",
    "mean_field_vi",
    "posterior_record",
    "save_posterior",
    "sghmc",
    "stack",
]
