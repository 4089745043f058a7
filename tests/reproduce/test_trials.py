"""Arms of trials against none of it and against their controls."""

from dubium.reproduce.arms import attention_arms
from dubium.reproduce.own_jobs import strategy_labels
from dubium.reproduce.trials import (
    arm_controls,
    attention_sentence,
    compare_arms,
    is_control,
    strategy_sentence,
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
    level = content(LABELS, [pair("No attention", OWN, -0.03, -0.01), *noise, above[0], pair(OWN, EDGES, -0.01, 0.01)])
    assert not compare_arms(level)[0].helps
    assert "0 are above none and both controls. Highest: alpha 1, image, +2.00 [+1.00, +3.00]" in attention_sentence(
        "MNIST", level
    )


def test_a_strategy_is_bold_where_it_is_above_its_control_and_above_plain_training():
    labels = ["plain", "blur", "blur: control", "cut", "cut: control"]
    rows = [pair("plain", "blur", -0.03, -0.01), pair("blur", "blur: control", 0.01, 0.02)]
    rows += [pair("plain", "cut", -0.03, 0.01), pair("cut", "cut: control", 0.01, 0.02)]
    rows += [pair("plain", f"{name}: control", -0.01, 0.01) for name in ("blur", "cut")]
    text = strategy_sentence("MNIST", content(labels, rows))
    assert "**blur** +1.50 [+1.00, +2.00] (minus plain +2.00 [+1.00, +3.00])" in text
    assert "; cut +1.50" in text


def test_the_table_has_a_line_for_each_arm_and_controls_in_italics():
    head, rule, none, own, *controls = trial_table(content(LABELS, [pair("No attention", OWN, -0.03, -0.01)]))
    assert head.count("|") == rule.count("|") == none.count("|") == own.count("|") == 6
    assert own.startswith(f"| {OWN} | **50.00** [37.50, 62.50] | +2.00 [+1.00, +3.00] |")
    assert [line.partition(" | ")[0] for line in controls] == [f"| *{RANDOM}*", f"| *{EDGES}*"]


def test_every_arm_of_ours_is_a_control_or_has_one():
    attention = [arm.label for arm in attention_arms()][1:]
    for labels in (attention, list(strategy_labels())[1:]):
        assert all(is_control(label) or arm_controls(label, labels) for label in labels)
