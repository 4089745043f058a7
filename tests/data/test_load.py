"""Names, folders and the user's own files."""

import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import dubium.data.find as finding
from dubium.data import SOURCES, data_folders, load
from dubium.data.check import check_dataset
from dubium.errors import DataNotFoundError, FileFormatError, ImagesError, UnknownNameError
from tests.data.official import write_cifar_binary, write_idx, write_svhn


def save_png(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


def test_folders_of_the_environment_are_searched_in_order(tmp_path, monkeypatch):
    write_idx(tmp_path / "a" / "mnist", "t10k", count=3)
    write_idx(tmp_path / "b" / "mnist", "t10k", count=5)
    write_idx(tmp_path / "b" / "mnist", "train", count=7)
    monkeypatch.setenv("DUBIUM_DATA", os.pathsep.join([str(tmp_path / "a"), "", str(tmp_path / "b")]))
    assert data_folders()[:2] == [tmp_path / "a", tmp_path / "b"]
    assert len(load("mnist")) == 3
    assert len(load("mnist:train")) == 7
    assert len(load("mnist", "train")) == 7


def test_files_may_lie_in_the_folder_itself(tmp_path):
    write_svhn(tmp_path / "test_32x32.mat")
    assert len(load("svhn", folders=[tmp_path])) == 5


def test_missing_files_are_named_and_so_is_what_to_do(tmp_path):
    with pytest.raises(DataNotFoundError, match="dubium data get mnist"):
        load("mnist", folders=[tmp_path])
    write_cifar_binary(tmp_path / "data_batch_1.bin")
    with pytest.raises(DataNotFoundError, match=r"data_batch_5\.bin"):
        load("cifar-10", "train", folders=[tmp_path])


def test_unknown_names_and_splits_list_the_known():
    with pytest.raises(UnknownNameError, match="Did you mean 'mnist'"):
        load("mnits")
    with pytest.raises(UnknownNameError, match="train, test"):
        load("mnist", "validation")


def test_digits_and_clothes_are_told_apart_by_folder_and_by_checksum(tmp_path, monkeypatch):
    write_idx(tmp_path / "fashion-mnist", "t10k", count=4)
    assert len(load("fashion-mnist", folders=[tmp_path])) == 4
    with pytest.raises(DataNotFoundError):
        load("mnist", folders=[tmp_path, tmp_path / "fashion-mnist"])
    shutil.move(tmp_path / "fashion-mnist", tmp_path / "neutral")
    assert len(load("mnist", folders=[tmp_path / "neutral"])) == 4
    monkeypatch.setattr(finding, "md5", lambda path: SOURCES["fashion-mnist"].md5[path.name])
    with pytest.raises(DataNotFoundError):
        load("mnist", folders=[tmp_path / "neutral"])


def test_check_counts_and_compares_checksums(tmp_path):
    write_idx(tmp_path / "mnist", "t10k", count=4)
    (found,) = check_dataset("mnist", [tmp_path])
    assert (found.split, found.images, found.published, found.as_published) == ("test", 4, 10_000, False)


def test_a_folder_per_class_gives_labels_and_names(tmp_path):
    grey = np.arange(16, dtype=np.uint8).reshape(4, 4)
    save_png(tmp_path / "dog" / "b.png", grey + 1)
    save_png(tmp_path / "cat" / "a.png", grey)
    save_png(tmp_path / "dog" / "a.png", grey + 2)
    (tmp_path / "dog" / "notes.txt").write_text("not an image")
    data = load(tmp_path)
    assert data.classes == ("cat", "dog")
    assert data.labels.tolist() == [0, 1, 1]
    assert data.images[:, 0, 0, 0].tolist() == [0, 2, 1]
    assert data.split == "all"


def test_train_and_test_folders_are_splits(tmp_path):
    save_png(tmp_path / "train" / "cat" / "a.png", np.zeros((4, 4), np.uint8))
    with pytest.raises(DataNotFoundError, match="only 'train'"):
        load(tmp_path)
    assert load(f"{tmp_path}:train").split == "train"


def test_a_flat_folder_has_no_labels_and_colour_wins_over_grey(tmp_path):
    save_png(tmp_path / "a.png", np.full((4, 5), 7, np.uint8))
    save_png(tmp_path / "b.png", np.arange(60, dtype=np.uint8).reshape(4, 5, 3))
    data = load(tmp_path)
    assert data.labels is None
    assert data.images.shape == (2, 3, 4, 5)
    assert (data.images[0] == 7).all()
    assert torch.equal(data.images[1], torch.arange(60, dtype=torch.uint8).view(4, 5, 3).permute(2, 0, 1))


def test_damaged_empty_and_unequal_images_are_named(tmp_path):
    with pytest.raises(DataNotFoundError, match="no images"):
        load(tmp_path)
    save_png(tmp_path / "a.png", np.zeros((64, 64), np.uint8))
    save_png(tmp_path / "b.png", np.zeros((4, 5), np.uint8))
    with pytest.raises(ImagesError, match=r"b\.png"):
        load(tmp_path)
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes()[:50])
    with pytest.raises(FileFormatError, match=r"b\.png"):
        load(tmp_path)
    save_png(tmp_path / "b.png", np.zeros((64, 64), np.uint16))
    with pytest.raises(FileFormatError, match="8 bits"):
        load(tmp_path)


