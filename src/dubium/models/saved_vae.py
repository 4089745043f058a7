"""A trained VAE as a folder: `vae.json` (architecture, image shape, training record) and `vae.safetensors`."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from dubium.errors import FileFormatError
from dubium.files import write_json, written_atomically
from dubium.models.vae import VAE, vae_conv, vae_dense

FORMAT = 1
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
    with written_atomically(path / "vae.safetensors") as beside:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in vae.state_dict().items()}, beside)
    described = {"name": architecture, "options": dict(options)}
    write_json(path / "vae.json", {"format": FORMAT, "architecture": described, "training": dict(training or {})})


def load_vae(path: Path | str) -> VAE:
    """The VAE that `save_vae` wrote to the folder `path`, in eval mode."""
    path = Path(path)
    if not (path / "vae.json").is_file():
        raise FileFormatError(f"{path} is not a VAE's folder: it has no vae.json. Make one with `dubium train-vae`.")
    try:
        content = json.loads((path / "vae.json").read_text())
        described = content["architecture"]
        if content["format"] != FORMAT or described["name"] not in VAES:
            raise ValueError(f"format {content['format']!r}, architecture {described['name']!r}")
        with torch.random.fork_rng():
            vae = VAES[described["name"]](**described["options"])
        vae.load_state_dict(load_file(path / "vae.safetensors"))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise FileFormatError(f"{path} is damaged or not a VAE's folder ({error}). Make it again.") from error
    return vae.eval()
