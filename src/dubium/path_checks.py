"""Names of files and folders that are written to: they promise what they will be."""

from collections.abc import Iterable
from pathlib import Path

from dubium.errors import OptionError

KNOWN_SUFFIXES = (
    ".safetensors", ".npz", ".npy", ".pt", ".pth", ".pkl", ".json", ".csv", ".parquet", ".h5", ".mat", ".zip", ".txt",
    ".png", ".jpg", ".jpeg", ".pdf", ".svg", ".html",
)  # fmt: skip
"""Suffixes that people take for a kind of file."""

RUN, RESULTS, PICTURES = "run.json", "results", "png"
"""What a run writes into its folder: a file that says what of, shards, and a folder of pictures."""
SETTINGS, SHARDS, OVERVIEW = "settings.json", "shards", "overview.json"
"""What an evaluation writes into its folder, beside its figures; the last, what one by all protocols writes."""
COMPARED = "a", "b"
"""The two runs in a comparison's folder."""
PAGE = "index.html"
PAGE_END = "Made by dubium."
"""What every page of dubium's says in its footer."""
TAIL = 2**16  # bytes at the end of a page, in which the footer is


def is_figure_folder(folder: Path) -> bool:
    """Whether the images in a folder are pictures of dubium's: of a run's images, or of an evaluation."""
    return (folder.name == PICTURES and is_run_folder(folder.parent)) or is_evaluation_folder(folder)


def is_run_folder(folder: Path) -> bool:
    """Whether `dubium explain` has written its results there."""
    return (folder / RUN).is_file() and (folder / RESULTS).is_dir()


def is_evaluation_folder(folder: Path) -> bool:
    """Whether `dubium evaluate` has."""
    return (folder / OVERVIEW).is_file() or ((folder / SETTINGS).is_file() and (folder / SHARDS).is_dir())


def refuse_run_folder(folder: Path) -> None:
    """Refuse to write an evaluation beside the results of explained images: both have a page of the same name."""
    if is_run_folder(folder):
        raise OptionError(f"{folder} has the results of explained images. Choose another folder for the evaluation.")


def refuse_evaluation_folder(folder: Path) -> None:
    """Refuse to write results of explained images beside an evaluation, or over a comparison's page."""
    if is_evaluation_folder(folder):
        raise OptionError(f"{folder} has an evaluation. Choose another folder for the results of explained images.")
    if not is_run_folder(folder) and all(is_run_folder(folder / side) for side in COMPARED):
        raise OptionError(f"{folder} has a comparison. Choose another folder for the results of explained images.")


def refuse_own_files(folder: Path, names: Iterable[str]) -> None:
    """Refuse a folder without results of dubium's that has a file which dubium would write: it is the user's own.

    Args:
        names: of files, or patterns of them. A page that dubium wrote is none of the user's, of whatever it is.
    """
    for file in (file for name in names for file in sorted(folder.glob(name))):
        if file.name != PAGE or not is_page(file):
            raise OptionError(
                f"{file} is there, and is not of results that dubium wrote into this folder: it would be replaced. "
                "Choose another folder with --out (out= in Python)."
            )


def is_page(file: Path) -> bool:
    """Whether dubium wrote this page."""
    if not file.is_file():
        return False
    with file.open("rb") as page:
        page.seek(-min(TAIL, page.seek(0, 2)), 2)
        return f"<footer>{PAGE_END}".encode() in page.read()


def refuse_other_suffix(path: Path | str, suffix: str, what: str) -> None:
    """Refuse a file's name whose end promises another kind of file than what is written; other ends are free.

    Args:
        suffix: the right one; "" for a folder.
        what: the sentence about what is written.
    """
    if suffix and Path(path).is_dir():
        raise OptionError(f"{path} is a folder, but {what}. Name a file: {Path(path) / f'result{suffix}'}.")
    if (given := Path(path).suffix).lower() in KNOWN_SUFFIXES and given.lower() != suffix:
        raise OptionError(f"{path} ends with {given}, but {what}. Name it {Path(path).with_suffix(suffix)}.")


def check_folder_name(out: object) -> Path:
    """A folder to write to, which may not be there yet; an empty name would be the current folder."""
    if not isinstance(out, str | Path):
        raise OptionError(f"The folder to write to is {out!r}; a name or path is needed.")
    if not str(out).strip():
        raise OptionError(f"The folder to write to is called {str(out)!r}. Give it a name; '.' is the current folder.")
    if Path(out).is_file():
        raise OptionError(f"{out} is a file; a folder is needed. Choose another name.")
    return Path(out)
