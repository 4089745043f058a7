"""`dubium.evaluate`: what the command `dubium evaluate` does, from Python."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from dubium._explain import uncertainty
from dubium.checks import check_kinds, check_progress, check_seed, skipped_note, without_repeated_warnings
from dubium.choices import DEMO
from dubium.class_names import check_class_names
from dubium.data import Dataset, load
from dubium.data.fit import Preprocessing, axes_advice
from dubium.data.image_files import find_images, image_size
from dubium.data.labels import check_spelling, match_labels
from dubium.data.samples import as_dataset
from dubium.errors import NetworkError, OptionError, UnknownNameError, lookup
from dubium.evaluation.methods import DEFAULTS, label_methods
from dubium.evaluation.protocols import PROTOCOLS, Evaluation, run_protocol
from dubium.evaluation.protocols.evaluation import ignore_step
from dubium.folder_lock import own_folder
from dubium.networks.outputs import OutputChoice, WithChosenOutput
from dubium.path_checks import check_folder_name
from dubium.posteriors import Record, as_posterior
from dubium.posteriors.files.architecture import Architecture
from dubium.posteriors.files.load import check_saved, load_with_record
from dubium.protocols import TOGETHER
from dubium.report.evaluation import write_evaluation_page
from dubium.report.protocols import write_figures
from dubium.run.networks import input_shape as known_shape
from dubium.run.sources import open_dataset, refuse_dataset_folder
from dubium.run.work import vae_beside
from dubium.types import Kind, Posterior

RESHAPE = (
    "--input-shape {shape} brings a dataset or folder to it (input_shape=({shape}) in Python), as `dubium explain` "
    "does by itself; images in memory must have it."
)


@without_repeated_warnings()
def evaluate(
    posterior: Any,
    data: Any,
    methods: Any = None,
    protocol: str = "blurring",
    out: Path | str | None = None,
    *,
    kinds: Iterable[Kind] | Kind = "epistemic",
    scale: str = "cpu",
    output: OutputChoice = None,
    class_names: Sequence[str] | Mapping[int, str] | None = None,
    input_shape: tuple[int, int, int] | None = None,
    architecture: Architecture | None = None,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Judge attribution methods on a posterior and images: numbers with intervals, beside controls.

    Args:
        posterior: as for `explain`, or the name or folder of a saved one.
        data: images (N, C, H, W), (images, labels), a `dubium.data.Dataset`, a torch dataset, or a name.
        methods: names with options (`"ua-backprop:rescale=none"`), functions, Captum classes, or pairs of one of these
            and a dict of options; those of the scale by default. Controls come along.
        protocol: a name of `dubium.evaluation.protocols.PROTOCOLS`, such as "blurring" or "anomaly".
        out: a folder for tables, intervals, comparisons, figures and a page; the same call goes on there if it was
            stopped. None: nothing is kept.
        kinds: of uncertainty.
        scale: "smoke", "cpu" or "paper": how many images and steps, where `options` do not say.
        output: what of the networks' output are the logits, as for `explain`.
        class_names: of the networks' classes, in their order, by which a folder's labels are found; those that were
            saved with a posterior by default. Labels that cannot be matched are not used, and `notes` say so.
        input_shape: (C, H, W) that the networks take, where the images of a folder differ in size and no saved
            posterior says it.
        architecture: of a saved posterior's networks that are not dubium's own, as for `load_posterior`.
        seed: of everything that is drawn.
        progress: called with a sentence about what is being done.
        options: of the protocol, such as `images=50`; `patches` of "anomaly" may be what `data` may be: images of the
            same shape that patches are cut from.

    Returns:
        What `summary.json` holds: `results` by method and metric, `comparisons`, `settings`, `notes`.

    >>> import dubium
    >>> found = dubium.evaluate("demo", "demo", ["grad"], scale="smoke", images=4, step=5.0)
    >>> sorted(found["results"])
    ['edges', 'grad', 'local-contrast', 'random', 'smooth-random']
    """
    check_progress(progress, "what is being done")
    if protocol == "all":
        raise UnknownNameError(
            "protocol='all' is of the command line: `dubium evaluate all RUN --dataset DATA --out FOLDER`. In Python "
            f"call evaluate once for each protocol: {', '.join(TOGETHER)}."
        )
    lookup("protocol", PROTOCOLS, protocol)
    if not PROTOCOLS[protocol].needs_posterior and posterior is not None:
        raise OptionError(
            f"{protocol} trains networks of its own, since they must have learned the mark: it takes no posterior. "
            f"Give None in its place: evaluate(None, data, methods, protocol={protocol!r})."
        )
    given_names = None if class_names is None else check_class_names(class_names)
    class_names = given_names
    texts = lookup("scale", DEFAULTS, scale)
    opened: Posterior = ()
    record: Record | None = None
    if PROTOCOLS[protocol].needs_posterior:
        if isinstance(posterior, str | Path) or architecture is not None:
            opened, record = load_with_record(check_saved(posterior), architecture)
            class_names = class_names or record.classes
            input_shape = input_shape or other_shape(record, data)
        else:
            opened = as_posterior(posterior)
    preprocessing = None if input_shape is None else Preprocessing(input_shape)
    if out is not None and isinstance(data, str | Path):
        refuse_dataset_folder(out, str(data))
    images = read_data(data, PROTOCOLS[protocol].split, preprocessing)
    check_spelling(given_names, images)
    alone = isinstance(methods, str) or callable(methods)
    name = str(posterior) if isinstance(posterior, str | Path) else ""
    if methods is not None and not alone and not isinstance(methods, Iterable):
        raise OptionError(f"methods is {methods!r}; a list of names, functions or Captum classes is needed.")
    asked = texts if methods is None else [methods] if alone else methods
    chosen = label_methods(asked, images.shape[0], vae_beside(name) if name and opened else None)
    networks: Posterior = ()
    note = ""
    if PROTOCOLS[protocol].needs_posterior:
        networks = check_networks(opened, images, output, record)
        images, note = match_to_networks(images, networks, class_names, protocol)
    note = " ".join(filter(None, [note, skipped_note(images.skipped)]))
    others = other_images(data, images, preprocessing)
    if protocol == "anomaly" and not isinstance(options.get("patches"), str | Path | None):
        others = as_dataset(options.pop("patches"))
    with TemporaryDirectory() as temporary:
        folder = check_folder_name(temporary if out is None else out)
        evaluation = Evaluation(
            networks, images, chosen, check_kinds(kinds), folder, name,
            seed=check_seed(seed), other_data=others, preprocessing=preprocessing,
            on_step=progress or ignore_step, note=note,
        )  # fmt: skip
        with own_folder(folder):
            summary = run_protocol(protocol, evaluation, scale=scale, **options)
            if out is not None:
                write_figures(folder)
                write_evaluation_page(folder)
    return summary


