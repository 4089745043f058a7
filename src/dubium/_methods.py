"""What a method does with a posterior: UA-Backprop goes through each network's logits, all others explain the
uncertainty of all networks together."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from dubium.attribution import ATTRIBUTORS, RELEVANCES
from dubium.attribution._budget import LARGE_IMAGE, check_gradient_memory
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.attribution._passes import predict_logits
from dubium.attribution._relevance import CONTEXT_ARGUMENT, ConfiguredAttributor, RelevanceByCalls
from dubium.attribution._user_methods import find_user_method, import_method
from dubium.checks import check_number, plain_number
from dubium.errors import OptionError, UnknownNameError, unknown_name_text
from dubium.models import load_vae
from dubium.option_text import read_method
from dubium.posteriors.stack import Stack
from dubium.registry import (
    AUTO,
    METHODS,
    RECOMMENDED,
    RECOMMENDED_OPTIONS,
    UA_BACKPROP,
    MethodEntry,
    load_function,
    method_names,
)
from dubium.shares import UncertaintyTarget, class_shares
from dubium.types import KINDS, Attributor, Images, Kind, Logits, Maps, Posterior, Scores
from dubium.ua_backprop import PAPER_TAUS, UABackpropOptions, ua_backprop

FULLGRAD = "fullgrad"
UA_DEFAULTS: Mapping[str, Any] = {"tau1": None, "tau2": None, "normalize": True, "classes": "all", "of": "logits"}
EXPLAINED_OUTPUTS = ("logits", "log-probs")
"""What `of=` takes: what of a network the relevance explains."""
NUMBER_OPTIONS = {"tau1": ["auto"], "tau2": [], "classes": ["all", "auto"]}
"""Options that are numbers above 0, or one of these words; None stands for the default."""
LEAST_TAU = 1e-9  # with smaller temperatures, exponents lose more than float32 precision, or overflow
ARGUMENTS = ("method", "kinds", "output", "pair", "keep_images", "class_names", "memory", "seed", "progress", "top")
"""Arguments of `explain` and `explain_dataset` that are no options; for hints about misspelt ones."""
PREPARATION = {
    **dict.fromkeys(
        ("mean", "std"),
        " Mean and std belong to the networks: dubium.models.Normalized(network, mean, std).eval() for each, or "
        "dubium.load_weights(..., mean=, std=); on the command line --mean and --std.",
    ),
    **dict.fromkeys(
        ("fit", "resize", "interpolation", "input_shape", "data_config"),
        " It is not a method's to prepare images: do it in the transform of a torch dataset, as of "
        "torchvision.datasets.ImageFolder(folder, transform), or before the call; on the command line --input-shape, "
        "--fit, --resize, --interpolation or --data-config.",
    ),
}
"""Hints about how images are prepared, which is no option of a method."""
REQUIRED = object()
"""The default of an option that has none."""


class MethodResult(NamedTuple):
    """Logits (S, B, K), maps (B, kinds, H, W), further tensors by name, and the options that were used."""

    logits: Logits
    maps: Maps
    extras: Mapping[str, Tensor]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class UABackpropMethod:
    """UA-Backprop: shares of the uncertainty on each network's logits weight the relevance maps of these logits."""

    attributor: ConfiguredAttributor  # the relevance
    relevance_argument: object  # as the user named it
    options: UABackpropOptions
    explains_log_probs: bool  # the networks that it is given are to return log-probabilities, which are logits too
    name: ClassVar[str] = UA_BACKPROP
    needs_gradients: ClassVar[bool] = True

    def attribute(self, networks: Posterior, x: Images, kinds: Sequence[Kind], context: Context) -> MethodResult:
        if x[:1].nbytes > LARGE_IMAGE:
            check_gradient_memory(networks, x, context.memory)
        relevance_context = replace(context, progress=DEFAULT_CONTEXT.progress, signed=False)
        prepared = self.attributor.relevance_class(self.attributor, networks, x, relevance_context)
        options = self.options
        if options.tau1 == "auto":
            options = options.resolve_tau1(prepared.logits.shape[-1], x.shape[1])
        maps, extras = ua_backprop(prepared, x, kinds, options, context)
        described = {"relevance": self.relevance_argument, **self.attributor.options, **vars(options)}
        if options.of == "logits":
            del described["of"]  # results of earlier versions have the same description
        return MethodResult(prepared.logits, maps, extras, described)


