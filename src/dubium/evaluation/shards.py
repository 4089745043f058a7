"""What an evaluation keeps on disk: one small file for each shard, written once, and read by later starts and figures.

Here is the one place that names those files.
"""

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from dubium.errors import FileFormatError, OptionError
from dubium.files import LONGEST, check_recorded, check_same_settings, write_json
from dubium.path_checks import OVERVIEW, PAGE, SETTINGS, SHARDS, refuse_own_files, refuse_run_folder
from dubium.seals import read_sealed_json, write_sealed_json
from dubium.tensor_files import read_tensor_file, write_tensors

METHODS = "methods"
TABLES = "summary.json", "results.csv", "comparisons.csv", "images.csv"
FIGURES = tuple(
    f"{name}.png"
    for name in ("urr", "blurring-*", "boxes", "removal", "cascade", "causes", "two-by-two", "attention", "arms")
)
KEY = "shard"


class ShardName(NamedTuple):
    """A file below `shards/`, without its ending."""

    folder: str
    stem: str


PLANTED_SHARD = ShardName("planted", "all")
SCORES, EXAMPLES = "scores-", "examples"  # how the folders of `score_shard` (and a kind) and `example_shard` are called


def method_shard(label: str, start: int, kind: str | None = None) -> ShardName:
    """The images from `start` on, as one method explains them; `kind` where each kind has images of its own."""
    return ShardName(file_name(label), f"{start:05d}" if kind is None else f"{start:05d}-{kind}")


def score_shard(kind: str, start: int) -> ShardName:
    """Uncertainty scores of the dataset's images from `start` on."""
    return ShardName(f"{SCORES}{kind}", f"{start:05d}")


def example_shard(kind: str) -> ShardName:
    """The images that figures show for a kind."""
    return ShardName(EXAMPLES, kind)


def truth_shard(label: str, start: int, kind: str) -> ShardName:
    """Whether predictions are right, for the images from `start` on, as one method changes them."""
    return ShardName(file_name(label), f"{start:05d}-{kind}-truth")


def shared_map_shard(label: str, images: str, kind: str) -> ShardName:
    """Maps that several evaluations share, by the digest of their images."""
    return ShardName(file_name(label), f"{images}-{kind}")


def arm_shard(label: str, seed: int, kind: str | None = None) -> ShardName:
    """Test results of one network of the mitigation protocol."""
    return ShardName(f"arm-{label}" if kind is None else f"arm-{file_name(label)}@{kind}", f"seed-{seed}")


def explainer_shard(member: int) -> ShardName:
    """Weights of one network that the mitigation protocol explains."""
    return ShardName("explainer", f"member-{member}")


def cause_network_shard(member: int) -> ShardName:
    """Weights of one network that the causes protocol explains."""
    return ShardName("causes", f"member-{member}")


def file_name(label: str) -> str:
    """What files of a method are called: another name for each label.

    A colon becomes `_`; other characters than letters, digits and `-.=` become `~` and two digits for each byte. A long
    name ends with a digest.

    >>> file_name("mine:f:power=3"), file_name("mine_f:shape=[1,4]")
    ('mine_f_power=3', 'mine~5ff_shape=~5b1~2c4~5d')
    """
    escaped = {c: "".join(f"~{byte:02x}" for byte in c.encode(errors="surrogatepass")) for c in label}
    escaped |= {c: c for c in label if c.isalnum() or c in "-.="} | {":": "_"}
    name = "".join(escaped[c] for c in label)
    if len(name.encode()) <= LONGEST:
        return name
    digest = sha256(label.encode(errors="surrogatepass")).hexdigest()
    return f"{name.encode()[: LONGEST - 66].decode(errors='ignore')}~~{digest}"


def earlier_file_name(label: str) -> str:
    """What earlier versions of dubium called them: the same for `a:b` and `a_b`."""
    return "".join(c if c.isalnum() or c in "-._=" else "_" for c in label)


def name_method_folders(shards: Path, before: Collection[str], now: Collection[str]) -> None:
    """Folders for methods whose name earlier versions did not keep apart from others': made now, or renamed.

    Args:
        before: labels of the methods that the folder's settings name already.
        now: labels of this call's.
    """
    concerned = {earlier_file_name(label) for label in now}
    for label in sorted({*now, *(label for label in before if earlier_file_name(label) in concerned)}):
        name, earlier = shards / file_name(label), shards / earlier_file_name(label)
        if name == earlier or os.path.isdir(name):
            continue
        others = [other for other in before if other != label and earlier_file_name(other) == earlier.name]
        if label in before and others:
            raise OptionError(
                f"{shards.parent} was made by an earlier version of dubium, which kept the results of {label!r} and "
                f"{others[0]!r} in one place: it cannot be continued. Use another folder."
            )
        if label in before and os.path.isdir(earlier):  # False for a name that is too long, too
            with suppress(FileNotFoundError):  # another worker was faster
                earlier.rename(name)
        name.mkdir(parents=True, exist_ok=True)


