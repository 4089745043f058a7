import json

import pytest

from dubium.errors import OptionError
from dubium.files import check_same_settings, write_atomically, write_json, written_atomically


def test_content_arrives_and_nothing_is_left_beside_it(tmp_path):
    write_atomically(tmp_path / "new" / "a.bin", b"\x00\x01")
    write_atomically(tmp_path / "new" / "a.bin", "é")
    assert (tmp_path / "new" / "a.bin").read_bytes() == "é".encode()
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a.bin"]


def test_a_failure_while_writing_leaves_the_old_file_and_no_rest(tmp_path):
    write_atomically(tmp_path / "a", b"old")

    def fail_while_writing():
        with written_atomically(tmp_path / "a") as beside:
            beside.write_bytes(b"half")
            raise RuntimeError("disk")

    with pytest.raises(RuntimeError, match="disk"):
        fail_while_writing()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_json_is_read_back_and_nan_is_refused(tmp_path):
    write_json(tmp_path / "a.json", {"x": [1, None]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": [1, None]}
    with pytest.raises(ValueError):
        write_json(tmp_path / "a.json", float("nan"))
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": [1, None]}


def test_a_writer_that_replaces_the_file_does_not_change_who_may_read_it(tmp_path):
    write_atomically(tmp_path / "plain", b"")
    with written_atomically(tmp_path / "a") as beside:
        (tmp_path / "private").write_bytes(b"x")
        (tmp_path / "private").chmod(0o600)
        (tmp_path / "private").replace(beside)
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert (tmp_path / "a").read_bytes() == b"x"


def test_digests_of_other_settings_are_short_and_come_last(tmp_path):
    there, here = ({"images": {"sha256": letter * 64, "count": count}} for letter, count in (("a", 1), ("b", 2)))
    with pytest.raises(OptionError) as refused:
        check_same_settings(tmp_path, there, here)
    assert f"images.count is 1 there, 2 here; images.sha256 is {'a' * 12!r} there, {'b' * 12!r} here." in str(
        refused.value
    )


def test_a_folder_of_other_settings_is_refused_with_every_difference(tmp_path):
    there = {"recipe": {"lr": 0.1, "options": {"filters": 4}}, "kinds": ["total"], "seed": 0}
    check_same_settings(tmp_path, there, {**there, "kinds": ("total",)})  # as JSON holds it
    here = {"recipe": {"lr": 0.5, "options": {"filters": 8}}, "kinds": ["total"], "seed": 0, "device": "cuda"}
    with pytest.raises(OptionError) as refused:
        check_same_settings(tmp_path, there, here, advice="Use --fresh.")
    assert str(refused.value) == (
        f"{tmp_path} belongs to a run with other settings: recipe.lr is 0.1 there, 0.5 here; recipe.options.filters is "
        "4 there, 8 here; device is not given there, 'cuda' here. Use --fresh."
    )
