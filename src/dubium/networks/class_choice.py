"""Two classes that a user asks about, and what the classes are called."""

from collections.abc import Iterable, Sequence
from operator import index
from typing import SupportsIndex

from torch import Tensor

from dubium.errors import OptionError

Pair = tuple[int, int]


def check_pair(pair: object, names: Sequence[str] | None = None) -> Pair:
    """The numbers of two classes, which may be given by their names."""
    classes = list(pair) if isinstance(pair, Iterable) and not isinstance(pair, str) else [pair]
    class_ids = {name: number for number, name in enumerate(names or ())}
    items = [class_ids.get(item, item) if isinstance(item, str) else item for item in classes]
    numbers = [index(item) for item in items if isinstance(item, SupportsIndex) and not isinstance(item, bool)]
    if len(classes) != 2 or len(numbers) != 2 or numbers[0] == numbers[1] or min(numbers) < 0:
        raise OptionError(
            f"pair={pair!r}; two different classes are needed: their numbers, as in pair=(4, 9), or their names if "
            "class_names= says them."
        )
    return numbers[0], numbers[1]


def select_pair(logits: Tensor, pair: Pair) -> Tensor:
    """The logits of two classes, (B, 2)."""
    classes = logits.shape[1]
    if max(pair) >= classes:
        raise OptionError(f"pair={pair}, but the networks have {classes} classes, numbered 0 to {classes - 1}.")
    return logits[:, list(pair)]


def check_class_names(names: Sequence[str], classes: int, pair: Pair | None) -> tuple[str, ...]:
    """The names of the classes that are explained: all of them, or those of a pair."""
    if isinstance(names, str) or (len(names) <= max(pair) if pair else len(names) != classes):
        raise OptionError(
            f"class_names={names!r}; a list of names is needed, one for each of the networks' classes"
            + ("." if pair else f": {classes}, not {len(names)}.")
        )
    return tuple(str(names[k]) for k in pair or range(classes))
