"""Imports point down, and optional libraries stay out until they are asked for."""

import ast
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import dubium

ROOT = Path(dubium.__file__).parent
LAYERS = [  # a module imports from its own line and from those below it
    ("cli", "web", "reproduce", "_evaluate", "_explain_dataset"),
    ("report", "run"),
    ("evaluation", "training"),
    ("_explain", "_methods", "networks"),
    ("ua_backprop", "explanation", "figures", "notebook", "regions", "fingerprint", "posteriors", "attribution"),
    ("shares", "class_sampling", "softmax_share"),
    ("models", "data"),
    (
        *("checks", "image_checks", "output_checks", "path_checks", "class_names", "files", "folder_lock", "reading"),
        *("seals", "tensor_files", "executor", "gaussian_kernel", "ranking", "seeds", "types", "durations"),
        *("estimate", "errors", "protocols", "network_attributes", "advice", "kinds", "posterior_kinds"),
        *("registry", "option_text", "choices"),
    ),
]
HEIGHT = {name: len(LAYERS) - i for i, names in enumerate(LAYERS) for name in names}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dubium."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("dubium."))


def test_imports_point_down():
    wrong = []
    for path in ROOT.rglob("*.py"):
        own = path.relative_to(ROOT).with_suffix("").parts[0]
        if own in ("__init__", "__main__"):
            continue
        wrong += [f"{own} -> {name} in {path.name}" for name in imported(path) if HEIGHT[name] > HEIGHT[own]]
    assert not wrong


def test_importing_dubium_imports_no_optional_library_and_no_command():
    heavy = ("captum", "laplace", "posteriors", "ray", "gradio", "scipy", "typer", "rich", "torchvision", "pandas")
    check = f"import sys, dubium; print([name for name in {heavy!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"


def test_benchmarks_examples_and_docs_import_names_that_exist():
    """They run seldom, so a name that was changed here would be found missing months later."""
    missing = []
    for folder in ("benchmarks", "examples", "docs"):
        for path in sorted((ROOT.parents[1] / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dubium":
                    module = importlib.import_module(node.module)
                    names = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                    modules = [name for name in names if importlib.util.find_spec(f"{node.module}.{name}")]
                    missing += [f"{path.name}: {node.module}.{name}" for name in names if name not in modules]
    assert not missing
