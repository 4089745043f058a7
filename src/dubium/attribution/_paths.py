"""Slopes at many points per image, and the integrals along paths that are made of them."""

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dubium.attribution._blur import blurred_copies
from dubium.attribution._vjp import cost, scored, slopes
from dubium.errors import OptionError, lookup
from dubium.types import Images, Maps, Progress, Target

Path = Callable[[slice, Int[Tensor, " n"]], Float[Tensor, "n b C H W"]]
"""Which images and which steps -> one point per step and image."""

Start = str | Tensor | Sequence[Tensor]
STARTS: dict[str, Callable[[Images], list[Images]]] = {
    "white": lambda x: [torch.ones_like(x[:1])],
    "black": lambda x: [torch.zeros_like(x[:1])],
    "blur": lambda x: list(blurred_copies(x)),
}
"""Where paths may begin, by name."""


def slopes_along(
    network: nn.Module, x: Images, target: Target, path: Path, steps: int, *, memory: int, progress: Progress
) -> Iterator[tuple[slice, Int[Tensor, " n"], Float[Tensor, "n b T C H W"]]]:
    """Slopes of every target at every step: some images and some steps at a time, as many as memory and cache allow."""
    points, _ = cost(network, x, target).chunks(len(x) * steps, memory)
    images = max(1, min(len(x), points // steps))
    count = max(1, min(steps, points // images))
    numbers = torch.arange(steps, device=x.device)
    for first in range(0, len(x), images):
        which = slice(first, min(len(x), first + images))
        for some in numbers.split(count):
            there = path(which, some)
            at, scores = scored(network, there.flatten(0, 1), target)
            found = torch.cat([pulled for (pulled,) in slopes(scores, [at], memory)])
            yield which, some, found.view(-1, *there.shape).movedim(0, 2)
            progress(first * steps + (which.stop - first) * (int(some[-1]) + 1), len(x) * steps)


def straight_line(
    network: nn.Module,
    x: Images,
    target: Target,
    start: Float[Tensor, "#B C H W"],
    steps: int,
    *,
    memory: int,
    progress: Progress,
) -> Float[Tensor, "B T C H W"]:
    """Integrated gradients from `start` (one image, or one per image of x) to x, by the midpoint rule."""
    start = start.expand_as(x)

    def path(images: slice, some: Int[Tensor, " n"]) -> Float[Tensor, "n b C H W"]:
        return start[images] + ((some + 0.5) / steps).to(x).view(-1, 1, 1, 1, 1) * (x - start)[images]

    total: list[Tensor] = []
    for _, some, found in slopes_along(network, x, target, path, steps, memory=memory, progress=progress):
        if some[0] == 0:
            total.append(torch.zeros_like(found[0]))
        total[-1] += found.sum(0)
    return torch.cat(total) * ((x - start) / steps)[:, None]


def starts(start: Start, x: Images) -> list[Float[Tensor, "#B C H W"]]:
    """The images where paths begin: each is one for all images of x, or one per image."""
    if isinstance(start, str):
        return lookup("start", STARTS, start)(x)
    many = [start] if isinstance(start, Tensor) else list(start)
    if not many:
        raise OptionError("start is an empty list; give at least one image (C, H, W), 'white', 'black' or 'blur'.")
    for image in many:
        if not isinstance(image, Tensor) or image.shape[-3:] != x.shape[1:] or image.numel() != x[0].numel():
            given = tuple(image.shape) if isinstance(image, Tensor) else type(image).__name__
            raise OptionError(f"start is {given}; an image of shape {tuple(x.shape[1:])} is needed, or a list of them.")
        if not image.isfinite().all():
            raise OptionError("start has NaN or infinity; give an image of finite pixels.")
    return [image.to(x).view(1, *x.shape[1:]) for image in many]


def reduced(attributions: Float[Tensor, "B T C H W"], signed: bool) -> Maps:
    """On uncertainty, the sum over channels, which adds up to a difference; as a relevance, the mean absolute value."""
    return attributions.sum(2) if signed else attributions.abs().mean(2)
