"""What stands beside the pixels of an image file, bounded before Pillow reads it.

Pillow joins comments and EXIF parts one by one, which takes the square of their number, and reads the value of every
TIFF tag, also where thousands of tags name the same bytes: 20 MB would take minutes, or hundreds of gigabytes.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedIOBase, BytesIO
from typing import NamedTuple

from PIL import Image

PARTS = 4096  # chunks, segments or blocks that are not pixels
EXIF_PARTS = 64  # segments of 64 kB that are joined
HEAD = 2**16  # bytes in which the header of a PPM file ends
SLACK = 2**16  # bytes of values that tags may have in common
TAGS = 2**16  # of a folder
FOLDERS = 2**13  # of tags: Pillow compares the places of all, two by two
INNER = (0x8769, 0x8825, 0xA005)  # tags that name a folder of more tags: EXIF, GPS, interoperability
PIXEL_CHUNKS = (b"IDAT", b"fdAT", b"fcTL")
TAG_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
ORIENTATION = 0x0112  # the tag of EXIF
IN_XMP = re.compile(rb'tiff:Orientation(?:="|>)([1-8])')
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = (5, 6, 7, 8)  # orientations that exchange height and width


def check_header(file: BufferedIOBase) -> None:
    """Raise `ValueError` if a file has more beside its pixels than an image has; the file is at its beginning again."""
    begin = file.read(4)
    for magic, check in CHECKS.items():
        if begin.startswith(magic):
            check(file)
    file.seek(0)


def check_chunks(file: BufferedIOBase) -> None:
    """Count the chunks of a PNG file that are not pixels."""
    file.seek(8)
    count = 0
    while len(head := file.read(8)) == 8:
        count += head[4:] not in PIXEL_CHUNKS
        if count > PARTS:
            raise ValueError(f"more than {PARTS:,} chunks that are not pixels")
        file.seek(int.from_bytes(head[:4], "big") + 4, 1)


def check_segments(file: BufferedIOBase) -> None:
    """Count the segments of a JPEG file before its pixels, and read the tags of its EXIF."""
    file.seek(2)
    count, exif = 0, []
    while len(head := file.read(1)) == 1:
        if head != b"\xff":
            continue  # as Pillow does: bytes between segments are skipped
        while (marker := file.read(1)) == b"\xff":
            pass
        if marker == b"\xda" or not marker:  # the pixels begin
            break
        if marker in STANDING:
            continue
        size = int.from_bytes(file.read(2), "big") - 2
        content = file.read(max(size, 0))
        if marker == b"\xe1" and content[:4] == b"Exif":
            exif.append(content[6:])
        count += 1
        if count > PARTS or len(exif) > EXIF_PARTS:
            raise ValueError(f"more than {PARTS:,} segments before the pixels, or {EXIF_PARTS} of EXIF")
    if exif:
        check_tags(BytesIO(b"".join(exif)))


def check_blocks(file: BufferedIOBase) -> None:
    """Count the blocks of a GIF file before its first image."""
    file.seek(10)
    flags = file.read(3)
    file.seek(3 * 2 ** ((flags[0] & 7) + 1) if flags and flags[0] & 128 else 0, 1)
    count = 0
    while (kind := file.read(1)) and kind not in b",;":
        if kind != b"!":
            continue
        file.read(1)
        while size := file.read(1)[:1].lstrip(b"\0"):
            file.seek(size[0], 1)
            count += 1
        count += 1
        if count > PARTS:
            raise ValueError(f"more than {PARTS:,} blocks before the first image")


def check_text(file: BufferedIOBase) -> None:
    """See that the header of a PPM file ends soon: Pillow reads it byte by byte."""
    file.seek(0)
    head = file.read(HEAD)
    if len(head) == HEAD and len(re.sub(rb"#[^\r\n]*", b"", head).split()) < 4:
        raise ValueError(f"a header of more than {HEAD:,} bytes")


def check_tags(file: BufferedIOBase) -> None:
    """Add up the values of all tags of a TIFF file, or of EXIF: together they are not larger than the file."""
    room, layout = file.seek(0, 2) + SLACK, TiffLayout.of(file)
    folders, seen = [layout.first], set[int]()
    while folders:
        place = folders.pop()
        tags, following = layout.read_tags(file, place)
        seen.add(place)
        room -= sum(tag.size for tag in tags)
        inner = [tag.value for tag in tags if tag.name in INNER]
        folders += [other for other in (following, *inner) if other and other not in seen]
        if room < 0 or len(seen) > FOLDERS:
            raise ValueError(f"tags whose values are larger than the file, or of more than {FOLDERS:,} images")


class TiffTag(NamedTuple):
    """A tag of TIFF or EXIF: `size` is of a value elsewhere in the file, `value` a number that the tag itself has."""

    name: int
    size: int
    value: int


@dataclass(frozen=True)
class TiffLayout:
    """How the numbers of a TIFF file, or of EXIF, are written: BigTIFF has fields of 8 bytes, others of 4."""

    is_little: bool
    wide: int
    first: int  # where the first folder of tags is

    @classmethod
    def of(cls, file: BufferedIOBase) -> "TiffLayout":
        file.seek(0)
        head = file.read(16)
        is_little = head[:2] == b"II"
        wide = 8 if head[2:4] in (b"+\0", b"\0+") else 4
        return cls(is_little, wide, cls(is_little, wide, 0).number(head[wide : 2 * wide]))

    def number(self, content: bytes) -> int:
        return int.from_bytes(content, "little" if self.is_little else "big")

    def read_tags(self, file: BufferedIOBase, place: int) -> tuple[list[TiffTag], int]:
        """The tags of a folder, and where the next folder is; 0 after the last."""
        length = file.seek(0, 2)
        file.seek(min(place, length))
        count = self.number(file.read(2 if self.wide == 4 else 8))
        found: list[TiffTag] = []
        for _ in range(min(count, TAGS)):
            tag = file.read(4 + 2 * self.wide)
            if len(tag) < 4 + 2 * self.wide:
                return found, 0
            size = TAG_BYTES.get(self.number(tag[2:4]), 1) * self.number(tag[4 : 4 + self.wide])
            is_here = size <= self.wide
            value = self.number(tag[4 + self.wide :][:size]) if is_here else 0
            found.append(TiffTag(self.number(tag[:2]), 0 if is_here or size > length else size, value))
        return found, self.number(file.read(self.wide))


def orientation(image: Image.Image) -> int:
    """How an image was turned, from 1 to 8, as its EXIF or XMP says; nothing else of these is read.

    A TIFF file's pixels and size are upright already, since Pillow turns them.
    """
    if image.format == "TIFF":
        return 1
    exif = image.info.get("exif")
    if exif is None and "Raw profile type exif" in image.info:
        with suppress(ValueError):
            exif = bytes.fromhex("".join(image.info["Raw profile type exif"].split("\n")[3:]))
    if exif:
        file = BytesIO(exif.removeprefix(b"Exif\0\0"))
        layout = TiffLayout.of(file)
        found = [tag.value for tag in layout.read_tags(file, layout.first)[0] if tag.name == ORIENTATION]
        if found:
            return found[-1]
    xmp = image.info.get("XML:com.adobe.xmp") or image.info.get("xmp") or b""
    match = IN_XMP.search(xmp.encode(errors="replace") if isinstance(xmp, str) else xmp)
    return int(match[1]) if match else 1


def turn_upright(image: Image.Image) -> Image.Image:
    """The image as it was seen when it was taken."""
    turn = TURNS.get(orientation(image))
    return image if turn is None else image.transpose(turn)


STANDING = (b"\x00", b"\x01", *(bytes([code]) for code in range(0xD0, 0xDA)))  # markers without a length
CHECKS = {
    b"\x89PNG": check_chunks,
    b"\xff\xd8": check_segments,
    b"GIF8": check_blocks,
    b"P": check_text,
    b"II": check_tags,
    b"MM": check_tags,
}
