"""Which adapter turns an object into a posterior."""

from inspect import signature
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dubium.errors import PosteriorTypeError
from dubium.posteriors.drawn import Drawn
from dubium.types import Posterior


def as_posterior(obj: Any, samples: int | None = None, seed: int = 0) -> Posterior:
    """Turn an object into a posterior: a sized, repeatable collection of networks.

    Args:
        obj: a list of networks or any `Posterior`; a fitted `laplace.Laplace`; a model of torch-uncertainty,
            bayesian-torch or probly; a pair (network, state) of the library posteriors, or (network, list of states);
            or a function `sample(i) -> network`. It is not changed.
        samples: the number of networks to draw, for objects that are drawn from: by default the object's own number,
            or 20.
        seed: of the draws.

    Returns:
        The object itself where it is a posterior already, or else one made of it.

    >>> from torch import nn
    >>> len(as_posterior([nn.Linear(2, 2), nn.Linear(2, 2)])), len(as_posterior(lambda index: nn.Linear(2, 2)))
    (2, 20)
    """
    if isinstance(obj, list | tuple):
        is_plain = all(isinstance(element, nn.Module) for element in obj)
        return obj if is_plain else from_collection(obj, samples, seed)
    if isinstance(obj, nn.ModuleList):
        return list(obj)
    if isinstance(obj, nn.Module):
        return from_module(obj, samples, seed)
    if comes_from(obj, "laplace") and not isinstance(obj, Posterior):
        from dubium.posteriors.adapters.laplace import from_laplace

        return from_laplace(obj, samples or 20, seed)
    if is_state(obj):
        raise PosteriorTypeError(LONELY_STATE.format(name=type(obj).__name__))
    if isinstance(obj, str | Path):
        raise PosteriorTypeError(
            f"The posterior is {str(obj)!r}; expected a list of networks. Load it: "
            f"dubium.load_posterior({str(obj)!r}), or of weight files dubium.load_weights(Net, files)."
        )
    if isinstance(obj, Posterior) and not isinstance(obj, str | bytes | dict | set | Tensor):
        return obj
    if comes_from(obj, "skorch"):
        raise PosteriorTypeError(
            f"The posterior is a skorch {type(obj).__name__}, which holds one network: give a list of such networks, "
            "[net.module_.eval() for net in nets]; of one with dropout, dubium.posteriors.MCDropout(net.module_)."
        )
    if comes_from(obj, "transformers") and hasattr(obj, "model"):
        raise PosteriorTypeError(
            f"The posterior is a Hugging Face {type(obj).__name__}, which prepares images itself. Give its network, "
            "in a list: [pipe.model.eval()], and images as pipe.image_processor makes them."
        )
    if callable(obj) and not isinstance(obj, type):
        refuse_factory(obj)
        count = samples or (len(obj) if hasattr(obj, "__len__") else 20)
        return Drawn(obj, count, seed)
    raise PosteriorTypeError(
        f"The posterior is a {type(obj).__name__}; expected a list of networks, a posterior of dubium.posteriors, a "
        "laplace.Laplace, a model of torch-uncertainty, bayesian-torch or probly, or a function sample(i) -> network. "
        "A generator can be read only once: pass list(...). A class of your own needs __len__ and __iter__."
    )


def refuse_factory(function: Any) -> None:
    """Refuse a function that takes no number: it builds a network, or a list of them, and is to be called."""
    try:
        signature(function).bind(0)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        raise PosteriorTypeError(
            f"The posterior is a function, {name}{signature(function)}, which does not take one number, as sample(i) "
            f"-> network must. If it builds networks, call it and load their weights: dubium.load_weights({name}, "
            f"files); if it gives a list of networks, give {name}()."
        ) from None
    except ValueError:  # built in: its signature is not known
        return


LONELY_STATE = (
    "The posterior is a {name} of the library posteriors, which holds weights but no network. Give both: "
    "(network, state), or of a chain (network, [state, state, ...])."
)


def from_collection(obj: list[Any] | tuple[Any, ...], samples: int | None, seed: int) -> Posterior:
    """A posterior of (network, state) or (network, states) of the library posteriors; others are returned unchanged.

    States without a network are refused.
    """
    if obj and is_state(obj[0]):
        raise PosteriorTypeError(LONELY_STATE.format(name=f"{type(obj).__name__} of {type(obj[0]).__name__}"))
    if len(obj) == 2 and isinstance(obj[0], nn.Module):
        states = obj[1] if isinstance(obj[1], list | tuple) else [obj[1]]
        if states and all(map(is_state, states)):
            from dubium.posteriors.adapters.states import from_states

            return from_states(obj[0], states, samples or 20, seed)
    return obj


def from_module(model: nn.Module, samples: int | None, seed: int) -> Posterior:
    """The posterior behind one module: a network with random layers of another library, or a wrapper of its."""
    libraries = {type(layer).__module__.partition(".")[0] for layer in model.modules()}
    if "bayesian_torch" in libraries:
        from dubium.posteriors.adapters.bayesian_torch import from_bayesian_torch

        return from_bayesian_torch(model, samples or 20, seed)
    if "probly" in libraries:
        from dubium.posteriors.adapters.probly import from_probly

        return from_probly(model, samples or 20, seed)
    if "torch_uncertainty" in libraries or comes_from(model, "torch_uncertainty"):
        from dubium.posteriors.adapters.torch_uncertainty import from_torch_uncertainty

        return from_torch_uncertainty(model, samples, seed)
    dropout = any(isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0 for layer in model.modules())
    raise PosteriorTypeError(
        f"The posterior is a single {type(model).__name__}, not a collection. Give a list of networks, even for one: "
        "[network]." + (" It has dropout layers: dubium.posteriors.MCDropout(network) samples them." if dropout else "")
    )


def is_state(obj: object) -> bool:
    """Whether this is a state of the library posteriors; a user's package may have the same name."""
    return not isinstance(obj, nn.Module) and comes_from(obj, "posteriors") and hasattr(obj, "params")


def comes_from(obj: object, library: str) -> bool:
    """Whether the object's class, or one it is derived from, is defined in the library, which is not imported."""
    return any(cls.__module__.partition(".")[0] == library for cls in type(obj).__mro__)
