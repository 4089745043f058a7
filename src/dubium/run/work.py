"""The networks and images that settings name, opened, and the facts about them that are stored with the results."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

import torch

from dubium._explain import uncertainty
from dubium._methods import choose_method
from dubium.attribution._counterfactual_search import encode_images
from dubium.checks import parse_memory
from dubium.choices import BILINEAR
from dubium.class_names import replaced_names_note
from dubium.data.dataset import GIVEN
from dubium.data.fit import Preprocessing
from dubium.data.image_files import size_text
from dubium.data.labels import check_spelling, match_labels
from dubium.data.samples import unused_label_note
from dubium.errors import FileFormatError, OptionError
from dubium.explanation import Explanation
from dubium.fingerprint import method_fingerprint, posterior_digests
from dubium.models import load_vae
from dubium.models.vae import VAE
from dubium.networks.outputs import OutputChoice
from dubium.posteriors import Record
from dubium.posteriors.files.load import posterior_folder
from dubium.run.data_config import prepared_config
from dubium.run.networks import Shape, input_shape, open_posterior, values_per_channel, weight_dtype
from dubium.run.settings import Settings
from dubium.run.sources import DatasetImages, FileImages, ImageSource, SampleImages, open_source, source_folders
from dubium.types import Posterior

PREPARED = ("input_shape", "fit", "resize", "interpolation")
"""Settings that a data config can give."""


@dataclass(frozen=True)
class Work:
    """All that a job needs. `options` are the method's, with the objects that file names stand for."""

    settings: Settings
    posterior: Posterior
    source: ImageSource
    preprocessing: Preprocessing
    dtype: torch.dtype
    options: Mapping[str, Any]
    about: Mapping[str, Any]
    note: str = ""  # what is to be said about the images' labels
    is_named_by_folders: bool = False  # whether class names are those of the images' folders, since no others are known


def open_work(
    settings: Settings,
    source: ImageSource | None = None,
    posterior: Posterior | None = None,
    record: Record | None = None,
) -> Work:
    """Open what the settings name; images and networks that are open already, with their record, are taken as such."""
    settings.check_keys()
    if posterior is None:
        posterior, record = open_posterior(settings.posterior)
        named = settings.posterior
        numbers = {n: values_per_channel(named[n], posterior) for n in ("mean", "std") if named.get(n) is not None}
        settings = replace(settings, posterior={**named, **numbers})
    if "data_config" in settings.posterior:
        settings = resolve_data_config(settings, posterior)
    settings = replace(settings, threads=settings.threads or torch.get_num_threads(), fit=settings.image_fit)
    digests = posterior_digests(posterior)
    weights = {
        "kind": record.kind if record else None,
        "members": len(posterior),
        "sha256": digests.pop("weights"),
    }
    dtype, options = weight_dtype(posterior), open_options(settings)
    classes = settings.classes or (record.classes if record else None)
    if source is None:
        source, classes = open_source(settings.images, classes)
    if isinstance(source, DatasetImages):
        check_spelling(settings.classes, source.dataset)
    channels, height, width = settings.input_shape or input_shape(posterior, record)
    preprocessing = make_preprocessing(settings, (channels, height, width))
    if size_taken := height is None or width is None:
        height, width = common_size(source)
        preprocessing = replace(preprocessing, shape=(channels, height, width))
    output = settings.posterior.get("output")
    has_names = classes is not None
    if classes and not settings.classes and (record is None or record.classes is None):  # names of a dataset
        first = first_prediction(source, posterior, preprocessing, output)
        classes = classes if first is None or first.probs.shape[1] == len(classes) else None
    source, classes, unmatched = name_by_folders(source, classes, posterior, preprocessing, output)
    source, note = drop_other_labels(source, classes, posterior, preprocessing, output)
    replaced = replaced_names_note(settings.classes, record.classes if record else None)
    note = " ".join(filter(None, [replaced, note]))
    if settings.top != 0:
        choose_method(settings.method, options, channels or 3)  # a mistake is reported before the work begins
        if isinstance(options.get("vae"), VAE) and height is not None and width is not None:
            encode_images(
                options["vae"], torch.zeros(1, channels or 3, height, width, dtype=dtype), parse_memory(settings.memory)
            )
    about = {
        "versions": {"dubium": version("dubium"), "torch": torch.__version__, "python": python_version()},
        "settings": asdict(settings),
        "posterior": weights,
        **digests,
        "images": {"count": len(source), "sha256": source.digest()},
        "method": method_fingerprint(settings.method, options) if settings.top != 0 else {},
        "classes": None if classes is None else list(classes),
        "input_shape": list(preprocessing.shape),
        "size_taken": size_taken,
    }
    return Work(
        settings,
        posterior,
        source,
        preprocessing,
        dtype,
        options,
        about,
        unmatched or note,
        classes is not None and not has_names,
    )


def name_by_folders(
    source: ImageSource,
    classes: Sequence[str] | None,
    posterior: Posterior,
    preprocessing: Preprocessing,
    output: OutputChoice,
) -> tuple[ImageSource, tuple[str, ...] | None, str]:
    """Source and class names: those of a dataset's folders, where no others are known and they are as many as classes.

    Labels of a dataset with names of its own are matched to the classes by name.

    Labels of the source index these names; there are none without names. The networks see one image for it. The third
    is why a dataset in memory has lost its labels, "" if it has not.
    """
    known = None if classes is None else tuple(classes)
    folders = source_folders(source)
    is_named = isinstance(source, DatasetImages) and source.dataset.name != GIVEN and known is not None
    if not folders and not is_named:
        return source, known, ""
    if known is None:
        first = first_prediction(source, posterior, preprocessing, output)
        known = folders if first is None or first.probs.shape[1] == len(folders) else None
    if not isinstance(source, DatasetImages):
        assert isinstance(source, FileImages | SampleImages), "no other images have folders"
        return replace(source, classes=known or ()), known, ""
    dataset = source.dataset
    unlabelled = replace(dataset, labels=None), ""
    matched, why_not = unlabelled if known is None else match_labels(dataset, known, len(known))
    return DatasetImages(matched), known, why_not


