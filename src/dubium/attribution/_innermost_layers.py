"""The modules of a network that count as one function each, and what is known of it."""

from functools import cache
from typing import NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dubium.attribution._bias_free import HOMOGENEOUS_LAYERS, LINEAR_LAYERS
from dubium.attribution._closed_forms import ClosedForm, layer_closed_form
from dubium.models.normalized import Normalise
from dubium.posteriors.mc_dropout import FixedDropout
from dubium.posteriors.stack import Stack

PARAMETER_BIAS_LAYERS = (*LINEAR_LAYERS, _BatchNorm)


def innermost_layers(network: nn.Module) -> tuple[dict[nn.Module, bool], bool]:
    """The modules that count as one function each, with whether their bias is implicit, and whether a forward pass may
    compute anything outside of them.

    They are linear layers and BatchNorm of torch.nn, and modules without children, in order. A bias that is not
    implicit is a parameter, follows from parameters, or is zero. The network, or the one in a wrapper, is a layer
    only if its class is torch.nn's; otherwise its forward is watched operation by operation. What is inside a
    convolution (a weight's parametrization) is no layer. A Sequential computes nothing between its layers.
    """
    layers: dict[nn.Module, bool] = {}
    network = next(network.modules())  # a wrapper of ours that computes nothing shows the network itself
    computes_outside_layers, waiting, seen, unwrapped_networks = False, [network], {network}, {network}
    while waiting:
        module = waiting.pop()
        if module in unwrapped_networks:
            unwrapped_networks.update(inner_networks(module))
        known = known_function(module)
        children = [] if known.has_parameter_bias else [each for each in module._modules.values() if each is not None]
        if not children and (module not in unwrapped_networks or known.base is not None):
            layers[module] = known.has_implicit_bias
        else:
            computes_outside_layers = computes_outside_layers or known.base is not nn.Sequential
        if module._forward_hooks or module._forward_pre_hooks:  # a user's
            computes_outside_layers = True
        fresh = [child for child in children if child not in seen]
        seen.update(fresh)
        waiting += reversed(fresh)
    return layers, computes_outside_layers


def inner_networks(wrapper: nn.Module) -> list[nn.Module]:
    """The networks that a module hands its images to: those of a stack, or an only child that has all the weights."""
    if isinstance(wrapper, Stack):
        return list(wrapper.networks)
    children = [child for child in wrapper.children() if type(child) not in (Normalise, FixedDropout)]
    if len(children) != 1 or any(True for _ in wrapper.parameters(recurse=False)):
        return []
    return children if any(parameter.ndim > 1 for parameter in children[0].parameters()) else []


class KnownFunction(NamedTuple):
    """What is known of the function that a module computes."""

    base: type[nn.Module] | None = None  # the class of torch.nn that computes the same
    has_parameter_bias: bool = False
    has_implicit_bias: bool = True


UNKNOWN_FUNCTION = KnownFunction()


def known_function(module: nn.Module) -> KnownFunction:
    """What is known of a module's function: nothing if a forward was put into it, which is not that of its class."""
    if "forward" in vars(module):
        return UNKNOWN_FUNCTION
    return known_function_of_class(type(module))  # type: ignore[arg-type]  # mypy does not see that classes are hashable


@cache
def known_function_of_class(layer: type[nn.Module]) -> KnownFunction:
    """That of the class of torch.nn whose forward a class has, its own or inherited."""
    if layer in (Normalise, FixedDropout):  # the latter has another mask at each call
        return KnownFunction(has_implicit_bias=False)
    for base in layer.__mro__:
        if issubclass(base, nn.Module) and base.__module__.startswith("torch.nn.modules"):
            functions = ("forward", "_conv_forward")  # what a convolution's forward calls
            if not all(getattr(layer, name, None) is getattr(base, name, None) for name in functions):
                break
            has_implicit_bias = not issubclass(base, (*PARAMETER_BIAS_LAYERS, *HOMOGENEOUS_LAYERS))
            return KnownFunction(base, issubclass(base, PARAMETER_BIAS_LAYERS), has_implicit_bias)
    return UNKNOWN_FUNCTION


def closed_form_of(layer: nn.Module) -> ClosedForm | None:
    """The implicit bias as a function of output and input; None if it is not known."""
    base = known_function(layer).base
    return None if base is None else layer_closed_form(base, layer)
