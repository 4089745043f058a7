"""The one table of posterior kinds, and the table of functions that train them."""

import json
import subprocess
import sys

import pytest

from dubium.errors import FileFormatError
from dubium.posterior_kinds import DEFAULT_KIND, POSTERIOR_KINDS
from dubium.posteriors.files.record import FILE, read_record
from dubium.training.trainers import TRAINERS


def test_every_kind_has_a_trainer_and_no_trainer_is_without_a_kind():
    assert list(TRAINERS) == list(POSTERIOR_KINDS)


def test_the_default_kind_of_a_storage_is_stored_so():
    assert {POSTERIOR_KINDS[kind].storage: kind for kind in DEFAULT_KIND.values()} == DEFAULT_KIND


def test_the_table_is_read_without_torch():
    check = (
        "import sys, types, importlib.util as u; p = types.ModuleType('dubium'); "
        "s = u.find_spec('dubium'); p.__path__ = list(s.submodule_search_locations); sys.modules['dubium'] = p; "
        "import dubium.posterior_kinds; print('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "False"


@pytest.mark.parametrize("kind", POSTERIOR_KINDS)
def test_a_record_may_name_every_kind_of_the_table_and_no_other(kind, tmp_path):
    content = {"format": 1, "kind": kind, "members": ["a.safetensors"]}
    (tmp_path / FILE).write_text(json.dumps(content))
    assert read_record(tmp_path).kind == kind
    for wrong in (f"{kind}s", [kind], None):
        (tmp_path / FILE).write_text(json.dumps(content | {"kind": wrong}))
        with pytest.raises(FileFormatError, match="expected one of ensemble, snapshot"):
            read_record(tmp_path)
