"""Arms of trials against none of it and against their controls."""

from dubium.reproduce.added_jobs import strategy_labels
from dubium.reproduce.arms import attention_arms
from dubium.reproduce.trials import (
    STRATEGY_WORDS,
    arm_controls,
    attention_sentence,
    attention_verdict,
    compare_arms,
    is_control_arm,
    strategy_sentence,
    strategy_verdict,
    trial_table,
)


def pair(a, b, low, high):
    return {"metric": "accuracy", "a": a, "b": b, "difference": (low + high) / 2, "low": low, "high": high}


def number(value):
    return {"value": value, "low": value - 0.125, "high": value + 0.125}


def content(labels, comparisons):
    results = {label: {"accuracy": number(0.5), "nll": number(1.0)} for label in labels}
    return {"results": results, "comparisons": comparisons, "settings": {"seeds": 10}}


OWN, RANDOM, EDGES = (f"{name}, alpha 1, image" for name in ("ua-backprop", "random", "edges"))
LABELS = ["No attention", OWN, RANDOM, EDGES]


def test_attention_helps_where_it_is_above_none_and_above_both_controls():
    above = [pair(OWN, other, 0.01, 0.03) for other in (RANDOM, EDGES)]
    noise = [pair("No attention", other, -0.01, 0.02) for other in (RANDOM, EDGES)]
    helps = content(LABELS, [pair("No attention", OWN, -0.03, -0.01), *noise, *above])
    own, *controls = compare_arms(helps)
    assert own.helps
    assert own.against_none == (0.02, 0.01, 0.03)
    assert len(own.against_controls) == 2
    assert not any(arm.is_above_none or arm.against_controls for arm in controls)
    assert "MNIST (10 seeds, 50.00 % without): 1 of 1 with UA-Backprop's maps are above none" in attention_sentence(
        "MNIST", helps
    )
    assert attention_verdict([("MNIST", helps)]) == "helps on 1 of 1 datasets"
    level = content(LABELS, [pair("No attention", OWN, -0.03, -0.01), *noise, above[0], pair(OWN, EDGES, -0.01, 0.01)])
    assert not compare_arms(level)[0].helps
    assert attention_verdict([("MNIST", level), ("CIFAR-10", helps)]) == "helps on 1 of 2 datasets"
    assert "0 are above none and both controls. Highest: alpha 1, image, +2.00 [+1.00, +3.00]" in attention_sentence(
        "MNIST", level
    )


def strategy_trial(*, does_choice_help):
    """Choosing images is above plain training, and above its control or not; cutting is above neither."""
    labels = ["plain", "cut", "cut: control", "choice", "choice: control"]
    rows = [pair("plain", "choice", -0.03, -0.01), pair("choice", "choice: control", 0.01 * does_choice_help, 0.02)]
    rows += [pair("plain", "cut", -0.03, 0.01), pair("cut", "cut: control", 0.01, 0.02)]
    rows += [pair("plain", f"{name}: control", -0.01, 0.01) for name in ("choice", "cut")]
    return content(labels, rows)


def test_a_strategy_helps_where_it_is_above_its_control_and_above_plain_training():
    found = [("MNIST", strategy_trial(does_choice_help=True)), ("CIFAR-10", strategy_trial(does_choice_help=False))]
    text = strategy_sentence(found)
    assert "label **+1.50 [+1.00, +2.00] and +2.00 [+1.00, +3.00]** (MNIST), +1.00 [+.00, +2.00] and +2.00" in text
    assert "never above both: cutting them out. Plain training: MNIST: 10 seeds, 50.00 %; CIFAR-10" in text
    assert strategy_verdict(found) == (
        "none helps on both datasets and again on fresh seeds (choosing which images to label in 1 of 2 trials)"
    )


def test_a_strategy_must_help_in_all_four_trials():
    found = [(title, strategy_trial(does_choice_help=True)) for title in "abcd"]
    assert strategy_verdict(found) == "choosing which images to label helps on both datasets and on fresh seeds"
    assert strategy_verdict(found[:3]).startswith("none helps on both datasets and again on fresh seeds (choosing")
    level = [*found[:3], ("d", strategy_trial(does_choice_help=False))]
    assert strategy_verdict(level).endswith("(choosing which images to label in 3 of 4 trials)")
    never = [(title, strategy_trial(does_choice_help=False)) for title in "abcd"]
    assert strategy_verdict(never) == "none helps on both datasets and again on fresh seeds"


def test_every_strategy_has_words():
    assert {label for label in strategy_labels() if label != "plain" and not is_control_arm(label)} == set(
        STRATEGY_WORDS
    )


def test_the_table_has_a_line_for_each_arm_and_controls_in_italics():
    head, rule, none, own, *controls = trial_table(content(LABELS, [pair("No attention", OWN, -0.03, -0.01)]))
    assert head.count("|") == rule.count("|") == none.count("|") == own.count("|") == 6
    assert own.startswith(f"| {OWN} | **50.00** [37.50, 62.50] | +2.00 [+1.00, +3.00] |")
    assert [line.partition(" | ")[0] for line in controls] == [f"| *{RANDOM}*", f"| *{EDGES}*"]


def test_every_arm_of_ours_is_a_control_or_has_one():
    attention = [arm.label for arm in attention_arms()][1:]
    for labels in (attention, list(strategy_labels())[1:]):
        assert all(is_control_arm(label) or arm_controls(label, labels) for label in labels)
