"""Files and folders that are given as weight files and are none: what each is, and what to do."""

from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile

from dubium.errors import FileFormatError
from dubium.reading import open_archive

PICKLED = (".pt", ".pth", ".ckpt", ".bin", ".tar")
TEXT_BYTES = 64  # from the start: a weight file has bytes there that no text has


def refuse_no_weights(content: bytes, file: str | Path) -> None:
    """Raise an error for what is no weight file: an empty file, a text, a cut-off archive, or one of TorchScript."""
    if not content:
        raise FileFormatError(f"{file} is damaged: it is empty. Was it written or copied whole? Save or copy it again.")
    if content.startswith(b"version https://git-lfs"):
        raise FileFormatError(
            f"{file} is a pointer of Git LFS, a few lines of text in place of the weights, which were not downloaded. "
            "Run `git lfs pull` in the repository that it comes from."
        )
    start = content[:TEXT_BYTES].decode("ascii", errors="replace")
    if all(sign.isprintable() or sign in "\t\r\n" for sign in start) and "\ufffd" not in start:
        page = " It is a web page: download the file itself." if start.lstrip().lower().startswith("<") else ""
        raise FileFormatError(
            f"{file} is damaged, or no weight file: it is a text, which begins with {start[:30]!r}.{page}"
        )
    if content.startswith(b"PK"):
        refuse_other_archive(content, file)


def refuse_other_archive(content: bytes, file: str | Path) -> None:
    """Raise an error for an archive without its end, or one of TorchScript, which has code."""
    try:
        with open_archive(BytesIO(content)) as archive:
            names = [name.partition("/")[2] for name in archive.namelist()]
    except BadZipFile as error:
        raise FileFormatError(
            f"{file} is damaged: its end is missing, which lists what is in it. Was it copied whole? Copy it again."
        ) from error
    except ValueError:  # what is wrong with it is said by the check of its size
        return
    if "constants.pkl" in names and any(name.startswith("code/") for name in names):
        raise FileFormatError(
            f"{file} is a network compiled by torch.jit, with code, which is not run. Its weights alone: "
            f"torch.save(torch.jit.load({str(file)!r}).state_dict(), 'weights.pt')."
        )


def weights_within(folder: str | Path) -> str:
    """How the weight files in a folder are named, as a sentence after a space; "" where there are none."""
    for suffix in (*PICKLED, ".safetensors"):
        if any(Path(folder).glob(f"*{suffix}")):
            files = str(Path(folder) / f"*{suffix}")
            return (
                f" It has weight files, which are named so: 'module:function@{files}' on the command line, "
                f"dubium.load_weights(function, sorted(glob.glob({files!r}))) in Python."
            )
    return ""
