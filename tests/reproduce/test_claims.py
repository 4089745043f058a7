"""Verdicts follow from intervals."""

import json

import pytest

from dubium.choices import SCALES
from dubium.reproduce.cells import measured_text
from dubium.reproduce.claims import (
    CLAIMS,
    Difference,
    Judgement,
    difference_text,
    interval_gap,
    judge_claim,
    verdict_counts,
    verdict_lines,
)
from dubium.reproduce.entries import ENTRIES
from dubium.reproduce.paper import paper_value
from dubium.reproduce.trials import points_text

GRAD = next(claim for claim in CLAIMS if claim.words == "UA-Backprop is above Grad")
ATTENTION = next(claim for claim in CLAIMS if claim.entry == "mitigation")


def write(folder, job, results, comparisons=()):
    content = {"results": results, "comparisons": list(comparisons)}
    (folder / f"{job}.json").write_text(json.dumps(content))


def row(a, b, metric, difference, low, high):
    return {"a": a, "b": b, "metric": metric, "difference": difference, "low": low, "high": high}


@pytest.mark.parametrize(
    ("low", "high", "metric", "verdict"),
    [
        (0.1, 0.2, "murr@2%", "**reproduces**"),
        (-0.1, 0.2, "murr@2%", "cannot be told"),
        (-0.2, -0.1, "murr@2%", "**the opposite**"),
        (-0.2, -0.1, "seconds", "**reproduces**"),
        (0.1, 0.2, "nll", "**the opposite**"),
    ],
)
def test_verdict(low, high, metric, verdict):
    assert Judgement((low + high) / 2, low, high, 0.0, "").verdict(metric) == verdict


def test_a_paired_interval_is_taken_whichever_way_round_it_is(tmp_path):
    labels = {"ua-backprop": {}, "grad": {}}
    write(tmp_path, "blurring-mnist", labels, [row("grad", "ua-backprop", "murr@2%", 0.25, 0.125, 0.5)])
    (found,) = judge_claim(GRAD, "mnist", tmp_path, "cpu")
    assert (found.difference, found.low, found.high) == (-0.25, -0.5, -0.125)
    assert found.paper == pytest.approx(0.648 - 0.506)
    assert found.verdict(GRAD.metric) == "**the opposite**"


def test_other_networks_are_judged_too_and_named(tmp_path):
    labels = {"ua-backprop": {}, "grad": {}}
    write(tmp_path, "blurring-svhn@other", labels, [row("ua-backprop", "grad", "murr@2%", 0.25, 0.125, 0.5)])
    assert [found.source for found in judge_claim(GRAD, "svhn", tmp_path, "cpu")] == ["other"]


def test_per_cent_of_the_paper_and_shares_of_ours_have_one_unit(tmp_path):
    write(tmp_path, "mitigation-mnist", {"Ours": {}}, [row("Ours", "No attention", "accuracy", 0.01, -0.01, 0.03)])
    (found,) = judge_claim(ATTENTION, "mnist", tmp_path, "cpu")
    assert found.paper == pytest.approx(0.0117)
    assert verdict_counts(tmp_path, "cpu").startswith("Of 1 comparisons")
    assert "1 cannot be told from noise" in verdict_counts(tmp_path, "cpu")


def test_without_pairs_the_far_ends_of_both_intervals_decide():
    first, second = {"m": {"value": 3.0, "low": 2.0, "high": 4.0}}, {"m/aleatoric": {"value": 1, "low": 0, "high": 1.5}}
    assert interval_gap(first, second, "m") == (2.0, 0.5, 4.0)
    assert interval_gap(first, {}, "m") is None


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.words)
def test_the_paper_has_what_it_is_said_to_claim(claim):
    for dataset in claim.datasets:
        table = ENTRIES[claim.entry].tables[0]
        first, second = (paper_value(table, name, f"{dataset}/{claim.metric}") for name in (claim.first, claim.second))
        assert first < second if claim.metric == "seconds" else first > second, dataset
    assert all({claim.first, claim.second} <= set(ENTRIES[claim.entry].rows(scale)) for scale in SCALES)


def test_every_claim_is_in_the_words_once_for_each_dataset(tmp_path):
    labels = {"ua-backprop": {}, "grad": {}}
    write(tmp_path, "blurring-mnist", labels, [row("grad", "ua-backprop", "murr@2%", 0.25, 0.125, 0.5)])
    titles = {name: name.upper() for name in ("mnist", "svhn", "cifar-10", "cifar-100")}
    opposite, unmeasured = verdict_lines(tmp_path, "cpu", titles)
    assert opposite == "- **Comes out the other way**: UA-Backprop is above Grad (MNIST)."
    assert "UA-Backprop is above Grad (SVHN, CIFAR-10, CIFAR-100)" in unmeasured
    assert unmeasured.startswith("- **Not measured yet**: ")


def test_one_seed_has_no_interval_and_proves_nothing():
    one = Difference(0.5, 0.5, 0.5)
    assert difference_text(one) == "+.500"
    assert points_text(one) == "+50.00"
    assert not one.is_above_zero
    assert Difference(0.5, 0.25, 0.75).is_above_zero
    assert Judgement(*one, 0.1, "").verdict("accuracy") == "cannot be told"
    assert Judgement(*(-n for n in one), 0.1, "").verdict("accuracy") == "cannot be told"
    assert measured_text({"value": 0.5, "low": 0.5, "high": 0.5}) == "**.500**"
