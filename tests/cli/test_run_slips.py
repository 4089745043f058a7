"""What a user of runs would otherwise find out late: sizes, folders and files that are not what they seem."""

import pytest

from tests.own_networks import bring_networks, own_networks, say, write_photos

OWN = "runslips:network@a.pt,b.pt"
EXPLAIN = ("explain", OWN, "--method", "grad", "--top", 1)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working folder: code, weights, and four photos of the networks' size."""
    bring_networks(tmp_path, monkeypatch, "runslips", own_networks())
    write_photos([tmp_path / "photos"], 4, (8, 8))
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        (*EXPLAIN, "--images", "photos"),
        ("uncertainty", OWN, "--dataset", "photos"),
        ("evaluate", "blurring", OWN, "--dataset", "photos", "--out", "e"),
        ("serve", OWN, "--images", "photos", "--no-browser"),
    ],
)
def test_a_resize_is_refused_where_it_is_not_known_of_what_size_the_middle_is(here, command):
    found = say(*command, "--resize", 16, code=2)
    assert "resize is 16, and it is not known what size the networks take" in found
    assert "Give it by --input-shape C,H,W." in found


def test_that_the_middle_is_taken_is_said_of_images_of_the_networks_size_and_beside_a_broken_one(here):
    taken = "images are brought to the networks' size, 8 pixels high, 8 wide (--fit crop --resize 10: the middle of that"
    assert taken in say(*EXPLAIN, "--images", "photos", "--input-shape", "3,8,8", "--resize", 10)
    (here / "photos" / "!broken.png").write_bytes(b"no image")
    more = ("--images", "photos", "--input-shape", "3,8,8", "--resize", 10, "--fresh")
    assert taken in say(*EXPLAIN, *more, code=1)
