"""Complete FullGrad or balanced gradients (LibraGrad, arXiv:2411.16760) on a small vision transformer?

    python -m benchmarks.balanced_gradients OUT [--images 8000] [--epochs 4] [--judged 40]

Trains three transformers on MNIST in patches of 4 x 4 (seeds 0, 1, 2), and judges UA-Backprop with six relevances by
symmetric relevance gain and by planted patches. OUT keeps weights and results; a killed run goes on. The figures go to
benchmarks/results/balanced_gradients.json, and as a picture to docs/images/balanced-gradients.png.

Balanced gradients treat as constants what makes a function's gradient lose its value: the attention weights, the gate
of GELU, the standard deviation of LayerNorm. Each is then linear in its input, up to biases of parameters, and gradient
times input does not leak into a class token.
"""

import argparse
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks._measure import machine
from dubium.attribution import fullgrad, input_grad
from dubium.attribution._context import DEFAULT_CONTEXT, Context
from dubium.data import load
from dubium.evaluation.methods import LabelledMethod, parse_methods
from dubium.evaluation.protocols.evaluation import Evaluation
from dubium.protocols import PROTOCOLS
from dubium.registry import load_function
from dubium.types import Images, Maps, Target

MEMBERS, BATCH, WIDTH, DEPTH, HEADS, PATCH = 3, 128, 48, 3, 4, 4
RESULTS, PICTURE = Path("benchmarks/results/balanced_gradients.json"), Path("docs/images/balanced-gradients.png")
METRICS = {"removal": ("srg/blur", "srg/mean"), "anomaly": ("iou", "ada")}


class Balance(nn.Module):
    """What `balance` switches: whether gates, deviations and attention weights are constants for gradients."""

    is_balanced = False

    def gate(self, value: Tensor) -> Tensor:
        return value.detach() if self.is_balanced else value


