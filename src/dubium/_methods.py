"""What a method does with a posterior: UA-Backprop goes through each network's logits, all others explain the
uncertainty of all networks together."""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from dubium.attribution import ATTRIBUTORS, CONTROLS, FAST_RELEVANCES, RELEVANCES
from dubium.attribution._budget import LARGE_IMAGE
from dubium.attribution._context import Context
from dubium.attribution._measure import check_gradients
from dubium.attribution._relevance import CONTEXT, ConfiguredAttributor, RelevanceByCalls, predict_logits
from dubium.attribution._scaling import scale_to_scores
from dubium.attribution._user_methods import find_attributor, import_method
from dubium.checks import check_number, plain_number
from dubium.errors import OptionError, UnknownNameError, unknown
from dubium.models import load_vae
from dubium.option_text import read_method
from dubium.posteriors.stack import Stack
from dubium.registry import AUTO, MEMBER_BY_MEMBER, RECOMMENDED, SCALED, UA_BACKPROP, method_names
from dubium.shares import UncertaintyTarget, class_shares
from dubium.types import KINDS, Attributor, Images, Kind, Logits, Maps, Posterior
from dubium.ua_backprop import UABackpropOptions, paper_taus, ua_backprop

FULLGRAD = "fullgrad"
UA_DEFAULTS: Mapping[str, Any] = {"tau1": None, "tau2": None, "normalize": True, "classes": "all", "of": "logits"}
EXPLAINED_OUTPUTS = ("logits", "log-probs")
"""What `of=` takes: what of a network the relevance explains."""
NUMBER_OPTIONS = {"tau1": ["auto"], "tau2": [], "classes": ["all", "auto"]}
"""Options that are numbers above 0, or one of these words; None stands for the default."""
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

    relevance_method: ConfiguredAttributor
    relevance_argument: object  # as the user named it
    options: UABackpropOptions
    uses_fullgrad: bool
    name: str = UA_BACKPROP
    needs_gradients: bool = True

    def attribute(self, networks: Posterior, x: Images, kinds: Sequence[Kind], context: Context) -> MethodResult:
        if x[:1].nbytes > LARGE_IMAGE:
            check_gradients(networks, x, context.memory)
        explained_networks = LogProbNetworks(networks) if self.options.of == "log-probs" else networks
        relevance_class = self.relevance_method.fast_relevance or RelevanceByCalls
        relevance = relevance_class(self.relevance_method, explained_networks, x, context)
        options = self.options
        if options.tau1 == "auto":
            options = options.resolve_tau1(relevance.logits.shape[-1], x.shape[1])
        maps, extras = ua_backprop(relevance, x, kinds, options, context)
        described = {"relevance": self.relevance_argument, **vars(options), **self.relevance_method.options}
        if options.of == "logits":
            del described["of"]  # results of earlier versions have the same description
        return MethodResult(relevance.logits, maps, extras, described)


@dataclass(frozen=True)
class LogProbNetworks:
    """A posterior's networks with log-probabilities as their output; the softmax of these is that of the logits."""

    networks: Posterior

    def __len__(self) -> int:
        return len(self.networks)

    def __iter__(self) -> Iterator[nn.Module]:
        for network in self.networks:
            yield nn.Sequential(network, nn.LogSoftmax(-1)).eval()


@dataclass(frozen=True)
class UncertaintyMethod:
    """An attributor whose target is the uncertainty itself, a function of all networks' logits."""

    attributor: ConfiguredAttributor
    name: str
    uses_fullgrad: bool
    needs_gradients: bool  # if True, a network whose logits have no gradient at x is refused: its maps would be flat

    def attribute(self, networks: Posterior, x: Images, kinds: Sequence[Kind], context: Context) -> MethodResult:
        if self.needs_gradients and x[:1].nbytes > LARGE_IMAGE:
            alone = self.name in MEMBER_BY_MEMBER
            check_gradients(networks if alone else [Stack([*networks])], x, context.memory)
        logits = predict_logits(networks, x, context.memory)
        if len(x) == 0:
            return MethodResult(logits, x.new_zeros(0, len(kinds), *x.shape[2:]), {}, self.attributor.options)
        maps, extras = self.attributor(
            Stack([*networks]), x, UncertaintyTarget(kinds), context, target_count=len(kinds)
        )
        if self.attributor.is_scaled:
            scores = class_shares(logits).sum(-1)[[KINDS.index(kind) for kind in kinds]]
            maps = scale_to_scores(maps, scores.T)
        return MethodResult(logits, maps, extras, self.attributor.options)


def choose_method(method: object, options: Mapping[str, Any], channels: int) -> UABackpropMethod | UncertaintyMethod:
    """The method that a user named or gave, with its options checked; a name may have options too: `ig:steps=50`."""
    if isinstance(method, str) and ":" in method:
        method, options = read_method(method, options)
    options = {name: plain_number(value) for name, value in options.items()}
    method = RECOMMENDED if isinstance(method, str) and method == AUTO else method
    if isinstance(options.get("vae"), str | Path):
        options = {**options, "vae": load_vae(options["vae"])}
    if isinstance(method, str) and method == UA_BACKPROP:
        return choose_ua_backprop(options, channels)
    attributor = BUILTINS.get(method) if isinstance(method, str) else None
    attributor = attributor or find_method(method, ATTRIBUTORS, method_names(), "method")
    check_options(attributor.name, attributor.options, options)
    needs_gradients = attributor.is_builtin and attributor.name not in CONTROLS  # what a user's needs is not known
    uses_fullgrad = attributor.is_builtin and attributor.name == FULLGRAD
    attributor = replace(attributor, options={**attributor.options, **options})
    return UncertaintyMethod(attributor, attributor.name, uses_fullgrad, needs_gradients)


