"""The nearest image that the posterior is sure about, sought in the latent space of a generative model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dubium.attribution._autograd.autograd_backward import grad_or_refuse
from dubium.attribution._budget import forward_batch_size, measure_cost
from dubium.attribution._context import Context
from dubium.attribution._paths import MOST_STEPS
from dubium.attribution._target import target_for_images
from dubium.checks import check_number, list_some
from dubium.errors import DubiumError, OptionError, OutputError
from dubium.types import Attribution, Images, Target

PATIENCE = 1e-3  # an image is done when a step moves its code by less, in L1
ANOTHER = "Train one on images like those to explain: `dubium train-vae --dataset NAME`."
BETAS, EPS = (0.9, 0.999), 1e-8  # of Adam

Codes = Float[Tensor, "rows latent"]
Objective = Callable[[Codes, Int[Tensor, " rows"]], tuple[Float[Tensor, " rows"], Codes]]


@runtime_checkable
class Autoencoder(Protocol):
    """What the search needs: `encode(x)` gives the code's mean first, `decode(z)` gives images in the range of x."""

    def encode(self, x: Any) -> Any: ...
    def decode(self, z: Any) -> Any: ...


@dataclass(frozen=True)
class Search:
    """How a counterfactual is sought.

    Args:
        steps: of Adam, at most.
        lr: its learning rate.
        radius: of the ball of codes around the image's own in which the search stays; None for no limit.
        starts: random places in the ball where it begins, of which the best end is kept; without a radius, the image's
            own code.
    """

    steps: int
    lr: float
    radius: float | None = None
    starts: int = 1

    def __post_init__(self) -> None:
        check_number("steps", self.steps, whole=True)
        check_number("lr", self.lr)
        if self.radius is not None:
            check_number("radius", self.radius)
        check_number("starts", self.starts, most=MOST_STEPS, whole=True)


