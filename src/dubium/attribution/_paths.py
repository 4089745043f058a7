"""Gradients at many points per image, and the integrals along paths that are made of them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dubium.attribution._blur import blurred_copies
from dubium.attribution._budget import measure_cost
from dubium.attribution._context import Context
from dubium.attribution._gradients import gradients_at
from dubium.attribution._passes import forward_with_graph
from dubium.attribution._target import target_for_images
from dubium.errors import OptionError, lookup
from dubium.types import Images, Maps, Target

Points = Callable[[slice, Int[Tensor, " n"]], tuple[Float[Tensor, "n b C H W"], Tensor | None]]
"""(slice of the images, steps) -> the points, one per step and image, and the direction of the path there, or None."""

Summand = Callable[[Float[Tensor, "n b T C H W"], Any, Int[Tensor, " n"]], Tensor]
"""(gradients at the points, directions, steps) -> what is summed over the steps, (b, T, ...)."""

MOST_STEPS = 10**6
"""The most steps, samples or starts: the numbers of more would fill the memory by themselves."""

Start = str | Tensor | Sequence[Tensor]
STARTS: dict[str, Callable[[Images], list[Images]]] = {
    "white": lambda x: [torch.ones_like(x[:1])],
    "black": lambda x: [torch.zeros_like(x[:1])],
    "blur": lambda x: list(blurred_copies(x)),
}
"""Where paths may begin, by name."""


def sum_along_path(
    network: nn.Module,
    x: Images,
    target: Target,
    points: Points,
    steps: int,
    summand: Summand,
    context: Context,
    finish: Callable[[Tensor], Tensor] = lambda total: total,
) -> Float[Tensor, "B T *rest"]:
    """The sum over steps of what `summand` makes of the gradients of every target at that step's points.

    Some images and some steps are taken at a time, as many as memory and cache allow; of the sums, what `finish` makes
    of them is kept.
    """
    at_once, _ = measure_cost(network, x, target).chunk_sizes(len(x) * steps, context.memory)
    image_count = max(1, min(len(x), at_once // steps))
    step_count = max(1, min(steps, at_once // image_count))
    sums: list[Tensor] = []
    for first in range(0, len(x), image_count):
        image_slice = slice(first, min(len(x), first + image_count))
        image_numbers = torch.arange(image_slice.start, image_slice.stop, device=x.device)
        total: Tensor | None = None
        for step_numbers in torch.arange(steps, device=x.device).split(step_count):
            point_images, direction = points(image_slice, step_numbers)
            point_target = target_for_images(target, image_numbers.repeat(len(step_numbers)))
            leaf, scores = forward_with_graph(network, point_images.flatten(0, 1), point_target)
            gradients = torch.cat([chunk for (chunk,) in gradients_at(scores, [leaf], context.memory)])
            part = summand(gradients.view(-1, *point_images.shape).movedim(0, 2), direction, step_numbers)
            total = part if total is None else total.add_(part)
            context.progress(first * steps + len(image_numbers) * (int(step_numbers[-1]) + 1), len(x) * steps)
        assert total is not None
        sums.append(finish(total))
    return torch.cat(sums)


def integrate_lines(
    network: nn.Module,
    x: Images,
    target: Target,
    starts: Callable[[slice], Float[Tensor, "lines b C H W"]],
    steps: int,
    context: Context,
) -> Maps:
    """Integrated gradients along the lines from each image's starts to it, by the midpoint rule; mean over lines."""
    point_count = steps * len(starts(slice(1)))

    def points(
        image_slice: slice, step_numbers: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "n b C H W"], Float[Tensor, "n b C H W"]]:
        start = starts(image_slice)[step_numbers // steps]
        change = x[image_slice] - start
        return start + (((step_numbers % steps).to(x) + 0.5) / steps).view(-1, 1, 1, 1, 1) * change, change

    def credit(gradients: Float[Tensor, "n b T C H W"], change: Float[Tensor, "n b C H W"], _: object) -> Tensor:
        return gradients.mul_(change[:, :, None]).sum(0)

    def mean_over_points(credits: Float[Tensor, "b T C H W"]) -> Maps:
        return sum_channels(credits / point_count, context.signed)

    return sum_along_path(network, x, target, points, point_count, credit, context, mean_over_points)


def start_images(start: Start, x: Images) -> list[Float[Tensor, "_ C H W"]]:
    """The images where paths may begin: each is one image for all, or one for each image of x."""
    if isinstance(start, str):
        return lookup("start", STARTS, start)(x)
    many: list[Any] = list(start) if isinstance(start, Sequence) else [start]
    if not many:
        raise OptionError("start is an empty list; give at least one image (C, H, W), 'white', 'black' or 'blur'.")
    for image in many:
        if not isinstance(image, Tensor) or image.shape[-3:] != x.shape[1:] or image.numel() != x[0].numel():
            given = tuple(image.shape) if isinstance(image, Tensor) else type(image).__name__
            raise OptionError(f"start is {given}; an image of shape {tuple(x.shape[1:])} is needed, or a list of them.")
        if image.layout != torch.strided or image.is_meta:
            raise OptionError("start is a tensor that is sparse or without values; give a dense one: start.to_dense().")
        if not image.isfinite().all():
            raise OptionError("start has NaN or infinity; give an image of finite pixels.")
    return [image.to(x).view(1, *x.shape[1:]) for image in many]


def sum_channels(attributions: Float[Tensor, "B T C H W"], signed: bool) -> Maps:
    """On uncertainty, the sum over channels, which adds up to a difference; as a relevance, the mean absolute value."""
    return attributions.sum(2) if signed else attributions.abs().mean(2)