def test_a_single_image_is_a_dataset_of_one(tmp_path):
    save_png(tmp_path / "a.png", np.full((4, 5), 9, np.uint8))
    assert load(tmp_path / "a.png").images.shape == (1, 1, 4, 5)


@pytest.mark.parametrize(
    ("array", "shape"),
    [
        (np.zeros((7, 5, 6), np.uint8), (7, 1, 5, 6)),
        (np.zeros((7, 5, 6, 3), np.uint8), (7, 3, 5, 6)),
        (np.zeros((7, 3, 5, 6), np.float64), (7, 3, 5, 6)),
        (np.zeros((5, 6), np.float32), (1, 1, 5, 6)),
        (np.zeros((7, 5, 6), np.int64), (7, 1, 5, 6)),
        (np.ones((7, 5, 6), bool), (7, 1, 5, 6)),
    ],
)
def test_arrays_of_every_usual_layout_are_read(array, shape, tmp_path):
    np.save(tmp_path / "a.npy", array)
    data = load(tmp_path / "a.npy")
    assert data.images.shape == shape
    assert data.batch([0]).max() == (1 if array.dtype == bool else 0)


@pytest.mark.parametrize("bad", [np.full((2, 4, 4), 1.5), np.full((2, 4, 4), np.nan), np.zeros((2, 4, 4), "U1")])
def test_arrays_outside_the_range_of_images_are_refused(bad, tmp_path):
    np.save(tmp_path / "a.npy", bad)
    with pytest.raises(ImagesError, match=r"a\.npy"):
        load(tmp_path / "a.npy")


def test_npz_files_have_splits_and_labels(tmp_path):
    x = np.zeros((3, 4, 4), np.uint8)
    np.savez(tmp_path / "a.npz", x_train=x, y_train=np.array([0, 2, 1]), x_test=x[:1], y_test=np.array([1]))
    train, test = load(f"{tmp_path / 'a.npz'}:train"), load(tmp_path / "a.npz")
    assert (train.labels.tolist(), train.classes, train.split) == ([0, 2, 1], ("0", "1", "2"), "train")
    assert (len(test), test.split) == (1, "test")
    np.savez(tmp_path / "b.npz", other=x)
    with pytest.raises(FileFormatError, match="other"):
        load(tmp_path / "b.npz")


def test_damaged_and_pickled_array_files_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "b.npz", x=np.zeros((30, 4, 4), np.uint8))
    (tmp_path / "b.npz").write_bytes((tmp_path / "b.npz").read_bytes()[:200])
    (tmp_path / "c.txt").write_text("?")
    for name in ("a.npy", "b.npz", "c.txt"):
        with pytest.raises(FileFormatError, match=name):
            load(tmp_path / name)


def test_samples_are_repeatable_without_repetition_and_in_order(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(50 * 4, dtype=np.uint8).reshape(50, 2, 2))
    data = load(tmp_path / "a.npy")
    first = data.sample(20, seed=3).images[:, 0, 0, 0].tolist()
    assert first == data.sample(20, seed=3).images[:, 0, 0, 0].tolist() == sorted(set(first))
    assert len(data.sample(99)) == 50


@pytest.mark.parametrize("name", SOURCES)
def test_real_files_are_read(name):
    if "DUBIUM_DATA" not in os.environ:
        pytest.skip("DUBIUM_DATA is not set: no real datasets")
    try:
        data = load(name)
    except DataNotFoundError:
        pytest.skip(f"DUBIUM_DATA has no {name}")
    assert data.images.shape == (10_000, *SOURCES[name].shape)
    assert len(data.labels.unique()) == len(SOURCES[name].classes)


def test_the_embedded_digits_are_a_dataset_by_name():
    digits = load("demo")
    assert (len(digits), digits.shape, digits.split, len(digits.classes)) == (64, (1, 28, 28), "test", 10)
    half = load("demo:train")
    assert (half.name, half.split) == ("demo", "train")
    assert half.images.equal(digits.images[::2])
    assert half.labels.equal(digits.labels[::2])
