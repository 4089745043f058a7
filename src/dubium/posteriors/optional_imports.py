"""Optional libraries, imported only where they are needed."""

import warnings
from importlib import import_module
from typing import Any

from dubium.errors import MissingExtraError


def import_extra(module: str, extra: str) -> Any:
    """Import a library that `pip install dubium[extra]` brings, without the warnings that it gives about itself."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module(module)
    except (ImportError, RuntimeError) as error:  # a torchvision of another torch raises the latter
        if not isinstance(error, ModuleNotFoundError) or error.name not in (module, module.partition(".")[0]):
            broken = "torchvision::" in str(error)  # its operators are missing beside another build of torch
            advice = ". Install torch and torchvision of the same build, or uninstall torchvision." if broken else ""
            raise MissingExtraError(
                f"This needs the library {module!r}, which is installed but cannot be imported: {error}{advice}"
            ) from error
        raise MissingExtraError(
            f"This needs the library {module!r}, which cannot be imported: {error}. Install it: pip install "
            f"'dubium[{extra}]'."
        ) from error
