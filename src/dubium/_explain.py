"""The pipeline: check, prepare, attribute."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from dubium._networks import borrow_networks
from dubium.attribution._budget import parse_memory
from dubium.attribution._context import DEFAULT_MEMORY, Context, report_nothing
from dubium.attribution._prepared import predict_logits
from dubium.attribution._resolve import Method, check_options, resolve_method
from dubium.attribution._scaling import scale_to_scores
from dubium.attribution.fullgrad import fullgrad_gap
from dubium.checks import check_images, check_kinds, check_maps, check_posterior
from dubium.errors import UnknownNameError, unknown
from dubium.explanation import Explanation, describe
from dubium.outputs import OutputChoice
from dubium.posteriors.stack import stack
from dubium.registry import ATTRIBUTORS, AUTO, RECOMMENDED, RELEVANCES, UA_BACKPROP, method_names
from dubium.shares import UncertaintyTarget, class_shares
from dubium.types import KINDS, Attribution, Images, Kind, Logits, Maps, Posterior, Progress
from dubium.ua_backprop import DEFAULTS, UABackprop, ua_backprop, ua_options


def methods() -> tuple[str, ...]:
    """The names that `explain(..., method=)` takes.

    >>> "ua-backprop" in methods()
    True
    """
    return method_names()


def explain(
    posterior: Any,
    x: Images,
    *,
    method: Any = UA_BACKPROP,
    kinds: Iterable[Kind] | Kind = KINDS,
    output: OutputChoice = None,
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
        output: what of the networks' output are the logits (B, K): a key or attribute, an index, or a function of it;
            "probabilities" takes the logarithm of probabilities, "sigmoid" one output z as the classes (0, z). By
            itself it is a tensor, `logits` if there is one, or the only tensor that can be logits.
        memory: what may be used beside networks, images and results: bytes, or text like "512MiB".
        seed: of the methods that draw random numbers.
        progress: called with (steps done, steps in all).
        options: the method's own; an unknown one is an error that lists them.

    Returns:
        An `Explanation` with scores, maps and predictions. The networks come back as they were.

    >>> import dubium, dubium.data
    >>> x = dubium.data.load("demo").batch([0, 1])
    >>> result = dubium.explain(dubium.load_posterior("demo"), x, kinds="epistemic")
    >>> result.maps["epistemic"].shape
    torch.Size([2, 28, 28])
    >>> bool((result.maps["epistemic"].sum((1, 2)) - result.scores["epistemic"]).abs().max() < 1e-5)
    True
    """
    check_images(x)
    kinds, context = check_kinds(kinds), Context(parse_memory(memory), seed, progress or report_nothing)
    attribute, chosen = choose_method(method, options, x.shape[1])
    gradients = attribute.name in ATTRIBUTORS and attribute.name != "random"
    with borrow_networks(posterior, x, kinds, output=output, gradients=gradients) as (networks, x):
        if isinstance(chosen, UABackprop):  # through the logits of each network
            relevance = attribute.prepare(networks, x, context)
            logits, chosen = relevance.logits, chosen.for_classes(relevance.logits.shape[-1], x.shape[1])
            maps, extras = ua_backprop(relevance, x, kinds, chosen, context)
            name, used = UA_BACKPROP, {"relevance": options.get("relevance", attribute.name), **vars(chosen)}
        else:  # of the uncertainty itself, a function of all networks' logits
            logits = predict_logits(networks, x, context.memory)
            maps, extras = uncertainty_maps(attribute, networks, x, kinds, context)
            if attribute.is_scaled and len(x):
                scores = class_shares(logits).sum(-1)[[KINDS.index(kind) for kind in kinds]]
                maps = scale_to_scores(maps, scores.T)
            name, used = attribute.name, {}
    about = {"method": name, "options": describe({**used, **attribute.options})}
    return assemble(logits, x, kinds, maps=maps, extras=extras, **about)


