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
from dubium.choices import BILINEAR, STRETCH
from dubium.data.fit import Preprocessing
from dubium.data.image_files import size_text
from dubium.data.labels import match_labels
from dubium.errors import FileFormatError, OptionError
from dubium.fingerprint import method_fingerprint, posterior_digest
from dubium.models import load_vae
from dubium.networks.outputs import OutputChoice
from dubium.posteriors import Record
from dubium.posteriors.files.load import posterior_folder
from dubium.run.data_config import prepared_config
from dubium.run.networks import Shape, input_shape, open_posterior, weight_dtype
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


def open_work(settings: Settings, source: ImageSource | None = None, posterior: Posterior | None = None) -> Work:
    """Open what the settings name; images and networks that are open already are taken as they are."""
    record: Record | None = None
    if posterior is None:
        posterior, record = open_posterior(settings.posterior)
    if "data_config" in settings.posterior:
        settings = resolve_data_config(settings, posterior)
    settings = replace(settings, threads=settings.threads or torch.get_num_threads(), fit=settings.fit or STRETCH)
    weights = {
        "kind": record.kind if record else None,
        "members": len(posterior),
        "sha256": posterior_digest(posterior),
    }
    dtype, options = weight_dtype(posterior), open_options(settings)
    classes = settings.classes or (record.classes if record else None)
    if source is None:
        source, classes = open_source(settings.images, classes)
    channels, height, width = settings.input_shape or input_shape(posterior, record)
    size_taken = height is None or width is None
    if size_taken:
        height, width = common_size(source)
    shape = channels, height, width
    preprocessing = make_preprocessing(settings, shape)
    source, classes = name_by_folders(source, classes, posterior, preprocessing, settings.posterior.get("output"))
    if settings.top != 0:
        choose_method(settings.method, options, channels or 3)  # a mistake is reported before the work begins
    about = {
        "versions": {"dubium": version("dubium"), "torch": torch.__version__, "python": python_version()},
        "settings": asdict(settings),
        "posterior": weights,
        "images": {"count": len(source), "sha256": source.digest()},
        "method": method_fingerprint(settings.method, options) if settings.top != 0 else {},
        "classes": None if classes is None else list(classes),
        "input_shape": list(shape),
        "size_taken": size_taken,
    }
    return Work(settings, posterior, source, preprocessing, dtype, options, about)


def name_by_folders(
    source: ImageSource,
    classes: Sequence[str] | None,
    posterior: Posterior,
    preprocessing: Preprocessing,
    output: OutputChoice,
) -> tuple[ImageSource, tuple[str, ...] | None]:
    """Source and class names: those of a dataset's folders, where no others are known and they are as many as classes.

    Labels of the source index these names; there are none without names. The networks see one image for it.
    """
    known = None if classes is None else tuple(classes)
    folders = source_folders(source)
    if not folders:
        return source, known
    if known is None and class_count(source, posterior, preprocessing, output) in (len(folders), None):
        known = folders
    if not isinstance(source, DatasetImages):
        assert isinstance(source, FileImages | SampleImages), "no other images have folders"
        return replace(source, classes=known or ()), known
    dataset = source.dataset
    matched = replace(dataset, labels=None) if known is None else match_labels(dataset, known, len(known))[0]
    return DatasetImages(matched), known


def class_count(
    source: ImageSource, posterior: Posterior, preprocessing: Preprocessing, output: OutputChoice
) -> int | None:
    """How many classes the networks have, by the first image that can be read; None if there is none."""
    for index in range(len(source)):
        try:
            x = preprocessing.network_input(source.read(index).image)[None]
        except (FileFormatError, OSError):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they say comes with the first batch
            return uncertainty(posterior, x.to(weight_dtype(posterior)), output=output).probs.shape[1]
    return None


def resolve_data_config(settings: Settings, posterior: Posterior) -> Settings:
    """Settings with what a data config says where they say nothing themselves."""
    config = prepared_config(settings.posterior, posterior, settings.input_shape)
    found: dict[str, Any] = {name: getattr(settings, name) or config[name] for name in PREPARED}
    found["input_shape"] = tuple(found["input_shape"])
    return replace(settings, posterior={**settings.posterior, "data_config": config}, **found)


def make_preprocessing(settings: Settings, shape: Shape) -> Preprocessing:
    """How images of this shape are made of others, as the settings say."""
    return Preprocessing(shape, settings.fit or STRETCH, settings.resize, settings.interpolation or BILINEAR)


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
                "input_shape=(3, 224, 224) in Python). Images are then brought to it as --fit says."
            )
    return next(iter(sizes), (None, None))


def open_options(settings: Settings) -> dict[str, Any]:
    """The method's options with the VAE itself: the one that is named, or the one in the posterior's folder."""
    options, run = dict(settings.options), settings.posterior.get("run")
    beside = posterior_folder(run) / "vae" if run and "clue" in settings.method else None
    path = options.get("vae", beside if beside and beside.is_dir() else None)
    return {**options, "vae": load_vae(path)} if isinstance(path, str | Path) else options
