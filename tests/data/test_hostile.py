"""Files that were made to hang us, to fill the memory, to start other programs, or to end in an error of others."""

import gzip
import io
import os
import pickle
import stat
import struct
import tarfile
import zipfile
import zlib
from contextlib import ExitStack

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from dubium.cli.evaluate import read_masks
from dubium.data import load
from dubium.data.catalog import SOURCES
from dubium.data.cifar import read_pickle
from dubium.data.download import unpack
from dubium.data.idx import read_idx
from dubium.data.image_files import read_image
from dubium.data.mat import read_mat
from dubium.errors import FileFormatError
from dubium.posteriors.files.weight_files import read_tensors
from dubium.reading import open_regular_file, parse_json, read_json
from tests.data.official import write_cifar_python, write_idx, write_svhn
from tests.limits import GIB, IS_LINUX, assert_refused, call_apart

pytestmark = pytest.mark.skipif(not IS_LINUX, reason="processes are forked and measured as Linux does it")


def npy_bytes(array, **options):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, **options)
    return stream.getvalue()


def announce(shape, dtype="|u1"):
    """An `.npy` file whose header announces a shape, without the numbers."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue() + bytes(64)


# images


@pytest.mark.parametrize("name", ["a.png", "a.eps", "a.jpg"])
def test_postscript_is_not_an_image_whatever_its_name(name, tmp_path, monkeypatch):
    started = tmp_path / "started"
    ghostscript = tmp_path / "bin" / "gs"
    ghostscript.parent.mkdir()
    ghostscript.write_text(f"#!/bin/sh\ntouch {started}\n")
    ghostscript.chmod(ghostscript.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(ghostscript.parent), prepend=os.pathsep)
    path = tmp_path / name
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(FileFormatError, match=r"a\.\w+ is damaged or not an image"):
        read_image(path)
    with pytest.raises(FileFormatError, match="the image is damaged or not an image"):
        read_image(path.read_bytes())
    assert not started.exists()


@pytest.mark.parametrize("kind", ["PCX", "ICO", "TGA", "SGI", "PDF", "JPEG2000"])
def test_kinds_of_images_that_are_not_promised_are_not_opened(kind, tmp_path):
    Image.new("RGB", (16, 16)).save(tmp_path / "a.png", kind)
    with pytest.raises(FileFormatError, match=r"a\.png"):
        read_image(tmp_path / "a.png")


@pytest.mark.parametrize("size", [(200_000, 1), (1, 200_000)])
def test_an_image_with_a_very_long_side_is_refused(size, tmp_path):
    Image.new("1", size).save(tmp_path / "a.png")
    with pytest.raises(FileFormatError, match=r"a\.png has .* at most 100,000 a side"):
        read_image(tmp_path / "a.png")


def test_what_is_said_of_a_file_is_the_same_in_every_run(tmp_path):
    """It is stored with the results, which a killed run must end with byte for byte."""
    (tmp_path / "a.png").write_bytes(b"no image")
    said = set()
    with ExitStack() as others:
        for _ in range(2):
            with pytest.raises(FileFormatError) as found:
                read_image(tmp_path / "a.png")
            said.add(str(found.value))
            others.enter_context((tmp_path / "a.png").open("rb"))  # so that the next file has another number
    (words,) = said
    assert "no known format" in words


def make_fifo(path):
    os.mkfifo(path)


def link_to_zeros(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [make_fifo, link_to_zeros])
@pytest.mark.parametrize("name", ["a.png", "c/a.png"])
def test_a_pipe_or_a_device_as_image_is_refused_at_once(make, name, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    make(path)
    assert_refused(lambda: read_image(path), "a.png", seconds=5)
    assert_refused(lambda: load(tmp_path), "a.png" if make is make_fifo else "", seconds=5)


READERS = {
    "idx": lambda path: read_idx(path, 1),
    "mat": read_mat,
    "pickle": read_pickle,
    "json": read_json,
    "masks": read_masks,
    "any": lambda path: open_regular_file(path, most=9),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("make", [make_fifo, link_to_zeros])
def test_no_reader_waits_for_a_pipe_or_reads_a_device(reader, make, tmp_path):
    make(tmp_path / "input.gz")
    assert_refused(lambda: READERS[reader](tmp_path / "input.gz"), "input.gz cannot be read", seconds=5)


@pytest.mark.parametrize(
    "content", [announce((10**12, 4, 4)), npy_bytes(np.zeros((2, 4, 4), "U3")), npy_bytes(np.zeros((4, 4))), b"", b"PK"]
)
def test_masks_that_are_no_masks_are_refused(content, tmp_path):
    (tmp_path / "masks.npy").write_bytes(content)
    assert_refused(lambda: read_masks(tmp_path / "masks.npy"), "masks.npy", most=2**27)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB", "L", "1", "CMYK"])
def test_an_image_of_few_bytes_and_many_pixels_takes_a_gigabyte_beyond_its_pixels_at_most(mode, tmp_path):
    side, kind = 5000, "TIFF" if mode == "CMYK" else "PNG"
    options = {"compression": "tiff_deflate"} if kind == "TIFF" else {"compress_level": 9}
    Image.new(mode, (side, side)).save(tmp_path / "a.png", kind, **options)
    found = call_apart(lambda: read_image(tmp_path / "a.png"))
    channels = 1 if mode in ("LA", "L", "1") else 3
    assert found.error == ""
    assert found.growth < 4 * channels * side**2 + GIB / 4  # a gigabyte for the 100 million pixels that are read


def test_tiles_larger_than_the_image_are_refused(tmp_path):
    tags = {256: 64, 257: 64, 258: 8, 259: 8, 262: 1, 322: 60_000, 323: 60_000, 324: 4096, 325: 64}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    content = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + struct.pack("<I", 0)
    (tmp_path / "a.tif").write_bytes(content.ljust(4096, b"\0") + zlib.compress(bytes(10**4))[:64].ljust(64, b"\0"))
    with pytest.raises(FileFormatError, match=r"a\.tif has tiles of 60000 x 60000"):
        read_image(tmp_path / "a.tif")


# arrays


@pytest.mark.parametrize("label", [20261116, 2**62, 100_000])
def test_a_label_is_a_class_and_not_a_date(label, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 4, 4), np.uint8), y=np.array([0, label]))
    assert_refused(lambda: load(tmp_path / "a.npz"), f"a.npz has the label {label}", seconds=10)
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 4, 4), np.uint8), y=np.array([0, 99_999]))
    assert len(load(tmp_path / "a.npz").classes) == 100_000


@pytest.mark.parametrize("shape", [(10**12,), (10**6, 1000, 1000), (2**62, 4), (2**64, 2**64), (-1, 4)])
@pytest.mark.parametrize("dtype", ["|u1", "<f8", "<U0", "|O", "<M8[s]"])
@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_an_array_that_the_file_does_not_hold_is_refused_before_memory_is(shape, dtype, ending, tmp_path):
    path = tmp_path / f"a{ending}"
    path.write_bytes(announce(shape, dtype))
    if ending == ".npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("images.npy", announce(shape, dtype))
    assert_refused(lambda: load(path), path.name, most=2**27)


def test_a_header_that_is_nested_deeply_or_not_a_header_is_refused(tmp_path):
    for header in (
        b"(" * 3000,
        b"{'descr': 1}",
        b"\xff" * 40,
        b"{'descr': '|u1', 'fortran_order': 1, 'shape': ('a',)}",
    ):
        (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        assert_refused(lambda: load(tmp_path / "a.npy"), "a.npy")


def archive_of(path, method, content=None):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("images.npy", npy_bytes(np.zeros((3, 4, 4), np.uint8)) if content is None else content)
    return bytearray(path.read_bytes())


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_archives_are_compressed_as_numpy_does_it(method, tmp_path):
    archive_of(tmp_path / "a.npz", method)
    with pytest.raises(FileFormatError, match=r"a\.npz.*does not write"):
        load(tmp_path / "a.npz")


def test_an_encrypted_archive_and_one_of_objects_are_refused(tmp_path):
    content = archive_of(tmp_path / "a.npz", zipfile.ZIP_DEFLATED)
    content[content.index(b"PK\x03\x04") + 6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"a\.npz.*encrypted"):
        load(tmp_path / "a.npz")
    archive_of(tmp_path / "a.npz", zipfile.ZIP_STORED, npy_bytes(np.array([[{}]], object), allow_pickle=True))
    with pytest.raises(FileFormatError, match=r"a\.npz.*nothing is unpickled"):
        load(tmp_path / "a.npz")


@pytest.mark.parametrize("at", range(30, 110, 3))
def test_damage_inside_an_archive_is_refused(at, tmp_path):
    content = archive_of(tmp_path / "a.npz", zipfile.ZIP_DEFLATED)
    content[at] ^= 0x55
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"a\.npz"):
        load(tmp_path / "a.npz")


def test_a_small_archive_of_much_is_refused(tmp_path):
    with (
        zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("images.npy", "w", force_zip64=True) as member,
    ):
        member.write(announce((1100, 1024, 1024))[:-64])
        for _ in range(1100):
            member.write(bytes(2**20))
    assert (tmp_path / "a.npz").stat().st_size < 2**23
    assert_refused(lambda: load(tmp_path / "a.npz"), "a.npz", most=2**28)


def list_of_members(path, count, *, wide):
    """An archive of nothing but its list of members; `wide`: its size stands in the record of large archives alone."""
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 0, 20, 0, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"x"
    size, end = count * len(entry), b""
    if wide:
        end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, 0)
        end += struct.pack("<4sLQL", b"PK\6\7", 0, size, 1)
    announced = 0 if wide else size
    path.write_bytes(entry * count + end + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, announced, 0, 0))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("ending", [".npz", ".pt"])
def test_an_archive_of_a_million_members_is_refused(ending, wide, tmp_path):
    path = tmp_path / f"a{ending}"
    list_of_members(path, 10**6, wide=wide)
    read = load if ending == ".npz" else read_tensors
    assert_refused(lambda: read(path), path.name, seconds=2, most=2**27)  # 47 MB; they would take 400


# idx, .mat


def test_a_small_idx_file_of_much_is_refused(tmp_path):
    folder = tmp_path / "mnist"
    write_idx(folder, "t10k")
    parts = [gzip.compress(struct.pack(">IIII", 0x803, 2**21, 32, 32)), gzip.compress(bytes(2**25)) * 2**6]
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(b"".join(parts))
    assert_refused(lambda: load("mnist", folders=[tmp_path]), "announces", most=2**27)


def mat_header():
    return b"MATLAB 5.0".ljust(124) + struct.pack("<HH", 0x0100, 0x4D49)


def compressed_element(content):
    packed = zlib.compress(content, 1)
    return struct.pack("<II", 15, len(packed)) + packed


def test_a_small_mat_file_of_much_is_refused(tmp_path):
    packer = zlib.compressobj(1)
    packed = packer.compress(struct.pack("<II", 14, 2**32 - 8)) + packer.flush(zlib.Z_FULL_FLUSH)
    packed += (packer.compress(bytes(2**24)) + packer.flush(zlib.Z_FULL_FLUSH)) * 2**8
    (tmp_path / "test_32x32.mat").write_bytes(mat_header() + struct.pack("<II", 15, len(packed)) + packed)
    assert_refused(lambda: load("svhn", folders=[tmp_path]), "test_32x32.mat")


def test_a_mat_file_of_compressed_files_is_refused(tmp_path):
    content = struct.pack("<II", 14, 0)
    for _ in range(1500):
        content = compressed_element(content)
    (tmp_path / "a.mat").write_bytes(mat_header() + content)
    assert_refused(lambda: load("svhn", folders=[rename(tmp_path / "a.mat", "test_32x32.mat")]), "test_32x32.mat")


def rename(path, name):
    path.rename(path.with_name(name))
    return path.parent


def test_a_mat_file_of_a_million_empty_elements_is_refused(tmp_path):
    (tmp_path / "test_32x32.mat").write_bytes(mat_header() + bytes(8 * 10**7))
    assert_refused(lambda: load("svhn", folders=[tmp_path]), "more elements", seconds=5)


@pytest.mark.parametrize("label", [2.5, -1.0, 11.0, np.nan, np.inf, 1e300])
def test_labels_of_svhn_are_digits(label, tmp_path):
    path = tmp_path / "test_32x32.mat"
    write_svhn(path)
    images = scipy.io.loadmat(path)["X"]
    scipy.io.savemat(path, {"X": images, "y": np.array([[1.0], [2.0], [3.0], [10.0], [label]])})
    with pytest.raises(FileFormatError, match=r"test_32x32\.mat has labels that are not whole numbers"):
        load("svhn", folders=[tmp_path])
    scipy.io.savemat(path, {"X": images, "y": np.array([[1.0], [2.0], [3.0], [10.0], [0.0]])})
    assert load("svhn", folders=[tmp_path]).labels.tolist() == [1, 2, 3, 0, 0]


# CIFAR


def write_batch(folder, content):
    folder.mkdir(exist_ok=True)
    (folder / "test_batch").write_bytes(content)


def test_a_pickle_of_nine_bytes_takes_no_memory(tmp_path):
    write_batch(tmp_path, b"\x80\x02Nr\xff\xff\xff\x0f.")
    assert_refused(lambda: load("cifar-10", folders=[tmp_path]), "test_batch", seconds=5, most=2**27)


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}(U\x04data" + ARRAY + b"U\x06labels]u.",  # an array without BUILD
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n}U\x08__name__U\x04evilsb.",  # a state for a function
        b"\x80\x02N(U\x08__name__U\x04evildb.",
        b"\x80\x02" + ARRAY + b"(K\x01NNNNtb.",
        b"\x80\x02(((((((.",
        b"\x80\x02t.",
        b"\x80\x02}]K\x01s.",  # a key that cannot be hashed
        b"\x80\x05\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.",
        b"",
    ],
)
def test_pickles_that_no_one_wrote_are_refused(content, tmp_path):
    write_batch(tmp_path, content)
    assert_refused(lambda: load("cifar-10", folders=[tmp_path]), "test_batch", seconds=5, most=2**27)


@pytest.mark.parametrize("label", [2**70, -1, 100, True])
def test_labels_of_cifar_are_classes(label, tmp_path):
    content = {"data": np.zeros((1, 3072), np.uint8), "labels": [label]}
    write_batch(tmp_path, pickle.dumps(content, 2))
    assert_refused(lambda: load("cifar-10", folders=[tmp_path]), "test_batch")


def test_a_pickle_does_not_change_our_functions(tmp_path):
    import dubium.data.cifar as module

    before = {name: value.__name__ for name, value in vars(module).items() if callable(value)}
    for name in (b"cnumpy.core.multiarray\n_reconstruct\n", b"cnumpy\ndtype\n", b"c_codecs\nencode\n"):
        (tmp_path / "a").write_bytes(b"\x80\x02" + name + b"N}U\x08__name__U\x04evils\x86b.")
        with pytest.raises(FileFormatError):
            read_pickle(tmp_path / "a")
    assert before == {name: value.__name__ for name, value in vars(module).items() if callable(value)}


def test_one_text_is_not_turned_into_many_arrays(tmp_path):
    text = b"X" + struct.pack("<I", 2**24) + b"a" * 2**24 + b"q\x00"
    call = b"c_codecs\nencode\nh\x00\x85R"
    (tmp_path / "a").write_bytes(b"\x80\x02](" + text + call * 300 + b"e.")
    assert_refused(lambda: read_pickle(tmp_path / "a"), "more bytes than the file has", most=2**29)


def test_the_official_opcodes_are_read(tmp_path):
    pixels, labels = write_cifar_python(tmp_path / "test_batch")
    data = load("cifar-10", folders=[tmp_path])
    assert torch.equal(data.images, torch.from_numpy(pixels))
    assert data.labels.tolist() == labels.tolist()


# archives, JSON


@pytest.mark.parametrize("kind", ["link", "large"])
def test_a_member_that_is_a_link_or_huge_is_not_unpacked(kind, tmp_path):
    download = next(d for d in SOURCES["cifar-10"].downloads if d.members)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", compresslevel=1) as tar:
        info = tarfile.TarInfo(download.members[0])
        if kind == "link":
            info.type, info.linkname = tarfile.SYMTYPE, download.members[0]
            tar.addfile(info)
        else:
            info.size = 2**29 + 1
            tar.addfile(info, io.BytesIO(bytes(info.size)))
    assert_refused(lambda: unpack(tmp_path / "a.tar.gz", download, tmp_path / "out"), "a.tar.gz", most=GIB // 4)
    assert not (tmp_path / "out").exists()


HALF_PAIR = '"\\ud800"'.encode("utf-16")


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 10**5,
        b'{"a":' * 10**5,
        b'"\\ud800"',
        b'"\xed\xa0\x80"',
        HALF_PAIR,
        b"9" * 10**4,
        b"\xff",
        b"[]," * 10**7,
        b"",
        b"{",
    ],
)
def test_json_of_any_kind_is_one_kind_of_error(content):
    with pytest.raises(FileFormatError, match=r"a\.json is damaged"):
        parse_json(content, "a.json")
