"""Seeds that do not depend on how much randomness was used before."""

import hashlib


def seed_for(seed: int, purpose: str, number: int) -> int:
    """A seed of its own for each purpose and number: weights, order of the images, noise of an epoch, a member."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{purpose}/{number}".encode()).digest()[:8], "big") >> 1
