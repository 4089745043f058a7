"""`dubium compare`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubium.choices import DEMO, RANKING
from dubium.cli import _options as o
from dubium.cli._estimate import EstimateOnly, print_estimate
from dubium.cli._settings import (
    image_settings,
    is_bare_factory,
    is_factory,
    method_options,
    method_texts,
    parse_numbers,
    posterior_settings,
    split_words,
)
from dubium.cli._tables import exit_with_skipped, print_json, say_changes, say_nothing_disagrees
from dubium.errors import DubiumError, OptionError, UnknownNameError
from dubium.folder_lock import own_folder
from dubium.option_text import split_method

if TYPE_CHECKING:
    from dubium.estimate import Estimate
    from dubium.run import Work

Side = Annotated[
    str | None,
    typer.Argument(
        help=f"A folder that dubium explain wrote, or a posterior: a run, a name, `{DEMO}`, module:factory@a.pt,b.pt."
    ),
]
SIDE_B = "Posterior of B, where it is not as for A"
Text = Annotated[str | None, typer.Option(rich_help_panel=SIDE_B)]
Texts = Annotated[list[str] | None, typer.Option(rich_help_panel=SIDE_B)]


def compare(
    run_a: Side = None,
    run_b: Side = None,
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("dubium-compare"),
    posterior: o.PosteriorFactory = None,
    weights: o.Weights = None,
    mean: o.Mean = None,
    std: o.Std = None,
    input_shape: o.InputShape = None,
    network_output: o.NetworkOutput = None,
    names: o.Names = None,
    posterior_b: Text = None,
    weights_b: Texts = None,
    mean_b: Texts = None,
    std_b: Texts = None,
    input_shape_b: Text = None,
    network_output_b: Text = None,
    data_config_b: Text = None,
    images: o.ImageFiles = None,
    dataset: o.DatasetName = None,
    fit: o.Fit = None,
    resize: o.Resize = None,
    interpolation: o.Interpolation = None,
    data_config: o.DataConfig = None,
    top: Annotated[int, typer.Option(min=1, rich_help_panel=o.METHOD, help="Explain A's most uncertain images.")] = 20,
    kinds: o.Kinds = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD_A,METHOD_B", rich_help_panel=o.METHOD, callback=o.check_method_texts,
            help="One for both, or one for each; options may follow, and methods of yours: ig:steps=50,mine:function.",
        ),
    ] = None,
    option: o.Option = None,
    memory: o.Memory = "1GiB",
    batch: o.Batch = 32,
    threads: o.Threads = None,
    fresh: o.Fresh = False,
    estimate: EstimateOnly = False,
    json: o.Json = False,
) -> None:  # fmt: skip
    """Show two posteriors, or two methods, side by side on the same images.

    Two folders of results are compared as they are. Posteriors are run first: A's most uncertain images are explained
    with both. For two methods, name the same posterior twice: dubium compare demo demo --methods ua-backprop,grad.
    Options about the posterior hold for both sides, those that end with -b for B instead.
    """
    from dubium.cli._progress import stage_bars
    from dubium.path_checks import COMPARED, PAGE, is_evaluation_folder, is_run_folder, refuse_own_files
    from dubium.report.compare import check_class_counts, names_note, write_comparison
    from dubium.run import Settings, explain_dataset, open_results, open_work
    from dubium.run.dataset import with_recorded_names
    from dubium.run.store import has_results
    from dubium.run.work import class_count

    texts = method_texts(methods) or ["ua-backprop"]
    if len(texts) > 2:
        raise OptionError(f"--methods names {len(texts)} methods; give one for both sides, or one for each.")
    sides, chosen = (run_a, run_b), [split_method(text) for text in (texts[0], texts[-1])]
    if evaluations := [side for side in sides if side is not None and is_evaluation_folder(Path(side))]:
        raise OptionError(
            f"{evaluations[0]} is an evaluation. Name posteriors, or folders that `dubium explain` wrote."
        )
    results = [side for side in sides if side is not None and has_results(side)]
    if run_b is None and run_a is not None and posterior is None and posterior_b is None:
        again = "the same with" if not results else "in place of these results their posterior twice, with"
        named = run_a if not results else "RUN"
        raise OptionError(
            f"Two are needed to compare, and {run_a!r} is the only one: name a second posterior or folder of results, "
            f"or {again} another method: dubium compare {named} {named} --methods ua-backprop,grad."
        )
    if methods and len(texts) > len(sides) - len(results):
        raise OptionError(
            f"--methods is {','.join(texts)}, and results are compared as they are, with the maps that they have: "
            f"{', '.join(dict.fromkeys(results))}. Leave out --methods, or name the posterior instead of its results."
        )
    both = posterior, weights, mean, std, network_output, data_config
    for_b = posterior_b, weights_b, mean_b, std_b, network_output_b, data_config_b
    works, folders, sizes = list["Work | None"](), list[Path](), set[tuple[int, ...]]()
    counts = list[int | None]()
    for index, side in enumerate(sides):
        if side is not None and has_results(side):
            works.append(None)
            folders.append(Path(side))
        else:
            given: list[Any] = [b or a for a, b in zip(both, for_b, strict=True)] if index else list(both)
            if side is not None and (None in sides or side == DEMO or is_factory(side)):
                shared = given[1] if posterior is None and is_bare_factory(side) else None
                given[:2] = for_b[:2] if index else (None, None)  # it is named; the options are the other side's
                given[1] = given[1] or shared  # but for --weights where no other network is there to have them
            if side is not None and side != DEMO and not (images or dataset or is_factory(side) or Path(side).exists()):
                raise OptionError(
                    f"There is no folder {side!r} here. Give one of results; or a posterior, and --images or --dataset."
                )
            shape = input_shape_b if index and input_shape_b else input_shape
            shown_images = image_settings(DEMO if DEMO in sides else side, images, dataset)
            settings = Settings(
                posterior=posterior_settings(side, *given),
                images=with_recorded_names(shown_images, out / COMPARED[index]),
                method=chosen[index][0], kinds=split_words(kinds) or RANKING,
                options=side_options(chosen, index, method_options(chosen[index][0], option)), top=top, fit=fit,
                resize=resize, interpolation=interpolation, input_shape=parse_numbers(shape, int),
                classes=split_words([names]) if names else None, memory=memory, batch=batch, threads=threads,
            )  # fmt: skip
            with name_side(index):
                opened = open_work(settings)  # a mistake in the second is reported before the first is run
                if not json and tuple(opened.about["input_shape"]) not in sizes:
                    say_changes(opened)
                if not json:
                    say_nothing_disagrees(opened)
                counts.append(class_count(opened))
            sizes.add(tuple(opened.about["input_shape"]))
            works.append(opened)
            folders.append(out / COMPARED[index])
    check_class_counts([count for count in counts if count])
    if not json:
        say_nothing_differs(works, folders)
    if estimate:
        print_estimate(estimate_sides(works, top), json=json)
        return
    with own_folder(out), stage_bars(quiet=json) as progress:
        if is_run_folder(out) or is_evaluation_folder(out):
            raise OptionError(f"{out} has results of its own. Choose another --out for the comparison.")
        refuse_own_files(out, [PAGE])
        only: tuple[int, ...] | None = None
        for index, (work, folder) in enumerate(zip(works, folders, strict=True)):
            if work is not None:
                with name_side(index):
                    explain_dataset(with_only(work, only), folder, fresh=fresh, progress=progress)
            only = open_results(folder).explained_ids()  # so that the other side explains the same images
        shown = [side or str(factory) for side, factory in ((run_a, posterior), (run_b, posterior_b or posterior))]
        skipped = {item["path"]: item for folder in folders for item in open_results(folder).skipped()}
        note = names_note(*map(open_results, folders))
        page, agreement = write_comparison(folders[0], folders[1], out, names=titles((shown[0], shown[1]), texts))
    if json:
        print_json({"page": str(page), "a": str(folders[0]), "b": str(folders[1]), **asdict(agreement)})
    else:
        if note:
            typer.echo(f"dubium: {note}", err=True)
        print(f"{agreement.images:,} images, the same prediction for {agreement.same_prediction:.1%}. Open {page}.")
    if skipped:
        exit_with_skipped(list(skipped.values()), quiet=json)


@contextmanager
def name_side(index: int) -> Iterator[None]:
    """Errors say of which side they are: both have a network 0."""
    try:
        yield
    except DubiumError as error:
        raise type(error)(f"{'AB'[index]}: {error}") from error


def say_nothing_differs(works: "Sequence[Work | None]", folders: Sequence[Path]) -> None:
    """Say so where both sides are the same results, or the same networks with the same method."""
    first, second = works[0], works[1]
    if first is None or second is None:
        is_same = first is second and folders[0].resolve() == folders[1].resolve()
    else:
        is_same = all(first.about[part] == second.about[part] for part in ("posterior", "method", "settings"))
    if is_same:
        of_results = " of a posterior that is named twice" if first is None else ""
        typer.echo(
            "dubium: both sides are the same: something is compared with itself. --methods METHOD_A,METHOD_B names two "
            f"methods{of_results}.",
            err=True,
        )


def with_only(work: "Work", only: tuple[int, ...] | None) -> "Work":
    """The same work on these images alone, if any are named."""
    if only is None:
        return work
    settings = replace(work.settings, top=None, only=only)
    return replace(work, settings=settings, about={**work.about, "settings": asdict(settings)})


def estimate_sides(works: "Sequence[Work | None]", top: int) -> "Estimate":
    """What it takes to explain A's most uncertain images with both; a side that has its results takes nothing."""
    from dubium.estimate import join_estimates
    from dubium.run.estimate import estimate_run

    todo = [work for work in works if work is not None]
    if not todo:
        raise OptionError("Both sides have their results: there is nothing to compute.")
    second = [with_only(work, tuple(range(min(top, len(work.source))))) for work in todo[1:]]
    return join_estimates([estimate_run(work) for work in (todo[0], *second)])


