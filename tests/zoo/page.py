"""docs/networks.md, from the lines that were measured."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from dubium import errors
from tests.zoo.architectures import zoo

Line = dict[str, Any]

COMPLETE, RIGHT = 1e-3, 1e-6

REASONS: dict[str, str] = {}
"""Why a network misses the target, in words."""

HEAD = """# Networks

Which networks `explain` has been tried on, and how well FullGrad's terms add up there. This page is written by
`make zoo` (`python -m tests.zoo`) from `benchmarks/results/zoo.jsonl`; do not edit it by hand. It goes on where it
stopped, so that lines may be of different commits, and units older than other figures; `ZOO=--again` measures all of
them anew.

No trained weights are used: each network has 10 classes and random weights that are "woken": random numbers where a
fresh network has zeros or ones, BatchNorm statistics from a batch, a last layer whose logits have a standard deviation
of 3. Two members, two images, float32, one thread. Where a family has no small member, it is made shallow and narrow.

- **completeness**: `|logit - sum of terms| / max(1, |logit|)`, the median over images and logits. The target is at most
  1e-3.
- **placed**: the share of the absolute terms that has a place in the image: feature maps, tokens of a grid, attention.
  The rest (class tokens, pooled features, gates of one number a channel) is in the sum, but in no map. A low share says
  that a FullGrad map tells little of such a network; `relevance="input-grad"` or `"ig"` need no places.
- **units**: processor time of `explain` over that of S * K = 20 forward passes of the same batch. Networks by
  hand are left out of the medians: a pass of most of them takes less than half a millisecond, so that the calls of
  Python and torch weigh more in their units than arithmetic. Profiled, the GRU (16 steps on 8 numbers) spends
  about a quarter each on forward mode through the layer, on the measure of its completeness, on rules and nodes, and on
  the checks of a first pass; of these only rules and nodes grow with the number of classes.
- **gradients**: the largest error of `grad` and `input-grad` against plain autograd in float64, image by image and
  target by target, relative to the largest value.

"""

TAIL = """
## What cannot be seen

- What a function uses without being given it, where torch shows only its call: a tensor in the closure of a function
  given to `torch.vmap`, a layer that looks at another's features, `torch.func.grad`, a
  function of C++. `explain` says so if it is more than 1e-3 of the logits. A `torch.autograd.Function`, a function of
  torch.jit and `torch.vmap` are one operation each, and are complete in what they are given.
- What runs under `torch.no_grad` or is detached is a constant for autograd, and so a bias of what it is combined with.
- A network that mixes the images of a batch, as timm's GCViT does (its gradients were off by 3e-2 in a batch of two):
  methods that take several images at a time refuse it, and ask for one image at a time.
- torch itself gives a wrong gradient of one image alone where BatchNorm in eval mode receives a gradient with channels
  last and its input has channels first (torch 2.13, in LeViT). dubium has a rule of its own and is right there.
"""


def write_page(lines: Sequence[Line]) -> str:
    """The page, of lines that were all measured alike."""
    run = [line for line in lines if "units" in line]
    refused = [line for line in lines if is_refused(line)]
    failed = [line for line in lines if "units" not in line and not is_refused(line)]
    libraries = list(dict.fromkeys(line["library"] for line in run))
    parts = [HEAD, summary(run, refused, failed)]
    for library in libraries:
        rows = sorted((line for line in run if line["library"] == library), key=lambda line: line["name"].lower())
        parts.append(f"\n## {library}\n\n{table(rows)}")
    if refused:
        parts.append(
            "\n## Refused, with the reason\n\n" + "".join(f"- {line['key']}: {failure(line)}\n" for line in refused)
        )
    if failed:
        parts.append("\n## Not measured\n\n" + "".join(f"- {line['key']}: {failure(line)}\n" for line in failed))
    return "".join([*parts, TAIL])


def is_refused(line: Line) -> bool:
    """Whether the library itself says why it does not take a network."""
    return failure(line).partition(":")[0] in vars(errors)


def failure(line: Line) -> str:
    """The error's class and words."""
    return str(line.get("error") or line.get("not built"))


def summary(run: Sequence[Line], refused: Sequence[Line], failed: Sequence[Line]) -> str:
    complete = [line for line in run if line["completeness"] <= COMPLETE]
    right = [line for line in run if max(line["grad"], line["input-grad"]) <= RIGHT]
    plain = [line["units"] for line in run if not line["attention"] and line["library"] != "by hand"]
    attention = [line["units"] for line in run if line["attention"] and line["library"] != "by hand"]
    broken = [line for line in failed if "error" in line]
    processors = sorted({line.get("cpu", "one that was not noted") for line in run})
    missing = len(zoo().keys() - {line["key"] for line in (*run, *refused, *failed)})
    rows = [
        f"{len(run)} networks run, {len(refused)} are refused, {len(broken)} fail",
        f"{missing} architectures of the zoo are not measured yet" if missing else "",
        f"complete to 1e-3: {len(complete)} of {len(run)}; the median network to {of(run, 'completeness', median):.0e}",
        f"gradients right to 1e-6: {len(right)} of {len(run)}; at worst {of(run, 'grad', max):.0e}",
        f"placed: {of(run, 'placed', median):.0%} in the median network",
        units_text("networks without attention", plain),
        units_text("networks with attention or tokens", attention),
        f"measured on {' and '.join(processors)}",
    ]
    return "".join(f"- {row}\n" for row in rows if row)


def units_text(kind: str, units: Sequence[float]) -> str:
    return f"{kind}: {median(units):.1f} units in the median, {max(units):.1f} at worst" if units else ""


def of(lines: Sequence[Line], name: str, what: Callable[[Sequence[float]], float]) -> float:
    return what([line[name] for line in lines])


def table(rows: Sequence[Line]) -> str:
    head = "| network | pixels | completeness | placed | units | gradients | |\n|---|---|---|---|---|---|---|\n"
    return head + "".join(row_text(line) for line in rows)


def row_text(line: Line) -> str:
    error = max(line["grad"], line["input-grad"])
    remark = REASONS.get(line["key"], "")
    cells = (
        line["name"],
        str(line["size"]),
        f"{line['completeness']:.0e}",
        f"{line['placed']:.0%}",
        f"{line['units']:.1f}",
        "exact" if error == 0 else f"{error:.0e}",
        remark or ("warns: " + line["warnings"][0] if line["warnings"] else ""),
    )
    return "| " + " | ".join(cells) + " |\n"
