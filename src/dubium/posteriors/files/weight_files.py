"""Weight files as deep ensembles, which are lists of networks (Lakshminarayanan et al., 2017, arXiv:1612.01474)."""

import io
import os
import re
from argparse import Namespace
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.serialization import get_safe_globals, safe_globals

from dubium.checks import list_some, warn_user
from dubium.errors import FileFormatError, OptionError, PosteriorError
from dubium.models import Normalized
from dubium.models.architectures import misfits
from dubium.models.normalized import refuse_second_normalisation
from dubium.posteriors.files.architecture import Architecture, build_network
from dubium.posteriors.files.no_weights import PICKLED, refuse_no_weights, weights_within
from dubium.posteriors.files.record import FILE
from dubium.reading import open_archive, read_regular_file
from dubium.tensor_files import TENSOR_BYTES, parse_safetensors

Numbers = float | Sequence[float]
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INNER = ("state_dict", "model_state_dict", "model", "net")  # where checkpoints of training scripts keep the weights
AVERAGED = ("state_dict_ema", "model_ema")  # where timm's and torchvision's keep the averages of them


def load_weights(
    architecture: Architecture | Sequence[Architecture],
    files: str | Path | Sequence[str | Path],
    mean: Numbers | None = None,
    std: Numbers | None = None,
) -> list[nn.Module]:
    """Load a deep ensemble from its weight files.

    Args:
        architecture: one for all files, or one for each. See `Architecture`.
        files: safetensors, or `.pt` files that hold tensors only; nothing is unpickled. A prefix that all names have
            (`module.`, `_orig_mod.`, Lightning's `network.`) is taken off where the rest is the network's names.
        mean: with `std`, of the channels of the training images: each network is then wrapped in `Normalized`, and
            takes images in [0, 1].

    Returns:
        The networks, in eval mode, without gradients and in one floating type: that of the files, or, where these
        differ, the type that holds all of them.

    >>> from tempfile import TemporaryDirectory
    >>> from safetensors.torch import save_file
    >>> with TemporaryDirectory() as folder:
    ...     save_file(nn.Linear(4, 2).state_dict(), f"{folder}/a.safetensors")
    ...     load_weights(nn.Linear(4, 2), f"{folder}/a.safetensors")
    [Linear(in_features=4, out_features=2, bias=True)]
    """
    given = [files] if isinstance(files, str | Path) or not isinstance(files, Iterable) else [*files]
    if strange := [file for file in given if not isinstance(file, str | Path)]:
        raise OptionError(
            f"One of the weight files is a {type(strange[0]).__name__}; names of files are needed: "
            "load_weights(Net, ['a.pt', 'b.pt'])."
        )
    paths = [Path(file) for file in given]
    if not paths:
        raise PosteriorError("No weight files were given; give at least one.")
    if (mean is None) != (std is None):
        raise OptionError(f"mean is {mean} and std is {std}; give both, or neither.")
    if isinstance(architecture, Sequence) and not isinstance(architecture, str):
        architectures = list(architecture)
        if len(architectures) != len(paths):
            raise PosteriorError(
                f"{len(architectures)} architectures for {len(paths)} weight files; give one for all, or one for each."
            )
    else:
        architectures = [architecture] * len(paths)
    networks = in_one_type(
        [network_with(a, read_tensors(path), path) for a, path in zip(architectures, paths, strict=True)], paths
    )
    if mean is None or std is None:
        return networks
    refuse_second_normalisation(networks[0])
    found = [Normalized(network, mean, std).eval() for network in networks]
    if float(found[0].mean.max()) > 1:
        warn_user(
            f"mean is {mean}, of pixels from 0 to 255: the networks then take images from 0 to 255. For images from 0 "
            "to 1, divide mean and std by 255."
        )
    return [*found]


