"""The pipeline: check, borrow the networks, attribute."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from dubium._methods import FULLGRAD, choose_method
from dubium.attribution._completeness import fullgrad_gap, warn_if_incomplete
from dubium.attribution._context import DEFAULT_CONTEXT, DEFAULT_MEMORY, Context
from dubium.attribution._passes import predict_logits
from dubium.checks import check_kinds, check_progress, check_seed, parse_memory
from dubium.class_names import check_class_names
from dubium.errors import PosteriorTypeError
from dubium.explanation import Explanation, make_explanation
from dubium.image_checks import check_images
from dubium.networks.borrow import borrow_networks
from dubium.networks.class_choice import check_pair
from dubium.networks.logits_network import LogitsRequest
from dubium.networks.outputs import OutputChoice
from dubium.output_checks import refuse_maps, warn_of_logits
from dubium.registry import METHODS, UA_BACKPROP, method_names
from dubium.types import KINDS, Images, Kind, Progress


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
    pair: Sequence[int | str] | None = None,
    keep_images: bool = False,
    class_names: Sequence[str] | Mapping[int, str] | None = None,
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
        method: a name of `dubium.methods()`, or "package.module:function", both with options after it if you like
            ("ig:steps=50"); a function `(network, x, target) -> maps`, or a Captum class.
        kinds: of "total", "aleatoric" and "epistemic".
        output: what of the networks' output are the logits (B, K): a key or attribute, an index, or a function of it;
            "probabilities" takes the logarithm of probabilities, "sigmoid" one output z as the classes (0, z). None: a
            tensor is taken as it is; of others `logits` if there is one, else the only floating tensor (B, K >= 2).
        pair: two classes, as in (4, 9): explain the doubt between them alone, which is a function of the difference of
            their logits. Scores, maps and predictions are then those of two classes.
        keep_images: keep x in the result, for its notebook view and `plot`.
        class_names: of all classes in order, for what is shown.
        memory: what may be used beside networks, images and results: bytes, or text like "512MiB".
        seed: the seed of methods that draw random numbers.
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
    kinds = check_kinds(kinds)
    check_progress(progress, "steps done", "steps in all")
    context = Context(parse_memory(memory), check_seed(seed), progress or DEFAULT_CONTEXT.progress)
    chosen = choose_method(method, options, x.shape[1])
    names = None if class_names is None else check_class_names(class_names)
    pair_ids = None if pair is None else check_pair(pair, names)
    images = x.detach().clone() if keep_images else None
    request = LogitsRequest(output, pair_ids, chosen.explains_log_probs, chosen.needs_gradients, names)
    with borrow_networks(posterior, x, kinds, request) as (networks, x):
        logits, maps, extras, used_options = chosen.attribute(networks, x, kinds, context)
        if networks.are_generated:
            networks.check_repeats(logits)
        for each in [maps, extras["signed"]] if "signed" in extras else [maps]:
            if not each.isfinite().all():
                refuse_maps(each, chosen.name, is_users=chosen.attributor.is_users)
        if chosen.attributor.entry is METHODS[FULLGRAD] and networks.first_checks.node_names_of_custom_networks:
            warn_if_incomplete(networks, networks.first_checks.node_names_of_custom_networks, x, context.memory)
        warn_of_logits(x, logits, kinds, partial(predict_logits, networks, memory=context.memory))
    if pair_ids is not None:
        used_options = {**used_options, "pair": pair_ids}
        names = None if names is None else tuple(names[k] for k in pair_ids)
    return make_explanation(
        logits,
        x,
        kinds,
        maps=maps,
        extras=extras,
        method=chosen.name,
        options=used_options,
        images=images,
        class_names=names,
    )


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
    request = LogitsRequest(output, needs_gradients=False)
    with borrow_networks(posterior, x, kinds, request, needs_layers=False) as (networks, x):
        logits = predict_logits(networks, x, limit)
        if networks.are_generated:
            networks.check_repeats(logits)
        warn_of_logits(x, logits, kinds, partial(predict_logits, networks, memory=limit))
    return make_explanation(logits, x, kinds, maps=None, extras={}, method="uncertainty", options={})


def fullgrad_completeness(
    network: nn.Module, x: Images, *, output: OutputChoice = None, memory: int | str = DEFAULT_MEMORY
) -> Float[Tensor, "B K"]:
    """How much of each logit FullGrad's terms miss: `|logit - sum of terms| / max(1, |logit|)`, 0 if nothing.

    What a function uses without being given it (a closure's tensors) cannot be seen; what that hides shows here.

    Args:
        network: in eval mode.
        x, output, memory: as for `explain`.

    Returns:
        One number per image and class.

    >>> import dubium, dubium.data
    >>> network = next(iter(dubium.load_posterior("demo")))
    >>> bool(dubium.fullgrad_completeness(network, dubium.data.load("demo").batch([0])).max() < 1e-4)
    True
    """
    check_images(x)
    limit = parse_memory(memory)
    if isinstance(network, list | tuple):
        raise PosteriorTypeError(f"One network is needed, not a {type(network).__name__} of them: call it for each.")
    with borrow_networks([network], x, request=LogitsRequest(output)) as (networks, x):
        logits = predict_logits(networks, x, limit)[0]  # for its checks
        if len(x) == 0:
            return logits
        return fullgrad_gap(next(iter(networks)), x, memory=limit)
