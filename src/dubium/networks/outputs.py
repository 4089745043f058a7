"""What of a network's output are the logits: found by itself, or as `output=` says."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dubium.errors import OptionError, OutputError, near_name_hint
from dubium.types import Posterior

PROBABILITIES = "probabilities"
SIGMOID = "sigmoid"
FEATURES = ("pooler_output", "last_hidden_state")
"""What Hugging Face's models without a head put out."""
OutputChoice = str | int | Callable[[Any], Any] | None
"""None: `logits` if there is one, else the only floating tensor (B, K >= 2). A string: a key or an attribute, or one of
`CONVERSIONS`. An int: an index. A function: called with the whole output."""


def check_output_choice(choice: object) -> None:
    """Raise an error unless this is something that `output=` takes."""
    if choice is None or (isinstance(choice, str | int) and not isinstance(choice, bool)) or callable(choice):
        return
    raise OptionError(
        f"output={choice!r} is a {type(choice).__name__}; a key or attribute of the networks' output, an index, a "
        f"function of it, or one of {', '.join(map(repr, CONVERSIONS))} is needed."
    )


def take_logits(output: Any, choice: OutputChoice, image_count: int) -> Any:
    """The part of a network's output for some images that is its logits; the caller checks its shape."""
    if choice is None:
        return find_logits(output, image_count)
    if not isinstance(choice, str | int):
        return choice(output)
    parts = output_parts(output)
    if isinstance(choice, int):
        values = list(parts.values())
        if choice not in parts and not -len(values) <= choice < len(values):
            raise OutputError(f"There is no part {choice} in {describe_output(output)}.")
        return parts[choice] if choice in parts else values[choice]
    if choice in parts or (not isinstance(output, Tensor) and hasattr(output, choice)):
        part = parts[choice] if choice in parts else getattr(output, choice)
        return log_probabilities(part) if choice == PROBABILITIES and are_probabilities(part) else part
    if choice in CONVERSIONS:
        return CONVERSIONS[choice](find_logits(output, image_count, least=1))
    if isinstance(output, Tensor) and choice == "logits":
        return output
    hint = near_name_hint(choice, [*map(str, parts), *CONVERSIONS])
    raise OutputError(
        f"There is no {choice!r} in {describe_output(output)}.{hint} Give output= (--network-output on the command "
        f"line) one of these, an index, a function, or one of {', '.join(map(repr, CONVERSIONS))}."
    )


def take_network_logits(output: Any, choice: OutputChoice, image_count: int, index: int) -> Any:
    """As `take_logits`; errors say which network's output it is."""
    try:
        return take_logits(output, choice, image_count)
    except OutputError as error:
        raise OutputError(f"Of the output of network {index}: {error}") from error


def find_logits(output: Any, image_count: int, *, least: int = 2) -> Any:
    """A tensor itself; of anything else its `logits`, or the only floating tensor (B, K) with K >= `least`."""
    if isinstance(output, Tensor):
        return output
    parts = output_parts(output)
    logits = parts.get("logits", getattr(output, "logits", None))
    if isinstance(logits, Tensor):
        return logits
    if features := [name for name in FEATURES if name in parts or hasattr(output, name)]:
        raise OutputError(
            f"There are no logits in {describe_output(output)}: the model has no head. Load it with one (of Hugging "
            f"Face, ...ForImageClassification), or say output={features[0]!r} (--network-output on the command line) "
            "to take these features as logits."
        )
    candidates = [part for part in parts.values() if is_matrix(part, image_count, least)]
    if len(candidates) == 1:
        return candidates[0]
    raise OutputError(
        f"It is not clear which part is the logits (B, K) of {describe_output(output)}. Say so: output= a key or "
        "attribute, an index (--network-output on the command line), or a function of the whole output."
    )


def output_parts(output: Any) -> dict[str | int, Any]:
    """The parts of a dict, tuple, list, dataclass or other object by name or number; of a tensor none."""
    if isinstance(output, Tensor):
        return {}
    if isinstance(output, Mapping):
        return dict(output)
    if hasattr(output, "_asdict"):
        return dict(output._asdict())
    if isinstance(output, tuple | list):
        return dict(enumerate(output))
    return dict(getattr(output, "__dict__", {}))


def is_matrix(part: object, image_count: int, least: int) -> bool:
    """Whether a part of an output is a floating tensor (B, K) of so many images, with K >= `least`."""
    return (
        isinstance(part, Tensor)
        and part.is_floating_point()
        and part.ndim == 2
        and part.shape[0] == image_count
        and part.shape[1] >= least
    )


def describe_output(output: Any) -> str:
    """Type, keys and shapes of an output."""
    if isinstance(output, Tensor):
        return f"a tensor of shape {tuple(output.shape)}"
    parts = [
        f"{name!r} {tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__}"
        for name, part in output_parts(output).items()
        if part is not None
    ]
    return f"a {type(output).__name__} of {', '.join(parts) or 'nothing'}"


def log_probabilities(probs: Any) -> Tensor:
    """Logarithms of probabilities (B, K), which are logits; one column is the probability of the second class."""
    if not isinstance(probs, Tensor) or probs.ndim not in (1, 2):
        raise OutputError(f"output='probabilities' needs probabilities (B, K), not {describe_output(probs)}.")
    if probs.ndim == 1 or probs.shape[1] == 1:
        probs = torch.stack([1 - probs.flatten(), probs.flatten()], 1)
    if not are_probabilities(probs):
        off = (probs.detach().sum(-1) - 1).abs()
        raise OutputError(
            "output='probabilities' was given, but the networks' outputs are not: some are negative, or a row does "
            f"not sum to 1 (it is off by {float(off.max()):.3g}). Leave output= out if they are logits."
        )
    return torch.log(probs.clamp(min=torch.finfo(probs.dtype).tiny))


def are_probabilities(rows: Any) -> bool:
    """Whether this is a matrix of rows that are not negative and sum to 1, up to rounding."""
    if not isinstance(rows, Tensor) or rows.ndim != 2:
        return False
    return bool((rows >= 0).all()) and bool(((rows.detach().sum(-1) - 1).abs() <= 0.01).all())


def sigmoid_pair(logit: Any) -> Tensor:
    """One logit z of a sigmoid, (B, 1) or (B,), as the logits (0, z) of two classes."""
    if not isinstance(logit, Tensor) or logit.ndim not in (1, 2) or logit.shape[1:] not in ((), (1,)):
        raise OutputError(f"output='sigmoid' needs one logit an image, (B, 1) or (B,), not {describe_output(logit)}.")
    return torch.stack([torch.zeros_like(logit).flatten(), logit.flatten()], 1)


CONVERSIONS: dict[str, Callable[[Any], Tensor]] = {PROBABILITIES: log_probabilities, SIGMOID: sigmoid_pair}
"""Words that `output=` takes for outputs that are not logits."""


class ChosenOutput(nn.Module):
    """A network whose output is the part of another's that `output=` chooses, for callers that use it directly."""

    def __init__(self, network: nn.Module, choice: OutputChoice) -> None:
        super().__init__()
        self.network, self.choice = network, choice
        self.train(network.training)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = take_logits(self.network(x), self.choice, len(x))
        return logits


@dataclass(frozen=True)
class WithChosenOutput:
    """A posterior's networks with the chosen part of their output."""

    posterior: Posterior
    choice: OutputChoice

    def __post_init__(self) -> None:
        check_output_choice(self.choice)

    def __len__(self) -> int:
        return len(self.posterior)

    def __iter__(self) -> Iterator[nn.Module]:
        return (ChosenOutput(network, self.choice) for network in self.posterior)
