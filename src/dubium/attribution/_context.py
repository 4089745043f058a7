"""What the caller of a method supplies, as against its options, which are the user's."""

from dataclasses import dataclass

from dubium.types import Progress

DEFAULT_MEMORY = 2**30


@dataclass(frozen=True)
class Context:
    """How a method is to run. A method that wants it has a keyword argument `context`.

    Args:
        memory: bytes that may be used beside networks, images and results.
        seed: of random numbers.
        progress: called with (steps done, steps in all).
        signed: True for attributions of an uncertainty, which keep their sign; False for magnitudes, as the relevance
            of a logit. Methods whose maps are absolute values ignore it.
    """

    memory: int = DEFAULT_MEMORY
    seed: int = 0
    progress: Progress = lambda _done, _all: None
    signed: bool = True


DEFAULT_CONTEXT = Context()
