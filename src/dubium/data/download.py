"""Get a dataset's files: from the official mirrors, resumable and verified, or from a folder that has them."""

import tarfile
import urllib.error
import urllib.request
import zlib
from http.client import HTTPException
from pathlib import Path

from dubium.data.catalog import SOURCES, DatasetSource, Download
from dubium.data.find import find_files, md5
from dubium.data.load import load
from dubium.errors import DataNotFoundError, DownloadError, FileFormatError, lookup
from dubium.files import write_atomically, written_atomically
from dubium.types import Progress

BLOCK = 1 << 18
TIMEOUT = 30  # seconds without a byte
MEMBER = 2**29  # bytes of a file in an archive; CIFAR-100's training images are 154 million


def get_dataset(name: str, folder: Path, *, source: Path | None = None, progress: Progress | None = None) -> list[Path]:
    """Put a dataset's files below `folder`, where `load` finds them; files that are there and right are kept.

    Args:
        name: one of `SOURCES`.
        source: a folder that has the files or the published archives; they are copied after they were read whole. A
            published checksum is not asked of them, so that subsets in the official format will do.
        progress: called with bytes done and bytes in all, file by file.

    Returns:
        The files of the dataset.
    """
    dataset = lookup("dataset", SOURCES, name)
    target = folder / dataset.folders[0]
    if source is not None:
        return copy_dataset(name, dataset, source, target)
    paths = []
    for download in dataset.downloads:
        kept = [target / Path(member).name for member in download.members] or [target / download.name]
        if not all(path.is_file() and md5(path) == dataset.md5[path.name] for path in kept):
            archive = fetch(download, folder if download.members else target, progress)
            if download.members:
                unpack(archive, download, target)
                archive.unlink()
        paths += kept
    return paths


def fetch(download: Download, folder: Path, progress: Progress | None = None) -> Path:
    """Download one file, going on where an earlier attempt stopped, and compare it with its published checksum."""
    folder.mkdir(parents=True, exist_ok=True)
    path, part = folder / download.name, folder / f"{download.name}.part"
    failures = []
    for url in download.mirrors:
        try:
            append_download(url, part, progress or (lambda _done, _all: None))
        except (urllib.error.URLError, OSError, HTTPException) as error:
            failures.append(f"{url} ({error})")
            continue
        digest = md5(part)
        if digest == download.md5:
            part.replace(path)
            return path
        part.unlink()
        failures.append(f"{url} (not the published file: its MD5 is {digest}, not {download.md5})")
    raise DownloadError(
        f"{download.name} could not be downloaded from {'; '.join(failures)}. The same command goes on where this one"
        " stopped; or fetch the file yourself and give its folder with --from."
    )


def append_download(url: str, part: Path, progress: Progress) -> None:
    """Append to `part` the rest of `url`; where the server cannot start in the middle, download all of it."""
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and done:  # nothing lacks
                return
            raise
    with response, part.open("ab") as file:
        if response.status != 206 or not str(response.headers["Content-Range"]).startswith(f"bytes {done}-"):
            file.truncate(0)
            done = 0
        total = done + int(response.headers.get("Content-Length") or 0)
        while block := response.read(BLOCK):
            file.write(block)
            done += len(block)
            progress(done, max(done, total))
    if done < total:
        raise OSError(f"the connection ended after {done} of {total} bytes")


def unpack(archive: Path, download: Download, target: Path) -> None:
    """Write the members that are wanted, and nothing else, whatever else the archive holds."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in download.members:
                found = tar.getmember(member)
                content = tar.extractfile(found) if found.isreg() and found.size <= MEMBER else None
                if content is None:
                    raise KeyError(f"{member} is not a file of at most {MEMBER:,} bytes")
                write_atomically(target / Path(member).name, content.read())
    except (tarfile.TarError, KeyError, ValueError, EOFError, zlib.error, OSError) as error:
        raise FileFormatError(f"{archive} is damaged or not the published archive ({error}).") from error


def copy_dataset(name: str, dataset: DatasetSource, source: Path, target: Path) -> list[Path]:
    """Copy the splits that a folder has, in whichever official form; archives are unpacked."""
    if not source.is_dir():
        raise DataNotFoundError(f"{source} is not a folder.")
    archives = [d for d in dataset.downloads if d.members and (source / d.name).is_file()]
    for download in archives:
        unpack(source / download.name, download, target)
    if archives:
        load(name, "test", folders=[target])
        return [target / Path(member).name for download in archives for member in download.members]
    files: list[Path] = []
    reasons = []
    for split in ("train", "test"):
        try:
            _, found = find_files(name, split, [source])
        except DataNotFoundError as error:
            reasons.append(error)
            continue
        load(name, split, folders=[source])
        files += found
    if not files:
        raise reasons[0]
    for file in files:
        if not (target / file.name).exists() or not (target / file.name).samefile(file):
            with (
                written_atomically(target / file.name) as beside,
                file.open("rb") as content,
                beside.open("wb") as copy,
            ):
                while block := content.read(BLOCK):
                    copy.write(block)
    return [target / file.name for file in files]
