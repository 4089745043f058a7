"""The page: every table and figure of the paper, ours beside theirs, and what was not measured with its command."""

import re
from collections.abc import Iterator, Mapping
from os.path import relpath
from pathlib import Path

from dubium.files import write_atomically
from dubium.reproduce.answers import answer_lines
from dubium.reproduce.cells import TableGroup, entry_groups, number_text, tag_words
from dubium.reproduce.entries import ENTRIES, Entry
from dubium.reproduce.figures import CAPTIONS, FIGURES
from dubium.reproduce.findings import METRICS, finding_lines, group_title
from dubium.reproduce.paper import average_gaps, read_paper
from dubium.reproduce.result import read_result
from dubium.reproduce.schemes import SCHEMES
from dubium.reproduce.sources import source_line
from dubium.reproduce.trials import trial_table

HEAD = """# The paper's tables and figures, measured again

*{paper}.* A cell is **our number** [95 % interval] / the paper's (difference); – was not measured. The row `Ours` is
what the paper calls so, its method UA-Backprop. Rows in italics are not in the paper: `blur-path`, which
`method="auto"` is with `net=1`, and controls, maps that know nothing of the networks. Written by `dubium reproduce`
from the files of [{folder}]({folder}): each has its command, commit, seed, settings, processor and versions.

**{measured} of the paper's {total} numbers are measured** (all numbers of {rows} of its {all_rows} rows, a row for each
dataset), at scale `{scale}`: {words}

## What reproduces, and what does not
"""
UNTOLD = "This cannot be told at this scale; `--scale cpu` can.\n"
LINK = re.compile(r"\[([\w-]+\.md)\]\(\1\)")
OWN_TITLES = {
    "attention": "does stronger attention help?",
    "strategies": "does any other use of doubt in training help?",
}
REASONS = {
    "mitigation-svhn": "was tried and says nothing: in three epochs on 2,000 images all nine arms learnt to answer the "
    "most frequent class, 22.6 % of the test images"
}
"""Why a table is not there, where it is not for the time."""

SMOKE_NETWORKS = "tiny networks that were trained for a moment,"
WORDS = {
    "smoke": "{networks} on a handful of images. **They mean nothing**: this page shows that everything runs.",
    "cpu": "fewer images, seeds and epochs than the paper's, and partly other networks, as said below each table.",
    "paper": "the paper's settings.",
}


def write_results_page(page: Path, results: Path, scale: str, *, is_own: bool = False) -> None:
    """Write the whole page from the results that are there; `is_own` says whether the networks are the user's own."""
    write_atomically(page, results_page(page, results, scale, is_own=is_own))


def results_page(page: Path, results: Path, scale: str, *, is_own: bool = False) -> str:
    """The text of the page; links in it are relative to where it will be."""
    groups = {name: entry_groups(entry, results, scale) for name, entry in ENTRIES.items()}
    cells = measured_cells([group for found in groups.values() for group in found])
    head = HEAD.format(
        paper=read_paper()["paper"],
        scale=scale,
        folder=relpath(results, page.parent),
        words=WORDS[scale].format(networks="your networks" if is_own else SMOKE_NETWORKS),
        measured=sum(cells.values()),
        total=len(cells),
        rows=sum(measured_rows(cells).values()),
        all_rows=len(measured_rows(cells)),
    )
    findings = [*answer_lines(results, scale), *finding_lines(results, scale)]
    lines = [head, *(findings if scale != "smoke" else [UNTOLD])]
    for name in sorted(ENTRIES, key=paper_place):
        lines += entry_lines(ENTRIES[name], groups[name], page, results, scale)
    lines += figure_lines(page, results, scale)
    lines += ["## Averages that do not follow", "", *misprint_lines(), ""]
    return keep_links("\n".join(lines), page.parent)


def keep_links(text: str, folder: Path) -> str:
    """The text with links to other pages of the documentation where these lie in the folder, else with their names.

    >>> keep_links("see [which-method.md](which-method.md)", Path("/nowhere"))
    'see docs/which-method.md of dubium'
    """
    return LINK.sub(lambda link: link[0] if (folder / link[1]).exists() else f"docs/{link[1]} of dubium", text)


def measured_cells(groups: list[TableGroup]) -> dict[tuple[str, ...], bool]:
    """Whether each number of the paper was measured, with the networks of its entry or with others."""
    found: dict[tuple[str, ...], bool] = {}
    for group in groups:
        for row, cells in group.rows.items():
            for metric, cell in zip(group.metrics, cells, strict=True) if row not in group.added_rows else ():
                key = (group.table, group.name, row, metric)
                found[key] = found.get(key, False) or cell.measured is not None
    return found


def measured_rows(cells: Mapping[tuple[str, ...], bool]) -> dict[tuple[str, ...], bool]:
    """Whether each row of each of the paper's tables and datasets has all of its numbers."""
    rows: dict[tuple[str, ...], bool] = {}
    for (table, group, row, _), is_measured in cells.items():
        rows[table, group, row] = rows.get((table, group, row), True) and is_measured
    return rows


