"""Names of files and folders that are written to: they promise what they will be."""

from pathlib import Path

from dubium.errors import OptionError

KNOWN_SUFFIXES = (
    ".safetensors", ".npz", ".npy", ".pt", ".pth", ".pkl", ".json", ".csv", ".parquet", ".h5", ".mat", ".zip", ".txt",
    ".png", ".jpg", ".jpeg", ".pdf", ".svg", ".html",
)  # fmt: skip
"""Suffixes that people take for a kind of file."""

RUN, RESULTS, PICTURES = "run.json", "results", "png"
"""What a run writes into its folder: a file that says what of, shards, and a folder of pictures."""
SETTINGS, SHARDS = "settings.json", "shards"
"""What an evaluation writes into its folder, beside its figures."""


def is_figure_folder(folder: Path) -> bool:
    """Whether the images in a folder are pictures of dubium's: of a run's images, or of an evaluation."""
    run = folder.parent
    has_pictures = folder.name == PICTURES and (run / RUN).is_file() and (run / RESULTS).is_dir()
    return has_pictures or ((folder / SETTINGS).is_file() and (folder / SHARDS).is_dir())


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


def check_folder_name(out: Path | str) -> Path:
    """A folder to write to, which may not be there yet; an empty name would be the current folder."""
    if not str(out).strip():
        raise OptionError(f"The folder to write to is called {str(out)!r}. Give it a name; '.' is the current folder.")
    if Path(out).is_file():
        raise OptionError(f"{out} is a file; a folder is needed. Choose another name.")
    return Path(out)
