"""A trained VAE as a folder: `vae.json` (architecture, image shape, training record) and `vae.safetensors`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dubium.errors import FileFormatError
from dubium.files import write_json
from dubium.models.architectures import misfits, stored_outline
from dubium.models.vae import VAE, vae_conv, vae_dense
from dubium.reading import read_json
from dubium.tensor_files import read_tensor_file, write_tensors

FORMAT, KEY = 1, "vae"
VAES: dict[str, Callable[..., VAE]] = {"vae-dense": vae_dense, "vae-conv": vae_conv}


def save_vae(
    vae: VAE,
    path: Path | str,
    *,
    architecture: str,
    options: Mapping[str, Any],
    training: Mapping[str, Any] | None = None,
) -> None:
    """Save a VAE as a folder that `load_vae` reads; the JSON is written last.

    Args:
        path: the folder; it is made if it does not exist.
        architecture: "vae-dense" or "vae-conv".
        options: those that the VAE was built with.
        training: a record of the training, as JSON.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save_vae(vae_dense(size=8), folder, architecture="vae-dense", options={"size": 8})
    ...     load_vae(folder).latent
    2
    """
    path = Path(path)
    write_tensors(path / "vae.safetensors", vae.state_dict(), key=KEY, header={"format": FORMAT})
    described = {"name": architecture, "options": dict(options)}
    write_json(path / "vae.json", {"format": FORMAT, "architecture": described, "training": dict(training or {})})


def load_vae(path: Path | str) -> VAE:
    """The VAE that `save_vae` wrote to the folder `path`, in eval mode."""
    path = Path(path)
    if not (path / "vae.json").is_file():
        raise FileFormatError(f"{path} is not a VAE's folder: it has no vae.json. Make one with `dubium train-vae`.")
    described = read_vae_record(path)["architecture"]
    outline = stored_outline(VAES[described["name"]], described["options"], path / "vae.json")
    tensors, _ = read_tensor_file(path / "vae.safetensors", key=KEY)
    problems = misfits(outline, tensors) + [f"{name} is not of floats or counts" for name in other_types(tensors)]
    if problems:
        raise FileFormatError(f"{path / 'vae.safetensors'} does not fit vae.json: {'; '.join(problems[:4])}.")
    with torch.random.fork_rng():
        vae = VAES[described["name"]](**described["options"])
    vae.load_state_dict(tensors)
    return vae.eval()


def read_vae_record(path: Path) -> dict[str, Any]:
    """What `vae.json` says: architecture and training."""
    content = read_json(path / "vae.json")
    is_record = isinstance(content, dict) and content.get("format") == FORMAT
    described = content.get("architecture") if is_record else None
    described = described if isinstance(described, dict) else {}
    name = described.get("name")
    if not isinstance(name, str) or name not in VAES or not isinstance(content.get("training"), dict):
        raise FileFormatError(
            f"{path / 'vae.json'} is damaged or not of a VAE; expected format {FORMAT}, an architecture of "
            f"{', '.join(VAES)}, and a record of the training. Make it again."
        )
    return {**content, "architecture": {"options": {}, **described}}


def other_types(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of tensors that are neither float32 nor, as BatchNorm's counters, int64."""
    return [name for name, tensor in tensors.items() if tensor.dtype not in (torch.float32, torch.int64)]
