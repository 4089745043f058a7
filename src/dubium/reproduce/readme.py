"""A short table for a README."""

from pathlib import Path

from dubium.errors import FileFormatError
from dubium.files import write_atomically
from dubium.reproduce.answers import mitigation_words
from dubium.reproduce.claims import verdict_counts
from dubium.reproduce.findings import METRICS, rank_table

MARKER, END = "<!-- reproduce -->", "<!-- end -->"


def fill_readme(readme: Path, results: Path, scale: str) -> None:
    """Write the short table between the markers `<!-- reproduce -->` and `<!-- end -->` of a README."""
    before, marker, rest = readme.read_text(encoding="utf-8").partition(MARKER)
    _, end, after = rest.partition(END)
    if not marker or not end:
        raise FileFormatError(f"{readme} has no place for the table: a line {MARKER}, and after it a line {END}.")
    table = "\n".join(readme_lines(results, scale))
    write_atomically(readme, f"{before}{MARKER}\n\n{table}\n\n{END}{after}")


def readme_lines(results: Path, scale: str) -> list[str]:
    """For a README: how many claims reproduce, whether maps help to train, ranks in each protocol's first metric."""
    head, rule, *lines = rank_table(results, scale, with_others=False)
    kept = [line for line in lines if METRICS["murr@2%"] in line or METRICS["iou"] in line]
    words = [words for words in (verdict_counts(results, scale), mitigation_words(results)) if words]
    return ["\n\n".join(words), "", head, rule, *kept]
