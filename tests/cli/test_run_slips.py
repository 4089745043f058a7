"""What a user of runs would otherwise find out late: sizes, folders and files that are not what they seem."""

import os
import shutil

import numpy as np
import pytest

from dubium.checks import parse_memory
from dubium.data.image_files import find_images
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
    taken = (
        "images are brought to the networks' size, 8 pixels high, 8 wide (--fit crop --resize 10: the middle of that"
    )
    assert taken in say(*EXPLAIN, "--images", "photos", "--input-shape", "3,8,8", "--resize", 10)
    (here / "photos" / "!broken.png").write_bytes(b"no image")
    more = ("--images", "photos", "--input-shape", "3,8,8", "--resize", 10, "--fresh")
    assert taken in say(*EXPLAIN, *more, code=1)


@pytest.mark.parametrize("words", [("explain", "--images"), ("explain", "--dataset"), ("evaluate", "--dataset")])
def test_images_of_a_kind_that_is_not_read_are_counted_and_named_and_other_files_are_not(here, words):
    for name in ("phone.HEIC", "README.txt", "labels.csv", "Thumbs.db", ".hidden.avif", "notes/old.svg"):
        (here / "photos" / name).parent.mkdir(exist_ok=True)
        (here / "photos" / name).write_bytes(b"no image")
    command = EXPLAIN if words[0] == "explain" else ("evaluate", "blurring", OWN, "--methods", "grad", "--out", "e")
    more = ("--input-shape", "3,8,8") if words[0] == "explain" else ("--scale", "smoke", "--step", 10)
    found = say(*command, words[1], "photos", *more, code=1)
    assert "Files of the kind .heic are not read; convert them to PNG or JPEG." in found
    assert "Files of the kind .svg are not read" in found
    assert "2 files" in found
    assert not any(name in found for name in ("README", "labels.csv", "Thumbs", "hidden"))


def test_images_of_kinds_that_are_not_read_come_last_so_that_the_others_keep_their_numbers(here):
    (here / "photos" / "!phone.heic").write_bytes(b"no image")
    assert [file.name for file in find_images(["photos"])] == ["0.png", "1.png", "2.png", "3.png", "!phone.heic"]


def test_an_array_that_is_named_as_an_image_is_told_where_it_belongs(here):
    np.save("x.npy", np.zeros((2, 8, 8, 3), np.uint8))
    assert "(of no known format). Arrays of images are a dataset: --dataset x.npy" in say(
        *EXPLAIN, "--images", "x.npy", code=2
    )


def test_named_and_unnamed_classes_are_compared_by_number_with_a_word_about_it_and_shown_by_name(here):
    explain = ("explain", OWN, "--images", "photos", "--input-shape", "3,8,8", "--method", "grad")
    for out, names in (("a", ()), ("b", ("--names", "ant,bee,cat")), ("c", ())):
        say(*explain, *names, "--out", out)
    note = "Classes have names in {} alone: they are compared by their numbers, and shown by these names."
    assert note.format("B") in say("compare", "a", "b", "--out", "ab")
    assert note.format("A") in say("compare", "b", "a", "--out", "ba")
    assert "Classes have names" not in say("compare", "a", "c", "--out", "ac")
    pages = {out: (here / out / "index.html").read_text() for out in ("ab", "ac")}
    assert note.format("B") in pages["ab"]
    found = [any(name in page for name in ("ant,", "bee,", "cat,")) for page in pages.values()]
    assert found == [True, False]


def test_a_folder_of_images_is_the_same_setting_however_it_is_spelt(here):
    more = ("--input-shape", "3,8,8", "--out", "o")
    for option in ("--images", "--dataset"):
        say(*EXPLAIN, option, "photos", *more, "--fresh")
        before = {file: file.stat().st_mtime_ns for file in (here / "o" / "results").iterdir()}
        for name in ("photos/", "./photos", here / "photos", "../" + here.name + "/photos"):
            say(*EXPLAIN, option, name, *more)
            assert {file: file.stat().st_mtime_ns for file in (here / "o" / "results").iterdir()} == before
    shutil.copytree(here / "photos", here / "same")
    assert "settings.images.dataset is 'photos' there, 'same' here" in say(*EXPLAIN, "--dataset", "same", *more, code=2)


def test_images_that_were_touched_are_told_by_what_files_are_compared(here):
    more = ("--images", "photos", "--input-shape", "3,8,8", "--out", "o")
    say(*EXPLAIN, *more)
    os.utime(here / "photos" / "0.png", (0, 0))
    found = say(*EXPLAIN, *more, code=2)
    assert "Image files are the same by their names, sizes and times of change, not by their pixels" in found
    assert "sizes and times" not in say(*EXPLAIN, "--dataset", "demo", "--input-shape", "3,28,28", "--out", "o", code=2)


def test_a_whole_number_as_text_is_a_number_of_bytes(here):
    say(*EXPLAIN, "--images", "photos", "--input-shape", "3,8,8", "--memory", "536870912")
    assert parse_memory(" 2000 ") == 2000


def test_a_table_that_does_not_list_all_says_how_many_more_there_are(here):
    write_photos([here / "many"], 12, (8, 8))
    explain = ("explain", OWN, "--method", "grad", "--images", "many", "--input-shape", "3,8,8", "--fresh")
    assert "... and 2 more that are less uncertain 12 images scored, 12 explained. Open" in say(*explain)
    assert "... and 1 more that are less uncertain 12 images scored, 11 explained. Open" in say(*explain, "--top", 11)
    assert "more that are" not in say(*explain, "--top", 10)
    assert "... and 9 more" in say("uncertainty", *explain[1:2], *explain[4:8], "--top", 3)


def test_an_estimate_of_files_counts_files_since_some_may_not_be_readable(here):
    (here / "photos" / "broken.png").write_bytes(b"no image")
    found = say(*EXPLAIN, "--images", "photos", "--input-shape", "3,8,8", "--estimate")
    assert "5 files to score (10 forward passes), 1 to explain: about" in found


def test_an_array_of_one_colour_image_is_told_how_to_become_one(here):
    note = "Is the array one colour image, not three grey ones? Save it as images: numpy.save(name, x[None])."
    for count, said in ((3, True), (4, False)):
        np.save("x.npy", np.zeros((count, 8, 8), np.uint8))
        assert (note in say(*EXPLAIN, "--dataset", "x.npy", "--fresh")) == said
    np.save("x.npy", np.zeros((1, 3, 8, 8), np.uint8))
    assert "grey" not in say(*EXPLAIN, "--dataset", "x.npy", "--fresh")
