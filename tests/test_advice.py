import pytest

from dubium.advice import ADVICE, advise


@pytest.mark.parametrize(
    ("confidence", "prediction", "label", "total", "epistemic", "expected"),
    [
        (0.9, 1, 2, 0.4, 0.1, "check-label"),
        (0.9, 1, 1, 0.4, 0.4, "none"),
        (0.9, 1, None, 0.4, 0.4, "none"),
        (0.8999, 1, 2, 0.3, 0.1, "collect"),
        (0.8999, 1, 2, 0.3, 0.0999, "look"),
        (0.5, 0, 0, 0.7, 0.7, "collect"),
        (0.5, 0, None, 0.7, 0.0, "look"),
        (0.98, 0, 1, 0.0, 0.0, "check-label"),
    ],
)
def test_the_rule_is_the_one_that_is_stated(confidence, prediction, label, total, epistemic, expected):
    assert advise(confidence, prediction, label, total=total, epistemic=epistemic).name == expected


def test_every_advice_says_why():
    assert list(ADVICE) == ["check-label", "look", "collect", "none"]
    assert all(advice.title and advice.reason for advice in ADVICE.values())
