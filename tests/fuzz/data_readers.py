"""Readers of images: the official datasets' formats, NumPy's, and image files."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from dubium.data import load
from dubium.data.image_files import read_image
from tests.data.official import write_cifar_binary, write_cifar_python, write_idx, write_svhn
from tests.fuzz.mutations import mutate_bytes
from tests.fuzz.reader import Files, FuzzReader, one_file


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


def idx_writer(compress: bool) -> Callable[[Path], Any]:
    return lambda folder: write_idx(folder, "t10k", count=2, compress=compress)


def svhn_writer(compress: bool) -> Callable[[Path], Any]:
    return lambda folder: write_svhn(folder / "test_32x32.mat", count=2, do_compression=compress)


def write_batch(folder: Path) -> None:
    write_cifar_python(folder / "test_batch", count=1)


def write_binary_batch(folder: Path) -> None:
    write_cifar_binary(folder / "test_batch.bin", count=1)


ANY = one_file(mutate_bytes)
DATA_READERS: dict[str, FuzzReader] = {
    "idx": FuzzReader((idx_writer(True), idx_writer(False)), damage_idx, read_dataset("mnist")),
    "CIFAR pickle": FuzzReader((write_batch,), ANY, read_dataset("cifar-10")),
    "CIFAR binary": FuzzReader((write_binary_batch,), ANY, read_dataset("cifar-10")),
    ".mat": FuzzReader((svhn_writer(True), svhn_writer(False)), damage_mat, read_dataset("svhn")),
    ".npy": FuzzReader((save_npy, save_npy_of_floats), ANY, read_array_file(".npy")),
    ".npz": FuzzReader((save_npz(True), save_npz(False)), damage_npz, read_array_file(".npz")),
    "images": FuzzReader(IMAGES, ANY, lambda folder: read_image(folder / "a.img")),
}
