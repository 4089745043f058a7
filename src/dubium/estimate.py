"""What a computation will take, for `--estimate`. Each package has a module `estimate` that measures its own."""

from dataclasses import asdict, dataclass
from typing import Any

from dubium.durations import duration_text


@dataclass(frozen=True)
class Estimate:
    """Work in words and numbers, and about how many seconds and bytes it takes.

    Args:
        task: what is to be done, as the beginning of a sentence.
        images: that are scored, or trained on.
        passes: forward passes for the scores, or of training.
        explained: images that get maps.
        seconds: None where it is not known.

    >>> Estimate("64 images to score", images=64, passes=320, seconds=200.0, bytes=3_000_000).sentence()
    '64 images to score: about 3 min and 3 MB on disk.'
    """

    task: str
    images: int = 0
    passes: int = 0
    explained: int = 0
    seconds: float | None = None
    bytes: int = 0

    def sentence(self) -> str:
        time = "time not known" if self.seconds is None else f"about {duration_text(self.seconds)}"
        size = f"{max(1, round(self.bytes / 1e6)):,} MB" if self.bytes else "nothing"
        return f"{self.task}: {time} and {size} on disk."

    def json(self) -> dict[str, Any]:
        return asdict(self)


def join_estimates(parts: list[Estimate]) -> Estimate:
    """One computation after the other.

    >>> join_estimates([Estimate("a", 1, seconds=1.0), Estimate("b", 2, seconds=2.0)]).seconds
    3.0
    """
    seconds = [part.seconds for part in parts]
    return Estimate(
        "; then ".join(part.task for part in parts),
        sum(part.images for part in parts),
        sum(part.passes for part in parts),
        sum(part.explained for part in parts),
        None if None in seconds else sum((value or 0.0 for value in seconds), 0.0),
        sum(part.bytes for part in parts),
    )
