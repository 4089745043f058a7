"""Small networks that are awkward on purpose."""

import torch
from torch import nn
from torch.nn import functional as F


def small_cnn(channels=1, classes=4, size=12, inplace=False, norm=True):
    return nn.Sequential(
        nn.Conv2d(channels, 5, 3, padding=1),
        nn.BatchNorm2d(5) if norm else nn.Identity(),
        nn.ReLU(inplace=inplace),
        nn.Conv2d(5, 6, 3),
        nn.ReLU(inplace=inplace),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(6 * ((size - 2) // 2) ** 2, classes),
    )


class Awkward(nn.Module):
    """Reused modules, in-place activations, a residual connection, layers executed in another order than declared."""

    def __init__(self, channels=3, classes=4):
        super().__init__()
        self.head = nn.Linear(6, classes)
        self.late = nn.Conv2d(6, 6, 3, padding=1, groups=2)
        self.twice = nn.Conv2d(6, 6, 3, padding=2, dilation=2)
        self.norm = nn.BatchNorm2d(6, affine=False)
        self.first = nn.Conv2d(channels, 6, 3, padding=1)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.act(self.first(x))
        x = x + self.act(self.norm(self.twice(x)))
        x = self.act(self.twice(x))
        x = F.max_pool2d(x, 2)
        x = x + self.late(x)
        return self.head(self.act(x).mean((2, 3)))


def position_axes(place):
    """The axes of a feature that run along rows or columns."""
    return tuple(sorted({place.part_axes[part] for parts in (place.order.rows, place.order.columns) for part in parts}))


def token_grid(place):
    """The rows and columns into which an axis of tokens is cut."""
    return place.token_splits[0][2] if place.token_splits else place.splits[0][1]


def randomised(network, seed=0):
    """Eval mode, with biases and BatchNorm statistics that are far from their initial values."""
    generator = torch.Generator().manual_seed(seed)

    def noise(like):
        return torch.randn(like.shape, generator=generator).to(like)

    with torch.no_grad():
        for module in network.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if name == "bias":
                    parameter.copy_(0.3 * noise(parameter))
                elif parameter.ndim > 1:
                    parameter.copy_(noise(parameter) * (1.5 / parameter[0].numel() ** 0.5))
            if isinstance(module, nn.modules.batchnorm._NormBase) and module.running_mean is not None:
                module.running_mean.copy_(0.2 * noise(module.running_mean))
                module.running_var.copy_(0.5 + noise(module.running_var).abs())
    return network.eval()


def ensemble(make, members=3):
    return [randomised(make(), seed) for seed in range(members)]


def images(batch=3, channels=1, size=12, seed=0, dtype=torch.float32):
    return torch.rand(batch, channels, size, size, generator=torch.Generator().manual_seed(seed)).to(dtype)