def choose_ua_backprop(options: Mapping[str, Any], channels: int) -> UABackpropMethod:
    """UA-Backprop with the relevance that the options name; the others are its options, or the relevance's."""
    argument = options.get("relevance", FULLGRAD)
    if isinstance(argument, str) and ":" in argument:
        beside = {name: value for name, value in options.items() if name != "relevance"}
        argument, options = read_method(argument, beside)
        options["relevance"] = argument
    is_name = isinstance(argument, str) and argument in RELEVANCES
    relevance = BUILTINS[argument] if is_name else find_method(argument, RELEVANCES, [*RELEVANCES], "relevance")
    known = {"relevance": None, **UA_DEFAULTS, **relevance.options}
    check_options(f"{UA_BACKPROP} by {relevance.name}", known, options)
    for name in options:
        if name in UA_DEFAULTS and name in relevance.options:
            raise OptionError(
                f"{name!r} is an option of {UA_BACKPROP} and of its relevance {relevance.name}. Rename that one, "
                f"or bind it: functools.partial({relevance.name}, {name}=...)."
            )
    relevance_options = {name: options.get(name, default) for name, default in relevance.options.items()}
    ua_options = parse_ua_options({name: value for name, value in options.items() if name in UA_DEFAULTS}, channels)
    uses_fullgrad = relevance.is_builtin and relevance.name == FULLGRAD
    return UABackpropMethod(replace(relevance, options=relevance_options), argument, ua_options, uses_fullgrad)


def parse_ua_options(user_options: Mapping[str, Any], channels: int) -> UABackpropOptions:
    """The options that were given, checked, and the paper's for the rest."""
    tau1, tau2 = paper_taus(channels)
    values: dict[str, Any] = {**UA_DEFAULTS, "tau1": tau1, "tau2": tau2}
    for name, value in user_options.items():
        if name in NUMBER_OPTIONS and value is not None:
            check_number(name, value, whole=name == "classes", words=NUMBER_OPTIONS[name])
        if name == "normalize" and value not in (True, False, None):
            raise OptionError(f"normalize={value!r} was given; True or False is needed.")
        values[name] = values[name] if value is None else value
    if values["of"] not in EXPLAINED_OUTPUTS:
        raise UnknownNameError(unknown("output that UA-Backprop explains", values["of"], EXPLAINED_OUTPUTS))
    return UABackpropOptions(**values)


def find_method(
    method: object, builtins: Mapping[str, Attributor], known: Sequence[str], noun: str
) -> ConfiguredAttributor:
    """The attributor of an object that is not the name of a built-in method: one of our functions, a user's, Captum's.

    Args:
        builtins: our functions that are taken, by name.
        known: the names to list where it is none of these; `noun` says what they are.
    """
    if isinstance(method, str) and method.startswith("dubium.") and ":" in method:
        method = import_method(method)  # one of our functions, most likely
    for name, function in builtins.items():
        if method is function:
            return BUILTINS[name]
        if isinstance(method, functools.partial) and method.func is function and not method.args:
            return replace(BUILTINS[name], options={**BUILTINS[name].options, **method.keywords})
    name_and_function = find_attributor(method)
    if name_and_function is None:
        raise UnknownNameError(unknown(noun, method, known))
    return make_attributor(*name_and_function)


def make_attributor(name: str, function: Attributor, **fields: Any) -> ConfiguredAttributor:
    """An attributor with its options' defaults, and whether it takes a context."""
    takes_context = CONTEXT in inspect.signature(function).parameters
    return ConfiguredAttributor(name, function, default_options(function), takes_context, **fields)


def default_options(function: Callable[..., Any]) -> dict[str, Any]:
    """The options of an attributor, which are its keyword-only arguments, and their defaults."""
    parameters = inspect.signature(function).parameters.values()
    options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != CONTEXT}
    return {name: REQUIRED if default is inspect.Parameter.empty else default for name, default in options.items()}


def check_options(name: str, known: Mapping[str, Any], user_options: Mapping[str, Any]) -> None:
    """Whether a method has these options, and is given those that have no default."""
    for option in user_options:
        if option not in known:
            raise UnknownNameError(unknown(f"option of {name!r}", option, known))
    missing = [option for option, default in known.items() if default is REQUIRED and option not in user_options]
    if missing:
        raise OptionError(f"{name} needs the option {', '.join(missing)}. It takes {', '.join(known)}.")


BUILTINS: dict[str, ConfiguredAttributor] = {
    name: make_attributor(
        name, function, fast_relevance=FAST_RELEVANCES.get(name), is_builtin=True, is_scaled=name in SCALED
    )
    for name, function in ATTRIBUTORS.items()
}
"""Every method of dubium's but UA-Backprop, with its options' defaults."""
