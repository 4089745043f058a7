"""Where an evaluation keeps what it has finished: one small file a (method, shard of images), never computed twice."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from dubium.errors import FileFormatError, OptionError
from dubium.files import write_json, written_atomically

SETTINGS, SHARDS = "settings.json", "shards"


@dataclass(frozen=True)
class Store:
    """The folder of one evaluation."""

    folder: Path

    @classmethod
    def open(cls, folder: Path | str, settings: Mapping[str, Any]) -> "Store":
        """A new folder, or one that was made with the same settings; methods may be added to it."""
        file = Path(folder) / SETTINGS
        wanted = json.loads(json.dumps(settings))
        if file.exists():
            before = _read(file)
            differs = [name for name in {**before, **wanted} if before.get(name) != wanted.get(name)]
            if differs:
                told = ", ".join(f"{name}: {before.get(name)!r} there, {wanted.get(name)!r} now" for name in differs)
                raise OptionError(f"{folder} holds an evaluation with other settings ({told}). Use another folder.")
        else:
            write_json(file, wanted)
        return cls(Path(folder))

    def values(self, name: str, shard: str, compute: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """What `compute` gave as JSON, now or in an earlier start."""
        file = self.folder / SHARDS / name / f"{shard}.json"
        if not file.exists():
            write_json(file, compute())
        return _read(file)

    def tensors(self, name: str, shard: str, compute: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """What `compute` gave as tensors, now or in an earlier start."""
        file = self.folder / SHARDS / name / f"{shard}.safetensors"
        if not file.exists():
            found = {key: tensor.detach().cpu().contiguous() for key, tensor in compute().items()}
            with written_atomically(file) as beside:
                save_file(found, beside)
        return dict(load_file(file))


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise FileFormatError(f"{file} is damaged ({error}). Delete it, and it is made again.") from error
    if not isinstance(content, dict):
        raise FileFormatError(f"{file} is not of an evaluation. Delete it, and it is made again.")
    return content
