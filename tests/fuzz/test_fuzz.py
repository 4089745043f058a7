"""A few hundred damaged files of each reader; `make fuzz` tries ten thousand."""

import pytest

from tests.fuzz import parts
from tests.fuzz.parts import run_part, tally_of
from tests.fuzz.worker import GOOD, READERS
from tests.limits import IS_LINUX

FILES = 300


@pytest.mark.slow
@pytest.mark.skipif(not IS_LINUX, reason="memory is measured as Linux does it")
@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_refused_by_name_without_hangs_crashes_or_much_memory(name):
    tally = run_part(name, tally_of({}, name), FILES)
    assert tally["breakages"] == []
    assert sum(tally["outcomes"].values()) == tally["files"] == FILES
    assert set(tally["outcomes"]) <= set(GOOD)
    assert tally["outcomes"]["refused"] > FILES / 20


def test_files_are_counted_and_go_on_after_the_last_number(monkeypatch):
    def lines(_name, start, stop):
        for index in range(start, min(stop, start + 3)):  # a worker that ends early
            yield {"index": index, "outcome": "refused", "growth": 1, "seconds": 0.1}

    monkeypatch.setattr(parts, "worker_lines", lines)
    tally = run_part("idx", tally_of({}, "idx"), 5)
    assert (tally["files"], tally["next"]) == (5, 5)
    assert tally["commit"] == parts.commits_until_now(None)
    assert parts.commits_until_now("0000000") == f"0000000 to {tally['commit']}"
    tally = run_part("idx", {**tally, "next": 100}, 5)
    assert (tally["files"], tally["next"], tally["outcomes"]) == (10, 105, {"refused": 10})
