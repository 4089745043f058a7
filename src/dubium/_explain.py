"""The pipeline: check, predict, attribute."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dubium.attribution import ATTRIBUTORS, BY_IMAGE, RELEVANCES
from dubium.attribution._resolve import attributor, bound, check_options, options_of
from dubium.attribution._vjp import DEFAULT_MEMORY, parse_memory
from dubium.attribution.fullgrad import Ahead, fullgrad, together
from dubium.attribution.fullgrad import fullgrad_completeness as completeness
from dubium.checks import (
    check_finite,
    check_images,
    check_kinds,
    check_maps,
    check_network,
    check_number,
    check_output,
    check_posterior,
    silent,
    warn_if_probabilities,
    warn_if_single,
)
from dubium.errors import NetworkError, PosteriorError, UnknownNameError, unknown
from dubium.explanation import Explanation, described
from dubium.posteriors.adapters import as_posterior
from dubium.posteriors.stack import stack
from dubium.shares import shares, uncertainty_target
from dubium.softmax_share import tau1_for
from dubium.types import KINDS, Images, Kind, Logits, Maps, Posterior, Progress, Shares
from dubium.ua_backprop import only, rows_at_once, ua_backprop

UA_BACKPROP = "ua-backprop"
UA_OPTIONS = {"relevance": "fullgrad", "tau1": None, "tau2": None, "normalize": True, "classes": "all"}
FEATURES = 128  # those of wide layers take 40 times the bytes of their image, and a network has some
TAUS = {"grey": (0.08, 0.3), "colour": (0.55, 0.02)}  # Appendix B


def methods() -> tuple[str, ...]:
    """The names that `explain(..., method=)` takes."""
    return UA_BACKPROP, *ATTRIBUTORS


def explain(
    posterior: Any,
    x: Images,
    *,
    method: Any = UA_BACKPROP,
    kinds: Iterable[Kind] | Kind = KINDS,
    memory: int | str = DEFAULT_MEMORY,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Explanation:
    """Which pixels of x make the posterior unsure, and how much, for each kind of uncertainty.

    Args:
        posterior: a list of networks in eval mode, any `dubium.types.Posterior`, or another library's object that
            `dubium.posteriors.as_posterior` knows (a fitted `laplace.Laplace`, ...).
        x: images, of the networks' dtype and on their device.
        method: a name of `dubium.methods()`, a function `(network, x, target) -> maps`, or a Captum class.
        kinds: of "total", "aleatoric" and "epistemic".
        memory: what may be used beside networks, images and results: bytes, or text like "512MiB".
        seed: of the methods that draw random numbers.
        progress: called with (steps done, steps in all).
        options: the method's own; an unknown one is an error that lists them.
    """
    check_images(x)
    kinds, limit = check_kinds(kinds), parse_memory(memory)
    name, function, settings = chosen(method, options, x.shape[1])
    posterior = as_posterior(posterior)
    check_posterior(posterior)
    warn_if_single(posterior, kinds)
    extras: dict[str, Tensor] = {}
    context = {"memory": limit // 2, "seed": seed, "progress": progress or silent, "extras": extras}
    with torch.inference_mode(False), torch.no_grad():
        networks, x = prepared(posterior, x)
        by_fullgrad = name == UA_BACKPROP and function is fullgrad
        passes = ahead(networks, x, settings["rescale"], limit) if by_fullgrad else []
        logits = predict(networks, x, limit, passes)
        warn_if_probabilities(logits)
        on_probs = shares(logits)
        if settings.get("tau1") == "auto":
            settings["tau1"] = tau1_for(logits.shape[-1], TAUS[image_kind(x.shape[1])][0])
        if len(x) == 0:
            maps = x.new_zeros(0, len(kinds), *x.shape[2:])
        elif name == UA_BACKPROP:
            fits = len(x) * logits.shape[-1] <= rows_at_once(x, limit // 2)  # the maps of all classes
            maps = through_logits(networks, passes if fits else [], x, logits, on_probs, kinds, settings, context)
        else:
            maps = bound(function, settings, context)(stack(networks), x, uncertainty_target(kinds))
            check_maps(maps, name, (len(x), len(kinds), *x.shape[2:]))
    return assembled(logits, on_probs, x, kinds, maps=maps, method=name, options=described(settings), extras=extras)


def uncertainty(
    posterior: Any,
    x: Images,
    *,
    kinds: Iterable[Kind] | Kind = KINDS,
    memory: int | str = DEFAULT_MEMORY,
) -> Explanation:
    """Scores and predictions without maps."""
    check_images(x)
    kinds, limit = check_kinds(kinds), parse_memory(memory)
    posterior = as_posterior(posterior)
    check_posterior(posterior)
    warn_if_single(posterior, kinds)
    with torch.inference_mode(False), torch.no_grad():
        networks, x = prepared(posterior, x, layers=False)
        logits = predict(networks, x, limit)
        warn_if_probabilities(logits)
    return assembled(logits, shares(logits), x, kinds, maps=None, method="uncertainty", options={}, extras={})


def fullgrad_completeness(network: nn.Module, x: Images, *, memory: int | str = DEFAULT_MEMORY) -> Float[Tensor, "B K"]:
    """`|logit - sum of FullGrad's terms| / max(1, |logit|)`: 0 if hooks see all of the network's biases.

    Functional calls and products (attention, gates) cannot be seen; what they hide shows here.
    """
    check_images(x)
    check_posterior([network])
    with torch.inference_mode(False), torch.no_grad():
        networks, x = prepared([network], x)
        predict(networks, x, parse_memory(memory))
        return completeness(next(iter(networks)), x, only(slice(None)), memory=parse_memory(memory))


def chosen(method: object, options: Mapping[str, Any], channels: int) -> tuple[str, Any, dict[str, Any]]:
    """The method's name, its function and all its settings."""
    if method != UA_BACKPROP:
        if isinstance(method, str) and method not in ATTRIBUTORS:
            raise UnknownNameError(unknown("method", method, methods()))
        name, function = attributor(method, ATTRIBUTORS, "method")
        known = options_of(function)
        check_options(name, known, options)
        return name, function, {**known, **options}
    _, function = attributor(options.get("relevance", "fullgrad"), RELEVANCES, "relevance")
    known = UA_OPTIONS | options_of(function)
    check_options(UA_BACKPROP, known | ({"rescale": None}), options)  # only FullGrad has rescale, others ignore it
    settings = {**known, **{name: value for name, value in options.items() if name in known}}
    for tau, default in zip(("tau1", "tau2"), TAUS[image_kind(channels)], strict=True):
        settings[tau] = default if settings[tau] is None else settings[tau]
        check_number(tau, settings[tau], words=["auto"] if tau == "tau1" else [])
    settings["classes"] = "all" if settings["classes"] is None else settings["classes"]
    check_number("classes", settings["classes"], whole=True, words=["all", "auto"])
    return UA_BACKPROP, function, settings


