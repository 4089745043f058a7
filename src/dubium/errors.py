"""One exception per mistake a user can fix. Each says what was given, what was expected and what to do."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TypeVar

T = TypeVar("T")
MIN_BEGINNING = 3  # letters of a name by which a longer one is found


class DubiumError(Exception):
    """Everything dubium raises on purpose."""


class DubiumWarning(UserWarning):
    """Everything dubium warns about."""


class ImagesError(DubiumError, ValueError):
    """Images that cannot be explained: wrong shape, NaN, infinity."""


class ImagesTypeError(DubiumError, TypeError):
    """Images that are not a floating tensor."""


class PosteriorError(DubiumError, ValueError):
    """A posterior that is empty, or whose networks disagree."""


class PosteriorTypeError(DubiumError, TypeError):
    """Something that is not a collection of networks."""


class NetworkStateError(DubiumError, ValueError):
    """A network that is not a fixed function of one image: training mode, BatchNorm without statistics."""


class OutputError(DubiumError, ValueError):
    """A network's output that is not (B, K) finite logits with K >= 2."""


class NetworkError(DubiumError, RuntimeError):
    """A network that cannot take these images at all."""


class DtypeError(DubiumError, TypeError):
    """Images and network of different floating types."""


class DeviceError(DubiumError, ValueError):
    """Images and network on different devices."""


class OptionError(DubiumError, ValueError):
    """An option outside its range."""


class UnknownNameError(DubiumError, ValueError):
    """A method, kind, option, dataset or recipe that does not exist."""


class FileFormatError(DubiumError, ValueError):
    """A file that is damaged, or not what it should be."""


class FolderInUseError(DubiumError, OSError):
    """A folder that another process is writing to."""


class UnwritableError(DubiumError, OSError):
    """A file or folder that cannot be made where it was named."""


class DataNotFoundError(DubiumError, FileNotFoundError):
    """A dataset whose files are in none of the folders that were searched."""


class DownloadError(DubiumError, OSError):
    """A download that failed, or brought something other than what was published."""


class DivergedError(DubiumError, ArithmeticError):
    """Training whose loss is no longer a number."""


class ClusterError(DubiumError, RuntimeError):
    """A Ray cluster that cannot be joined, or whose workers cannot do a job."""


class MissingExtraError(DubiumError, ImportError):
    """An optional dependency that is not installed."""


def lookup(noun: str, table: Mapping[str, T], name: object) -> T:
    """`table[name]`, or an error that suggests the nearest name; `noun` says what the table is of."""
    if isinstance(name, str) and name in table:
        return table[name]
    raise UnknownNameError(unknown_name_text(noun, name, table))


def unknown_name_text(noun: str, name: object, known: Iterable[str]) -> str:
    """What to say about a name that does not exist."""
    known = list(known)
    return f"No {noun} called {name!r}.{near_name_hint(name, known)} Available: {', '.join(known) or 'none'}."


def near_name_hint(name: object, known: Iterable[str]) -> str:
    """A sentence about the known name that is nearest, after a space; "" where none is near.

    >>> near_name_hint("cifar10-resnet", ["cifar10-resnet20", "cifar100-resnets"])
    " Did you mean 'cifar10-resnet20'?"
    """
    text, names = str(name), list(known)
    longer = [each for each in names if len(text) >= MIN_BEGINNING and each.startswith(text)]
    near = sorted(longer, key=len) or get_close_matches(text, names, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
