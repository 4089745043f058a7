"""Protocols write data; figures are drawn from it, and a file that is missing is named."""

import ast
import shutil
from pathlib import Path

import pytest
import torch

import dubium.evaluation
from dubium.data import Dataset
from dubium.errors import FileFormatError
from dubium.evaluation.methods import parse_methods
from dubium.evaluation.protocols import PROTOCOLS, Evaluation, run_protocol
from dubium.registry import CONTROL_NAMES, load_function
from dubium.report import protocols as report_protocols
from dubium.report.evaluation import FIGURES
from dubium.report.protocols import write_figures
from tests.evaluation.handmade import quarrel


@pytest.fixture(scope="module")
def blurring(tmp_path_factory):
    """The folder of a blurring test that is finished but for its figures."""
    out = tmp_path_factory.mktemp("blurring")
    x = torch.zeros(5, 1, 8, 8)
    x[:, 0, 2, 3] = 1.0
    data = Dataset(x, None, (), "quarrel", "test")
    evaluation = Evaluation(quarrel(), data, parse_methods(["grad"], 1), ("epistemic",), out)
    run_protocol("blurring", evaluation, scale="smoke")
    return out


def test_a_protocol_draws_nothing_and_figures_need_its_folder_alone(blurring, tmp_path):
    shutil.copytree(blurring, tmp_path / "copy")
    assert not list(blurring.glob("*.png"))
    paths = write_figures(tmp_path / "copy")
    assert [path.name for path in paths] == [
        "urr.png",
        "blurring-grad.png",
        *(f"blurring-{name}.png" for name in CONTROL_NAMES),
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


@pytest.mark.parametrize("name", ["grad/00000-epistemic.json", "grad/00000-epistemic.safetensors", "examples"])
def test_a_missing_shard_is_named_and_none_is_written_in_its_place(name, blurring, tmp_path):
    shutil.copytree(blurring, tmp_path / "copy")
    missing = tmp_path / "copy" / "shards" / name
    shutil.rmtree(missing) if missing.is_dir() else missing.unlink()
    with pytest.raises(FileFormatError, match=f"{name}.*is missing.*again"):
        write_figures(tmp_path / "copy")
    assert not missing.exists()


def test_a_damaged_shard_is_named(blurring, tmp_path):
    shutil.copytree(blurring, tmp_path / "copy")
    (tmp_path / "copy" / "shards" / "grad" / "00000-epistemic.safetensors").write_bytes(b"rubbish")
    with pytest.raises(FileFormatError, match=r"00000-epistemic\.safetensors is damaged"):
        write_figures(tmp_path / "copy")


def test_a_folder_that_is_not_finished_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="not finished"):
        write_figures(tmp_path)


def test_the_table_of_protocols_names_functions_that_are_there():
    for protocol in PROTOCOLS.values():
        paths = (protocol.options_path, protocol.evaluate_path, protocol.figures_path)
        assert all(callable(load_function(path)) for path in paths if path is not None)


def test_evaluation_imports_nothing_that_draws():
    names = set()
    for path in Path(dubium.evaluation.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                names.add(node.module)
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
    assert not [name for name in names if name.startswith(("matplotlib", "PIL", "dubium.figures", "dubium.report"))]


def test_every_figure_has_a_title_on_the_page():
    """Names of figures about all methods, as the code that draws them spells them."""
    named = set()
    for file in Path(report_protocols.__file__).parent.glob("[a-z]*.py"):
        functions = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
        for function in (function for function in functions if function.name.endswith("_figures")):
            tables = [node for node in ast.walk(function) if isinstance(node, ast.Dict)]
            named |= {key.value for table in tables for key in table.keys if isinstance(key, ast.Constant)}
    assert len(named) >= 8
    assert named == FIGURES.keys()