def uncertainty(
    posterior: Any,
    x: Images,
    *,
    kinds: Iterable[Kind] | Kind = KINDS,
    output: OutputChoice = None,
    memory: int | str = DEFAULT_MEMORY,
) -> Explanation:
    """Scores and predictions without maps: one forward pass of each network.

    Args:
        posterior, x, kinds, output, memory: as for `explain`.

    Returns:
        An `Explanation` without maps.

    >>> import dubium, dubium.data
    >>> result = dubium.uncertainty(dubium.load_posterior("demo"), dubium.data.load("demo").batch([0, 1, 2]))
    >>> result.scores["total"].shape, result.probs.shape
    (torch.Size([3]), torch.Size([3, 10]))
    """
    check_images(x)
    kinds, limit = check_kinds(kinds), parse_memory(memory)
    with borrow_networks(posterior, x, kinds, output=output, layers=False, gradients=False) as (networks, x):
        logits = predict_logits(networks, x, limit)
    return assemble(logits, x, kinds, maps=None, extras={}, method="uncertainty", options={})


def fullgrad_completeness(
    network: nn.Module, x: Images, *, output: OutputChoice = None, memory: int | str = DEFAULT_MEMORY
) -> Float[Tensor, "B K"]:
    """How much of each logit FullGrad's terms miss: `|logit - sum of terms| / max(1, |logit|)`, 0 if nothing.

    Functional calls and products (attention, gates) cannot be seen by hooks; what they hide shows here.

    >>> import dubium, dubium.data
    >>> network = next(iter(dubium.load_posterior("demo")))
    >>> bool(dubium.fullgrad_completeness(network, dubium.data.load("demo").batch([0])).max() < 1e-4)
    True
    """
    check_images(x)
    check_posterior([network])
    limit = parse_memory(memory)
    with borrow_networks([network], x, output=output) as (networks, x):
        predict_logits(networks, x, limit)
        return fullgrad_gap(next(iter(networks)), x, memory=limit)


def choose_method(method: object, options: Mapping[str, Any], channels: int) -> tuple[Method, UABackprop | None]:
    """The method with its options; for UA-Backprop its relevance, and what it does with it."""
    method = RECOMMENDED if isinstance(method, str) and method == AUTO else method
    if not (isinstance(method, str) and method == UA_BACKPROP):
        if isinstance(method, str) and method not in ATTRIBUTORS:
            raise UnknownNameError(unknown("method", method, method_names()))
        return resolve_method(method, ATTRIBUTORS, "method", options), None
    relevance = resolve_method(options.get("relevance", "fullgrad"), RELEVANCES, "relevance", {})
    known = {"relevance": None, **DEFAULTS, **relevance.options, "rescale": None}  # only FullGrad has rescale
    check_options(UA_BACKPROP, known, options)
    own = {name: value for name, value in options.items() if name in relevance.options}
    chosen = ua_options({name: value for name, value in options.items() if name in DEFAULTS}, channels)
    return Method(relevance.name, relevance.function, {**relevance.options, **own}, relevance.preparation), chosen


def uncertainty_maps(
    attribute: Method, networks: Posterior, x: Images, kinds: Sequence[Kind], context: Context
) -> Attribution:
    """An attributor on the uncertainties of all networks together."""
    if len(x) == 0:
        return Attribution(x.new_zeros(0, len(kinds), *x.shape[2:]), {})
    found = attribute(stack(networks), x, UncertaintyTarget(kinds), context)
    check_maps(found.maps, attribute.name, (len(x), len(kinds), *x.shape[2:]))
    return found


def assemble(
    logits: Logits, x: Images, kinds: Sequence[Kind], *, maps: Maps | None, extras: Mapping[str, Tensor], **about: Any
) -> Explanation:
    """Results by kind, in the images' type."""
    scores = dict(zip(KINDS, class_shares(logits).sum(-1).to(x.dtype), strict=True))
    members = logits.double().softmax(-1)
    return Explanation(
        scores={kind: scores[kind] for kind in kinds},
        maps={} if maps is None else {kind: maps[:, t] for t, kind in enumerate(kinds)},
        probs=members.mean(0).to(x.dtype),
        members=members.to(x.dtype),
        extras={name: {kind: tensor[:, t] for t, kind in enumerate(kinds)} for name, tensor in extras.items()},
        input_shape=tuple(x.shape),
        all_scores=scores,
        **about,
    )
