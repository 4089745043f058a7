"""`python -m tests.audit`: are the libraries that dubium stands on whole, and is anything known against them?

Offline: every installed file against the checksum that its package recorded. Known vulnerabilities: from a copy of the
OSV database that is here (`DUBIUM_OSV` names PyPI's `all.zip`), else from its service; where neither can be had, the
audit says that it could not ask. Exit code 0: nothing found; 1: something is; 2: it could not be asked.
"""

import base64
import json
import os
import sys
import urllib.request
import zipfile
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

SERVICE = "https://api.osv.dev/v1/querybatch"
SECONDS = 20


def installed(root="dubium", extras=("web", "ray")):
    """Every distribution that `root` needs and that is here, by its canonical name."""
    found: dict[str, Distribution] = {}
    waiting = [(root, set(extras))]
    while waiting:
        name, wanted = waiting.pop()
        key = canonicalize_name(name)
        if key in found and not wanted:
            continue
        try:
            first = key not in found
            found[key] = distribution(name)
        except PackageNotFoundError:
            continue
        for text in found[key].requires or ():
            try:
                need = Requirement(text)
            except InvalidRequirement:
                continue
            contexts = [{"extra": extra} for extra in wanted] + ([{"extra": ""}] if first else [])
            known = canonicalize_name(need.name) in found and not need.extras
            if not known and any(need.marker is None or need.marker.evaluate(context) for context in contexts):
                waiting.append((need.name, set(need.extras)))
    return found


def changed_files(package):
    """Files of a distribution whose SHA-256 is not the recorded one, or that are gone."""
    wrong = []
    for file in package.files or ():
        if file.hash is None or file.hash.mode != "sha256":
            continue
        path = Path(str(package.locate_file(file)))
        digest = base64.urlsafe_b64encode(sha256(path.read_bytes()).digest()).rstrip(b"=") if path.is_file() else b""
        if digest.decode() != file.hash.value:
            wrong.append(str(file))
    return wrong


def is_affected(version, affected):
    """Whether an OSV entry's `affected` part is about a version."""
    if version in affected.get("versions", ()):
        return True
    for one in affected.get("ranges", ()):
        if one.get("type") != "ECOSYSTEM":
            continue
        inside = False
        for event in one.get("events", ()):
            try:
                if "introduced" in event:
                    inside |= event["introduced"] == "0" or Version(version) >= Version(event["introduced"])
                elif "fixed" in event:
                    inside &= Version(version) < Version(event["fixed"])
                elif "last_affected" in event:
                    inside &= Version(version) <= Version(event["last_affected"])
            except InvalidVersion:
                continue
        if inside:
            return True
    return False


def ask_database(path, versions):
    """Vulnerabilities of each package, from a copy of the OSV database."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            entry = json.loads(archive.read(name))
            for affected in entry.get("affected", ()):
                package = canonicalize_name(affected.get("package", {}).get("name", ""))
                if package in versions and not entry.get("withdrawn") and is_affected(versions[package], affected):
                    found.setdefault(package, []).append(entry["id"])
    return found


def ask_service(versions, service=SERVICE):
    """Vulnerabilities of each package, from the OSV service; OSError if it cannot be reached."""
    names = sorted(versions)
    queries = [{"package": {"name": n, "ecosystem": "PyPI"}, "version": versions[n]} for n in names]
    body = json.dumps({"queries": queries}).encode()
    request = urllib.request.Request(service, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        results = json.load(answer)["results"]
    found = {name: [one["id"] for one in result.get("vulns", ())] for name, result in zip(names, results, strict=True)}
    return {name: ids for name, ids in found.items() if ids}


def audit(packages, database=None, service=SERVICE):
    """Lines of the report, and the exit code."""
    versions = {name: package.version for name, package in packages.items()}
    lines = [f"{len(packages)} packages: {', '.join(f'{name} {versions[name]}' for name in sorted(versions))}"]
    broken = {name: wrong for name, package in packages.items() if (wrong := changed_files(package))}
    lines += [f"{name}: {len(wrong)} files are not as recorded, {wrong[0]} first" for name, wrong in broken.items()]
    lines += [] if broken else ["Every installed file is as its package recorded it."]
    try:
        known = ask_database(database, versions) if database else ask_service(versions, service)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        lines.append(
            f"Known vulnerabilities could NOT be asked for ({error}): name a copy of the database, DUBIUM_OSV."
        )
        return lines, 1 if broken else 2
    lines += [f"{name} {versions[name]}: {', '.join(ids)}" for name, ids in sorted(known.items())]
    lines += [] if known else ["No vulnerability is known of any of them."]
    return lines, 1 if known or broken else 0


if __name__ == "__main__":
    report, code = audit(installed(), os.environ.get("DUBIUM_OSV"))
    print("\n".join(report))
    sys.exit(code)
