"""What a method does with a posterior: UA-Backprop goes through each network's logits, all others explain the
uncertainty of all networks together."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from dubium.attribution import ATTRIBUTORS, CONTROLS, PREPARATIONS, RELEVANCES
from dubium.attribution._budget import is_large
from dubium.attribution._context import Context
from dubium.attribution._measure import check_gradients
from dubium.attribution._own_methods import find_attributor
from dubium.attribution._prepared import CONTEXT, Method, RelevanceByCalls, predict_logits
from dubium.attribution._scaling import scale_to_scores
from dubium.checks import check_number
from dubium.errors import OptionError, UnknownNameError, unknown
from dubium.models import load_vae
from dubium.option_text import read_method
from dubium.posteriors.stack import Stack
from dubium.registry import AUTO, RECOMMENDED, SCALED, UA_BACKPROP, method_names
from dubium.shares import UncertaintyTarget, class_shares
from dubium.types import KINDS, Attributor, Images, Kind, Logits, Maps, Posterior
from dubium.ua_backprop import UABackpropOptions, paper_taus, ua_backprop

FULLGRAD = "fullgrad"
UA_DEFAULTS: Mapping[str, Any] = {"tau1": None, "tau2": None, "normalize": True, "classes": "all", "of": "logits"}
EXPLAINED = ("logits", "log-probs")
"""What `of=` takes: what of a network the relevance explains."""
CHECKED = {"tau1": ["auto"], "tau2": [], "classes": ["all", "auto"]}
"""Options that are numbers above 0, or one of these words; None stands for the default."""
REQUIRED = object()
"""The default of an option that has none."""


class PosteriorMaps(NamedTuple):
    """What a method finds: logits (S, B, K), maps (B, kinds, H, W), further tensors, and the options that it used."""

    logits: Logits
    maps: Maps
    extras: Mapping[str, Tensor]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class ThroughLogits:
    """UA-Backprop: the uncertainty to each network's logits, and those to pixels by a relevance."""

    relevance: Method
    given: object  # the relevance as the user named it
    options: UABackpropOptions
    uses_fullgrad: bool
    name: str = UA_BACKPROP
    needs_gradients: bool = True

    def attribute(self, networks: Posterior, x: Images, kinds: Sequence[Kind], context: Context) -> PosteriorMaps:
        if is_large(x):
            check_gradients(networks, x, context.memory)
        explained = LogProbNetworks(networks) if self.options.of == "log-probs" else networks
        prepare = self.relevance.prepare or RelevanceByCalls
        relevance = prepare(self.relevance, explained, x, context)
        options = self.options
        if options.tau1 == "auto":
            options = options.resolve_tau1(relevance.logits.shape[-1], x.shape[1])
        maps, extras = ua_backprop(relevance, x, kinds, options, context)
        described = {"relevance": self.given, **vars(options), **self.relevance.options}
        if options.of == "logits":
            del described["of"]  # results of earlier versions have the same description
        return PosteriorMaps(relevance.logits, maps, extras, described)


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
class OnUncertainty:
    """An attributor of the uncertainty itself, a function of all networks' logits."""

    method: Method
    name: str
    uses_fullgrad: bool
    needs_gradients: bool  # True if a network whose gradient is cut would give flat maps, and must be refused

    def attribute(self, networks: Posterior, x: Images, kinds: Sequence[Kind], context: Context) -> PosteriorMaps:
        if self.needs_gradients and is_large(x):
            check_gradients([Stack([*networks])], x, context.memory)
        logits = predict_logits(networks, x, context.memory)
        if len(x) == 0:
            return PosteriorMaps(logits, x.new_zeros(0, len(kinds), *x.shape[2:]), {}, self.method.options)
        maps, extras = self.method(Stack([*networks]), x, UncertaintyTarget(kinds), context, targets=len(kinds))
        if self.method.is_scaled:
            scores = class_shares(logits).sum(-1)[[KINDS.index(kind) for kind in kinds]]
            maps = scale_to_scores(maps, scores.T)
        return PosteriorMaps(logits, maps, extras, self.method.options)


