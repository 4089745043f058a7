import numpy as np
import pytest
from scipy import stats

from dubium.errors import OptionError
from dubium.evaluation.ranks import tied_ranks
from dubium.evaluation.statistics import (
    band,
    bootstrap,
    compare,
    holm,
    mean,
    mean_interval,
    median,
    signed_rank,
    student_quantile,
)


def draws(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def test_bootstrap_of_a_constant_has_no_width():
    found = bootstrap(np.full(20, 3.0), median)
    assert (found.value, found.low, found.high) == (3.0, 3.0, 3.0)


def test_bootstrap_of_a_mean_is_close_to_students_interval():
    values = draws(400)
    found, exact = bootstrap(values, mean), mean_interval(values)
    assert found.low == pytest.approx(exact.low, abs=0.01)
    assert found.high == pytest.approx(exact.high, abs=0.01)


def test_bootstrap_covers_the_truth_about_95_times_in_100():
    covered = sum(b.low <= 0 <= b.high for b in (bootstrap(draws(60, seed=s), mean, resamples=400) for s in range(200)))
    assert 180 <= covered <= 198


def test_bootstrap_is_the_same_twice():
    assert bootstrap(draws(30), median) == bootstrap(draws(30), median)


def test_bootstrap_of_nothing_is_an_error():
    with pytest.raises(OptionError, match="no image"):
        bootstrap(np.zeros(0), mean)


def test_band_has_the_bootstrap_of_each_step():
    curves = draws(40, 3)
    middle, low, high = band(curves, median)
    for step in range(3):
        one = bootstrap(curves[:, step], median)
        assert (middle[step], low[step], high[step]) == pytest.approx((one.value, one.low, one.high))


def test_small_samples_have_wilcoxons_exact_p():
    values = draws(10) + 0.5
    assert signed_rank(values)[0] == pytest.approx(stats.wilcoxon(values, method="exact").pvalue)


def test_large_samples_have_nearly_wilcoxons_p():
    values = draws(60) + 0.2
    assert signed_rank(values)[0] == pytest.approx(stats.wilcoxon(values).pvalue, abs=0.02)


def test_five_pairs_cannot_be_significant():
    assert signed_rank(np.arange(1.0, 6.0)) == (2 / 32, 1.0)


def test_no_difference_is_p_one_and_no_effect():
    assert signed_rank(np.zeros(9)) == (1.0, 0.0)


def test_effect_is_minus_one_where_b_always_wins():
    assert signed_rank(-np.abs(draws(30)))[1] == -1.0


def test_comparison_is_paired():
    shared = 10 * draws(50)
    found = compare(shared + 0.5 + 0.1 * draws(50, seed=1), shared, mean)
    assert 0.4 < found.difference.low < 0.5 < found.difference.high < 0.6  # the spread of 10 cancels
    assert found.p < 0.001
    assert found.pairs == 50


def test_unequal_numbers_cannot_be_paired():
    with pytest.raises(OptionError, match="paired"):
        compare(draws(3), draws(4), mean)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_tied_ranks_are_scipys():
    values = np.array([3.0, 1.0, 3.0, 2.0, 3.0])
    np.testing.assert_array_equal(tied_ranks(values), stats.rankdata(values))


@pytest.mark.parametrize("freedom", [1, 2, 4, 9, 99])
def test_student_quantile_is_scipys(freedom):
    assert student_quantile(0.975, freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-3)


def test_mean_interval_of_one_run_claims_no_width():
    assert mean_interval(np.array([2.0])).high == 2.0
