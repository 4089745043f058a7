"""The state of a training run in one safetensors file: tensors, and a JSON header."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dubium.errors import FileFormatError
from dubium.tensor_files import read_tensor_file, write_tensors

KEY = "progress"


@dataclass
class TrainingState:
    """The number of epochs done, the record of each, and the tensors that the caller keeps."""

    epochs: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    kept: dict[str, Tensor] = field(default_factory=dict)


def save_state(path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState) -> None:
    """Write everything that the next epoch depends on; random numbers are not, since each epoch has its own seed."""
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    for index, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": value for name, value in values.items() if isinstance(value, Tensor)}
    tensors |= {f"kept.{name}": tensor for name, tensor in state.kept.items()}
    write_checkpoint(path, tensors, {"epochs": state.epochs, "history": state.history})


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and a header, whole or not at all."""
    stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_tensors(path, stored, key=KEY, header=header)


def restore_state(path: Path, network: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> TrainingState:
    """Load what `save_state` wrote into the network, and into the optimiser if there is one."""
    tensors, header = read_checkpoint(path)
    groups: dict[str, dict[str, Tensor]] = {"network": {}, "optimizer": {}, "kept": {}}
    try:
        for name, tensor in tensors.items():
            group, _, rest = name.partition(".")
            groups[group][rest] = tensor
        states: dict[int, dict[str, Tensor]] = {}
        for name, tensor in groups["optimizer"].items():
            index, _, key = name.partition(".")
            states.setdefault(int(index), {})[key] = tensor
        network.load_state_dict(groups["network"])
        if optimizer is not None:
            optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
    except (RuntimeError, KeyError, ValueError, TypeError, NotImplementedError) as error:
        raise FileFormatError(f"{path} does not fit the network that is being trained: {error}") from error
    return TrainingState(header["epochs"], header["history"], groups["kept"])


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    """Tensors and header of a checkpoint."""
    try:
        tensors, header = read_tensor_file(path, key=KEY)
    except FileFormatError as error:
        raise FileFormatError(f"{error} It is a checkpoint: delete it to start again.") from error
    if header is None or not is_progress(header):
        raise FileFormatError(f"{path} is damaged or not a checkpoint (no progress in it). Delete it to start again.")
    return tensors, {"history": [], **header}


def is_progress(header: Mapping[str, Any]) -> bool:
    """Whether a header is one of training: a number of epochs, and a record of each where they are kept."""
    epochs, history = header.get("epochs"), header.get("history", [])
    is_history = isinstance(history, list) and all(isinstance(record, dict) for record in history)
    return type(epochs) is int and 0 <= epochs <= 10**9 and is_history