def choose_method(method: object, options: Mapping[str, Any], channels: int) -> ThroughLogits | OnUncertainty:
    """The method that a user named or gave, with its options checked; a name may have options too: `ig:steps=50`."""
    if isinstance(method, str):
        method, options = read_method(method, options)
        method = RECOMMENDED if method == AUTO else method
    if isinstance(options.get("vae"), str | Path):
        options = {**options, "vae": load_vae(options["vae"])}
    if not isinstance(method, str) or method != UA_BACKPROP:
        own = OURS.get(method) if isinstance(method, str) else None
        own = own or find_method(method, ATTRIBUTORS, method_names(), "method")
        check_options(own.name, own.options, options)
        needs_gradients = own.is_ours and own.name not in CONTROLS  # what a user's function needs is not known
        own = replace(own, options={**own.options, **options})
        return OnUncertainty(own, own.name, own.is_ours and own.name == FULLGRAD, needs_gradients)
    given = options.get("relevance", FULLGRAD)
    if isinstance(given, str):
        beside = {name: value for name, value in options.items() if name != "relevance"}
        given, options = read_method(given, beside)
        options["relevance"] = given
    is_name = isinstance(given, str) and given in RELEVANCES
    relevance = OURS[given] if is_name else find_method(given, RELEVANCES, [*RELEVANCES], "relevance")
    check_options(
        f"{UA_BACKPROP} by {relevance.name}", {"relevance": None, **UA_DEFAULTS, **relevance.options}, options
    )
    relevance_options = {name: options.get(name, default) for name, default in relevance.options.items()}
    chosen = ua_options({name: value for name, value in options.items() if name in UA_DEFAULTS}, channels)
    return ThroughLogits(
        replace(relevance, options=relevance_options), given, chosen, relevance.is_ours and relevance.name == FULLGRAD
    )


def ua_options(given: Mapping[str, Any], channels: int) -> UABackpropOptions:
    """The options that were given, checked, and the paper's for the rest."""
    tau1, tau2 = paper_taus(channels)
    chosen: dict[str, Any] = {**UA_DEFAULTS, "tau1": tau1, "tau2": tau2}
    for name, value in given.items():
        if name in CHECKED and value is not None:
            check_number(name, value, whole=name == "classes", words=CHECKED[name])
        chosen[name] = chosen[name] if name in CHECKED and value is None else value
    if chosen["of"] not in EXPLAINED:
        raise UnknownNameError(unknown("output that UA-Backprop explains", chosen["of"], EXPLAINED))
    return UABackpropOptions(**chosen)


def find_method(what: object, ours: Mapping[str, Attributor], known: Sequence[str], noun: str) -> Method:
    """A method that is none of ours by name: one of our functions, a user's own, or Captum's.

    Args:
        known: the names to list where it is none of these; `noun` says what they are.
    """
    for name, function in ours.items():
        if what is function:
            return OURS[name]
    found = find_attributor(what)
    if found is None:
        raise UnknownNameError(unknown(noun, what, known))
    return describe_method(*found)


def describe_method(name: str, function: Attributor, **ours: Any) -> Method:
    """A method with its options' defaults, and whether it takes a context."""
    parameters = inspect.signature(function).parameters
    return Method(name, function, options_of(function), wants_context=CONTEXT in parameters, **ours)


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """A method's own options and their defaults."""
    parameters = inspect.signature(function).parameters.values()
    options = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != CONTEXT}
    return {name: REQUIRED if default is inspect.Parameter.empty else default for name, default in options.items()}


def check_options(name: str, known: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Whether a method has these options, and is given those that have no default."""
    for option in given:
        if option not in known:
            raise UnknownNameError(unknown(f"option of {name!r}", option, known))
    missing = [option for option, default in known.items() if default is REQUIRED and option not in given]
    if missing:
        raise OptionError(f"{name} needs the option {', '.join(missing)}. It takes {', '.join(known)}.")


OURS: dict[str, Method] = {
    name: describe_method(name, function, prepare=PREPARATIONS.get(name), is_ours=True, is_scaled=name in SCALED)
    for name, function in ATTRIBUTORS.items()
}
"""Every method but UA-Backprop, with its options' defaults."""