def side_options(chosen: Sequence[tuple[str, list[str]]], index: int, shared: dict[str, Any]) -> dict[str, Any]:
    """The options of a side's method: its own, and those for both that it has; one that neither has is a mistake."""
    for name in shared:
        if not any(has_option(method, name) for method, _ in chosen):
            check_option(chosen[0][0], name)
    method, texts = chosen[index]
    return {name: value for name, value in shared.items() if has_option(method, name)} | method_options(method, texts)


def has_option(method: str, option: str) -> bool:
    try:
        check_option(method, option)
    except UnknownNameError:
        return False
    return True


def check_option(method: str, option: str) -> None:
    """Raise an error that lists the method's options if this is not one of them."""
    from dubium._methods import choose_method

    choose_method(method, {option: "fullgrad" if option == "relevance" else None}, 1)


def titles(sides: tuple[str, str], methods: Sequence[str]) -> tuple[str, str]:
    """What to call the two: by posterior, and by method where those differ."""
    first, second = (Path(side).name or side for side in sides)
    if len(methods) == 2 and first == second:
        return methods[0], methods[1]
    if len(methods) == 2:
        return f"{first} with {methods[0]}", f"{second} with {methods[1]}"
    return (first, second) if first != second else (f"A: {sides[0]}", f"B: {sides[1]}")