def image_kind(channels: int) -> str:
    return "grey" if channels == 1 else "colour"


def through_logits(
    networks: Posterior,
    passes: Sequence[Ahead],
    x: Images,
    logits: Logits,
    on_probs: Shares,
    kinds: Sequence[Kind],
    settings: Mapping[str, Any],
    context: Mapping[str, Any],
) -> Maps:
    """UA-Backprop, with what its settings leave to the relevance bound to it."""
    _, function = attributor(settings["relevance"], RELEVANCES, "relevance")
    own = {name: value for name, value in settings.items() if name not in UA_OPTIONS}
    relevance = bound(function, own, {**context, "progress": silent, "signed": False})
    return ua_backprop(
        x,
        logits,
        on_probs,
        relevances=lambda: chain(passes, (partial(relevance, network) for _, network in others(networks, passes))),
        known=lambda: together(passes) if len(passes) == len(networks) else None,
        together=function in BY_IMAGE,
        kinds=kinds,
        **{name: settings[name] for name in UA_OPTIONS if name != "relevance"},
        **context,
    )


@dataclass(frozen=True)
class Plain:
    """A posterior's networks without what torch.compile wrapped around them; in float32 if they are in half precision,
    so that nothing overflows."""

    posterior: Posterior
    half: bool

    def __len__(self) -> int:
        return len(self.posterior)

    def __iter__(self) -> Iterator[nn.Module]:
        for network in self.posterior:
            plain = getattr(network, "_orig_mod", network)
            yield deepcopy(plain).float() if self.half else plain


