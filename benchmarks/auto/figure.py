"""The same images under several methods and both kinds.

    python -m benchmarks.auto.figure OUT.png RUN DATASET [RUN DATASET ...]

Images are the most uncertain of each dataset's final part (see split.py). What is drawn is smoothed by `SMOOTH` pixels.
"""

import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure

import dubium
from benchmarks.auto.split import split_indices
from dubium.data import load
from dubium.evaluation.metrics.scoring import scorer
from dubium.figures import overlay, picture, smooth_map

METHODS: dict[str, dict[str, object]] = {
    "auto": {},
    "ua-backprop": {},
    "grad": {},
    "blur-ig": {"steps": 20},
    "effect-variance": {},
    "local-contrast": {},
}
KINDS = ("aleatoric", "epistemic")
IMAGES, CANDIDATES, SMOOTH = 2, 1500, 1.0


def main(out: Path, pairs: list[tuple[str, str]]) -> None:
    torch.set_num_threads(1)
    columns = []
    for run, dataset in pairs:
        posterior, test = dubium.load_posterior(run), load(dataset, "test")
        candidates = test.batch(split_indices(dataset, len(test), "final")[:CANDIDATES])
        x = candidates[scorer(posterior)(candidates).argsort(descending=True)[:IMAGES]]
        results = {name: dubium.explain(posterior, x, method=name, **options) for name, options in METHODS.items()}
        columns += [(x[b], {name: (found, b) for name, found in results.items()}) for b in range(IMAGES)]
    rows = [(name, kind) for name in METHODS for kind in KINDS]
    figure = Figure(figsize=(1.25 * len(columns) + 1, 1.2 * (1 + len(rows))), layout="constrained")
    axes = figure.subplots(1 + len(rows), len(columns), squeeze=False)
    for column, (image, found) in enumerate(columns):
        axes[0][column].imshow(picture(image), interpolation="nearest")
        for axis, (name, kind) in zip(axes[1:, column], rows, strict=True):
            result, b = found[name]
            axis.imshow(overlay(image, smooth_map(result.maps[kind][b], SMOOTH)), interpolation="nearest")
            axis.set_title(f"{float(result.scores[kind][b]):.2g} nats", fontsize=5, pad=1)
    axes[0][0].set_ylabel("image", fontsize=7)
    for axis, (name, kind) in zip(axes[1:, 0], rows, strict=True):
        axis.set_ylabel(f"{name}\n{kind}", fontsize=7)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    figure.savefig(out, dpi=100)


if __name__ == "__main__":
    target, *names = sys.argv[1:]
    main(Path(target), list(zip(names[::2], names[1::2], strict=True)))