def in_one_type(networks: Sequence[nn.Module], files: Sequence[Path]) -> list[nn.Module]:
    """The networks in the floating type that holds the numbers of all of them; a warning says so where files differ."""
    found: dict[torch.dtype, Path] = {}
    for network, file in zip(networks, files, strict=True):
        dtype = next((p.dtype for p in network.parameters() if p.is_floating_point()), None)
        if dtype is not None:
            found.setdefault(dtype, file)
    if len(found) < 2:
        return [*networks]
    common = reduce(torch.promote_types, found)
    types = ", ".join(f"{file} {dtype}" for dtype, file in found.items())
    warn_user(f"The weight files differ in their type ({types}): all networks are loaded in {common}.")
    return [network.to(common) for network in networks]


def network_with(
    architecture: Architecture, tensors: Mapping[str, Tensor], file: str | Path, *, own_names: bool = False
) -> nn.Module:
    """A network with the weights of a file, in the file's floating type.

    Names, shapes and kinds of numbers are compared before the network takes memory.

    Args:
        own_names: whether tensors must be called as the network calls them, without a prefix.
    """
    outline = build_network(architecture, outline=True)
    wanted = outline.state_dict().keys()
    prefixes = [] if own_names or wanted <= tensors.keys() else fitting_prefixes(wanted, tensors)
    if prefixes and len(tensors) == len(wanted):  # every name has it, so there is only one
        tensors = {name.removeprefix(prefixes[0]): tensor for name, tensor in tensors.items()}
    elif prefixes:
        refuse_prefixes(prefixes, tensors, file)
    problems = misfits(outline, tensors)
    problems += [
        f"{name} is of type {tensor.dtype}"
        for name, tensor in tensors.items()
        if (tensor.is_floating_point() or tensor.is_complex()) and tensor.dtype not in FLOATS
    ]
    if problems:
        more = f", and {len(problems) - 4} more" if len(problems) > 4 else ""
        raise FileFormatError(
            f"{file} does not fit a {type(outline).__name__}: {'; '.join(problems[:4])}{more}. "
            f"Pass the architecture (and its options) that the weights were trained with.{own_name_hint(architecture)}"
        )
    has_memory = not any(tensor.is_meta for tensor in outline.state_dict().values() if isinstance(tensor, Tensor))
    network = outline if has_memory else build_network(architecture)
    dtype = next((tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()), None)
    network = network if dtype is None else network.to(dtype)
    network.load_state_dict(dict(tensors))
    return network.eval().requires_grad_(False)


def own_name_hint(architecture: Architecture) -> str:
    """Whose network a name such as "resnet18" is, which other libraries have too."""
    if not isinstance(architecture, str) or ":" in architecture:
        return ""
    return (
        f" {architecture!r} is dubium's own; give a function for another library's, such as lambda: "
        f"timm.create_model({architecture!r}, num_classes=10)."
    )


def fitting_prefixes(wanted: Collection[str], names: Iterable[str]) -> list[str]:
    """Prefixes, each up to a dot, under which there is a name for every one that is wanted.

    >>> fitting_prefixes(["fc.bias"], ["network.fc.bias", "loss.weight"])
    ['network.']
    """
    found: dict[str, int] = {}
    depths = {name.count(".") for name in wanted}
    for name in names:
        for depth in depths:
            prefix, *rest = name.rsplit(".", depth + 1)
            if len(rest) == depth + 1 and ".".join(rest) in wanted:
                found[f"{prefix}."] = found.get(f"{prefix}.", 0) + 1
    return [prefix for prefix, count in found.items() if count == len(wanted)]


def refuse_prefixes(prefixes: Sequence[str], names: Iterable[str], file: str | Path) -> NoReturn:
    """The network's weights are among others."""
    others = [name for name in names if not name.startswith(prefixes[0])]
    raise FileFormatError(
        f"{file} has the network's weights under {' and under '.join(map(repr, prefixes))}, and others beside them: "
        f"{list_some(others)}. Save the network's alone: with `state` for the file's names and tensors, torch.save("
        f"{{name.removeprefix({prefixes[0]!r}): state[name] for name in state if name.startswith({prefixes[0]!r})}}, "
        "file)."
    )


