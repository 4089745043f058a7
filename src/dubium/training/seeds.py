"""Randomness that does not depend on how much of it was used before, and that is nobody else's."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def seed_for(seed: int, purpose: str, number: int) -> int:
    """A seed of its own for each purpose and number: weights, order of the images, noise of an epoch, a member."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}/{number}".encode()).digest()[:8], "big") >> 1


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block from a seed; afterwards the global random state is what it was."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
