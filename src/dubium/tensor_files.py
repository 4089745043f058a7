"""Safetensors files: tensors by name and one JSON header, sealed on writing and checked on reading."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as read_safetensors
from safetensors.torch import save_file
from torch import Tensor

from dubium.errors import FileFormatError
from dubium.files import written_atomically
from dubium.reading import parse_json, read_regular_file
from dubium.seals import BLANK_SEAL, MARK, RUN_AGAIN, SEAL, damage_of, is_sealed, seal_file

TENSOR_BYTES = 2**36
HEADER_BYTES = 2**24  # names and shapes; safetensors itself would take 100 MB of them


def write_tensors(path: Path | str, tensors: Mapping[str, Tensor], *, key: str, header: Mapping[str, Any]) -> None:
    """Write tensors and a header, whole or not at all.

    Args:
        key: the name of the header in the file's metadata; one name only, since safetensors gives several no order.
    """
    contiguous: dict[str, Tensor] = {}
    starts: set[int] = set()
    for name, tensor in tensors.items():
        on_cpu = tensor.detach().cpu().contiguous()
        contiguous[name] = (
            on_cpu.clone() if on_cpu.data_ptr() in starts else on_cpu
        )  # safetensors refuses shared memory
        starts.add(contiguous[name].data_ptr())
    with written_atomically(path) as beside:
        save_file(contiguous, beside, metadata={key: json.dumps({**header, SEAL: BLANK_SEAL})})
        seal_file(beside)


def read_tensor_file(
    path: Path | str, *, key: str, advice: str = RUN_AGAIN
) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Tensors and header of a file that `write_tensors` wrote; the header is None where the file has no metadata.

    A file whose header has no seal is one of an older dubium, and is not checked. `advice` is for one that is damaged.
    """
    content = read_regular_file(path, most=TENSOR_BYTES)
    metadata = safetensors_metadata(content, path)
    header = parse_json(metadata[key], path) if key in metadata else None
    if (metadata and header is None) or not isinstance(header, dict | None):
        raise FileFormatError(f"{path} is damaged: its metadata has no {key!r}. Make it again.")
    if (MARK in content or SEAL in (header or {})) and not is_sealed(content):
        raise damage_of(path, advice)
    if header is not None:
        header.pop(SEAL, None)
    return parse_safetensors(content, path), header


def safetensors_metadata(content: bytes, path: Path | str) -> dict[str, str]:
    """The texts that a safetensors file has besides its tensors."""
    size = int.from_bytes(content[:8], "little")
    if not 2 <= size <= min(len(content) - 8, HEADER_BYTES):
        raise FileFormatError(f"{path} is damaged, or not a safetensors file: its header is announced as {size} bytes.")
    header = parse_json(content[8 : 8 + size], path)
    metadata = header.get("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise FileFormatError(f"{path} is damaged, or not a safetensors file: its metadata is not texts by name.")
    return metadata


def parse_safetensors(content: bytes, path: Path | str) -> dict[str, Tensor]:
    """The tensors in the bytes of a safetensors file."""
    try:
        safetensors_metadata(content, path)
        return dict(read_safetensors(content))
    except FileFormatError:
        raise
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError, OverflowError, AssertionError) as error:
        raise FileFormatError(f"{path} is damaged, or not a safetensors file: {error}. Get it again.") from error
