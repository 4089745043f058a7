"""The paper's CNN (Wang et al., CVPR 2023, Appendix B.1) and a small CNN for SVHN."""

from collections import OrderedDict
from itertools import pairwise

from torch import Tensor, nn

from dubium.errors import OptionError


def cnn(
    channels: int = 1, classes: int = 10, *, filters: int = 32, units: int = 128, size: int = 28, dropout: float = 0.5
) -> nn.Sequential:
    """Two 4 x 4 convolutions, pooling, two dense layers: the network of the attribution experiments.

    >>> [name for name, _ in cnn().named_children()][-2:]
    ['dropout2', 'dense2']
    """
    return nn.Sequential(
        OrderedDict(
            _features(channels, filters, units, size, dropout)
            | {"dropout2": nn.Dropout(dropout), "dense2": nn.Linear(units, classes)}
        )
    )


def cnn3(
    channels: int = 1, classes: int = 10, *, filters: int = 32, units: int = 128, size: int = 28, dropout: float = 0.5
) -> nn.Sequential:
    """`cnn` with a third dense layer: the network of the mitigation experiments.

    >>> [name for name, _ in cnn3().named_children()][-2:]
    ['relu_dense2', 'dense3']
    """
    return nn.Sequential(
        OrderedDict(
            _features(channels, filters, units, size, dropout)
            | {"dropout2": nn.Dropout(dropout), "dense2": nn.Linear(units, units), "relu_dense2": nn.ReLU()}
            | {"dense3": nn.Linear(units, classes)}
        )
    )


class SvhnCnn(nn.Module):
    """Four times convolution, ReLU and pooling, then two dense layers.

    >>> import torch
    >>> SvhnCnn(classes=5)(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 5])
    """

    def __init__(
        self, channels: int = 3, classes: int = 10, *, size: int = 32, units: int = 64, dropout: float = 0.0
    ) -> None:
        super().__init__()
        widths = (channels, 32, 64, 128, 256)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        if size < 16:
            raise OptionError(f"size is {size}; four poolings need images of at least 16 x 16.")
        self.layers = nn.Sequential(*layers)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(widths[-1] * (size // 16) ** 2, units)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        self.fc2 = nn.Linear(units, classes)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.flatten(self.layers(x))
        out: Tensor = self.fc2(self.dropout(self.relu(self.fc1(features))))
        return out


def _features(channels: int, filters: int, units: int, size: int, dropout: float) -> dict[str, nn.Module]:
    """The layers up to the first dense one."""
    pooled = (size - 6) // 2  # height of the feature maps before it
    if pooled < 1:
        raise OptionError(f"size is {size}; two 4 x 4 convolutions and a pooling need images of at least 8 x 8.")
    return {
        "conv1": nn.Conv2d(channels, filters, 4),
        "relu1": nn.ReLU(),
        "conv2": nn.Conv2d(filters, filters, 4),
        "relu2": nn.ReLU(),
        "pool": nn.MaxPool2d(2),
        "dropout1": nn.Dropout(dropout),
        "flatten": nn.Flatten(),
        "dense1": nn.Linear(filters * pooled**2, units),
        "relu_dense1": nn.ReLU(),
    }