@dataclass(frozen=True)
class DirectMethod:
    """An attributor whose target is the uncertainty itself, a function of all networks' logits."""

    attributor: ConfiguredAttributor
    name: str
    needs_gradients: bool  # if True, a network whose logits have no gradient at x is refused: its maps would be flat
    explains_log_probs: ClassVar[bool] = False

    def attribute(self, networks: Posterior, x: Images, kinds: Sequence[Kind], context: Context) -> MethodResult:
        if self.needs_gradients and x[:1].nbytes > LARGE_IMAGE:
            by_member = self.attributor.entry is not None and self.attributor.entry.is_by_member
            check_gradient_memory(networks if by_member else [Stack([*networks])], x, context.memory)
        logits = predict_logits(networks, x, context.memory)
        if len(x) == 0:
            return MethodResult(logits, x.new_zeros(0, len(kinds), *x.shape[2:]), {}, self.attributor.options)
        maps, extras = self.attributor(
            Stack([*networks]), x, UncertaintyTarget(kinds), context, target_count=len(kinds)
        )
        if self.attributor.entry is not None and self.attributor.entry.is_scaled:
            scores = class_shares(logits).sum(-1)[[KINDS.index(kind) for kind in kinds]]
            maps = scale_to_scores(maps, scores.T)
        return MethodResult(logits, maps, extras, self.attributor.options)


def scale_to_scores(maps: Maps, scores: Scores) -> Maps:
    """Non-negative maps that sum to the scores: uniform where a map is zero, zero where its score is zero."""
    total = maps.double().sum((2, 3), keepdim=True)
    parts = torch.where(total == 0, 1 / maps[0, 0].numel(), maps / total)  # NaN stays NaN, and is refused later
    return (scores.double()[:, :, None, None] * parts).to(maps)


def choose_method(method: object, options: Mapping[str, Any], channels: int) -> UABackpropMethod | DirectMethod:
    """The method that a user named or gave, with its options checked; a name may have options too: `ig:steps=50`."""
    if isinstance(method, str) and ":" in method:
        method, options = read_method(method, options)
    options = {name: plain_number(value) for name, value in options.items()}
    if isinstance(method, str) and method == AUTO:
        method, options = RECOMMENDED, {**RECOMMENDED_OPTIONS, **options}
    if isinstance(method, str) and method == UA_BACKPROP:
        return choose_ua_backprop(options, channels)
    attributor = find_attributor(method, ATTRIBUTORS, method_names(), "method")
    options = check_options(attributor.name, attributor.options, options)
    needs_gradients = attributor.entry is not None and not attributor.entry.is_control  # a user's: not known
    attributor = replace(attributor, options={**attributor.options, **options})
    return DirectMethod(attributor, attributor.name, needs_gradients)


def choose_ua_backprop(options: Mapping[str, Any], channels: int) -> UABackpropMethod:
    """UA-Backprop with the relevance that the options name; the others are its options, or the relevance's."""
    argument = options.get("relevance", FULLGRAD)
    if isinstance(argument, str) and ":" in argument:
        beside = {name: value for name, value in options.items() if name != "relevance"}
        argument, options = read_method(argument, beside, "relevance")
        options["relevance"] = argument
    relevance = find_attributor(argument, RELEVANCES, [*RELEVANCES], "relevance")
    known = {"relevance": None, **UA_DEFAULTS, **relevance.options}
    options = check_options(f"{UA_BACKPROP} by {relevance.name}", known, options)
    for name in options:
        if name in UA_DEFAULTS and name in relevance.options:
            raise OptionError(
                f"{name!r} is an option of {UA_BACKPROP} and of its relevance {relevance.name}. Rename that one, "
                f"or bind it: functools.partial({relevance.name}, {name}=...)."
            )
    relevance_options = {name: options.get(name, default) for name, default in relevance.options.items()}
    ua_options = parse_ua_options({name: value for name, value in options.items() if name in UA_DEFAULTS}, channels)
    return UABackpropMethod(
        replace(relevance, options=relevance_options),
        argument,
        ua_options,
        explains_log_probs=ua_options.of == "log-probs",
    )


