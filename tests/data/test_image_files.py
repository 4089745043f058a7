import io

import numpy as np
import pytest
import torch
from PIL import Image

from dubium.data import load
from dubium.data.fit import place_map, to_channels, to_size, visible_box
from dubium.data.image_files import find_images, read_image
from dubium.errors import DataNotFoundError, FileFormatError

GREY = np.arange(0, 240, 10, dtype=np.uint8).reshape(4, 6)
COLOUR = np.stack([GREY, GREY[::-1], GREY[:, ::-1]], -1)


def saved(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "GIF"])
def test_grey_is_read_exactly(kind):
    found = read_image(saved(Image.fromarray(GREY), kind))
    assert found.shape in {(1, 4, 6), (3, 4, 6)}  # a GIF has a palette
    torch.testing.assert_close(found[0], torch.from_numpy(GREY).float() / 255)


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("TIFF", {}), ("WEBP", {"lossless": True})])
def test_colour_is_read_exactly(kind, options):
    found = read_image(saved(Image.fromarray(COLOUR), kind, **options))
    torch.testing.assert_close(found, torch.from_numpy(COLOUR).permute(2, 0, 1).float() / 255)


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_lossy_files_are_read_nearly(kind):
    flat = np.full((16, 16, 3), (200, 100, 50), np.uint8)
    found = read_image(saved(Image.fromarray(flat), kind, quality=95))
    torch.testing.assert_close(found, torch.from_numpy(flat).permute(2, 0, 1) / 255, atol=0.02, rtol=0)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_kept(kind):
    deep = (np.arange(24, dtype=np.uint16) * 2700 + 1).reshape(4, 6)
    found = read_image(saved(Image.fromarray(deep), kind))
    torch.testing.assert_close(found[0], torch.from_numpy(deep.astype(np.float32)) / 65535)


def test_floats_are_read_if_they_are_from_0_to_1():
    real = (GREY / 255).astype(np.float32)
    torch.testing.assert_close(read_image(saved(Image.fromarray(real), "TIFF"))[0], torch.from_numpy(real))
    with pytest.raises(FileFormatError, match=r"from 0 to 9\.2"):
        read_image(saved(Image.fromarray(real * 10.2), "TIFF"))


def test_transparent_pixels_are_laid_on_white():
    image = Image.fromarray(COLOUR).convert("RGBA")
    image.putpixel((0, 0), (0, 0, 0, 0))
    found = read_image(saved(image, "PNG"))
    assert found.shape == (3, 4, 6)
    assert found[:, 0, 0].tolist() == [1, 1, 1]
    assert read_image(saved(Image.fromarray(GREY).convert("LA"), "PNG")).shape == (1, 4, 6)


def test_a_palette_is_looked_up():
    image = Image.fromarray(COLOUR).quantize(24)
    torch.testing.assert_close(read_image(saved(image, "PNG")), read_image(saved(image.convert("RGB"), "PNG")))


def test_exif_rotation_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6  # turn clockwise to view
    found = read_image(saved(Image.fromarray(COLOUR), "PNG", exif=exif))
    torch.testing.assert_close(found, torch.from_numpy(np.rot90(COLOUR, -1).copy()).permute(2, 0, 1) / 255)


def rotated_jpeg():
    exif = Image.Exif()
    exif[0x0112] = 6  # turn clockwise to view
    return Image.fromarray(COLOUR), {"format": "JPEG", "exif": exif}


def half_transparent_png():
    image = Image.fromarray(COLOUR).convert("RGBA")
    image.putpixel((0, 0), (0, 0, 0, 0))
    image.putpixel((1, 0), (255, 0, 0, 128))
    return image, {"format": "PNG"}


def transparent_grey_png():
    image = Image.fromarray(GREY).convert("LA")
    image.putpixel((0, 0), (0, 0))
    return image, {"format": "PNG"}


def palette_with_a_transparent_entry():
    image = Image.fromarray(COLOUR).quantize(24)
    return image, {"format": "PNG", "transparency": image.getpixel((0, 0))}


WAYS = [rotated_jpeg, half_transparent_png, transparent_grey_png, palette_with_a_transparent_entry]


@pytest.mark.parametrize("make", WAYS)
def test_a_folder_and_images_by_name_give_the_same_pixels(make, tmp_path):
    image, options = make()
    (tmp_path / "class").mkdir()
    image.save(tmp_path / "class" / "a.png", **options)
    expected = read_image(tmp_path / "class" / "a.png")
    assert torch.equal(load(tmp_path).batch([0])[0], expected)
    assert torch.equal(load(tmp_path / "class" / "a.png").batch([0])[0], expected)
    if make is rotated_jpeg:
        assert expected.shape == (3, 6, 4)
    else:
        assert (expected[:, 0, 0] == 1).all()


def test_damage_and_excess_are_one_kind_of_error(tmp_path):
    whole = saved(Image.fromarray(np.zeros((64, 64, 3), np.uint8)), "PNG")
    for content in (b"", b"rubbish", whole[: len(whole) // 2]):
        (tmp_path / "a.png").write_bytes(content)
        with pytest.raises(FileFormatError, match=r"a\.png is damaged or not an image"):
            read_image(tmp_path / "a.png")
    with pytest.raises(FileFormatError, match="64 x 64 pixels; at most 100"):
        read_image(whole, pixels=100)


def test_images_are_found_below_folders_and_by_pattern(tmp_path):
    for name in ("b.png", "a.JPG", "notes.txt", ".hidden.png", "in/c.webp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in find_images([tmp_path])] == ["a.JPG", "b.png", "c.webp"]
    assert [path.name for path in find_images([str(tmp_path / "*.png"), tmp_path / "notes.txt"])] == [
        "b.png",
        "notes.txt",
    ]
    with pytest.raises(DataNotFoundError, match="no file or folder 'nowhere'"):
        find_images(["nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataNotFoundError, match="no images in"):
        find_images([tmp_path / "empty"])


def test_channels_are_repeated_or_weighed():
    grey = torch.rand(1, 3, 3)
    assert to_channels(grey, 3).equal(grey.expand(3, 3, 3))
    torch.testing.assert_close(to_channels(grey.expand(3, 3, 3), 1), grey)


@pytest.mark.parametrize("fit", ["stretch", "crop"])
@pytest.mark.parametrize("size", [(30, 20), (5, 7), (8, 8)])
def test_a_map_at_the_images_size_keeps_its_sum(fit, size):
    small = torch.rand(8, 8)
    large = place_map(small, size, visible_box(size, (8, 8), fit))
    assert large.shape == size
    assert large.min() >= 0
    torch.testing.assert_close(large.sum(), small.sum())


def test_crop_takes_the_middle_and_leaves_the_rest_at_0():
    image = torch.zeros(1, 8, 16)
    image[:, :, 4:12] = 1
    assert to_size(image, (4, 4), "crop").min() == 1
    assert 0 < to_size(image, (4, 4), "stretch").mean() < 1
    back = place_map(torch.ones(4, 4), (8, 16), visible_box((8, 16), (4, 4), "crop"))
    assert back[:, :4].sum() == back[:, 12:].sum() == 0
