"""The nouns. Axes: S samples, B batch, K classes, T targets, C channels, H height, W width."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from dubium.kinds import KINDS as KINDS
from dubium.kinds import Kind as Kind

Images = Float[Tensor, "B C H W"]
Logits = Float[Tensor, "S B K"]
Scores = Float[Tensor, "B T"]
Maps = Float[Tensor, "B T H W"]
Shares = Float[Tensor, "kinds=3 B K"]

Target = Callable[[Tensor], Scores]
"""Turns a network's output into T numbers per image."""

Attributor = Callable[..., Any]
"""`(network, x, target, **options) -> maps`, or an `Attribution`: which pixels of x move each target. Options are
keyword-only; one that is called `context` receives the caller's `dubium.attribution.Context`."""


class Attribution(NamedTuple):
    """Maps, and what else a method has found, (B, T, ...) each."""

    maps: Maps
    extras: dict[str, Tensor]


Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""


@runtime_checkable
class Posterior(Protocol):
    """Networks drawn from p(weights | data): sized, and the same ones, in eval mode, on every pass."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[nn.Module]: ...
