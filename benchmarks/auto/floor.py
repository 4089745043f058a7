"""How much of the top 5 % two maps share whose gradients have nothing in common: python -m benchmarks.auto.floor.

A map of `blur-path` is a gradient times what a blur takes from the image, so it lies where the image has detail,
whatever the weights are. Here the gradients are independent noise: what is shared is the image's alone.
"""

import torch
from torch import Tensor

from dubium.attribution._blur import blurred_copies
from dubium.data import load
from dubium.evaluation.metrics.sanity import top_overlap
from dubium.evaluation.statistics import bootstrap, mean
from dubium.types import Images

IMAGES = 200


def noise_map(x: Images, draws: torch.Generator) -> Tensor:
    """The mean over blurs of the positive part of noise times detail."""
    detail = x - blurred_copies(x)
    return (torch.randn(detail.shape, generator=draws) * detail).sum(2).clamp_min(0).mean(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for dataset in ("mnist", "svhn", "cifar-10", "fashion-mnist"):
        x, draws = load(dataset, "test").batch(slice(IMAGES)), torch.Generator().manual_seed(0)
        shared = bootstrap(top_overlap(noise_map(x, draws), noise_map(x, draws)).numpy(), mean)
        print(f"{dataset}: {shared.value:.3f} [{shared.low:.3f}, {shared.high:.3f}]")
