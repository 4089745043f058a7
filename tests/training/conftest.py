import pytest

from dubium.executor import thread_count
from tests.data.official import write_idx


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small only wait for each other on two."""
    with thread_count(1):
        yield


@pytest.fixture
def digits(tmp_path, monkeypatch):
    """A small MNIST in official files, found by its name."""
    write_idx(tmp_path / "data" / "mnist", "train", count=96, seed=1)
    write_idx(tmp_path / "data" / "mnist", "t10k", count=40, seed=2)
    monkeypatch.setenv("DUBIUM_DATA", str(tmp_path / "data"))
    return tmp_path / "data"
