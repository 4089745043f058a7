"""The readers under test: for each, honest files, how they are damaged, and how they are read."""

import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import dubium
from dubium.data import load
from dubium.data.image_files import read_image
from dubium.models import build, load_vae, save_vae, vae_conv, vae_dense
from dubium.posteriors import Gaussian, MCDropout, load_posterior, load_weights, posterior_record, save_posterior
from dubium.seals import MARK
from dubium.training.checkpoint import TrainingState, restore_state, save_state
from tests.data.official import write_cifar_binary, write_cifar_python, write_idx, write_svhn
from tests.fuzz.mutations import mutate_bytes, mutate_json, mutate_safetensors, reseal

Files = dict[str, bytes]
"""The bytes of each file of a folder, by its path in it."""

OPTIONS = {"filters": 2, "units": 3, "size": 8}
CNN = {"name": "cnn", "options": OPTIONS}


@dataclass(frozen=True)
class FuzzReader:
    """One reader.

    Args:
        samples: write honest files into an empty folder each.
        damage: from honest files and a random generator to damaged ones.
        read: what the library makes of a folder; anything that `digest_of` takes.
        is_sealed: whether a checksum in the damaged files covers what was damaged.
    """

    samples: tuple[Callable[[Path], Any], ...]
    damage: Callable[[Files, Random], Files]
    read: Callable[[Path], Any]
    is_sealed: Callable[[Files, Files], bool] = lambda _before, _after: False


def small_cnn() -> nn.Module:
    torch.manual_seed(0)
    return build("cnn", **OPTIONS).eval()


def digest_of(value: Any) -> str:
    """A digest by which two results are told apart."""
    digest = sha256()
    update(digest, value)
    return digest.hexdigest()


def update(digest: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().contiguous().view(-1).view(torch.uint8).numpy().data if value.numel() else b"")
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for name in sorted(value, key=str):
            update(digest, (name, value[name]))
    elif isinstance(value, list | tuple):
        digest.update(b"(")
        for item in value:
            update(digest, item)
        digest.update(b")")
    else:
        digest.update(f"{value!r};".encode(errors="surrogatepass"))


def one_file(mutate: Callable[[bytes, Random], bytes], ending: str = "") -> Callable[[Files, Random], Files]:
    """Damage to one of the files that end so."""

    def damage(files: Files, random: Random) -> Files:
        name = random.choice(sorted(name for name in files if name.endswith(ending)))
        return {**files, name: mutate(files[name], random)}

    return damage


def seal_covers(before: Files, after: Files) -> bool:
    """Whether the files that were damaged still have their seals, and these were not made anew."""
    changed = [name for name in before if before[name] != after.get(name)]
    return bool(changed) and all(MARK in after[name] and reseal(after[name]) != after[name] for name in changed)


# posteriors


def write_posterior(kind: str) -> Callable[[Path], Any]:
    def write(folder: Path) -> None:
        network = small_cnn()
        std = {name: torch.full_like(tensor, 0.1) for name, tensor in network.named_parameters()}
        made: Any = {
            "ensemble": [network, small_cnn()],
            "dropout": MCDropout(network, 3),
            "gaussian": Gaussian(network, std, {"conv1.bias": torch.ones(2, 2)}, samples=3),
        }[kind]
        save_posterior(made, folder, architecture=CNN, classes=[str(i) for i in range(10)], input_shape=(1, 8, 8))

    return write


POSTERIORS = tuple(map(write_posterior, ("ensemble", "dropout", "gaussian")))


def read_posterior(folder: Path) -> Any:
    posterior = load_posterior(folder)
    record = posterior_record(folder)
    states = [dict(network.state_dict()) for network in islice(posterior, 3)]
    return states, len(posterior), record.classes, record.input_shape, record.normalisation


def without_checksums(files: Files, random: Random) -> Files:
    """Damage to weights; every second time the record knows no checksums."""
    if random.random() < 0.5:
        record = {**json.loads(files["posterior.json"]), "sha256": {}}
        files = {**files, "posterior.json": json.dumps(record).encode()}
    return one_file(mutate_safetensors, ".safetensors")(files, random)


def has_checksums(before: Files, after: Files) -> bool:
    return before["posterior.json"] == after["posterior.json"]


def write_pt(folder: Path) -> None:
    torch.save(small_cnn().state_dict(), folder / "a.pt")


def write_old_pt(folder: Path) -> None:
    torch.save(small_cnn().state_dict(), folder / "a.pt", _use_new_zipfile_serialization=False)


