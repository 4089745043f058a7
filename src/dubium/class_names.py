"""Names of the networks' classes: a list in the order of the outputs."""

from collections import Counter
from collections.abc import Mapping, Sequence

from dubium.errors import OptionError

SHOWN = 10  # names in a message


def check_class_names(names: object, argument: str = "class_names") -> tuple[str, ...]:
    """Names in the order of the classes: of a list, an array, or a mapping from the classes' numbers.

    Args:
        argument: what the user calls them, for the errors.
    """
    if isinstance(names, Mapping) and set(names) == set(range(len(names))):
        names = [names[k] for k in range(len(names))]
    names = names.tolist() if hasattr(names, "tolist") else names
    if isinstance(names, str | Mapping) or not isinstance(names, Sequence):
        raise OptionError(
            f"{argument} is a {type(names).__name__}; a list of names in the order of the networks' classes is needed."
        )
    found = tuple(map(str, names))
    warn_of_equal_names(found, argument)
    return found


def warn_of_equal_names(names: Sequence[str], argument: str) -> None:
    """Warn where classes have the same name: as ImageNet's two cranes, they may be shown, but not found by it."""
    if equal := equal_names(names):
        from dubium.checks import warn_user

        name, numbers = next(iter(equal.items()))
        warn_user(
            f"{argument}: {equal_names_text(equal)}. A label of that name is taken for the first of them. To tell them "
            f"apart, give names such as {' and '.join(repr(f'{name} {number}') for number in numbers[:2])}. In Python "
            "for all names: [f'{name} {k}' if names.count(name) > 1 else name for k, name in enumerate(names)]."
        )


def equal_names(names: Sequence[str]) -> dict[str, list[int]]:
    """The names that several classes have, with the numbers of these classes.

    >>> equal_names(["crane", "bee", "crane"])
    {'crane': [0, 2]}
    """
    counts = Counter(names)
    return {name: [k for k, other in enumerate(names) if other == name] for name in counts if counts[name] > 1}


def equal_names_text(equal: Mapping[str, Sequence[int]]) -> str:
    """Which classes have the same name, of at most three names."""
    numbers = {name: ", ".join(map(str, equal[name][:3])) + ", ..." * (len(equal[name]) > 3) for name in equal}
    texts = [f"classes {numbers[name]} are all called {name!r}" for name in [*equal][:3]]
    return "; ".join(texts) + "; and others" * (len(equal) > 3)


def check_name_count(names: Sequence[str], count: int) -> None:
    """Refuse names of classes that are not as many as the networks' classes."""
    if len(names) != count:
        raise OptionError(
            f"There are {len(names)} names of classes for {count} classes ({list_names(names)}); give one for each, in "
            f"the order of the networks' outputs: --names {list_names([str(number) for number in range(count)])}, or "
            "class_names= in Python."
        )


def list_names(names: Sequence[str]) -> str:
    """Names separated by commas; of many, the first and the last."""
    return ",".join(names if len(names) <= SHOWN else [*names[:3], "...", names[-1]])


def replaced_names_note(given: Sequence[str] | None, saved: Sequence[str] | None) -> str:
    """That names the user gives stand in place of those that a posterior was saved with; "" where they do not."""
    if given is None or saved is None or list(given) == list(saved):
        return ""
    return (
        f"the classes are called {list_names(given)}, not {list_names(saved)}, as they were saved with the posterior."
    )
