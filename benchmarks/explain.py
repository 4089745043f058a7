"""`explain` in units of S*K plain forward passes at their best batch size: python -m benchmarks.explain [network ...].

Prints a JSON line per network and batch size; `units` is the time per image of all three kinds, measured in one run.
"""

import json
import sys
from functools import partial

import torch

import dubium
from benchmarks._measure import forwards, machine, seconds, unit
from dubium.models import cifar_resnet, cnn, resnet18

SAMPLES, CLASSES = 5, 10
CASES = {  # network, image, batches to explain, batches to try for the unit, repeats
    "mnist-cnn": (cnn, (1, 28, 28), (64, 1), (40, 80, 160, 640), 9),
    "resnet20": (partial(cifar_resnet, depth=20), (3, 32, 32), (8,), (40, 80, 160), 5),
    "resnet18": (resnet18, (3, 32, 32), (8,), (40, 80), 3),
}


def main(names: list[str]) -> None:
    for name in names or CASES:
        make, shape, batches, forward_batches, repeats = CASES[name]
        torch.manual_seed(0)
        posterior = [make().eval() for _ in range(SAMPLES)]
        for batch in batches:
            x = torch.rand(batch, *shape)
            runs = forwards(posterior[0], x[0], forward_batches)
            for rescale in ("reference", "none"):
                runs[rescale] = partial(dubium.explain, posterior, x, rescale=rescale)
            times = seconds(runs, repeats if batch > 1 else 3 * repeats)
            one = SAMPLES * CLASSES * unit(times) * batch
            ratios = {rescale: round(times[rescale] / one, 2) for rescale in ("reference", "none")}
            line = {"network": name, "batch": batch, "units": ratios, "unit_us": round(1e6 * unit(times), 1)}
            print(json.dumps(line | machine()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
