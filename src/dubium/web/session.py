"""Networks and images of the explorer, and what it computes for a visitor. Nothing of the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from dubium._explain import explain, uncertainty
from dubium._methods import choose_method
from dubium.attribution import RELEVANCES
from dubium.data.fit import Preprocessing
from dubium.errors import DubiumError, FileFormatError, OptionError, lookup
from dubium.evaluation.metrics.blurring import pixel_ranks
from dubium.evaluation.metrics.gaussian_blur import gaussian_blur
from dubium.explanation import Explanation
from dubium.fingerprint import posterior_digests
from dubium.registry import AUTO, RECOMMENDED, REGISTERED, UA_BACKPROP, method_names
from dubium.run.networks import input_shape, open_posterior, weight_dtype
from dubium.run.settings import Settings
from dubium.run.shard_checks import check_whole_about
from dubium.run.sources import Item, open_source
from dubium.run.store import Row, class_name, open_results
from dubium.run.work import make_preprocessing, name_by_folders, open_options, resolve_data_config
from dubium.types import Images, Posterior
from dubium.web.images import SHOWN, item_of_row, readable_items, training_images

CURVE = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Choice:
    """What a visitor has chosen; it decides the maps. None leaves a setting to the method."""

    method: str = "ua-backprop"
    relevance: str = "fullgrad"
    tau1: float | None = None
    tau2: float | None = None


@dataclass(frozen=True)
class Session:
    """Networks and images of one server; `why_not` says what to do if the networks are not here."""

    posterior: Posterior | None
    preprocessing: Preprocessing
    classes: tuple[str, ...] | None
    pictures: Sequence[Item]
    rows: Mapping[int, Row] = field(default_factory=dict)
    stored_settings: Mapping[str, Any] = field(default_factory=dict)  # those that made `rows`
    options: Mapping[str, Any] = field(default_factory=dict)
    why_not: str = ""
    output: str | int | None = None  # what to take of a network's output
    methods: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)  # offered first: name, options

    def name(self, index: int) -> str:
        return class_name(self.classes, index)


def open_posterior_session(posterior: Mapping[str, Any], images: Mapping[str, Any] | None, **prepared: Any) -> Session:
    """A session on a posterior, with images to pick from if some are named.

    Args:
        posterior: as in `Settings`.
        images: likewise.
        prepared: `input_shape`, `fit`, `resize`, `interpolation` and `classes` of `Settings`.
    """
    networks, record = open_posterior(posterior)
    settings = Settings(posterior, images or {}, method="clue", **prepared)
    if "data_config" in posterior:
        settings = resolve_data_config(settings, networks)
    classes = settings.classes or (tuple(record.classes) if record and record.classes else None)
    images = images or training_images(record)
    source, classes = open_source(images, classes) if images else (None, classes)
    channels, height, width = settings.input_shape or input_shape(networks, record)
    preprocessing = make_preprocessing(settings, (channels, height, width))
    sizes = {(item.image.shape[1], item.image.shape[2]) for item in readable_items(source)} if height is None else ()
    if len(sizes) == 1:  # an upload is brought to it
        preprocessing = replace(preprocessing, shape=(channels, *next(iter(sizes))))
    if source is not None:
        source, classes, _ = name_by_folders(source, classes, networks, preprocessing, posterior.get("output"))
    return Session(
        networks, preprocessing, classes, readable_items(source), options=open_options(settings),
        output=posterior.get("output"),
    )  # fmt: skip


def open_results_session(folder: Path, posterior: Mapping[str, Any] | None) -> Session:
    """A session on a run's results; without the code that built its networks, the stored maps are shown."""
    results = open_results(folder)
    about = results.about
    check_whole_about(about, folder)
    try:
        settings = Settings.from_json(about["settings"])
    except (DubiumError, TypeError) as error:
        raise FileFormatError(f"The results in {folder} have settings that no run has: {error}") from error
    named, why_not = complete_posterior(posterior, settings.posterior), ""
    if posterior is None and {"factory", "architecture"} & named.keys():
        code = named.get("factory") or named.get("architecture")
        why_not = (
            f"These networks were built by {code}, and code is never run because a file says so. To explain anew, "
            f"start with: dubium serve {folder} --posterior {code}"
        )
    opened = None
    if not why_not:
        try:
            opened = open_same_posterior(named, about)
        except DubiumError as error:
            why_not = f"The networks of this run cannot be loaded, so that only its stored maps are shown: {error}"
    rows = {row.id: row for row in results.most_uncertain(settings.kinds[0], SHOWN)} if results.explained else {}
    classes = about["classes"]
    channel, height, width = about["input_shape"]
    prepared = Preprocessing() if opened is None else make_preprocessing(settings, (channel, height, width))
    return Session(
        opened, prepared, None if classes is None else tuple(classes),
        [item_of_row(row) for row in rows.values()], rows, about["settings"],
        {} if opened is None else open_options(replace(settings, method="clue")), why_not,
        {**settings.posterior, **named}.get("output"), stored_method(settings),
    )  # fmt: skip


