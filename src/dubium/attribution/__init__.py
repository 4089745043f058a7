"""Attribution methods: `(network, x, target, **options) -> maps`, vectorised over targets, one module each."""

from dubium.attribution.fullgrad import fullgrad
from dubium.attribution.grad import grad
from dubium.attribution.input_grad import input_grad
from dubium.types import Attributor

ATTRIBUTORS: dict[str, Attributor] = {
    "grad": grad,
    "input-grad": input_grad,
    "fullgrad": fullgrad,
}

__all__ = ["ATTRIBUTORS", "fullgrad", "grad", "input_grad"]
