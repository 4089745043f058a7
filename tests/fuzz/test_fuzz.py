"""A few hundred damaged files of each reader; `make fuzz` tries ten thousand."""

import pytest

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
