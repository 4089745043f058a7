"""Small files in the official formats."""

import gzip
import pickle
import struct

import numpy as np
import scipy.io


def images(count, channels, size, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, channels, size, size), dtype=np.uint8)


def write_idx(folder, prefix, count=6, compress=True, seed=0):
    folder.mkdir(parents=True, exist_ok=True)
    pixels, labels = images(count, 1, 28, seed), np.arange(count, dtype=np.uint8) % 10
    opener, suffix = (gzip.open, ".gz") if compress else (open, "")
    with opener(folder / f"{prefix}-images-idx3-ubyte{suffix}", "wb") as file:
        file.write(struct.pack(">IIII", 0x803, count, 28, 28) + pixels.tobytes())
    with opener(folder / f"{prefix}-labels-idx1-ubyte{suffix}", "wb") as file:
        file.write(struct.pack(">II", 0x801, count) + labels.tobytes())
    return pixels, labels


def write_cifar_binary(path, count=5, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels, labels = images(count, 3, 32, seed), np.arange(count, dtype=np.uint8) % 10
    path.write_bytes(np.concatenate([labels[:, None], pixels.reshape(count, -1)], 1).tobytes())
    return pixels, labels


def write_cifar_python(path, key="labels", count=5, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels, labels = images(count, 3, 32, seed), [int(i) % 10 for i in range(count)]
    content = {"data": pixels.reshape(count, -1), key: labels, "filenames": [f"{i}.png" for i in range(count)]}
    path.write_bytes(python2(pickle.dumps(content, 2)))
    return pixels, np.array(labels)


def python2(content):
    """NumPy's module was called differently when the files were made."""
    return content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def write_svhn(path, count=5, seed=0, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = images(count, 3, 32, seed)
    labels = np.arange(1, count + 1, dtype=np.uint8)  # 10 would be the digit 0
    labels[-1] = 10
    scipy.io.savemat(path, {"X": pixels.transpose(2, 3, 1, 0), "y": labels[:, None]}, **options)
    return pixels, np.where(labels == 10, 0, labels)
