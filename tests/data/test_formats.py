"""Every official format is read exactly, and every damaged file is refused by name."""

import gzip
import pickle
import struct

import numpy as np
import pytest
import scipy.io
import torch

from dubium.data import load
from dubium.data.cifar import read_pickle
from dubium.data.mat import read_mat
from dubium.errors import FileFormatError
from tests.data.official import write_cifar_binary, write_cifar_python, write_idx, write_svhn

WRITERS = {
    "mnist": lambda folder: write_idx(folder / "mnist", "t10k"),
    "fashion-mnist": lambda folder: write_idx(folder / "fashion-mnist", "t10k"),
    "svhn": lambda folder: write_svhn(folder / "svhn" / "test_32x32.mat", do_compression=True),
    "cifar-10": lambda folder: write_cifar_binary(folder / "cifar-10-batches-bin" / "test_batch.bin"),
    "cifar-100": lambda folder: write_cifar_python(folder / "cifar-100-python" / "test", "fine_labels"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_images_and_labels_are_those_that_were_written(name, tmp_path):
    pixels, labels = WRITERS[name](tmp_path)
    data = load(name, "test", folders=[tmp_path])
    assert data.images.dtype == torch.uint8
    assert torch.equal(data.images, torch.from_numpy(pixels))
    assert data.labels.tolist() == labels.tolist()
    assert (data.name, data.split) == (name, "test")
    torch.testing.assert_close(data.batch([1, 0]), torch.from_numpy(pixels[[1, 0]]).float() / 255)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("keep", [0, 1, 3, 100, 0.5, -1])
def test_a_file_cut_short_anywhere_is_refused_by_name(name, keep, tmp_path):
    WRITERS[name](tmp_path)
    path = next(p for p in sorted(tmp_path.rglob("*")) if p.is_file())
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(FileFormatError, match=path.name):
        load(name, "test", folders=[tmp_path])


@pytest.mark.parametrize("name", WRITERS)
def test_a_foreign_file_is_refused_by_name(name, tmp_path):
    WRITERS[name](tmp_path)
    path = next(p for p in sorted(tmp_path.rglob("*")) if p.is_file())
    path.write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(FileFormatError, match=path.name):
        load(name, "test", folders=[tmp_path])


def test_idx_files_are_read_uncompressed_too(tmp_path):
    pixels, _ = write_idx(tmp_path / "MNIST" / "raw", "train", compress=False)
    assert torch.equal(load("mnist:train", folders=[tmp_path]).images, torch.from_numpy(pixels))


def test_images_and_labels_of_different_length_do_not_belong_together(tmp_path):
    write_idx(tmp_path / "mnist", "t10k", count=6)
    with gzip.open(tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">II", 0x801, 5) + bytes(5))
    with pytest.raises(FileFormatError, match=r"6 images and .* 5 labels"):
        load("mnist", folders=[tmp_path])


def test_an_idx_header_that_announces_the_moon_is_refused_before_memory_is(tmp_path):
    write_idx(tmp_path / "mnist", "t10k")
    with gzip.open(tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz", "wb") as file:
        file.write(struct.pack(">IIII", 0x803, 2**31, 28, 28))
    with pytest.raises(FileFormatError, match="announces"):
        load("mnist", folders=[tmp_path])


def test_a_label_outside_the_classes_is_refused(tmp_path):
    write_idx(tmp_path / "mnist", "t10k", count=2)
    with gzip.open(tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">II", 0x801, 2) + bytes([3, 10]))
    with pytest.raises(FileFormatError, match="labels are not from 0 to 9"):
        load("mnist", folders=[tmp_path])


def test_cifar_10_has_both_its_forms_and_five_training_files(tmp_path):
    parts = [write_cifar_python(tmp_path / "py" / f"data_batch_{i}", seed=i) for i in range(1, 6)]
    for i in range(1, 6):
        write_cifar_binary(tmp_path / "bin" / f"data_batch_{i}.bin", seed=i)
    pickled = load("cifar-10", "train", folders=[tmp_path / "py"])
    binary = load("cifar-10", "train", folders=[tmp_path / "bin"])
    assert torch.equal(pickled.images, torch.from_numpy(np.concatenate([pixels for pixels, _ in parts])))
    assert torch.equal(pickled.images, binary.images)
    assert torch.equal(pickled.labels, binary.labels)


@pytest.mark.parametrize("options", [{}, {"do_compression": True}, {"oned_as": "column"}])
def test_mat_files_agree_with_scipy(options, tmp_path):
    write_svhn(tmp_path / "a.mat", **options)
    expected = scipy.io.loadmat(tmp_path / "a.mat")
    found = read_mat(tmp_path / "a.mat")
    for name in ("X", "y"):
        assert found[name].dtype == expected[name].dtype
        np.testing.assert_array_equal(found[name], expected[name])


def test_mat_numbers_of_every_type_agree_with_scipy(tmp_path):
    arrays = {f"a{i}": np.arange(i + 3).astype(t) for i, t in enumerate(("i1", "u2", "i4", "f4", "f8", "u8"))}
    scipy.io.savemat(tmp_path / "a.mat", arrays, do_compression=True)
    found = read_mat(tmp_path / "a.mat")
    for name, expected in scipy.io.loadmat(tmp_path / "a.mat").items():
        if not name.startswith("__"):
            np.testing.assert_array_equal(found[name], expected)


def test_svhn_without_its_variables_is_refused(tmp_path):
    (tmp_path / "svhn").mkdir()
    scipy.io.savemat(tmp_path / "svhn" / "test_32x32.mat", {"X": np.zeros((3, 3)), "y": np.zeros(3)})
    with pytest.raises(FileFormatError, match="no X of bytes"):
        load("svhn", folders=[tmp_path])


class Evil:
    def __reduce__(self):
        return (print, ("run",))


@pytest.mark.parametrize(
    "content",
    [
        {"data": Evil()},
        Evil(),
        {"data": np.zeros((1, 3072)), "labels": [0]},
        {"data": np.zeros((1, 3071), np.uint8), "labels": [0]},
        {"data": np.zeros((1, 3072), np.uint8), "labels": ["0"]},
        {"data": np.zeros((2, 3072), np.uint8), "labels": [0]},
        {"data": np.asfortranarray(np.zeros((2, 3072), np.uint8)), "labels": [0, 0]},
        {"data": np.array([[None] * 3072]), "labels": [0]},
        [1],
    ],
)
def test_a_pickle_with_anything_else_in_it_is_refused_and_nothing_of_it_runs(content, tmp_path, capsys):
    path = tmp_path / "cifar-10-batches-py" / "test_batch"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps(content, 2))
    with pytest.raises(FileFormatError, match="test_batch"):
        load("cifar-10", folders=[tmp_path])
    assert capsys.readouterr().out == ""


def test_pickles_that_ask_for_code_say_which(tmp_path):
    (tmp_path / "a").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(FileFormatError, match=r"os\.system, which no CIFAR file does"):
        read_pickle(tmp_path / "a")