def is_measured(folder: Path) -> bool:
    """Whether an evaluation's folder has more than the images that a protocol chose, and their scores."""
    shards = (file for file in (folder / SHARDS).rglob("*") if not file.is_dir())
    return any(not file.parent.name.startswith((SCORES, EXAMPLES)) for file in shards)


def other_methods(folder: Path, labels: Collection[str]) -> list[str]:
    """The methods that an evaluation's folder has shards of besides these."""
    return [label for label in _read_json(folder / SETTINGS).get(METHODS) or {} if label not in labels]


def protocol_name(settings: Mapping[str, Any]) -> str | None:
    """By which protocol results were made; None of settings that do not say it."""
    protocol = settings.get("protocol")
    name = protocol.get("name") if isinstance(protocol, dict) else None
    return name if isinstance(name, str) else None


@dataclass(frozen=True)
class ShardStore:
    """The folder of one evaluation."""

    folder: Path

    @classmethod
    def open(cls, folder: Path | str, settings: Mapping[str, Any]) -> "ShardStore":
        """A new folder, or one that was made with the same settings; methods may be added to it.

        One with other settings, in which no method was measured yet, is begun anew.

        Args:
            settings: all that a shard depends on; `methods` has the fingerprint of each by its label.
        """
        refuse_run_folder(Path(folder))
        if (Path(folder) / OVERVIEW).is_file():
            raise OptionError(f"{folder} has the results of all protocols. Choose another folder for one of them.")
        file, now = Path(folder) / SETTINGS, settings.get(METHODS) or {}
        if not file.exists():
            if not (Path(folder) / SHARDS).is_dir():
                refuse_own_files(Path(folder), (PAGE, *TABLES, *FIGURES))
            name_method_folders(Path(folder) / SHARDS, (), now)
            write_json(file, settings)
            return cls(Path(folder))
        there = _read_json(file)
        protocol, here = protocol_name(there), protocol_name(settings)
        if protocol != here and None not in (protocol, here) and is_measured(Path(folder)):
            raise OptionError(f"{folder} holds results of {protocol}, not of {here}. Use another folder.")
        check_recorded(folder, there, settings)
        before = there.get(METHODS) or {}
        if not isinstance(before, dict):
            raise FileFormatError(f"{file} is damaged: its methods are {before!r:.200}. Use another folder.")
        common = {label: before[label] for label in now if label in before}
        try:
            check_same_settings(
                folder, {**there, METHODS: common}, {**settings, METHODS: {label: now[label] for label in common}}
            )
        except OptionError:
            if is_measured(Path(folder)):
                raise
            shutil.rmtree(Path(folder) / SHARDS)
            file.unlink()
            return cls.open(folder, settings)
        name_method_folders(Path(folder) / SHARDS, before, now)
        if len(common) < len(now):
            try:
                write_json(file, {**there, METHODS: {**before, **now}})
            except ValueError as error:  # infinity or NaN, which no run writes
                raise FileFormatError(f"{file} is damaged: {error}. Use another folder.") from error
        return cls(Path(folder))

    def compute_values(self, name: ShardName, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """What `compute` gives as JSON; it is called only if no earlier start has written the shard."""
        if not self._path(name, "json").exists():
            write_sealed_json(self._path(name, "json"), compute())
        return self.read_values(name)

    def compute_tensors(self, name: ShardName, compute: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """What `compute` gives as tensors; it is called only if no earlier start has written the shard."""
        path = self._path(name, "safetensors")
        if not path.exists():
            write_tensors(path, compute(), key=KEY, header={})
        return self.read_tensors(name)

    def has_tensors(self, name: ShardName) -> bool:
        """Whether an earlier start has written this shard."""
        return self._path(name, "safetensors").exists()

    def read_values(self, name: ShardName) -> dict[str, Any]:
        """A JSON shard that is there; `FileFormatError` if it is not."""
        return _read_json(self._existing_path(name, "json"))

    def read_tensors(self, name: ShardName) -> dict[str, Tensor]:
        """A shard of tensors that is there; `FileFormatError` if it is not."""
        tensors, _ = read_tensor_file(self._existing_path(name, "safetensors"), key=KEY)
        return tensors

    def _existing_path(self, name: ShardName, ending: str) -> Path:
        path = self._path(name, ending)
        if not path.is_file():
            raise FileFormatError(
                f"{path} is missing: the evaluation is not finished, or was made by an older dubium. Start the same "
                "`dubium evaluate` again: what is there is kept."
            )
        return path

    def _path(self, name: ShardName, ending: str) -> Path:
        return self.folder / SHARDS / name.folder / f"{name.stem}.{ending}"


def _read_json(file: Path) -> dict[str, Any]:
    content = read_sealed_json(file)
    if not isinstance(content, dict):
        raise FileFormatError(f"{file} is not of an evaluation. Delete it, and it is made again.")
    return content