def read_pt(folder: Path) -> Any:
    return [network.state_dict() for network in load_weights(lambda: build("cnn", **OPTIONS), folder / "a.pt")]


# VAEs, checkpoints, explanations


def write_dense_vae(folder: Path) -> None:
    torch.manual_seed(0)
    save_vae(vae_dense(size=4, hidden=(3,)), folder, architecture="vae-dense", options={"size": 4, "hidden": [3]})


def write_conv_vae(folder: Path) -> None:
    torch.manual_seed(0)
    options = {"size": 8, "kernels": 4, "latent": 2}
    save_vae(vae_conv(**options), folder, architecture="vae-conv", options=options, training={"epochs": 1})


def damage_vae(files: Files, random: Random) -> Files:
    if random.random() < 0.5:
        return one_file(mutate_json, ".json")(files, random)
    return maybe_reseal(one_file(mutate_safetensors, ".safetensors"))(files, random)


def maybe_reseal(damage: Callable[[Files, Random], Files]) -> Callable[[Files, Random], Files]:
    """The same damage; every second time the seals are made anew, so that what lies behind them is reached."""

    def damage_and_reseal(files: Files, random: Random) -> Files:
        found = damage(files, random)
        if random.random() < 0.5:
            return {name: content if content == files.get(name) else reseal(content) for name, content in found.items()}
        return found

    return damage_and_reseal


def vae_seal_covers(before: Files, after: Files) -> bool:
    return before["vae.json"] == after["vae.json"] and seal_covers(before, after)


def write_checkpoint_file(folder: Path) -> None:
    network = small_cnn()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    network(torch.ones(1, 1, 8, 8)).sum().backward()
    optimizer.step()
    state = TrainingState(2, [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}], {"mean": torch.ones(3)})
    save_state(folder / "c.safetensors", network, optimizer, state)


def read_checkpoint_file(folder: Path) -> Any:
    network = small_cnn()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    state = restore_state(folder / "c.safetensors", network, optimizer)
    moments = [dict(found) for found in optimizer.state_dict()["state"].values()]
    return network.state_dict(), moments, state.epochs, state.history, state.kept


def write_explanation(folder: Path) -> None:
    rng = torch.Generator().manual_seed(0)
    maps = {kind: torch.rand(2, 4, 4, generator=rng) for kind in ("total", "epistemic")}
    scores = {kind: maps[kind].sum((1, 2)) for kind in maps}
    probs, members = torch.rand(2, 3, generator=rng), torch.rand(3, 2, 3, generator=rng)
    found = dubium.explanation.Explanation(
        *(scores, maps, probs, members, "clue", {"steps": 3}),
        extras={"counterfactual": {"total": torch.rand(2, 1, 4, 4, generator=rng)}},
        input_shape=(2, 1, 4, 4),
    )
    found.save(folder / "e.safetensors")


def read_explanation(folder: Path) -> Any:
    found = dubium.load(folder / "e.safetensors")
    repr(found)
    parts = found.scores, found.maps, found.probs, found.members, found.extras
    return *parts, found.method, found.options, found.input_shape


# datasets


def damage_idx(files: Files, random: Random) -> Files:
    """Damage to the file, or to what is compressed in it."""
    name = random.choice(sorted(files))
    if name.endswith(".gz") and random.random() < 0.6:
        content = gzip.compress(mutate_bytes(gzip.decompress(files[name]), random), 1, mtime=0)
    else:
        content = mutate_bytes(files[name], random)
    return {**files, name: content}


def damage_mat(files: Files, random: Random) -> Files:
    """Damage to the file, or to what is compressed in one of its elements."""
    ((name, content),) = files.items()
    size = int.from_bytes(content[132:136], "little")
    if content[128] != 15 or random.random() < 0.4:
        return {name: mutate_bytes(content, random)}
    packed = zlib.compress(mutate_bytes(zlib.decompress(content[136 : 136 + size]), random), 1)
    return {name: content[:132] + len(packed).to_bytes(4, "little") + packed + content[136 + size :]}


