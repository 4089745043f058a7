"""Which `lr` of SGHMC keeps a trained network: the table of docs/posteriors.md. `python -m benchmarks.sghmc_lr`.

Small networks are trained on a few MNIST digits; then three networks are sampled from each, at each `lr`.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

import dubium
import dubium.data
from dubium.errors import DivergedError
from dubium.posteriors import sghmc

RATES = (0.1, 0.03, 0.01, 0.003, 0.001)


class Residual(nn.Module):
    """A shortcut around two convolutions with BatchNorm."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.first = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.BatchNorm2d(width))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        out: Tensor = self.head((x + self.second(self.first(x))).relu().mean((2, 3)))
        return out


class Transformer(nn.Module):
    """A ViT of two layers and patches of 7 x 7 pixels."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 7, 7)
        self.places = nn.Parameter(torch.randn(1, 16, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 64, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        out: Tensor = self.head(self.layers(tokens).mean(1))
        return out


def small_cnn() -> nn.Module:
    layers = [nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)]
    return nn.Sequential(*layers)


NETWORKS: dict[str, Callable[[], nn.Module]] = {"CNN": small_cnn, "ResNet": Residual, "ViT": Transformer}


def train_network(make: Callable[[], nn.Module], x: Tensor, labels: Tensor) -> nn.Module:
    torch.manual_seed(0)
    network = make()
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    for _ in range(40 if len(x) == 64 else max(10, 6000 // len(x))):
        for rows in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[rows]), labels[rows]).backward()
            optimizer.step()
    return network.eval()


@torch.no_grad()
def right_share(network: nn.Module, x: Tensor, labels: Tensor) -> float:
    return float((network(x).argmax(1) == labels).float().mean())


def main() -> None:
    """Print a line for each network and `lr`: the lowest accuracy of a sample, and the mean epistemic uncertainty."""
    warnings.simplefilter("ignore")  # that networks are lost is what is measured
    train, test = dubium.data.load("mnist:train"), dubium.data.load("mnist:test").batch(slice(1000))
    assert train.labels is not None
    for images in (64, 500, 2000):
        x, labels = train.batch(slice(images)), train.labels[:images]
        for name, make in NETWORKS.items():
            network = train_network(make, x, labels)
            print(f"{images} images, {name}: {right_share(network, x, labels):.2f}")
            for lr in RATES:
                try:
                    posterior = sghmc(network, list(zip(x.split(32), labels.split(32), strict=True)), samples=3, lr=lr)
                except DivergedError:
                    print(f"  lr={lr}: diverged")
                    continue
                lowest = min(right_share(sample, x, labels) for sample in posterior)
                doubt = float(dubium.uncertainty(posterior, test).scores["epistemic"].mean())
                print(f"  lr={lr}: {lowest:.2f}, epistemic {doubt:.4f}", flush=True)


if __name__ == "__main__":
    main()
