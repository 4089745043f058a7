"""Three kills of each command, a trial of each other fault, some calls; `make soak` makes hundreds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.commands import COMMANDS
from tests.soak.faults import FAULTS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="commands are forked")]
PARTS = {name: [f"{fault}:{name}" for fault in FAULTS] for name in COMMANDS} | {"calls": ["calls", "threads"]}


@pytest.mark.parametrize("name", PARTS)
def test_every_trial_ends_as_an_undisturbed_run(name, tmp_path):
    command = [sys.executable, "-m", "tests.soak", *PARTS[name], "--trials", "3"]
    environment = {**os.environ, "DUBIUM_SOAK": str(tmp_path / "results.json"), "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    found = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
