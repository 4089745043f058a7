"""Labels of a dataset as numbers of the networks' classes."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

from dubium.choices import DATASETS, DEMO
from dubium.class_names import check_name_count, list_names
from dubium.data.dataset import Dataset
from dubium.errors import UnknownNameError


def match_labels(data: Dataset, names: Sequence[str] | None, count: int) -> tuple[Dataset, str]:
    """The dataset with labels that are numbers of the networks' classes, or else without labels, and a note why.

    Labels are matched by names where both sides have them. Without names of the networks' classes, a dataset's classes
    are taken to be the networks' if they are as many. Labels that came as numbers are numbers of classes.

    Args:
        names: of the networks' classes, if they are known.
        count: how many classes the networks have.

    >>> import torch
    >>> data = Dataset(torch.zeros(2, 1, 1, 1), torch.tensor([0, 1]), ("cat", "dog"), "pets", "all", by_folder=True)
    >>> match_labels(data, ["bird", "cat", "dog"], 3)[0].labels
    tensor([1, 2])
    """
    if names is not None:
        check_name_count(names, count)
    if data.labels is None:
        return data, data.label_note
    came_as_numbers = has_numbered_classes(data)
    has_names = data.by_folder or data.name in (*DATASETS, DEMO) or not came_as_numbers
    if names is not None and has_names and set(data.classes) <= set(names):
        is_same = tuple(data.classes) == tuple(names)  # also where two classes have the same name
        numbers = range(count) if is_same else [list(names).index(name) for name in data.classes]
        order = data.labels.new_tensor([*numbers])
        return replace(data, labels=order[data.labels], classes=tuple(names), by_folder=False), ""
    if came_as_numbers:
        if not len(data.labels) or int(data.labels.max()) < count:
            return data, ""
        note = (
            f"Labels are not used: {data.shown_name} has labels up to {int(data.labels.max())}, the networks have "
            f"{count} classes. Give labels that are numbers of these, 0 to {count - 1}."
        )
        return replace(data, labels=None, classes=()), note
    if names is None:
        if len(data.classes) == count:
            return data, folder_order_note(data.classes) if data.by_folder else ""
        why = f"{data.shown_name} has {len(data.classes)} classes ({list_names(data.classes)})"
    else:
        strange = [name for name in data.classes if name not in names]
        note = (
            f"Labels are not used: no class of the networks ({list_names(names)}) is called {list_names(strange)}, as "
            f"{data.shown_name} has it. Leave that out of the dataset, or name the classes as it does, in their order: "
            "--names, or class_names= in Python."
        )
        return replace(data, labels=None, classes=()), note
    as_text = [str(number) for number in range(count)]
    called = list_names(as_text) if set(data.classes) <= set(as_text) else "A,B,..."
    note = (
        f"Labels are not used: {why}, the networks have {count} classes. Say what these are called, in their order: "
        f"--names {called}, or class_names= in Python."
    )
    return replace(data, labels=None, classes=()), note


def has_numbered_classes(data: Dataset) -> bool:
    """Whether labels are numbers that nothing else names."""
    return not data.by_folder and data.classes == tuple(map(str, range(len(data.classes))))


def check_spelling(names: Sequence[str] | None, data: Dataset) -> None:
    """Refuse names that a user gave as those of a published dataset, where one is misspelt: its labels would be lost.

    They are taken to be the dataset's if they are as many, and if some of them are right.
    """
    if names is None or data.name not in DATASETS or has_numbered_classes(data) or len(names) != len(data.classes):
        return
    strange = [name for name in names if name not in data.classes]
    missing = [name for name in data.classes if name not in names]
    for name in strange if len(strange) < len(names) else ():
        if near := get_close_matches(name, missing, n=1):
            raise UnknownNameError(
                f"No class of {data.name} is called {name!r}. Did you mean {near[0]!r}? They are "
                f"{', '.join(data.classes)}."
            )


def folder_order_note(folders: Sequence[str]) -> str:
    """What to say where nothing names the classes, and there are as many folders as classes."""
    return (
        f"The folders are taken as the networks' classes, in this order: {list_names(folders)}. If the networks have "
        "another: --names A,B,..., or class_names= in Python."
    )


def folder_labels_note(folders: Sequence[str], names: Sequence[str] | None, *, are_folders: bool) -> str:
    """What to say about labels that come from folders: taken by their order, or not used; "" if all are found by name.

    Args:
        names: of the classes, if any are known; `are_folders` says whether nothing but the folders named them.
    """
    if folders and are_folders:
        return folder_order_note(folders)
    strange = [name for name in folders if name not in (names or ())]
    if not strange:
        return ""
    if len(strange) < len(folders):
        return (
            f"Some images have no label: no class of the networks ({list_names(names or ())}) is called "
            f"{list_names(strange)}, as their folders are. Leave these out, or name the classes as the folders are "
            "called, in their order: --names, or class_names= in Python."
        )
    return (
        f"Labels are not used: no class of the networks is known to be called like a folder ({list_names(folders)}). "
        "Say what the classes are called, in their order: --names A,B,..., or class_names= in Python."
    )
