"""What stands beside the pixels of an image file: too much of it, or the way that the image was turned."""

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from dubium.data.image_files import image_size, read_image
from dubium.data.image_headers import FOLDERS, PARTS, TiffLayout, check_header
from tests.limits import IS_LINUX, assert_refused

PIXELS = np.random.default_rng(0).integers(0, 255, (4, 6, 3), np.uint8)
MEGABYTES = 20 * 10**6  # what an upload may have
pytestmark = pytest.mark.skipif(not IS_LINUX, reason="processes are forked and measured as Linux does it")


def saved(kind, **options):
    stream = io.BytesIO()
    Image.fromarray(PIXELS).save(stream, kind, **options)
    return stream.getvalue()


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_with(*chunks):
    content = saved("PNG")
    return content[:33] + b"".join(chunks) + content[33:]


def jpeg_with(segments):
    content = saved("JPEG")
    return content[:2] + segments + content[2:]


def gif_with(extensions):
    content = saved("GIF")
    place = 13 + 3 * 2 ** ((content[10] & 7) + 1)
    return content[:place] + extensions + content[place:]


def tags_of_one_value(count, size):
    """EXIF, or a TIFF file without pixels, whose tags all name the same bytes."""
    place = 8 + 2 + 12 * count + 4
    tags = b"".join(struct.pack("<HHLL", 30_000 + number, 7, size, place) for number in range(count))
    return b"II*\0\x08\0\0\0" + struct.pack("<H", count) + tags + b"\0\0\0\0" + bytes(size)


def inner_tags_of_one_value(count, size):
    """The same in a folder that the first one names."""
    place = 8 + 2 + 12 + 4
    head = b"II*\0\x08\0\0\0" + struct.pack("<HHHLL", 1, 0x8769, 4, 1, place) + b"\0\0\0\0"
    value = place + 2 + 12 * count + 4
    tags = b"".join(struct.pack("<HHLL", 30_000 + number, 7, size, value) for number in range(count))
    return head + struct.pack("<H", count) + tags + b"\0\0\0\0" + bytes(size)


def chain_of_folders(count):
    """A TIFF file of that many images without a tag."""
    places = [8 + 6 * number for number in range(1, count)] + [0]
    return b"II*\0\x08\0\0\0" + b"".join(struct.pack("<HL", 0, place) for place in places)


HUGE = {
    "GIF comment": lambda: gif_with(b"!\xfe" + (b"\xff" + b"c" * 255) * (MEGABYTES // 256) + b"\0"),
    "GIF comments": lambda: gif_with(b"!\xfe\1a\0" * (MEGABYTES // 5)),
    "PNG texts": lambda: png_with(*[chunk(b"tEXt", b"%d\0a" % number) for number in range(200_000)]),
    "JPEG EXIF": lambda: jpeg_with((b"\xff\xe1\xff\xffExif\0\0" + bytes(65_527)) * (MEGABYTES // 65_537)),
    "JPEG segments": lambda: jpeg_with(b"\xff\xfe\0\3a" * (MEGABYTES // 5)),
    "JPEG EXIF of one value": lambda: jpeg_with(jpeg_parts(tags_of_one_value(30_000, 10**6))),
    "TIFF of one value": lambda: tags_of_one_value(1000, MEGABYTES),
    "TIFF of one inner value": lambda: inner_tags_of_one_value(1000, MEGABYTES),
    "TIFF of images": lambda: chain_of_folders(10**6),
    "PPM comment": lambda: b"P6 2 #" + b"x" * MEGABYTES + b"\n2 255\n" + bytes(12),
}


def jpeg_parts(exif):
    parts = [exif[place : place + 65_000] for place in range(0, len(exif), 65_000)]
    return b"".join(b"\xff\xe1" + struct.pack(">H", len(part) + 8) + b"Exif\0\0" + part for part in parts)


@pytest.mark.parametrize("name", HUGE)
def test_much_beside_the_pixels_is_refused_before_it_is_read(name, tmp_path):
    (tmp_path / "a.png").write_bytes(HUGE[name]())
    assert_refused(lambda: read_image(tmp_path / "a.png"), "a.png is damaged or not an image", seconds=10, most=2**28)


@pytest.mark.parametrize("make", [tags_of_one_value, inner_tags_of_one_value])
def test_tags_are_not_read_where_only_the_orientation_is_wanted(make, tmp_path):
    (tmp_path / "a.png").write_bytes(png_with(chunk(b"eXIf", make(1000, MEGABYTES))))
    before = read_image(saved("PNG"))
    torch.testing.assert_close(read_image(tmp_path / "a.png"), before)  # 20 GB, if each were read


def test_as_much_as_honest_files_have_is_read():
    texts = png_with(*[chunk(b"tEXt", b"%d\0a" % number) for number in range(PARTS - 100)])
    comments = gif_with(b"!\xfe\1a\0" * (PARTS // 2 - 10))
    for content in (texts, comments, jpeg_with(b"\xff\xfe\0\3a" * (PARTS - 100)), jpeg_with(b"\xff\xff\xfe\0\2" * 3)):
        assert read_image(content).shape == (3, 4, 6)
    frames = io.BytesIO()
    Image.fromarray(PIXELS).save(frames, "TIFF", save_all=True, append_images=[Image.fromarray(PIXELS)] * 50)
    assert read_image(frames.getvalue()).shape == (3, 4, 6)
    check_header(io.BytesIO(chain_of_folders(FOLDERS)))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("turn", range(10))
def test_an_image_is_turned_as_pillow_turns_it(kind, order, turn, tmp_path):
    exif = Image.Exif()
    exif.endian = order
    exif[0x010E], exif[0x0112] = "a description", turn
    content = saved(kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
    with Image.open(io.BytesIO(content)) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    torch.testing.assert_close(read_image(content), torch.from_numpy(expected.copy()).permute(2, 0, 1) / 255)
    (tmp_path / "a").write_bytes(content)
    assert image_size(tmp_path / "a") == expected.shape[:2]


def test_an_image_is_turned_as_its_xmp_or_raw_profile_says():
    xmp = b'<x:xmpmeta tiff:Orientation="6"/>'
    text = b"XML:com.adobe.xmp\0\0\0\0\0" + xmp
    exif = Image.Exif()
    exif[0x0112] = 6
    raw = "\n".join(["", "exif", "      40", exif.tobytes().hex()]).encode()
    for content in (png_with(chunk(b"iTXt", text)), png_with(chunk(b"tEXt", b"Raw profile type exif\0" + raw))):
        expected = torch.from_numpy(np.rot90(PIXELS, -1).copy()).permute(2, 0, 1) / 255
        torch.testing.assert_close(read_image(content), expected)


def test_big_tiff_has_wide_fields():
    head = b"II+\0\x08\0\0\0" + struct.pack("<Q", 16)
    tags = struct.pack("<Q", 2) + struct.pack("<HHQHHHH", 0x0112, 3, 1, 6, 0, 0, 0)
    tags += struct.pack("<HHQQ", 700, 7, 9, 0) + struct.pack("<Q", 0)
    file = io.BytesIO(head + tags)
    layout = TiffLayout.of(file)
    found, following = layout.read_tags(file, layout.first)
    assert [tuple(tag) for tag in found] == [(0x0112, 0, 6), (700, 9, 0)]
    assert (layout.first, following) == (16, 0)
