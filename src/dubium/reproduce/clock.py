"""The seconds of a job that may be killed and go on: kept in a file while it runs, and added up."""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from dubium.errors import FileFormatError
from dubium.files import write_json
from dubium.reading import read_json

EVERY = 5.0  # seconds between two notes


@dataclass
class JobClock:
    """Counts from its making on, and from what processes before it noted of the same work.

    Args:
        file: where the seconds so far are noted; removed when the job is done.
        fingerprint: of the job; seconds of another one do not count.
    """

    file: Path
    fingerprint: str
    noted: float = 0.0  # seconds from the start to the last note
    start: float = field(init=False)
    before: float = field(init=False)

    def __post_init__(self) -> None:
        self.start, self.before = perf_counter(), read_seconds(self.file, self.fingerprint)

    def seconds(self) -> float:
        """Of this process and of those before it."""
        return round(self.before + perf_counter() - self.start, 1)

    def note(self) -> None:
        """Write the seconds so far, unless that was done a moment ago."""
        now = perf_counter() - self.start
        if now - self.noted >= EVERY:
            self.noted = now
            write_json(self.file, {"fingerprint": self.fingerprint, "seconds": self.seconds()})

    def stop(self) -> None:
        """Forget the note: the job is done."""
        self.file.unlink(missing_ok=True)


def read_seconds(file: Path, fingerprint: str) -> float:
    """What was noted of the same work; a note that is missing or damaged is worth nothing."""
    with suppress(OSError, FileFormatError):
        found = read_json(file)
        seconds = found.get("seconds") if isinstance(found, dict) and found.get("fingerprint") == fingerprint else None
        if isinstance(seconds, int | float) and 0 <= seconds < float("inf"):
            return float(seconds)
    return 0.0