def other_shape(record: Record, data: Any) -> tuple[int, int, int] | None:
    """The (C, H, W) of a saved posterior where data is a folder with an image of another size; None where it is not."""
    if len(record.input_shape or ()) != 3 or not isinstance(data, str | Path) or not Path(data).is_dir():
        return None
    channels, height, width = record.input_shape or ()
    fits = all(image_size(file) == (height, width) for file in find_images([str(data)]))
    return None if fits else (channels, height, width)


def read_data(data: Any, split: str, preprocessing: Preprocessing | None) -> Dataset:
    """Images in memory; those of a folder without files that cannot be read, brought to a shape if one is given."""
    if not isinstance(data, str | Path):
        if preprocessing is not None:
            raise OptionError(
                "input_shape= is for a folder or a name; images in memory are taken as they are. Resize them first."
            )
        return as_dataset(data)
    return open_dataset({"dataset": str(data)}, split, preprocessing)


def check_networks(
    posterior: Posterior,
    data: Dataset,
    output: OutputChoice,
    record: Record | None = None,
    *,
    how_to_reshape: str = RESHAPE,
) -> Posterior:
    """The networks with logits as their output, after the checks of `uncertainty` on one image.

    Args:
        record: of a saved posterior, which may say what images it takes.
        how_to_reshape: what to do so that images have the shape that networks take, `{shape}`.
    """
    x = data.batch([0])
    try:
        uncertainty(posterior, x, output=output)
    except NetworkError as error:
        known = known_shape(posterior, record)
        taken = tuple(side or own for side, own in zip(known, data.shape, strict=True))
        if taken == data.shape:
            raise
        if advice := axes_advice(data.shape, taken[0]):
            raise NetworkError(
                f"The networks take {taken[0]} channels; an image has {data.shape[0]}.{advice}"
            ) from error
        text, given = (",".join(map(str, shape)) for shape in (taken, data.shape))
        size = ""
        if not can_take(posterior, x.new_zeros(1, *taken), output):
            text = f"{taken[0]},H,W"
            size = " Their height H and width W are not known here; give those that they were trained with."
        raise NetworkError(
            f"The networks take images of shape {text} (channels, height, width); those of {data.name} have {given}. "
            + how_to_reshape.format(shape=text)
            + size
        ) from error
    with torch.no_grad():
        gives_logits = output is None and isinstance(next(iter(posterior))(x), Tensor)
    return posterior if gives_logits else WithChosenOutput(posterior, output)


def can_take(posterior: Posterior, x: Tensor, output: OutputChoice) -> bool:
    try:
        uncertainty(posterior, x, output=output)
    except NetworkError:
        return False
    return True


def match_to_networks(
    data: Dataset, networks: Posterior, class_names: Sequence[str] | None, protocol: str
) -> tuple[Dataset, str]:
    """The images with labels that are the networks' classes, or without, and why; as they are where labels train."""
    if protocol == "mitigation":
        return data, ""
    return match_labels(data, class_names, uncertainty(networks, data.batch([0])).probs.shape[1])


def other_images(data: Any, images: Dataset, preprocessing: Preprocessing | None = None) -> Dataset | None:
    """The images that patches are cut from: the other half of the demo's digits, or for images in memory these again.

    None for a dataset that is named: its other split is loaded where it is needed.
    """
    if isinstance(data, str | Path):
        return load(DEMO, preprocessing=preprocessing).subset(slice(1, None, 2)) if str(data) == DEMO else None
    return images