def paper_place(name: str) -> int:
    """Where an entry's table is in the paper; those of ours come last."""
    tables = list(read_paper()["tables"])
    return min((tables.index(table) for table in ENTRIES[name].tables), default=len(tables))


def entry_lines(entry: Entry, groups: list[TableGroup], page: Path, results: Path, scale: str) -> Iterator[str]:
    """The tables of one entry."""
    if not entry.tables:
        yield from own_entry_lines(entry, page, results, scale)
    for name in entry.tables:
        table = read_paper()["tables"][name]
        yield f"## {table['where']}: {after_colon(table['title'])}\n"
        for group in (group for group in groups if group.table == name):
            yield from group_lines(group, page, results, scale)
        yield from average_lines(name, [group for group in groups if group.table == name and not group.tag])


def after_colon(title: str) -> str:
    """A title with a small first letter, unless a name begins it.

    >>> after_colon("Blurring test"), after_colon("UA-Backprop alone")
    ('blurring test', 'UA-Backprop alone')
    """
    return title if title[1:2].isupper() else title[0].lower() + title[1:]


def group_lines(group: TableGroup, page: Path, results: Path, scale: str) -> Iterator[str]:
    """One dataset's table, and where its numbers come from."""
    if group.name:
        yield f"### {group_title(group.name)}{f' again: {tag_words(group.tag)}' if group.tag else ''}\n"
    yield "| | " + " | ".join(METRICS.get(metric, metric) for metric in group.metrics) + " |"
    yield "|---" * (1 + len(group.metrics)) + "|"
    for row, cells in group.rows.items():
        name = f"*{row}*" if row in group.added_rows else row
        yield f"| {name} | " + " | ".join(cell.text() for cell in cells) + " |"
    yield ""
    for content in group.results:
        yield source_line(content, page, results)
    if any(cell.measured is None for cell in group.cells()) and not group.tag:
        dataset = f" --dataset {command_dataset(group.name)}" if group.name else ""
        command = f"dubium reproduce {group.entry} --scale {scale}{dataset}"
        reason = REASONS.get(f"{group.entry}-{group.name}", "was not reached in the time")
        yield f"- What is missing {reason}: `{command}`."
    yield ""


def command_dataset(group: str) -> str:
    """The dataset of a group such as `mnist-200`."""
    return group if group in ("cifar-10", "cifar-100") else group.rpartition("-")[0] or group


def average_lines(name: str, groups: list[TableGroup]) -> Iterator[str]:
    """The paper's averages beside ours, where every column of ours was measured."""
    averages = read_paper()["tables"][name]["averages"]
    if not averages:
        return
    yield "### Average\n"
    yield "| | " + " | ".join(METRICS.get(label, label.upper()) for label in averages) + " |"
    yield "|---" * (1 + len(averages)) + "|"
    for row in read_paper()["tables"][name]["rows"]:
        cells = []
        for average in averages.values():
            found = [
                cell.measured
                for group in groups
                for metric, cell in zip(group.metrics, group.rows[row], strict=True)
                if f"{group.name}/{metric}" in average["columns"]
            ]
            known = [each["value"] for each in found if each is not None]
            ours = f"**{number_text(sum(known) / len(known))}**" if known and len(known) == len(found) else "–"
            cells.append(f"{ours} / {number_text(average['printed'][row])}")
        yield f"| {row} | " + " | ".join(cells) + " |"
    yield ""


def own_entry_lines(entry: Entry, page: Path, results: Path, scale: str) -> Iterator[str]:
    """A table that the paper does not have."""
    rows = entry.added_rows(scale)
    if not rows:
        return
    yield f"## Ours: {OWN_TITLES[entry.name]}\n"
    for job in entry.jobs(scale):
        is_again = job.name.endswith("again")
        yield f"### {group_title(job.dataset)}{', fresh seeds' * is_again}\n"
        content = read_result(results, job.name)
        if content is not None:
            yield from (*trial_table(content), "", source_line(content, page, results), "")
            continue
        yield f"Not reached in the time: `dubium reproduce {entry.name} --scale {scale} --dataset {job.dataset}`.\n"


def figure_lines(page: Path, results: Path, scale: str) -> Iterator[str]:
    """Every figure: drawn again, or a scheme."""
    for name, about in read_paper()["figures"].items():
        yield f"## {about['where']}: {after_colon(about['title'])}\n"
        if name in SCHEMES:
            yield SCHEMES[name]
            continue
        if name in CAPTIONS:
            yield CAPTIONS[name] + "\n"
        for job in FIGURES[name].jobs(scale):
            content = read_result(results, job.name)
            if content is None:
                command = f"dubium reproduce {name} --scale {scale} --dataset {job.dataset}"
                yield f"- {group_title(job.dataset)}: not reached in the time: `{command}`.\n"
                continue
            for picture in content["pictures"]:
                yield f"![{about['title']}, {group_title(job.dataset)}]({relpath(results / picture, page.parent)})\n"
            yield source_line(content, page, results) + "\n"


def misprint_lines() -> list[str]:
    """The averages that the paper prints although its rows have others."""
    return [
        f"- {gap.table}, {gap.row}, {gap.average}: printed {gap.printed:g}, its columns give {gap.follows:g}."
        for gap in average_gaps()
    ]