def read_tensors(file: str | Path, digest: str | None = None) -> dict[str, Tensor]:
    """The tensors of a weight file, by name; the end of the file's name tells its format.

    Args:
        digest: the SHA-256 that the file must have, from a saved posterior's record.
    """
    if os.path.isdir(file):  # False also of what is no name of a file
        raise FileFormatError(f"{file} is a folder; names of weight files are needed.{weights_within(file)}")
    try:
        content = read_regular_file(file, most=TENSOR_BYTES)
    except FileNotFoundError as error:
        raise FileFormatError(f"{error}{several_files_hint(str(file))}") from error
    if digest is not None and sha256(content).hexdigest() != digest:
        raise FileFormatError(
            f"{file} is not the file that {FILE} describes (its SHA-256 differs): it is damaged, or was saved "
            "again and interrupted. Save or copy the posterior again."
        )
    refuse_no_weights(content, file)
    if Path(file).suffix in PICKLED:
        return parse_pt_file(content, file)
    try:
        return parse_safetensors(content, file)
    except FileFormatError as error:
        raise FileFormatError(f"{error} The name of a PyTorch checkpoint must end in .pt.") from error


def several_files_hint(file: str) -> str:
    """How several files are given, where the name of none is a pattern or has commas."""
    if any(sign in file for sign in "*?["):
        return f" It is a pattern; give the files that it matches: load_weights(Net, sorted(glob.glob({file!r})))."
    return f" Give several files as a list: load_weights(Net, {file.split(',')})." if "," in file else ""


def parse_pt_file(content: bytes, file: str | Path) -> dict[str, Tensor]:
    """The weights in a PyTorch checkpoint; code in it is never run."""
    try:
        check_expanded_size(content)
        # timm's scripts save their arguments, which are attributes alone; what the user has allowed stays allowed
        with safe_globals([] if Namespace in get_safe_globals() else [Namespace]):
            found: Any = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # what torch raises on a foreign file depends on its first bytes
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        advice = "torch.save(network.state_dict(), file), or safetensors.torch.save_file."
        if first.startswith("Weights only load failed"):  # torch goes on about how to run the file's code
            name = re.search(r"GLOBAL ([\w.]{1,100}) ", str(error))
            first = f"its Python objects{f' ({name[1]})' if name else ''}, such as a whole network, are not loaded."
            advice += (
                f" If you trust the file: torch.save(torch.load({str(file)!r}, weights_only=False)['state_dict'], "
                "'weights.pt'); of a whole network, .state_dict() instead of ['state_dict']."
            )
        raise FileFormatError(
            f"{file} is damaged, or holds more than tensors: {first.rstrip('.')}. Save the weights alone: {advice}"
        ) from error
    return state_dict_of(found, file)


def check_expanded_size(content: bytes) -> None:
    """PyTorch stores tensors as they are; an archive that grows when it is read was made by somebody else."""
    if content[:2] == b"PK":
        with open_archive(io.BytesIO(content)) as archive:
            expanded = sum(member.file_size for member in archive.infolist())
        if expanded > len(content):
            raise ValueError(f"it has {expanded:,} bytes once expanded.")


def state_dict_of(content: Any, file: str | Path) -> dict[str, Tensor]:
    """The names and tensors in what a checkpoint holds."""
    for name in INNER:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            for averaged in AVERAGED:
                if isinstance(content.get(averaged), Mapping):
                    warn_user(  # the same words for all files, which are then said once
                        f"A weight file has averaged weights, {averaged!r}, beside those of {name!r}, which are taken. "
                        "For the averaged ones, save them alone, and give that file: torch.save(torch.load(file, "
                        f"weights_only=False)[{averaged!r}], 'averaged.pt')."
                    )
            content = content[name]
    is_state = isinstance(content, Mapping) and all(isinstance(k, str) for k in content)
    if not content or not is_state or not all(isinstance(v, Tensor) for v in content.values()):
        raise FileFormatError(
            f"{file} holds a {type(content).__name__} that is not a state dict (names and tensors). Save "
            "network.state_dict() alone."
        )
    return dict(content)