def drop_other_labels(
    source: ImageSource,
    classes: Sequence[str] | None,
    posterior: Posterior,
    preprocessing: Preprocessing,
    output: OutputChoice,
) -> tuple[ImageSource, str]:
    """The source without labels that are no numbers of the networks' classes, as of another dataset, and why."""
    if isinstance(source, SampleImages):
        return source, unused_label_note(source.samples)
    if not isinstance(source, DatasetImages) or classes is not None or source.dataset.labels is None:
        return source, source.dataset.label_note if isinstance(source, DatasetImages) else ""
    first = first_prediction(source, posterior, preprocessing, output)
    if first is None or int(source.dataset.labels.max()) < first.probs.shape[1]:
        return source, ""
    matched, note = match_labels(source.dataset, None, first.probs.shape[1])
    return DatasetImages(matched), note


def first_prediction(
    source: ImageSource, posterior: Posterior, preprocessing: Preprocessing, output: OutputChoice
) -> Explanation | None:
    """What the networks say of the first image that can be read; None if there is none."""
    for index in range(len(source)):
        try:
            x = preprocessing.network_input(source.read(index).image)[None]
        except (FileFormatError, OSError):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they say comes with the first batch
            return uncertainty(posterior, x.to(weight_dtype(posterior)), output=output)
    return None


def changed_shape_note(work: Work) -> str:
    """What becomes of images in memory of another shape than the networks take; "" where they go in as they are."""
    is_given = isinstance(work.source, DatasetImages) and work.source.dataset.name == GIVEN
    if not is_given and not isinstance(work.source, SampleImages):
        return ""
    given = tuple(work.source.read(0).image.shape)
    taken = tuple(wanted or own for wanted, own in zip(work.preprocessing.shape, given, strict=True))
    if given == taken:
        return ""
    return (
        f"images have the shape {given} (channels, height, width), and the networks take {taken}: they are brought to "
        "it, stretched where the sides differ. Give images of that shape, or say another with input_shape=."
    )


def class_count(work: Work) -> int | None:
    """How many classes the networks have, by what they say of an image; None if no image can be read."""
    first = first_prediction(work.source, work.posterior, work.preprocessing, work.settings.posterior.get("output"))
    return None if first is None else first.probs.shape[1]


def agreement_note(work: Work) -> str:
    """Why no network will disagree with another, in words; "" where they do, or where nobody asks."""
    if "epistemic" not in work.settings.kinds:
        return ""
    ranks = "epistemic uncertainty is 0 for every image, and ranks none before another"
    if len(work.posterior) == 1:
        return (
            f"one network cannot disagree: {ranks}. --kinds total (kinds='total' in Python) ranks by the doubt of the "
            "prediction."
        )
    first = first_prediction(work.source, work.posterior, work.preprocessing, work.settings.posterior.get("output"))
    if first is None or (first.members - first.members[:1]).abs().max() > 0:
        return ""
    return (
        f"all {len(work.posterior)} networks give the same outputs, as one network does that is named several times: "
        f"{ranks}. Is a weight file named twice, or a module several times in a list?"
    )


def resolve_data_config(settings: Settings, posterior: Posterior) -> Settings:
    """Settings with what a data config says where they say nothing themselves."""
    config = prepared_config(settings.posterior, posterior, settings.input_shape)
    found: dict[str, Any] = {name: getattr(settings, name) or config[name] for name in PREPARED}
    found["input_shape"] = tuple(found["input_shape"])
    return replace(settings, posterior={**settings.posterior, "data_config": config}, **found)


def make_preprocessing(settings: Settings, shape: Shape) -> Preprocessing:
    """How images of this shape are made of others, as the settings say."""
    return Preprocessing(shape, settings.image_fit, settings.resize, settings.interpolation or BILINEAR)


def common_size(source: ImageSource) -> tuple[int | None, int | None]:
    """The height and width of all images, which networks are then given; an error if they differ.

    A network that takes any size answers differently at another one than at that of its training.
    """
    sizes: dict[tuple[int, int], str] = {}
    for index in range(len(source)):
        size = source.size(index)
        if size is not None:
            sizes.setdefault(size, source.name(index))
        if len(sizes) > 1:
            (a, first), (b, second) = sizes.items()
            raise OptionError(
                f"The images differ in size ({first}: {size_text(a)}, {second}: {size_text(b)}), and it is not known "
                "which size the networks were trained with. Say it: --input-shape 3,224,224 (channels, height, width; "
                "input_shape=(3, 224, 224) in Python). They are then stretched to it. Their middle is taken by "
                "--fit crop on the command line; in Python by the transform of a torch dataset, as of "
                "torchvision.datasets.ImageFolder(folder, transform)."
            )
    return next(iter(sizes), (None, None))


def vae_beside(run: str | Path | None) -> Path | None:
    """The folder of the VAE that was saved with a posterior; None where there is none."""
    folder = None if run is None else posterior_folder(run) / "vae"
    return folder if folder and folder.is_dir() else None


def open_options(settings: Settings) -> dict[str, Any]:
    """The method's options with the VAE itself: the one that is named, or the one in the posterior's folder."""
    options = dict(settings.options)
    path = options.get("vae", vae_beside(settings.posterior.get("run")) if "clue" in settings.method else None)
    return {**options, "vae": load_vae(path)} if isinstance(path, str | Path) else options
