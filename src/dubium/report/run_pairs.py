"""Two runs over the same images: the rows that they share, and names that tell them apart."""

from dubium.errors import OptionError
from dubium.explanation import json_value
from dubium.report.cards import image_key
from dubium.run.row import Row
from dubium.run.store import Results


def rows_in_common(first: Results, second: Results) -> list[tuple[Row, Row]]:
    """The images that both runs have, without their pictures; an error where there are none.

    Images without a path are known by their index alone, which says nothing in datasets that are not equally long.
    """
    scores = {image_key(row): row for row in first.rows(pictures=False)}
    common = [(scores[image_key(row)], row) for row in second.rows(pictures=False) if image_key(row) in scores]
    counts = {run.about["images"].get("count") for run in (first, second)}
    if not common or (len(counts) > 1 and all(row.path is None for _, row in common)):
        raise OptionError(f"{first.folder} and {second.folder} have no image in common.")
    return common


def check_beside(results: Results, other: Results) -> None:
    """Raise an error where the maps of another run cannot be drawn below those of this one."""
    if results.folder.resolve() == other.folder.resolve():
        raise OptionError(f"{other.folder} cannot be drawn beside itself. Name another run over the same images.")
    rows_in_common(results, other)
    explained = {image_key(row) for row in results.rows(results.explained, pictures=False)}
    if explained.isdisjoint(image_key(row) for row in other.rows(other.explained, pictures=False)):
        raise OptionError(
            f"{results.folder} and {other.folder} have explained no image in common, so that there are no maps to draw "
            "beside each other. Run `dubium explain` for both without --top, or with a larger one."
        )


def method_labels(first: Results, second: Results) -> tuple[str, str]:
    """The methods of two runs; the same one with the options that differ, as evaluations label methods."""
    both = first.about["settings"], second.about["settings"]
    names = [settings["method"] for settings in both]
    if names[0] != names[1]:
        return names[0], names[1]
    given = [json_value(settings.get("options") or {}) for settings in both]
    shared = dict(pair for pair in given[0].items() if pair in [*given[1].items()])
    labels = [
        ":".join([names[0], *(f"{name}={value}" for name, value in options.items() if name not in shared)])
        for options in given
    ]
    return labels[0], labels[1]


def run_labels(first: Results, second: Results) -> tuple[str, str]:
    """The methods of two runs, with their folders where their methods are the same."""
    labels = method_labels(first, second)
    if labels[0] != labels[1]:
        return labels
    names = [run.folder.resolve().name for run in (first, second)]
    if names[0] == names[1]:
        names = [str(run.folder) for run in (first, second)]
    return f"{labels[0]} ({names[0]})", f"{labels[1]} ({names[1]})"
