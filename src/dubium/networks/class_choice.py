"""Two classes that a user asks about, and whether there is a name for each class."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from torch import Tensor

from dubium.checks import count_text, list_some, whole_number
from dubium.class_names import equal_names, equal_names_text, list_names
from dubium.errors import OptionError

Pair = tuple[int, int]


def check_pair(pair: object, names: Sequence[str] | None = None) -> Pair:
    """The numbers of two classes, which may be given by their names."""
    classes = list(pair) if isinstance(pair, Iterable) and not isinstance(pair, str) else [pair]
    class_ids = {name: number for number, name in enumerate(names or ())}
    equal = {name: numbers for name, numbers in equal_names(names or ()).items() if name in classes}
    if equal:
        raise OptionError(f"pair={pair!r}, but {equal_names_text(equal)}. Give numbers.")
    for item in classes if names else ():
        if isinstance(item, str) and item not in class_ids:
            near = get_close_matches(item, list(class_ids), n=3)
            hint = (
                f"Did you mean {' or '.join(map(repr, near))}?" if near else f"They are {list_some(list(class_ids))}."
            )
            raise OptionError(f"pair={pair!r}; two different classes are needed, and {item!r} is no class name. {hint}")
    items = [class_ids.get(item, item) if isinstance(item, str) else item for item in classes]
    numbers = [number for item in items if (number := whole_number(item)) is not None]
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


def check_class_count(names: Sequence[str], classes: int, pair: Pair | None) -> None:
    """Raise an error unless there is a name for each class, or for those of a pair."""
    if len(names) <= max(pair) if pair else len(names) != classes:
        raise OptionError(
            f"class_names has {count_text(len(names), 'name')} ({list_names(names)}); a list of names is needed, one "
            f"for each of the networks' classes: {classes}, not {len(names)}."
        )