def prepared(posterior: Posterior, x: Images, *, layers: bool = True) -> tuple[Posterior, Images]:
    """Checked networks, and images that autograd may save, both in at least float32."""
    for index, network in enumerate(posterior):
        check_network(network, index, x, layers=layers)
    keep_freed_memory()
    half = x.dtype in (torch.float16, torch.bfloat16)
    return Plain(posterior, half), x.float() if half else x.clone() if x.is_inference() else x.detach()


def keep_freed_memory() -> None:
    """Let freed memory wait for the next chunk, instead of going back to the system and coming again page by page.

    glibc keeps blocks up to the largest that was ever freed, 32 MiB at most: here is one, and it was never touched.
    """
    torch.empty(2**25 - 2**16, dtype=torch.uint8)


def predict(posterior: Posterior, x: Images, memory: int, passes: Sequence[Ahead] = ()) -> Logits:
    """Every network's logits, each checked; those of the first may be known already."""
    rows = x if len(x) else x.new_zeros(1, *x.shape[1:])  # no images: one of zeros tells K
    parts = rows.split(min(64, max(1, memory // (FEATURES * rows[0].nbytes))))
    rest = ([(part, forward(network, part, index)) for part in parts] for index, network in others(posterior, passes))
    return checked(chain((one.outputs for one in passes), rest), len(posterior))[:, : len(x)]


def checked(outputs: Iterable[Sequence[tuple[Images, Any]]], expected: int) -> Logits:
    """The outputs of each network for some images at a time, if that is what logits look like."""
    logits: list[Tensor] = []
    for index, parts in enumerate(outputs):
        for part, out in parts:
            check_output(out, index, len(part), logits[0].shape[-1] if logits else None)
        logits.append(torch.cat([out for _, out in parts]))
    if len(logits) != expected:
        raise PosteriorError(f"The posterior says it has {expected} networks, but gave {len(logits)}.")
    together = torch.stack(logits)
    check_finite(together)
    return together


def ahead(networks: Posterior, x: Images, rescale: str, memory: int) -> list[Ahead]:
    """Forward passes that serve for logits and relevance both: of as many networks as fit into the memory."""
    room, passes = memory // 4, []
    for network in networks if len(x) else ():
        if FEATURES * x.nbytes > room:
            break
        try:
            one = Ahead(network, x, rescale=rescale, memory=memory // 2)
        except Exception:
            break  # whatever is wrong, `predict` will say it
        room -= one.bytes
        if room < 0:
            break
        passes.append(one)
    return passes


def others(networks: Posterior, passes: Sequence[Ahead]) -> Iterator[tuple[int, nn.Module]]:
    """Those that did not pass ahead, with their numbers. A posterior that makes them anew is not asked in vain."""
    return islice(enumerate(networks), len(passes), None) if len(passes) < len(networks) else iter(())


def forward(network: nn.Module, x: Images, index: int) -> Any:
    try:
        return network(x.clone())
    except RuntimeError as error:
        raise NetworkError(f"Network {index} cannot take images of shape {tuple(x.shape)}: {error}") from error


def assembled(
    logits: Logits,
    on_probs: Shares,
    x: Images,
    kinds: Sequence[Kind],
    *,
    maps: Maps | None,
    extras: Mapping[str, Tensor],
    **about: Any,
) -> Explanation:
    """Results by kind, in the images' type."""
    by_kind = dict(zip(KINDS, on_probs.sum(-1).to(x.dtype), strict=True))
    members = logits.double().softmax(-1)
    return Explanation(
        scores={kind: by_kind[kind] for kind in kinds},
        maps={} if maps is None else {kind: maps[:, t] for t, kind in enumerate(kinds)},
        probs=members.mean(0).to(x.dtype),
        members=members.to(x.dtype),
        extras={name: {kind: tensor[:, t] for t, kind in enumerate(kinds)} for name, tensor in extras.items()},
        input_shape=tuple(x.shape),
        all_scores=by_kind,
        **about,
    )
