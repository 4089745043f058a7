"""The benchmark suite's page, from made-up lines: nothing is timed here."""

import json

import pytest

from benchmarks.performance import page, write
from benchmarks.suite.cells import FRACTIONS, PROFILES, TARGETS, Cell, others
from benchmarks.suite.lines import exponent, exponents, latest
from benchmarks.suite.peers import FULLGRAD, IG
from benchmarks.suite.profile import kind

SAME = {"commit": "abc", "cpu": "a processor", "threads": 2, "torch": "2", "load": 0.1}


def explained(cell, ratio=1.5):
    """Time exactly linear in S, K, B and pixels, memory always the same."""
    found = {"seconds": ratio * cell.rows * cell.scale * 1e-3, "ratio": ratio, "repeats": 3, "peak_mib": 50.0}
    return {"part": "explain", **cell.about(), **found, **SAME}


@pytest.fixture
def lines():
    peers = [
        {"part": "peers", **cell.about(), "peer": peer, "slower": 10.0, "measured": "all", "peak_mib": 7.0, **SAME}
        for cell, _ in FRACTIONS
        for peer in (FULLGRAD, IG)
    ]
    profiles = [{"part": "profile", **cell.about(), "shares": {"pooling": 1.0}, **SAME} for cell in PROFILES]
    return [explained(cell) for cell in (*TARGETS, *others())] + peers + profiles


def test_exponent_of_a_power_law_is_its_power():
    sizes = [1, 4, 10, 50]
    assert exponent(sizes, [3 * n**1.25 for n in sizes]) == pytest.approx(1.25)


def test_every_growth_is_fitted(lines):
    for time, memory in exponents(lines).values():
        assert time == pytest.approx(1)
        assert memory == pytest.approx(0, abs=1e-9)
    assert len(exponents(lines)) == 8


def test_no_cell_is_measured_twice():
    cells = [*TARGETS, *others()]
    assert len(cells) == len(set(cells))


def test_targets_tell_the_met_from_the_missed(lines):
    text = page(lines)
    assert "| units of MNIST CNN, S = 5, B = 64 | at most 1.6 | 1.50, median of 3 | yes |" in text
    assert f"| faster than {FULLGRAD}: MNIST CNN, K = 10, S = 5, B = 64 | at least 6 x | 10.0 x | yes |" in text
    assert f"| faster than {IG}: MNIST CNN, K = 10, S = 5, B = 64 | at least 15 x | 10.0 x | **no** |" in text


def test_a_page_of_an_unfinished_run_says_what_is_missing(tmp_path):
    line = {"part": "explain", **Cell("resnet18", S=20, B=64).about(), "skipped": "about 90 s a call", **SAME}
    results = tmp_path / "lines.jsonl"
    results.write_text(json.dumps(line) + "\n")
    write(results, tmp_path)
    text = (tmp_path / "performance.md").read_text()
    assert text.count("not measured | **no** |") == 4 + 6  # units; two peers on three networks
    assert "*skipped, about 90 s a call*" in text
    assert len(list((tmp_path / "images").glob("performance-*.png"))) == 3


def test_lines_of_an_older_commit_are_left_out(lines):
    old = [line | {"commit": "older"} for line in lines[:3]]
    assert latest(old + lines) == lines


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("aten::convolution_backward", "convolution backward"),
        ("aten::mkldnn_convolution", "convolution forward"),
        ("aten::max_pool2d_with_indices_backward", "pooling"),
        ("aten::addmm", "matrix products"),
        ("aten::amax", "reductions and softmax"),
        ("aten::copy_", "memory: copies, fills, indexing"),
        ("autograd::engine", "other operators"),
    ],
)
def test_operators_are_told_apart(operator, expected):
    assert kind(operator) == expected
