"""What the trials of attention and of other uses of doubt say: each arm against none of it and against its controls."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dubium.checks import count_text
from dubium.reproduce.arms import CONTROLLED, NO_ATTENTION
from dubium.reproduce.cells import measured_text, number_text
from dubium.reproduce.claims import Difference, difference_text, paired_difference
from dubium.reproduce.job import CONTROL
from dubium.reproduce.strategies import PLAIN

METRIC = "accuracy"
Trials = Sequence[tuple[str, Mapping[str, Any]]]
"""Results of trials, each under a title such as `MNIST, fresh seeds`."""

TRIALS = 4  # two datasets, and fresh seeds of both
STRATEGY_WORDS = {
    "weights": "more weight on doubtful images",
    "blur": "blurring doubtful pixels",
    "cut": "cutting them out",
    "gradients": "a penalty on gradients there",
    "choice": "choosing which images to label",
}


@dataclass(frozen=True)
class TrialArm:
    """Accuracy of one way to train minus that without any of it, and minus that of each of its controls."""

    label: str
    against_none: Difference
    against_controls: tuple[Difference, ...]

    @property
    def is_above_none(self) -> bool:
        return self.against_none.is_above_zero

    @property
    def helps(self) -> bool:
        """Above plain training and above all controls, by intervals that exclude zero."""
        return self.is_above_none and all(found.is_above_zero for found in self.against_controls)


def compare_arms(content: Mapping[str, Any]) -> list[TrialArm]:
    """All arms of a result but plain training, in its order."""
    labels = list(content["results"])
    none = NO_ATTENTION if NO_ATTENTION in labels else PLAIN
    found = []
    for label in labels:
        against_none = paired_difference(content, label, none, METRIC)
        if against_none is not None:
            pairs = (paired_difference(content, label, other, METRIC) for other in arm_controls(label, labels))
            found.append(TrialArm(label, against_none, tuple(pair for pair in pairs if pair is not None)))
    return found


def arm_controls(label: str, labels: Sequence[str]) -> list[str]:
    """The same thing with maps or scores that know nothing of the networks; none for a control.

    >>> arm_controls("blur", ["plain", "blur", "blur: control"])
    ['blur: control']
    """
    method, _, setting = label.partition(", ")
    first, *others = CONTROLLED
    names = [f"{name}, {setting}" for name in others] if method == first else [label + CONTROL]
    return [name for name in names if name in labels]


def is_control_arm(label: str) -> bool:
    """Whether an arm's maps or scores know nothing of the networks."""
    return label.endswith(CONTROL) or label.partition(", ")[0] in CONTROLLED[1:]


def trial_table(content: Mapping[str, Any]) -> Iterator[str]:
    """A line for each arm; controls in italics."""
    compared = {arm.label: arm for arm in compare_arms(content)}
    yield "| | accuracy (%) | minus none of it, points | minus each control, points | NLL |"
    yield "|---|---|---|---|---|"
    for label, found in content["results"].items():
        arm = compared.get(label)
        accuracy = {name: 100 * value for name, value in found[METRIC].items()}
        cells = [
            f"*{label}*" if is_control_arm(label) else label,
            measured_text(accuracy),
            points_text(arm.against_none) if arm else "",
            "; ".join(points_text(each) for each in arm.against_controls) if arm else "",
            measured_text(found["nll"]),
        ]
        yield "| " + " | ".join(cells) + " |"


def attention_verdict(contents: Trials) -> str:
    """On how many of the datasets any arm with the networks' maps helps."""
    helped = sum(
        any(arm.helps for arm in compare_arms(content) if not is_control_arm(arm.label)) for _, content in contents
    )
    return f"helps on {helped} of {len(contents)} datasets"


def attention_sentence(title: str, content: Mapping[str, Any]) -> str:
    """How many arms with the networks' maps, and how many controls, are above no attention."""
    arms = compare_arms(content)
    methods, controls = ([arm for arm in arms if is_control_arm(arm.label) is wanted] for wanted in (False, True))
    best = max(methods, key=lambda arm: arm.against_none.value)
    return (
        f"{title} ({count_text(content['settings']['seeds'], 'seed')}, {plain_text(content, NO_ATTENTION)} without): "
        f"{count_above(methods)} of {len(methods)} with UA-Backprop's maps are above none by an interval that "
        f"excludes zero, "
        f"{count_above(controls)} of {len(controls)} with random maps or edges; "
        f"{sum(arm.helps for arm in methods)} are above none and both controls. "
        f"Highest: {best.label.partition(', ')[2]}, {points_text(best.against_none)}"
    )


def strategy_verdict(contents: Trials) -> str:
    """Which strategies help in every trial that there should be, and if none does, which in some."""
    by_name = strategy_arms(contents)
    helped = {name: sum(arm.helps for _, arm in arms) for name, arms in by_name.items()}
    always = [name for name, arms in by_name.items() if helped[name] == len(arms) == TRIALS]
    if always:
        return f"{' and '.join(STRATEGY_WORDS[name] for name in always)} helps on both datasets and on fresh seeds"
    some = [f"{STRATEGY_WORDS[name]} in {count} of {len(by_name[name])}" for name, count in helped.items() if count]
    nothing = "none helps on both datasets and again on fresh seeds"
    return nothing + (f" ({', '.join(some)} trials)" if some else "")


def strategy_sentence(contents: Trials) -> str:
    """Strategies that help somewhere with all of their numbers, bold where they help; the others by name."""
    by_name = strategy_arms(contents)
    parts, nowhere = [], []
    for name, arms in by_name.items():
        if not any(arm.helps for _, arm in arms):
            nowhere.append(STRATEGY_WORDS[name])
            continue
        numbers = [f"{arm_text(arm)} ({title})" for title, arm in arms]
        parts.append(f"{STRATEGY_WORDS[name]} {', '.join(numbers)}")
    if nowhere:
        parts.append(f"never above both: {', '.join(nowhere)}")
    titles = [
        f"{title}: {count_text(content['settings']['seeds'], 'seed')}, {plain_text(content, PLAIN)}"
        for title, content in contents
    ]
    return f"{'; '.join(parts)}. Plain training: {'; '.join(titles)}"


def strategy_arms(contents: Trials) -> dict[str, list[tuple[str, TrialArm]]]:
    """Every strategy in every trial, without the controls."""
    found: dict[str, list[tuple[str, TrialArm]]] = {}
    for title, content in contents:
        for arm in compare_arms(content):
            if arm.against_controls:
                found.setdefault(arm.label, []).append((title, arm))
    return found


def arm_text(arm: TrialArm) -> str:
    """Against its control, and against plain training."""
    text = f"{points_text(arm.against_controls[0])} and {points_text(arm.against_none)}"
    return f"**{text}**" if arm.helps else text


def plain_text(content: Mapping[str, Any], label: str) -> str:
    return f"{number_text(100 * content['results'][label][METRIC]['value'])} %"


def count_above(arms: Sequence[TrialArm]) -> int:
    return sum(arm.is_above_none for arm in arms)


def points_text(found: Difference) -> str:
    """A difference of accuracies in points of per cent, with its interval."""
    return difference_text(found, 100, 2)
