"""Every method on the same images, three kinds each, in one picture: a wrong map shows.

    python -m benchmarks.sheet [POSTERIOR DATASET VAE] > docs/images/sheet.png

Without arguments, the demo's most uncertain digits.
"""

import io
import sys

from matplotlib.figure import Figure

import dubium
from dubium.data import load
from dubium.figures import overlay, picture
from dubium.models.saved_vae import load_vae
from dubium.posteriors.files.load import EMBEDDED
from dubium.types import KINDS

IMAGES = 4


def main(arguments: list[str]) -> None:
    if arguments:
        posterior, data = dubium.load_posterior(arguments[0]), load(arguments[1])
        vae = load_vae(arguments[2]) if len(arguments) > 2 else None
        candidates = data.batch(slice(500))
        scores = dubium.uncertainty(posterior, candidates).scores["epistemic"]
        x = candidates[scores.argsort(descending=True)[:IMAGES]]
    else:
        posterior, vae = dubium.load_posterior("demo"), load_vae(EMBEDDED / "vae")
        x = dubium.data.load("demo").batch(slice(IMAGES))
    methods = [name for name in dubium.methods() if vae is not None or "clue" not in name]
    figure = Figure(figsize=(0.8 * (1 + 4 * IMAGES), 0.86 * len(methods)), layout="constrained")
    axes = figure.subplots(len(methods), 4 * IMAGES, squeeze=False)
    for number, (row, method) in enumerate(zip(axes, methods, strict=True)):
        result = dubium.explain(posterior, x, method=method, **({"vae": vae} if "clue" in method else {}))
        for b in range(IMAGES):
            row[4 * b].imshow(picture(x[b]))
            for axis, kind in zip(row[4 * b + 1 : 4 * b + 4], KINDS, strict=True):
                axis.imshow(overlay(x[b], result.maps[kind][b]))
                if number == 0:
                    axis.set_title(kind, fontsize=7)
        row[0].set_ylabel(method, fontsize=8, rotation=0, ha="right", va="center")
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=80)
    sys.stdout.buffer.write(buffer.getvalue())


if __name__ == "__main__":
    main(sys.argv[1:])
