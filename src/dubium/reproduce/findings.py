"""The tables behind the answers: every comparison of the paper with its verdict, and every rank of UA-Backprop."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from dubium.reproduce.cells import TableGroup, entry_groups, number_text, tag_words
from dubium.reproduce.claims import claim_lines
from dubium.reproduce.entries import ENTRIES

TITLES = {"mnist": "MNIST", "svhn": "SVHN", "cifar-10": "CIFAR-10", "cifar-100": "CIFAR-100"}
METRICS = {
    "murr@2%": "MURR at 2 %",
    "murr@5%": "MURR at 5 %",
    "auc-urr@2%": "AUC-URR at 2 %",
    "auc-urr@5%": "AUC-URR at 5 %",
    "iou": "IoU",
    "ada": "ADA",
    "accuracy": "accuracy (%)",
    "nll": "NLL",
    "seconds": "seconds",
}
LOWER = ("auc-urr@2%", "auc-urr@5%", "nll")
UA_BACKPROP_ROW, BLUR_PATH_ROW = "Ours", "blur-path"  # as the paper calls it, and as we call ours


def group_title(name: str) -> str:
    """`mnist-200` as `MNIST, 200 images`."""
    if name in TITLES:
        return TITLES[name]
    dataset, _, count = name.rpartition("-")
    return f"{TITLES[dataset]}, {count} images" if dataset in TITLES else name


def finding_lines(results: Path, scale: str) -> list[str]:
    """The two tables behind the first screens: every comparison, and every rank."""
    return [
        "## The paper's comparisons, one by one\n",
        *filled_table(claim_lines(results, scale, TITLES)),
        "",
        "## Where UA-Backprop ranks\n",
        "Among the paper's methods that were measured; its rank there in brackets.\n",
        *filled_table(rank_table(results, scale)),
        "",
    ]


def filled_table(lines: Iterator[str]) -> list[str]:
    """A table's lines, or a sentence where it would have no row."""
    head, rule, *rows = lines
    return [head, rule, *rows] if rows else ["Nothing of it was measured yet."]


def rank_table(results: Path, scale: str, *, with_others: bool = True) -> Iterator[str]:
    """A line for each metric and dataset of the two protocols that judge maps; with other networks too, or without."""
    heads = (
        "rank of UA-Backprop (paper)",
        "UA-Backprop, ours / paper",
        "first among them",
        "`blur-path`",
        "best control",
    )
    yield f"| | {' | '.join(heads)} |"
    yield "|---|---|---|---|---|---|"
    for name in ("blurring", "anomaly"):
        for group in entry_groups(ENTRIES[name], results, scale):
            for column, cell in enumerate(group.rows.get(UA_BACKPROP_ROW, ())):
                if cell.measured is not None and (with_others or not group.tag):
                    yield rank_line(group, column)


def rank_line(group: TableGroup, column: int) -> str:
    metric, values = group.metrics[column], group_values(group, column)
    measured_order = order_rows({row: value for row, value in values.items() if row not in group.added_rows}, metric)
    controls = order_rows({row: value for row, value in values.items() if row.endswith("(control)")}, metric)
    rank, count, paper_rank = rank_in_group(group, column)
    cells = [
        f"{group_title(group.name)}{f' ({tag_words(group.tag)})' if group.tag else ''}, {METRICS[metric]}",
        f"{rank} of {count} ({paper_rank})",
        group.rows[UA_BACKPROP_ROW][column].text(),
        f"{measured_order[0]} {number_text(values[measured_order[0]])}",
        number_text(values[BLUR_PATH_ROW]) if BLUR_PATH_ROW in values else "–",
        f"{controls[0]} {number_text(values[controls[0]])}".replace(" (control)", "") if controls else "–",
    ]
    return "| " + " | ".join(cells) + " |"


def rank_in_group(group: TableGroup, column: int) -> tuple[int, int, int]:
    """The rank of UA-Backprop, of how many methods of the paper, and its rank among these in the paper."""
    metric, values = group.metrics[column], group_values(group, column)
    measured_order = order_rows({row: value for row, value in values.items() if row not in group.added_rows}, metric)
    paper_order = order_rows({row: group.rows[row][column].paper for row in measured_order}, metric)
    ranks = [order.index(UA_BACKPROP_ROW) + 1 for order in (measured_order, paper_order)]
    return ranks[0], len(measured_order), ranks[1]


def group_values(group: TableGroup, column: int) -> dict[str, float]:
    """Our numbers of one column, of the rows that were measured."""
    found = {row: cells[column].measured for row, cells in group.rows.items()}
    return {row: measured["value"] for row, measured in found.items() if measured is not None}


def order_rows(values: Mapping[str, float], metric: str) -> list[str]:
    """Rows from the best to the worst."""
    return sorted(values, key=lambda row: values[row], reverse=metric not in LOWER)
