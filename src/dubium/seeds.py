"""Seeds derived from a seed. Each draw has a seed of its own, so that it does not depend on what was drawn before."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

import torch


def numbered_seed(seed: int, number: int) -> int:
    """The seed of draw `number`, such as an epoch of a sampler.

    >>> numbered_seed(2, 5)
    2000011
    """
    return seed * 1_000_003 + number


def seed_for(seed: int, purpose: str, number: int) -> int:
    """The seed of one purpose ("weights", "order", "noise", "member", ...) and number, from 0 to 2**63 - 1.

    >>> seed_for(0, "member", 1)
    6762831394314249745
    """
    return int.from_bytes(sha256(f"{seed}/{purpose}/{number}".encode()).digest()[:8], "big") >> 1


@contextmanager
def temporary_seed(seed: int) -> Iterator[None]:
    """Seed torch's global random numbers inside the block; afterwards their state is what it was before."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
