"""One process that reads damaged files one after the other, and writes a line about each.

python -m tests.fuzz.worker READER START STOP
"""

import json
import os
import resource
import shutil
import sys
import tempfile
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

from torch import Tensor

from dubium.errors import DubiumError
from tests.fuzz.data_readers import DATA_READERS
from tests.fuzz.folder_readers import FOLDER_READERS
from tests.fuzz.reader import Files, FuzzReader, digest_of
from tests.fuzz.weight_readers import WEIGHT_READERS
from tests.limits import resident_bytes

READERS = WEIGHT_READERS | DATA_READERS | FOLDER_READERS
LIMIT = 2**30  # bytes that a process may grow while it reads a small file
ADDRESSES = 12 * 2**30  # bytes of address space, so that a mistake does not end in an exhausted machine


@dataclass(frozen=True)
class FuzzLine:
    """What became of one file: `outcome` is one of `GOOD`, or a breakage."""

    index: int
    outcome: str
    growth: int
    seconds: float
    message: str = ""


GOOD = ("refused", "same", "other")
"""Refused with an error of ours that names the file; read as if nothing had happened; read as something else, where no
checksum says what it was."""


def main(name: str, start: int, stop: int) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    reader = READERS[name]
    with tempfile.TemporaryDirectory(prefix="dubium-fuzz-", dir=memory_folder()) as place:
        samples = [honest_files(write, Path(place) / "honest") for write in reader.samples]
        expected = [digest_of(read_files(reader, files, Path(place) / "case")) for files in samples]
        for index in range(start, stop):
            line = try_one(reader, name, index, samples, expected, Path(place) / "case")
            print(json.dumps(asdict(line)), flush=True)


def memory_folder() -> str | None:
    """A folder in memory where the system has one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def honest_files(write: Any, folder: Path) -> Files:
    """What a sample writes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write(folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def read_files(reader: FuzzReader, files: Files, folder: Path) -> Any:
    """Write the files into an empty folder and read it."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return reader.read(folder)


def damaged_files(reader: FuzzReader, name: str, index: int, samples: list[Files]) -> tuple[int, Files]:
    """The files of one number: which sample they were, and what became of it."""
    random = Random(f"{name} {index}")
    place = random.randrange(len(samples))
    return place, reader.damage(samples[place], random)


def try_one(
    reader: FuzzReader, name: str, index: int, samples: list[Files], expected: list[str], folder: Path
) -> FuzzLine:
    """Damage, read, and judge."""
    place, files = damaged_files(reader, name, index, samples)
    reset_peak()
    before, start, message, peak = resident_bytes(), process_time(), "", 0
    try:
        value = read_files(reader, files, folder)
        peak = peak_bytes() - size_of(value)
        is_same = digest_of(value) == expected[place]
        sealed = not is_same and reader.is_sealed(samples[place], files)
        outcome = "same" if is_same else "silent" if sealed else "other"
    except DubiumError as error:
        message = str(error)
        outcome = "refused" if str(folder) in message else "nameless"
    except Exception as error:
        outcome, message = f"foreign {type(error).__name__}", str(error)
    growth = max(0, (peak or peak_bytes()) - before)
    outcome = "memory" if growth > LIMIT else outcome
    return FuzzLine(index, outcome, growth, round(process_time() - start, 3), "" if outcome in GOOD else message[:300])


def size_of(value: Any) -> int:
    """Bytes of a tensor, which an honest file of its size would take as well; 0 for all else."""
    return value.numel() * value.element_size() if isinstance(value, Tensor) else 0


def reset_peak() -> None:
    """From here on the peak of the memory is counted anew."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """The most memory since `reset_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