def read_dataset(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        data = load(name, "test", folders=[folder])
        return data.images, data.labels

    return read


def save_npy(folder: Path) -> None:
    np.save(folder / "a.npy", np.arange(96, dtype=np.uint8).reshape(2, 3, 4, 4))


def save_npy_of_floats(folder: Path) -> None:
    np.save(folder / "a.npy", np.asfortranarray(np.linspace(0, 1, 32).reshape(2, 4, 4)))


def save_npz(compress: bool) -> Callable[[Path], Any]:
    def write(folder: Path) -> None:
        save = np.savez_compressed if compress else np.savez
        save(folder / "a.npz", x_test=np.arange(32, dtype=np.uint8).reshape(2, 4, 4), y_test=np.array([0, 2]))

    return write


def damage_npz(files: Files, random: Random) -> Files:
    """Damage to the archive, or to an array in it."""
    if random.random() < 0.4:
        return {"a.npz": mutate_bytes(files["a.npz"], random)}
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(files["a.npz"])) as old, zipfile.ZipFile(stream, "w") as new:
        chosen = random.choice(old.infolist()).filename
        for info in old.infolist():
            content = old.read(info)
            content = mutate_bytes(content, random) if info.filename == chosen else content
            new.writestr(zipfile.ZipInfo(info.filename), content, random.choice((0, 8, 8, 12, 14)))
    return {"a.npz": stream.getvalue()}


def read_array_file(ending: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        data = load(folder / f"a{ending}")
        return data.images, data.labels, data.classes

    return read


def save_image(kind: str, mode: str, **options: Any) -> Callable[[Path], Any]:
    def write(folder: Path) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 4), dtype=np.uint8)
        image = Image.fromarray(pixels).convert("RGB" if mode == "EXIF" else mode)
        image = image.point(lambda value: value / 255) if mode == "F" else image
        if mode == "EXIF":
            exif = Image.Exif()
            exif[0x0112], exif[0x010E] = 6, "a"
            options["exif"] = exif
        image.save(folder / "a.img", kind, **options)

    return write


IMAGES = (
    *(save_image("PNG", mode) for mode in ("RGBA", "L", "P", "1", "EXIF")),
    *(save_image("JPEG", mode) for mode in ("RGB", "L", "EXIF")),
    *(save_image("TIFF", "RGB", compression=method) for method in (None, "tiff_lzw", "tiff_deflate", "jpeg")),
    *(save_image("TIFF", mode) for mode in ("F", "CMYK")),
    *(save_image("BMP", mode) for mode in ("RGB", "P")),
    *(save_image("WEBP", "RGBA", lossless=value) for value in (True, False)),
    *(save_image("PPM", mode) for mode in ("RGB", "L")),
    save_image("GIF", "P"),
)


def read_vae(folder: Path) -> Any:
    return dict(load_vae(folder).state_dict())


def idx_writer(compress: bool) -> Callable[[Path], Any]:
    return lambda folder: write_idx(folder, "t10k", count=2, compress=compress)


def svhn_writer(compress: bool) -> Callable[[Path], Any]:
    return lambda folder: write_svhn(folder / "test_32x32.mat", count=2, do_compression=compress)


def write_batch(folder: Path) -> None:
    write_cifar_python(folder / "test_batch", count=1)


def write_binary_batch(folder: Path) -> None:
    write_cifar_binary(folder / "test_batch.bin", count=1)


ANY = one_file(mutate_bytes)
SEALED = maybe_reseal(one_file(mutate_safetensors))
FILE_READERS: dict[str, FuzzReader] = {
    "posterior.json": FuzzReader(POSTERIORS, one_file(mutate_json, "posterior.json"), read_posterior),
    "posterior safetensors": FuzzReader(POSTERIORS, without_checksums, read_posterior, has_checksums),
    "weights .pt": FuzzReader((write_pt, write_old_pt), ANY, read_pt),
    "VAE folder": FuzzReader((write_dense_vae, write_conv_vae), damage_vae, read_vae, vae_seal_covers),
    "checkpoint": FuzzReader((write_checkpoint_file,), SEALED, read_checkpoint_file, seal_covers),
    "explanation": FuzzReader((write_explanation,), SEALED, read_explanation, seal_covers),
    "idx": FuzzReader((idx_writer(True), idx_writer(False)), damage_idx, read_dataset("mnist")),
    "CIFAR pickle": FuzzReader((write_batch,), ANY, read_dataset("cifar-10")),
    "CIFAR binary": FuzzReader((write_binary_batch,), ANY, read_dataset("cifar-10")),
    ".mat": FuzzReader((svhn_writer(True), svhn_writer(False)), damage_mat, read_dataset("svhn")),
    ".npy": FuzzReader((save_npy, save_npy_of_floats), ANY, read_array_file(".npy")),
    ".npz": FuzzReader((save_npz(True), save_npz(False)), damage_npz, read_array_file(".npz")),
    "images": FuzzReader(IMAGES, ANY, lambda folder: read_image(folder / "a.img")),
}
