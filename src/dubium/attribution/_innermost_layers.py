"""The modules of a network that count as one function each, and what is known of it."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dubium.attribution._bias_free import HOMOGENEOUS_LAYERS, LINEAR_LAYERS
from dubium.models.normalized import Normalise
from dubium.posteriors.mc_dropout import FixedDropout
from dubium.posteriors.stack import Stack

PARAMETER_BIAS_LAYERS = (*LINEAR_LAYERS, _BatchNorm)


def innermost_layers(network: nn.Module) -> tuple[dict[nn.Module, "LayerFacts"], bool]:
    """The modules that count as one function each, with what is known of it, and whether a forward pass may compute
    anything outside of them.

    - Linear layers and BatchNorm of torch.nn are layers. What is inside them (a weight's parametrization) is not.
    - Modules without children are layers, of any class.
    - The network itself, or the one in a wrapper, is a layer only if its class is torch.nn's; otherwise its forward is
      recorded operation by operation.
    - A Sequential computes nothing between its layers.
    """
    layers = dict[nn.Module, LayerFacts]()
    network = next(network.modules())  # a wrapper of ours that computes nothing shows the network itself
    computes_outside_layers, waiting, seen, whole_networks = False, [network], {network}, {network}
    while waiting:
        module = waiting.pop()
        if module in whole_networks:
            whole_networks.update(inner_networks(module))
        facts = layer_facts(module)
        children = (
            [] if facts.may_have_parameter_bias else [each for each in module._modules.values() if each is not None]
        )
        if not children and (module not in whole_networks or facts.torch_class is not None):
            layers[module] = facts
        else:
            computes_outside_layers = computes_outside_layers or facts.torch_class is not nn.Sequential
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


class LayerFacts(NamedTuple):
    """What is known of the function that a module computes."""

    torch_class: type[nn.Module] | None = None  # of torch.nn, which computes the same; None if there is none
    may_have_parameter_bias: bool = False
    has_implicit_bias: bool = True


NOTHING_KNOWN = LayerFacts()


def layer_facts(module: nn.Module) -> LayerFacts:
    """What is known of a module's function: nothing if a forward was put into it, which is not that of its class."""
    if "forward" in vars(module):
        return NOTHING_KNOWN
    return class_facts(type(module), type(module).forward)  # type: ignore[arg-type]


@cache
def class_facts(layer: type[nn.Module], forward: Callable[..., Any]) -> LayerFacts:
    """The facts of the class of torch.nn that a class takes its forward from, unchanged; nothing if there is none."""
    if layer in (Normalise, FixedDropout):  # the latter has another mask at each call
        return LayerFacts(has_implicit_bias=False)
    for base in layer.__mro__:
        if issubclass(base, nn.Module) and base.__module__.startswith("torch.nn.modules"):
            called = "_conv_forward"  # what a convolution's forward calls
            if forward is not base.forward or getattr(layer, called, None) is not getattr(base, called, None):
                break
            may_have_parameter_bias = issubclass(base, PARAMETER_BIAS_LAYERS)
            return LayerFacts(
                base, may_have_parameter_bias, not issubclass(base, (*PARAMETER_BIAS_LAYERS, *HOMOGENEOUS_LAYERS))
            )
    return NOTHING_KNOWN