def complete_posterior(given: Mapping[str, Any] | None, stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """The posterior to open: what the user named, and what they left out as the run has it: the weights too, where the
    code is all that they named."""
    if given is None:
        return stored
    own = {name: value for name, value in given.items() if value != []}
    if "weights" in own or "run" in own or not {"factory", "architecture"} & stored.keys():
        return {name: stored[name] for name in ("mean", "std", "output", "data_config") if name in stored} | own
    if "architecture" in stored:
        own["architecture"] = own.pop("factory")
    return {**stored, **own}


def open_same_posterior(named: Mapping[str, Any], about: Mapping[str, Any]) -> Posterior:
    """The networks that are named; others than those of a run's results are refused."""
    opened, _ = open_posterior(named)
    digests = posterior_digests(opened)
    is_other = digests["weights"] != about["posterior"]["sha256"]
    attributes = digests["network attributes"]  # earlier versions of dubium did not record them
    if is_other or attributes != about.get("network attributes", attributes):
        raise OptionError(
            f"They are others than the run's: {'weights or layers' if is_other else 'mean, std or other attributes'} "
            "differ. Name the run's, or explore its images with others: dubium serve POSTERIOR --images FOLDER."
        )
    return opened


def stored_method(settings: Settings) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """A run's method, to be offered first, if it is one of dubium's: no code is imported because a file says so."""
    if settings.method not in method_names() or settings.method in REGISTERED or "vae" in settings.options:
        return {}
    options = [f"{name}={value}" for name, value in settings.options.items()]
    return {":".join([settings.method, *options]): (settings.method, settings.options)}


def network_input(session: Session, image: Float[Tensor, "c h w"]) -> Images:
    """An image as a batch of one, with the channels, size and type that the networks take."""
    x = session.preprocessing.network_input(image)[None]
    return x if session.posterior is None else x.to(weight_dtype(session.posterior))


def explain_item(session: Session, item: Item, choice: Choice) -> Explanation:
    """Scores and maps of one image, at the networks' size; from the store where the networks are not here."""
    if session.posterior is None:
        return stored_explanation(session, item)
    offered: dict[str, tuple[str, Mapping[str, Any]]] = {name: (name, {}) for name in method_names()}
    offered |= session.methods
    method, chosen = lookup("method", offered, choice.method)  # no code is imported because a visitor names it
    lookup("relevance", RELEVANCES, choice.relevance)
    options = dict(chosen)
    if choice.method == "ua-backprop":
        options = {"relevance": choice.relevance, "tau1": choice.tau1, "tau2": choice.tau2}
    elif "clue" in choice.method:
        options = {name: value for name, value in session.options.items() if name == "vae"}
    x = network_input(session, item.image)
    return explain(session.posterior, x, method=method, output=session.output, **options)


def method_beside(method: str) -> str:
    """The method that is shown next to another: `auto`, or UA-Backprop next to `auto`."""
    return UA_BACKPROP if method.partition(":")[0] in (AUTO, RECOMMENDED) else AUTO


def runnable_methods(session: Session) -> list[str]:
    """The methods that can be chosen: all but those that lack something; without networks, the one that was stored."""
    if session.posterior is None:
        return [str(session.stored_settings.get("method"))]
    known = [name for name in method_names() if "clue" not in name or "vae" in session.options]
    return list(dict.fromkeys([*session.methods, *known]))


def stored_explanation(session: Session, item: Item) -> Explanation:
    """What the run's results say about an image of theirs."""
    row = session.rows.get(item.id)
    if row is None:
        raise OptionError(session.why_not)
    maps = {kind: torch.from_numpy(array.copy())[None] for kind, array in row.maps().items()}
    return Explanation(
        {kind: torch.tensor([score]) for kind, score in row.scores().items()}, maps,
        torch.from_numpy(row.probs.copy())[None], torch.from_numpy(row.members.copy())[:, None],
        session.stored_settings["method"], session.stored_settings["options"],
    )  # fmt: skip


@dataclass(frozen=True)
class BlurredImage:
    """The image with its top pixels blurred, its scores, and a curve of (share, score) for one kind."""

    image: Float[Tensor, "C H W"]
    scores: dict[str, float]
    curve: list[tuple[float, float]]


def blur_top_pixels(
    session: Session, item: Item, explanation: Explanation, kind: str, share: float, sigma: float
) -> BlurredImage:
    """Blur the pixels with the highest attribution, and score the image again.

    Args:
        kind: whose map ranks the pixels, and whose score the curve shows.
        share: of the pixels, from 0 to 1.
        sigma: of the Gaussian blur.
    """
    if session.posterior is None:
        raise OptionError(session.why_not)
    x, maps = network_input(session, item.image), explanation.maps[kind]
    blurred = gaussian_blur(x, [sigma]).reshape(x.shape).to(x)
    rank, pixels = pixel_ranks(maps), maps[0].numel()
    shares = [*CURVE, share]
    images = torch.cat([torch.where((rank < round(part * pixels))[:, None], blurred, x) for part in shares])
    scores = uncertainty(session.posterior, images, output=session.output).scores
    curve = [(part, float(score)) for part, score in zip(shares, scores[kind], strict=True)]
    return BlurredImage(images[-1], {name: float(values[-1]) for name, values in scores.items()}, sorted(curve))


def with_images(session: Session, images: Mapping[str, Any]) -> Session:
    """The same session with other images to pick from."""
    source, classes = open_source(images, session.classes)
    if session.posterior is not None or classes is not None:  # networks are asked where no names are known
        networks = session.posterior or ()
        source, classes, _ = name_by_folders(source, classes, networks, session.preprocessing, session.output)
    return replace(session, pictures=readable_items(source), classes=classes)


def with_methods(session: Session, methods: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Session:
    """The same session with more methods: each by its text, a method's name (or package.module:name) and options."""
    if session.posterior is not None:
        for name, options in methods.values():
            choose_method(name, options, session.preprocessing.shape[0] or 3)  # a mistake is reported at once
    return replace(session, methods={**session.methods, **methods})
