"""`dubium.evaluate`: what the command `dubium evaluate` does, from Python."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from dubium._explain import uncertainty
from dubium.checks import check_folder_name, check_kinds, check_seed, count_text
from dubium.choices import DEMO
from dubium.data import Dataset, load
from dubium.data.fit import Preprocessing
from dubium.data.labels import match_labels
from dubium.data.samples import as_dataset
from dubium.errors import OptionError, lookup
from dubium.evaluation.methods import DEFAULTS, label_methods
from dubium.evaluation.protocols import PROTOCOLS, Evaluation, run_protocol
from dubium.evaluation.protocols.evaluation import ignore_step
from dubium.folder_lock import own_folder
from dubium.networks.chosen_output import WithChosenOutput
from dubium.networks.class_choice import check_class_names
from dubium.networks.outputs import OutputChoice
from dubium.posteriors import as_posterior
from dubium.posteriors.files.load import load_with_record
from dubium.report.evaluation import write_evaluation_page
from dubium.report.protocols import write_figures
from dubium.run.sources import open_dataset
from dubium.types import Kind, Posterior


def evaluate(
    posterior: Any,
    data: Any,
    methods: Iterable[Any] | None = None,
    protocol: str = "blurring",
    out: Path | str | None = None,
    *,
    kinds: Iterable[Kind] | Kind = "epistemic",
    scale: str = "cpu",
    output: OutputChoice = None,
    class_names: Sequence[str] | None = None,
    input_shape: tuple[int, int, int] | None = None,
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
        input_shape: (C, H, W) that the networks take, where the images of a folder differ in size.
        seed: of everything that is drawn.
        progress: called with a sentence about what is being done.
        options: of the protocol, such as `images=50`.

    Returns:
        What `summary.json` holds: `results` by method and metric, `comparisons`, `settings`, `notes`.

    >>> import dubium
    >>> found = dubium.evaluate("demo", "demo", ["grad"], scale="smoke", images=4, step=5.0)
    >>> sorted(found["results"])
    ['edges', 'grad', 'local-contrast', 'random', 'smooth-random']
    """
    lookup("protocol", PROTOCOLS, protocol)
    class_names = None if class_names is None else check_class_names(class_names)
    texts = lookup("scale", DEFAULTS, scale)
    images = read_data(data, PROTOCOLS[protocol].split, input_shape)
    chosen = label_methods(texts if methods is None else methods, images.shape[0])
    networks: Posterior = ()
    note = ""
    if PROTOCOLS[protocol].needs_posterior:
        if isinstance(posterior, str | Path):
            opened, record = load_with_record(posterior)
            class_names = class_names or record.classes
        else:
            opened = as_posterior(posterior)
        networks = check_networks(opened, images, output)
        images, note = match_to_networks(images, networks, class_names, protocol)
    note = " ".join(filter(None, [note, skipped_note(images)]))
    others = other_images(data, images) if input_shape is None else images
    name = str(posterior) if isinstance(posterior, str | Path) else ""
    with TemporaryDirectory() as temporary:
        folder = check_folder_name(temporary if out is None else out)
        evaluation = Evaluation(
            networks, images, chosen, check_kinds(kinds), folder, name,
            seed=check_seed(seed), other_data=others, on_step=progress or ignore_step, note=note,
        )  # fmt: skip
        with own_folder(folder):
            summary = run_protocol(protocol, evaluation, scale=scale, **options)
            if out is not None:
                write_figures(folder)
                write_evaluation_page(folder)
    return summary


def read_data(data: Any, split: str, input_shape: tuple[int, int, int] | None) -> Dataset:
    """Images in memory; those of a folder without files that cannot be read, brought to the shape if there is one."""
    if not isinstance(data, str | Path):
        if input_shape is not None:
            raise OptionError(
                "input_shape= is for a folder or a name; images in memory are taken as they are. Resize them first."
            )
        return as_dataset(data)
    return open_dataset({"dataset": str(data)}, split, None if input_shape is None else Preprocessing(input_shape))


def skipped_note(data: Dataset) -> str:
    """How many files could not be read, and why; "" where there is none."""
    count, more = len(data.skipped), f" And {len(data.skipped) - 3:,} more." * (len(data.skipped) > 3)
    return f"{count_text(count, 'file')} could not be read: {' '.join(data.skipped[:3])}{more}" if count else ""


def check_networks(posterior: Posterior, data: Dataset, output: OutputChoice) -> Posterior:
    """The networks with logits as their output, after the checks of `uncertainty` on one image."""
    x = data.batch([0])
    uncertainty(posterior, x, output=output)
    with torch.no_grad():
        gives_logits = output is None and isinstance(next(iter(posterior))(x), Tensor)
    return posterior if gives_logits else WithChosenOutput(posterior, output)


def match_to_networks(
    data: Dataset, networks: Posterior, class_names: Sequence[str] | None, protocol: str
) -> tuple[Dataset, str]:
    """The images with labels that are the networks' classes, or without, and why; as they are where labels train."""
    if protocol == "mitigation":
        return data, ""
    return match_labels(data, class_names, uncertainty(networks, data.batch([0])).probs.shape[1])


def other_images(data: Any, images: Dataset) -> Dataset | None:
    """The images that patches are cut from: the other half of the demo's digits, or for images in memory these again.

    None for a dataset that is named: its other split is loaded where it is needed.
    """
    if isinstance(data, str | Path):
        return load(DEMO).subset(slice(1, None, 2)) if str(data) == DEMO else None
    return images
