"""The nearest image that the posterior is sure about, sought in the latent space of a generative model."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dubium.attribution._vjp import cost
from dubium.checks import check_number
from dubium.errors import OptionError
from dubium.types import Images, Maps, Progress, Target

PATIENCE = 1e-3  # an image is done when a step moves its code by less, in L1
BETAS, EPS = (0.9, 0.999), 1e-8  # of Adam

Codes = Float[Tensor, "rows latent"]
Objective = Callable[[Codes, Int[Tensor, " rows"]], tuple[Float[Tensor, " rows"], Codes]]


@runtime_checkable
class Autoencoder(Protocol):
    """What the search needs: `encode(x)` gives the code's mean first, `decode(z)` gives images in the range of x."""

    def encode(self, x: Any) -> Any: ...
    def decode(self, z: Any) -> Any: ...


def counterfactuals(
    network: nn.Module,
    x: Images,
    target: Target,
    vae: Autoencoder | None,
    *,
    steps: int,
    lr: float,
    memory: int,
    progress: Progress,
    radius: float | None = None,
    starts: int = 1,
    seed: int = 0,
) -> Float[Tensor, "B T C H W"]:
    """For each image and target the image that lowers target + mean absolute change, weighted equally.

    Without a radius the search begins at the image's code and is free; with one it begins at `starts` random places in
    the ball of that radius around it, stays inside, and the best end is kept.
    """
    check_number("steps", steps, whole=True)
    check_number("lr", lr)
    vae, codes = checked(vae, x)
    measured = cost(network, x, target)
    per_image = measured.targets * starts
    images = max(1, measured._replace(targets=1).chunks(len(x) * per_image, memory)[0] // per_image)
    shifts = in_ball(codes, radius, starts, seed)
    found: list[Tensor] = []
    for first in range(0, len(x), images):
        part = x[first : first + images]
        index = torch.arange(len(part) * per_image, device=x.device)
        image, which = index // per_image, index // starts % measured.targets
        centre = codes[first : first + images][image]

        def objective(
            z: Codes,
            rows: Int[Tensor, " rows"],
            part: Images = part,
            image: Tensor = image,
            which: Tensor = which,
        ) -> tuple[Float[Tensor, " rows"], Codes]:
            def value(z: Codes) -> Float[Tensor, " rows"]:
                changed = vae.decode(z)
                own = target(network(changed.clone())).gather(1, which[rows, None])[:, 0]
                change: Tensor = (changed - part[image[rows]]).abs().flatten(1).mean(1)
                return own + change

            values, pull, *_ = torch.func.vjp(value, z)
            return values, pull(torch.ones_like(values))[0]

        offset, scale = first * steps, len(part)

        def tell(step: int, offset: int = offset, scale: int = scale) -> None:
            progress(offset + step * scale, len(x) * steps)

        values, z = descended(objective, centre + shifts[index % starts], centre, radius, steps, lr, tell)
        best = values.view(-1, starts).argmin(1) + torch.arange(0, len(values), starts, device=x.device)
        found.append(vae.decode(z[best]).view(len(part), measured.targets, *x.shape[1:]))
    return torch.cat(found)


def descended(
    objective: Objective,
    z: Codes,
    centre: Codes,
    radius: float | None,
    steps: int,
    lr: float,
    tell: Callable[[int], None],
) -> tuple[Float[Tensor, " rows"], Codes]:
    """Adam, each row for itself: the lowest value that it saw, and where. Rows that have settled cost nothing more."""
    z, best = z.clone(), z.clone()
    lowest = z.new_full((len(z),), torch.inf)
    mean, square = torch.zeros_like(z), torch.zeros_like(z)
    alive = torch.arange(len(z), device=z.device)
    for step in range(1, steps + 1):
        at = z[alive]
        values, slope = objective(at, alive)
        better = values < lowest[alive]
        lowest[alive[better]], best[alive[better]] = values[better], at[better]
        mean[alive] = BETAS[0] * mean[alive] + (1 - BETAS[0]) * slope
        square[alive] = BETAS[1] * square[alive] + (1 - BETAS[1]) * slope**2
        scaled = (square[alive] / (1 - BETAS[1] ** step)).sqrt() + EPS
        new = at - lr * mean[alive] / (1 - BETAS[0] ** step) / scaled
        if radius is not None:
            away = new - centre[alive]
            new = centre[alive] + away * (radius / away.norm(dim=1, keepdim=True).clamp(min=radius))
        z[alive] = new
        tell(step)
        alive = alive[(new - at).abs().sum(1) >= PATIENCE]
        if not len(alive):
            tell(steps)
            break
    return lowest, best


def in_ball(codes: Codes, radius: float | None, starts: int, seed: int) -> Float[Tensor, "starts latent"]:
    """Where to begin: uniform in the ball, the same for every image; without a radius, its centre."""
    if radius is None:
        return codes.new_zeros(starts, codes.shape[1])
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(starts, codes.shape[1], generator=generator, dtype=torch.float64)
    distance = radius * torch.rand(starts, 1, generator=generator, dtype=torch.float64) ** (1 / codes.shape[1])
    shifts: Tensor = distance * direction / direction.norm(dim=1, keepdim=True)
    return shifts.to(codes)


def checked(vae: Autoencoder | None, x: Images) -> tuple[Autoencoder, Codes]:
    """The model and the codes of x, if it is one that fits these images."""
    if vae is None:
        raise OptionError("This method needs a generative model: vae=. Train one with `dubium train-vae`.")
    if not isinstance(vae, Autoencoder):
        raise OptionError(f"vae is a {type(vae).__name__}; a model with encode(x) and decode(z) is needed.")
    if getattr(vae, "training", False):
        raise OptionError("vae is in training mode, so that its images are random. Call vae.eval() first.")
    try:
        codes = vae.encode(x.clone())
        codes = codes[0] if isinstance(codes, tuple) else codes
        shape = tuple(vae.decode(codes[:1]).shape[1:])
    except RuntimeError as error:
        raise OptionError(f"vae cannot encode images of shape {tuple(x.shape[1:])}: {error}") from error
    if shape != tuple(x.shape[1:]):
        raise OptionError(f"vae makes images of shape {shape}; those to explain have {tuple(x.shape[1:])}.")
    return vae, codes


def difference(x: Images, changed: Float[Tensor, "B T C H W"], extras: dict[str, Tensor] | None) -> Maps:
    """The channel mean of the absolute change; what was found is handed out beside it."""
    if extras is not None:
        extras["counterfactual"] = changed
    return (changed - x[:, None]).abs().mean(2)
