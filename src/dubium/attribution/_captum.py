"""Captum's classes, with their options, and Captum's objects, as attributors."""

import inspect
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from dubium.attribution._autograd.graph import graph_nodes
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._target import count_targets
from dubium.attribution.grad_cam import find_layer
from dubium.checks import count_text, warn_user
from dubium.errors import OptionError, lookup
from dubium.posteriors.stack import stacked_networks
from dubium.types import Attributor, Images, Maps, Scores, Target

RESERVED_ARGUMENTS = (
    "self",
    "inputs",
    "target",
    "additional_forward_args",
    "return_convergence_delta",
    "show_progress",
)
"""Arguments of Captum's `attribute` that are no options here."""
INNER = "attribution_method"
"""The argument of Captum's NoiseTunnel that is another method, and comes in place of the network."""
LAYER = "layer"
"""The argument of Captum's constructors that is a part of a network."""
OF_MODULES = tuple(f"captum.{name}" for name in ("DeepLift", "DeepLiftShap", "LayerDeepLift", "GuidedBackprop"))
OF_MODULES += ("captum.Deconvolution", "captum.GuidedGradCam")
"""Methods that give `nn.ReLU` modules another backward pass."""


class TargetModule(nn.Module):
    """Target after network, as the module that Captum wants."""

    def __init__(self, network: nn.Module, target: Target) -> None:
        super().__init__()
        self.network, self.target = network, target
        self.training = False  # not .eval(): the network is the caller's

    def forward(self, x: Tensor) -> Scores:
        return self.target(self.network(x.clone()))


def is_captum(what: object) -> bool:
    """Whether this is one of Captum's classes, an object of one, or a `functools.partial` of one."""
    what = what.func if isinstance(what, partial) else what
    return callable(getattr(what, "attribute", None)) and not isinstance(what, nn.Module)


def refuse_attribute(what: object) -> None:
    """Refuse the function `attribute` of Captum's classes and objects, which is called otherwise than a method is."""
    function: Any = what.func if isinstance(what, partial) else what
    owner = getattr(function, "__self__", None)
    modules = [str(getattr(part, "__module__", "")) for part in (function, *type(owner).__mro__)]
    if getattr(function, "__name__", "") == "attribute" and any(name.startswith("captum.") for name in modules):
        name = function.__qualname__.partition(".")[0] if owner is None else type(owner).__name__
        raise OptionError(
            f"{name}.attribute was given for a method. Give Captum's class {name}, with what its attribute takes as "
            f"options, or the object alone, {name}(network)."
        )


def captum_name(what: Any) -> str:
    what = what.func if isinstance(what, partial) else what
    return f"captum.{what.__name__ if isinstance(what, type) else type(what).__name__}"


def captum_attributor(what: Any) -> Attributor:
    """Attribute each target in turn: the sum over channels, or the mean of absolute values for a relevance.

    Args:
        what: a class, whose options are the arguments of its constructor after the first and those of `attribute`; an
            object, which is used for all networks in turn; or a `functools.partial` of a class. With `layer`, the
            maps of a stacked posterior are means over its networks' layers of that name.
    """
    fixed = dict(what.keywords) if isinstance(what, partial) else {}
    if isinstance(what, partial) and what.args:
        raise OptionError(f"The partial of {captum_name(what)} has positional arguments; give options by name.")
    method: Any = what.func if isinstance(what, partial) else what
    built = captum_parameters(method) if isinstance(method, type) else []
    wraps_another = bool(built) and built[0].name == INNER
    built = built if wraps_another else built[1:]  # the first is the network
    called = captum_parameters(method.attribute)

    def attribute(
        network: nn.Module, x: Images, target: Target, *, context: Context = DEFAULT_CONTEXT, **options: Any
    ) -> Maps:
        arguments = {name: as_tuple(value) for name, value in options.items()}
        module = TargetModule(network, target)
        constructed = {p.name: arguments.pop(p.name) for p in built if p.name in arguments}
        constructed |= {INNER: inner_method(constructed[INNER], module)} if INNER in constructed else {}
        layers = member_layers(network, x, constructed.pop(LAYER)) if LAYER in constructed else []
        choices = [{**constructed, LAYER: layer} for layer in layers] or [constructed]
        is_class = isinstance(method, type)
        first = [] if wraps_another else [module]
        explainers = [method(*first, **choice) if is_class else for_module(method, module) for choice in choices]
        with torch.no_grad():
            targets = count_targets(network, x, target)
        if captum_name(what) in OF_MODULES:
            warn_of_unseen_relus(network, x, captum_name(what))

        def attribute_target(explainer: Any, t: int) -> Tensor:
            # a copy each time: Captum leaves gradients on the tensor it is given
            found = explainer.attribute(x.clone().requires_grad_(), target=t, **arguments).detach()
            if found.ndim != 4:
                raise OptionError(
                    f"{captum_name(what)} found {tuple(found.shape)} for the images: a number for each output of a "
                    "layer, which has no place in them. Name a layer that puts out feature maps (B, C, h, w), such as "
                    "a convolution, with layer=."
                )
            maps = fit_to_images(found, x)
            return maps.sum(1) if context.signed else maps.abs().mean(1)

        with torch.enable_grad():
            by_layer = [[attribute_target(one, t) for one in explainers] for t in range(targets)]
        by_target = [torch.stack(maps).mean(0) for maps in by_layer]
        return torch.stack(by_target, 1).to(x.dtype)

    parameters = {p.name: p.replace(kind=p.KEYWORD_ONLY) for p in (*built, *called)}
    for name, value in fixed.items():
        if name not in parameters:
            raise OptionError(f"The partial of {captum_name(what)} has {name!r}; it takes {', '.join(parameters)}.")
        parameters[name] = parameters[name].replace(default=value)
    first = list(inspect.signature(attribute).parameters.values())[:4]  # network, x, target, context
    attribute.__dict__["__signature__"] = inspect.Signature([*first, *parameters.values()])
    return attribute