def parse_ua_options(user_options: Mapping[str, Any], channels: int) -> UABackpropOptions:
    """The options that were given, checked, and the paper's for the rest."""
    tau1, tau2 = PAPER_TAUS[channels == 1]
    values: dict[str, Any] = {**UA_DEFAULTS, "tau1": tau1, "tau2": tau2}
    for name, value in user_options.items():
        if name in NUMBER_OPTIONS and value is not None:
            check_number(name, value, whole=name == "classes", words=NUMBER_OPTIONS[name])
            if not isinstance(value, str) and value < LEAST_TAU:
                raise OptionError(f"{name}={value!r} is too small to compute with; {LEAST_TAU:g} or more is needed.")
        if name == "normalize" and not (isinstance(value, int | None) and value in (True, False, None)):
            raise OptionError(f"normalize={value!r} was given; True or False is needed.")
        values[name] = values[name] if value is None else value
    if not isinstance(values["of"], str) or values["of"] not in EXPLAINED_OUTPUTS:
        raise UnknownNameError(unknown_name_text("output that UA-Backprop explains", values["of"], EXPLAINED_OUTPUTS))
    return UABackpropOptions(**values)


def find_attributor(
    method: object, allowed: Mapping[str, Attributor], names: Sequence[str], noun: str
) -> ConfiguredAttributor:
    """The attributor that a user named or gave: a built-in one, one of our functions, a user's own, or Captum's.

    Args:
        allowed: our functions that may be given, by name.
        names: to list where it is none of these; `noun` says what they are.
    """
    if isinstance(method, str) and method in allowed:
        return BUILTINS[method]
    if isinstance(method, str) and method.startswith("dubium.") and ":" in method:
        method = import_method(method)  # one of our functions, most likely
    for name, function in allowed.items():
        if method is function:
            return BUILTINS[name]
        if isinstance(method, functools.partial) and method.func is function and not method.args:
            options = check_options(name, BUILTINS[name].options, method.keywords)
            return replace(BUILTINS[name], options={**BUILTINS[name].options, **options})
    name_and_function = find_user_method(method)
    if name_and_function is None:
        raise UnknownNameError(unknown_name_text(noun, method, names))
    return make_attributor(*name_and_function)


def make_attributor(name: str, function: Attributor, entry: MethodEntry | None = None) -> ConfiguredAttributor:
    """An attributor with its options' defaults; `entry` is its row in the registry, if it is one of ours."""
    takes_context = CONTEXT_ARGUMENT in inspect.signature(function).parameters
    relevance_class = load_function(entry.relevance_class) if entry and entry.relevance_class else RelevanceByCalls
    return ConfiguredAttributor(name, function, default_options(function), takes_context, entry, relevance_class)


def default_options(function: Callable[..., Any]) -> dict[str, Any]:
    """The options of an attributor and their defaults: its arguments after `(network, x, target)`."""
    options, kinds = {}, (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for index, p in enumerate(inspect.signature(function).parameters.values()):
        if p.name != CONTEXT_ARGUMENT and p.kind in kinds and (index >= 3 or p.kind is p.KEYWORD_ONLY):
            options[p.name] = REQUIRED if p.default is p.empty else p.default
    return options


def check_options(name: str, known: Mapping[str, Any], user_options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check that the method has all of a user's options and misses none; returns them, with `vae` loaded."""
    for option in user_options:
        if option not in known:
            near = get_close_matches(option, ARGUMENTS, n=1, cutoff=0.75)
            hint = PREPARATION.get(option, f" Or is it the argument {near[0]}= that is meant?" if near else "")
            hint = " A context's seed= and memory= are arguments of explain." if option == CONTEXT_ARGUMENT else hint
            raise UnknownNameError(unknown_name_text(f"option of {name!r}", option, known) + hint)
    missing = [option for option, default in known.items() if default is REQUIRED and option not in user_options]
    if missing:
        raise OptionError(f"{name} needs the option {', '.join(missing)}. It takes {', '.join(known)}.")
    vae = user_options.get("vae")
    return {**user_options, "vae": load_vae(vae)} if isinstance(vae, str | Path) else user_options


BUILTINS: dict[str, ConfiguredAttributor] = {
    name: make_attributor(name, function, METHODS[name]) for name, function in ATTRIBUTORS.items()
}
"""Every method of dubium's but UA-Backprop, with its options' defaults."""