def counterfactuals(
    network: nn.Module, x: Images, target: Target, vae: Autoencoder | None, search: Search, context: Context
) -> Float[Tensor, "B T C H W"]:
    """For each image and target the image that lowers target + mean absolute change, weighted equally."""
    vae, codes = encode_images(vae, x, context.memory)
    cost = measure_cost(DecodedNetwork(vae, network), codes, target)._replace(image_shape=tuple(x.shape[1:]))
    per_image = cost.target_count * search.starts
    rows_at_once, _ = cost._replace(target_count=1).chunk_sizes(len(x) * per_image, context.memory)
    shifts = start_shifts(codes, search, context.seed)
    lowest, ends = list[Tensor](), list[Tensor]()
    for index in torch.arange(len(x) * per_image, device=x.device).split(rows_at_once):
        image_ids, target_ids = index // per_image, index // search.starts % cost.target_count

        def objective(
            z: Codes, rows: Int[Tensor, " rows"], image_ids: Tensor = image_ids, target_ids: Tensor = target_ids
        ) -> tuple[Float[Tensor, " rows"], Codes]:
            def value(z: Codes) -> Float[Tensor, " rows"]:
                changed = vae.decode(z)
                scores = target_for_images(target, image_ids[rows])(network(changed.clone()))
                change: Tensor = (changed - x[image_ids[rows]]).abs().flatten(1).mean(1)
                return scores.gather(1, target_ids[rows, None])[:, 0] + change

            with torch.enable_grad():
                leaf = z.detach().requires_grad_()
                values = value(leaf.clone())  # copied, since a first layer may work in place
            if not values.requires_grad:
                raise OptionError("vae.decode cuts the gradient at its code (torch.no_grad, detach): let it have one.")
            (slopes,) = grad_or_refuse(values, [leaf], torch.ones_like(values), "the networks, or of vae")
            values = values.detach()
            check_objective(values, slopes, image_ids[rows])
            return values, slopes

        def report_step(step: int, offset: int = int(index[0]) * search.steps, scale: int = len(index)) -> None:
            context.progress((offset + step * scale) // per_image, len(x) * search.steps)

        start = codes[image_ids] + shifts[index % search.starts]
        values, z = minimise_rows(objective, start, codes[image_ids], search, report_step)
        lowest.append(values)
        ends.append(z)
    best = torch.cat(lowest).view(-1, search.starts).argmin(1)
    best += torch.arange(0, len(x) * per_image, search.starts, device=x.device)
    images = [vae.decode(z) for z in torch.cat(ends)[best].split(rows_at_once)]
    return torch.cat(images).view(len(x), cost.target_count, *x.shape[1:])


class DecodedNetwork(nn.Module):
    """A network of the images that codes are decoded to, for what a pass of it costs."""

    vae: Autoencoder
    network: nn.Module

    def __init__(self, vae: Autoencoder, network: nn.Module) -> None:
        super().__init__()
        self.__dict__.update(vae=vae, network=network)

    def forward(self, z: Codes) -> Any:
        return self.network(self.vae.decode(z))


class Encoder(nn.Module):
    """The codes of images, for what a pass costs."""

    vae: Autoencoder

    def __init__(self, vae: Autoencoder) -> None:
        super().__init__()
        self.__dict__.update(vae=vae)

    def forward(self, x: Images) -> Codes:
        encoded = self.vae.encode(x)
        codes: Tensor = encoded[0] if isinstance(encoded, tuple) else encoded
        return codes


def check_objective(values: Float[Tensor, " rows"], slopes: Codes, image: Int[Tensor, " rows"]) -> None:
    """Raise an error if a value or slope is not finite: the search would stay there, as if it were the best."""
    finite = values.isfinite() & slopes.isfinite().all(1)
    if not finite.all():
        raise OutputError(
            f"The search for a counterfactual of image {list_some(image[~finite].unique().tolist())} came to a value "
            "or slope that is NaN or infinite, as of sqrt, norm or a division at 0, in the networks or in vae. Give "
            "that operation a finite slope (an epsilon), or a smaller lr."
        )


def minimise_rows(
    objective: Objective, z: Codes, centre: Codes, search: Search, report_step: Callable[[int], None]
) -> tuple[Float[Tensor, " rows"], Codes]:
    """Adam, each row for itself: the lowest value that it saw, and where. Rows that have settled cost nothing more."""
    z, best = z.clone(), z.clone()
    lowest = z.new_full((len(z),), torch.inf)
    mean, square = torch.zeros_like(z), torch.zeros_like(z)
    alive = torch.arange(len(z), device=z.device)
    for step in range(1, search.steps + 1):
        at = z[alive]
        values, slope = objective(at, alive)
        better = values < lowest[alive]
        lowest[alive[better]], best[alive[better]] = values[better], at[better]
        mean[alive] = BETAS[0] * mean[alive] + (1 - BETAS[0]) * slope
        square[alive] = BETAS[1] * square[alive] + (1 - BETAS[1]) * slope**2
        scaled = (square[alive] / (1 - BETAS[1] ** step)).sqrt() + EPS
        new = at - search.lr * mean[alive] / (1 - BETAS[0] ** step) / scaled
        if search.radius is not None:
            away = new - centre[alive]
            new = centre[alive] + away * (search.radius / away.norm(dim=1, keepdim=True).clamp(min=search.radius))
        z[alive] = new
        report_step(step)
        alive = alive[(new - at).abs().sum(1) >= PATIENCE]
        if not len(alive):
            if step < search.steps:
                report_step(search.steps)
            break
    return lowest, best


def start_shifts(codes: Codes, search: Search, seed: int) -> Float[Tensor, "starts latent"]:
    """Where to begin: uniform in the ball, the same for every image; without a radius, its centre."""
    starts, radius = search.starts, search.radius
    if radius is None:
        return codes.new_zeros(starts, codes.shape[1])
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(starts, codes.shape[1], generator=generator, dtype=torch.float64)
    distance = radius * torch.rand(starts, 1, generator=generator, dtype=torch.float64) ** (1 / codes.shape[1])
    shifts: Tensor = distance * direction / direction.norm(dim=1, keepdim=True)
    return shifts.to(codes)


def encode_images(vae: Autoencoder | None, x: Images, memory: int) -> tuple[Autoencoder, Codes]:
    """The model and the codes of x, if it is one that fits these images."""
    if vae is None:
        raise OptionError(
            "This method needs a generative model: vae=, or clue:vae=FOLDER where a method is named on a command line "
            "(`dubium explain` has --vae FOLDER, too). Train one with `dubium train-vae`."
        )
    if not isinstance(vae, Autoencoder):
        raise OptionError(f"vae is a {type(vae).__name__}; a model with encode(x) and decode(z) is needed.")
    if getattr(vae, "training", False):
        raise OptionError("vae is in training mode, so that its images are random. Call vae.eval() first.")
    try:
        encoder = Encoder(vae)
        codes = torch.cat([encoder(part.clone()) for part in x.split(forward_batch_size(encoder, x, memory))])
        shape = tuple(vae.decode(codes[:1]).shape[1:])
    except (DubiumError, torch.OutOfMemoryError):
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        made = getattr(vae, "image_shape", x.shape[1:])  # VAEs of ours say what they are for
        why = (
            f": it is for images of shape {made}. {ANOTHER}"
            if made != tuple(x.shape[1:])
            else (f", or decode their codes: {type(error).__name__}: {error}")
        )
        raise OptionError(f"vae cannot encode images of shape {tuple(x.shape[1:])}{why}") from error
    if codes.ndim != 2 or len(codes) != len(x):
        raise OptionError(
            f"vae makes codes {tuple(codes.shape)} of {len(x)} images; (B, latent) are needed: flatten them."
        )
    if shape != tuple(x.shape[1:]):
        raise OptionError(f"vae makes images of shape {shape}; those to explain have {tuple(x.shape[1:])}. {ANOTHER}")
    return vae, codes


def attribute_change(x: Images, changed: Float[Tensor, "B T C H W"]) -> Attribution:
    """The channel mean of the absolute change, and what was found."""
    return Attribution((changed - x[:, None]).abs().mean(2), {"counterfactual": changed})