def captum_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The options among the arguments of a function of Captum's."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind in named and p.name not in RESERVED_ARGUMENTS
    ]


def inner_method(given: Any, module: TargetModule) -> Any:
    """The method that a NoiseTunnel calls, given as a class or by the name of one."""
    if isinstance(given, str):
        import captum.attr

        given = lookup("method of Captum's", {n: c for n, c in vars(captum.attr).items() if is_captum(c)}, given)
    if not isinstance(given, type) or not is_captum(given):
        raise OptionError(f"{INNER}={given!r}; a class of Captum's is needed, or its name: {INNER}='Saliency'.")
    return given(module)


def member_layers(network: nn.Module, x: Images, layer: str | nn.Module) -> list[nn.Module]:
    """The layer of that name in each network of a stack; one that several networks have is refused.

    Captum's hooks see a layer's last execution alone.
    """
    members = stacked_networks(network)
    layers = [find_layer(member, x[:1], layer) for member in members]
    if len(members) > 1 and len(set(layers)) < len(layers):
        name = repr(layer) if isinstance(layer, str) else type(layer).__name__
        raise OptionError(
            f"The layer {name} is one object in several networks, as with MC dropout, and Captum would explain its "
            "last execution alone. Take the networks one by one, relevance= instead of method=, or method='grad-cam'."
        )
    return layers


def for_module(explainer: Any, module: TargetModule) -> Any:
    """A copy of an object of Captum's, and of those that it uses itself, for another network."""
    other = copy(explainer)
    members = stacked_networks(module.network)
    for name, value in vars(explainer).items():
        if name == LAYER and (len(members) > 1 or value not in members[0].modules()):
            kind = captum_name(explainer)
            raise OptionError(
                f"The {kind} object has a layer of one network, and there are others: its map would not be theirs. "
                f"Give the class, with the layer's name: {kind.replace('captum.', 'captum.attr.')}, layer='...'."
            )
        if name in ("forward_func", "model"):
            setattr(other, name, module)
        elif is_captum(value):
            setattr(other, name, for_module(value, module))
    return other


def warn_of_unseen_relus(network: nn.Module, x: Images, name: str) -> None:
    """Warn where the network calls relu as a function, which a method of modules takes for a linear operation."""
    calls = 0

    def count(*_: Any) -> None:
        nonlocal calls
        calls += 1

    handles = [module.register_forward_hook(count) for module in network.modules() if isinstance(module, nn.ReLU)]
    try:
        with torch.enable_grad():
            output = network(x[:1].clone().requires_grad_().clone())
    finally:
        for handle in handles:
            handle.remove()
    unseen = sum(node.name() == "ReluBackward0" for node in graph_nodes(output.grad_fn)) - calls
    if unseen > 0:
        warn_user(
            f"{name} changes the backward pass of nn.ReLU modules, and the networks call relu as a function "
            f"{count_text(unseen, 'time')}, which it does not see: there it gives the plain gradient. Use nn.ReLU "
            "modules, one for each call."
        )


def as_tuple(value: Any) -> Any:
    """Lists, as a command line gives them, as the tuples that Captum wants."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


def fit_to_images(attributions: Tensor, x: Images) -> Tensor:
    """Attributions (B, C, h, w) of a layer, at the size of the images."""
    if attributions.shape[2:] == x.shape[2:]:
        return attributions
    larger: Tensor = interpolate(attributions, size=x.shape[2:], mode="bilinear", align_corners=False)
    return larger
