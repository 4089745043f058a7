"""Find dropout by functions instead of layers: `F.dropout`, attention with `dropout_p`."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from dubium.errors import NetworkStateError
from dubium.posteriors.weights import with_weights


def refuse_functional_dropout(network: nn.Module, x: Tensor) -> None:
    """Raise an error if the network calls a dropout function, in training mode or in eval mode.

    Args:
        network: its dropout layers are already replaced by fixed masks, so that any dropout left is a function.
        x: only the shape, type and device of its images matter.
    """
    image = torch.zeros((1, *x.shape[1:]), dtype=x.dtype, device=x.device)
    training = with_weights(network, {}).train()
    for layer in training.modules():
        layer.train(not isinstance(layer, _BatchNorm))  # BatchNorm cannot train on one image
    with torch.no_grad(), DropoutWatch() as watch:
        with suppress(RuntimeError, TypeError, ValueError, AttributeError):  # a network may not train on one image
            training(image)
        network(image)
    if watch.found:
        raise NetworkStateError(
            f"The {type(network).__name__} calls the function {watch.found[0]}, whose masks cannot be fixed, so "
            "that no two passes would agree. Make it a layer: self.dropout = nn.Dropout(p) in __init__, "
            "self.dropout(x) in forward; the weights stay the same."
        )


class DropoutWatch(TorchFunctionMode):
    """Records calls of dropout functions, which return their input; no random number is drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if "dropout" in name:
            if dropout_probability(args, kwargs, 1, "p", 0.5) > 0:
                self.found.append(name)
            return args[0] if args else kwargs["input"]
        if name == "scaled_dot_product_attention" and dropout_probability(args, kwargs, 4, "dropout_p", 0.0) > 0:
            self.found.append(f"{name} with dropout_p > 0")
            args, kwargs = args[:3], {}  # what it computes no longer matters
        return func(*args, **kwargs)


def dropout_probability(args: Sequence[Any], kwargs: dict[str, Any], position: int, name: str, default: float) -> float:
    """The dropout probability among the arguments of a call."""
    return float(args[position] if len(args) > position else kwargs.get(name, default))