class Norm(Balance):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred * self.gate((centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()) * self.weight + self.bias


class Gelu(Balance):
    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(torch.special.ndtr(x))


class Attention(Balance):
    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.inputs(x).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        weights = self.gate((q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).softmax(-1))
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Sequential(Norm(), Attention())
        self.mlp = nn.Sequential(Norm(), nn.Linear(WIDTH, 4 * WIDTH), Gelu(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.mlp(x)


class SmallViT(nn.Module):
    """Patches, a class token, positions, blocks, and a dense layer on the class token."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(0.1 * torch.randn(1, 1 + (28 // PATCH) ** 2, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm, self.head = Norm(), nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1) + self.positions
        return self.head(self.norm(self.blocks(tokens))[:, 0])


@contextmanager
def balance(network: nn.Module) -> Iterator[None]:
    """Within, gradients of the network are balanced."""
    layers = [layer for layer in network.modules() if isinstance(layer, Balance)]
    for layer in layers:
        layer.is_balanced = True
    try:
        yield
    finally:
        for layer in layers:
            layer.is_balanced = False


def balanced_fullgrad(
    network: nn.Module, x: Images, target: Target, *, rescale: str = "reference", context: Context = DEFAULT_CONTEXT
) -> Maps:
    with balance(network):
        return fullgrad(network, x, target, rescale=rescale, context=context)


def balanced_input_grad(network: nn.Module, x: Images, target: Target, *, context: Context = DEFAULT_CONTEXT) -> Maps:
    with balance(network):
        return input_grad(network, x, target, context=context)


RELEVANCES: dict[str, dict[str, object]] = {
    "FullGrad, complete": {"relevance": "fullgrad"},
    "FullGrad, balanced": {"relevance": balanced_fullgrad},
    "FullGrad, complete, not rescaled": {"relevance": "fullgrad", "rescale": "none"},
    "FullGrad, balanced, not rescaled": {"relevance": balanced_fullgrad, "rescale": "none"},
    "input-grad": {"relevance": "input-grad"},
    "input-grad, balanced": {"relevance": balanced_input_grad},
}
PAIRS = [(label, label.replace("complete", "balanced")) for label in RELEVANCES if "complete" in label]
PAIRS += [("FullGrad, complete", "input-grad"), ("input-grad", "input-grad, balanced"), ("input-grad", "blur-path")]


def train(seed: int, x: Images, labels: Tensor, epochs: int) -> SmallViT:
    """A network, by AdamW and a cosine."""
    torch.manual_seed(seed)
    network = SmallViT()
    steps = epochs * (len(x) // BATCH)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for step in range(steps):
        if step % (len(x) // BATCH) == 0:
            order = torch.randperm(len(x))
        rows = order[step % (len(x) // BATCH) * BATCH :][:BATCH]
        optimizer.zero_grad()
        F.cross_entropy(network(x[rows]), labels[rows]).backward()
        optimizer.step()
        schedule.step()
    return network.eval()


def members(out: Path, images: int, epochs: int) -> list[SmallViT]:
    """The networks: those in the folder, or new ones."""
    data, networks = load("mnist", "train"), []
    for seed in range(MEMBERS):
        file = out / f"vit-{seed}.safetensors"
        if not file.exists():
            rows = slice(0, images)
            save_file(train(seed, data.batch(rows), torch.as_tensor(data.labels[rows]), epochs).state_dict(), file)
        network = SmallViT().eval()
        network.load_state_dict(load_file(file))
        networks.append(network)
    return networks


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.balanced_gradients", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=8000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--judged", type=int, default=40, help="images on which maps are judged")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    options.out.mkdir(parents=True, exist_ok=True)
    networks, data = members(options.out, options.images, options.epochs), load("mnist", "test")
    with torch.no_grad():
        x, labels = data.batch(slice(0, 2000)), torch.as_tensor(data.labels[:2000])
        accuracy = [(network(x).argmax(1) == labels).double().mean().item() for network in networks]
    methods = tuple(LabelledMethod(label, "ua-backprop", how) for label, how in RELEVANCES.items())
    methods += parse_methods(["blur-path"], 1)
    judged = {"images": options.judged, "candidates": 1000}
    results: dict[str, Any] = {"accuracy": accuracy, "judged": options.judged, "values": {}, "differences": []}
    for name, settings in {"removal": {**judged, "remove": ("blur", "mean"), "steps": 10}, "anomaly": judged}.items():
        evaluation = Evaluation(networks, data, methods, ("epistemic",), options.out / name, posterior_name="small ViT")
        chosen = load_function(PROTOCOLS[name].options)("cpu", data, **settings)
        found = load_function(PROTOCOLS[name].evaluate)(evaluation, chosen)
        for metric in METRICS[name]:
            results["values"][metric] = {method: row[metric] for method, row in found["results"].items()}
            results["differences"] += [
                pair
                for pair in found["comparisons"]
                if pair["metric"] == metric and {(pair["a"], pair["b"]), (pair["b"], pair["a"])} & {*PAIRS}
            ]
    RESULTS.write_text(json.dumps({**machine(), **results}, indent=1) + "\n")
    draw(results["values"], results["accuracy"])
    print(RESULTS.read_text())


def draw(values: dict[str, dict[str, dict[str, float]]], accuracy: list[float]) -> None:
    """Each method's mean and 95 % interval, a panel for each metric."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3), layout="constrained")
    for axis, (metric, rows) in zip(figure.subplots(1, len(values), sharey=True), values.items(), strict=True):
        for place, (_method, row) in enumerate(rows.items()):
            axis.plot([row["low"], row["high"]], [-place] * 2, color="tab:blue")
            axis.plot(row["value"], -place, "o", color="tab:blue", markersize=4)
        axis.set_yticks([-place for place in range(len(rows))], list(rows))
        axis.set_title(metric, fontsize=9)
        axis.axvline(0, color="0.8", linewidth=0.8, zorder=0)
        axis.tick_params(labelsize=8)
    shown = ", ".join(f"{value:.3f}" for value in accuracy)
    figure.suptitle(f"Small ViT, MNIST, epistemic (accuracy {shown}): higher is better", fontsize=9)
    figure.savefig(PICTURE, dpi=120)


if __name__ == "__main__":
    main()
