"""`dubium.explain_dataset`: what the command `dubium explain` does, from Python."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dubium.attribution._context import DEFAULT_MEMORY
from dubium.checks import check_kinds, check_progress, skipped_note, warn_user
from dubium.choices import RANKING
from dubium.class_names import check_class_names
from dubium.data.dataset import GIVEN
from dubium.data.labels import folder_labels_note
from dubium.errors import OptionError
from dubium.folder_lock import own_folder
from dubium.networks.outputs import OutputChoice
from dubium.path_checks import check_folder_name
from dubium.posteriors import as_posterior
from dubium.posteriors.files.architecture import Architecture, describe_architecture
from dubium.posteriors.files.load import check_saved, load_with_record
from dubium.registry import UA_BACKPROP
from dubium.report import write_page
from dubium.run import Results, Settings, open_work
from dubium.run import explain_dataset as explain_work
from dubium.run.dataset import STAGE_PROGRESS, StageProgress
from dubium.run.sources import source_folders, source_of
from dubium.run.work import agreement_note, changed_shape_note


def explain_dataset(
    posterior: Any,
    data: Any,
    out: Path | str,
    *,
    method: Any = UA_BACKPROP,
    kinds: Iterable[str] | str = RANKING,
    top: int | None = None,
    output: OutputChoice = None,
    class_names: Sequence[str] | Mapping[int, str] | None = None,
    input_shape: tuple[int, int, int] | None = None,
    architecture: Architecture | None = None,
    memory: int | str = DEFAULT_MEMORY,
    seed: int = 0,
    batch: int = 32,
    fresh: bool = False,
    progress: StageProgress | None = None,
    **options: Any,
) -> Results:
    """Score every image, explain the most uncertain ones, and write `out/results` and the page `out/index.html`.

    The same call goes on where an interrupted one stopped.

    Args:
        posterior: as for `explain`, or the name or folder of a saved one.
        data: a torch dataset or its loader (samples that its sampler selects are read once, in the dataset's order),
            images (N, C, H, W), (images, labels), a `dubium.data.Dataset`, or a name; or a folder of images, which may
            differ in size, a class per subfolder. Images are as the networks take them. Labels that count folders (of
            torchvision's `ImageFolder`, too) are matched to `class_names` by name.
        out: a folder of this run alone.
        method: a name, `package.module:function`, or what `dubium.register_method` named; options may follow, as in
            "ig:steps=50".
        kinds: the maps to draw; the first ranks the images.
        top: how many of the most uncertain images to explain; None for all.
        output, memory, seed, options: as for `explain`.
        class_names: of all classes.
        input_shape: (C, H, W) that the networks take, where images differ in size and no saved posterior says it.
        architecture: of a saved posterior's networks that are not dubium's own, as for `load_posterior`.
        batch: images at a time.
        fresh: delete earlier results in `out` first, whatever made them.
        progress: called with ("score" or "explain", images done, images in all).

    Returns:
        The stored results, which `dubium report`, `dubium serve` and `dubium export` read too.

    >>> import dubium, dubium.data
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     results = dubium.explain_dataset("demo", dubium.data.load("demo"), folder, top=2)
    ...     len(results), results.explained_count(), (results.folder / "index.html").exists()
    (64, 2, True)
    """
    out = check_folder_name(out)
    check_progress(progress, *STAGE_PROGRESS)
    if not isinstance(method, str):
        raise OptionError(
            f"The method is a {type(method).__name__}; a folder of results needs a name for it: "
            "dubium.register_method('mine', function), then method='mine'."
        )
    if callable(output):
        raise OptionError("output= is a function; a folder of results needs a key, an attribute or an index.")
    named: dict[str, Any] = {"run": str(posterior)}
    networks, record = None, None
    if architecture is not None:
        networks, record = load_with_record(check_saved(posterior), architecture)
        path = describe_architecture(architecture).get("path")
        named |= {} if path is None else {"architecture": path}
    elif not isinstance(posterior, str | Path):
        networks = as_posterior(posterior)
        named = {GIVEN: f"{len(networks)} networks"}
    settings = Settings(
        named | ({} if output is None else {"output": output}), {GIVEN: type(data).__name__}, method=method,
        kinds=check_kinds(kinds), options=options, top=top,
        classes=None if class_names is None else check_class_names(class_names), input_shape=input_shape,
        memory=memory, seed=seed, batch=batch,
    )  # fmt: skip
    with own_folder(out):
        work = open_work(settings, source_of(data), networks, record)
        for note in filter(None, (agreement_note(work), work.note, changed_shape_note(work))):
            warn_user(note)
        folders = source_folders(work.source)
        if note := folder_labels_note(folders, work.about["classes"], are_folders=work.is_named_by_folders):
            warn_user(note)
        results = explain_work(work, out, fresh=fresh, progress=progress)
        write_page(results)
    if note := skipped_note([item["reason"] for item in results.skipped()]):
        warn_user(note)
    return results
