"""ResNets for 32 x 32 images (He et al., 2016, arXiv:1512.03385)."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from dubium.errors import OptionError

Shortcut = Literal["conv", "pad"]


class ResNet(nn.Module):
    """A 3 x 3 convolution, one stage of blocks per width (halving the image from the second on), pooling, `linear`.

    Args:
        widths: channels of each stage.
        blocks: in each stage.
        shortcut: around a block that changes the shape: "conv" (1 x 1 convolution) or "pad" (no parameters).

    >>> import torch
    >>> ResNet([4, 8], blocks=1, classes=3)(torch.rand(2, 3, 16, 16)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        widths: Sequence[int],
        blocks: int,
        *,
        channels: int = 3,
        classes: int = 10,
        shortcut: Shortcut = "conv",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if shortcut not in ("conv", "pad"):
            raise OptionError(
                f"shortcut is {shortcut!r}; expected 'conv' (1 x 1 convolution) or 'pad' (no parameters)."
            )
        self.conv1 = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU()
        self.stages = len(widths)
        before = widths[0]
        for stage, width in enumerate(widths):
            strides = [1 if stage == 0 else 2] + [1] * (blocks - 1)
            layer = nn.Sequential()
            for stride in strides:
                layer.append(Block(before, width, stride, shortcut))
                before = width
            self.add_module(f"layer{stage + 1}", layer)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        for stage in range(self.stages):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        out: Tensor = self.linear(self.dropout(self.flatten(self.pool(x))))
        return out


class Block(nn.Module):
    """Two 3 x 3 convolutions and a shortcut around them."""

    def __init__(self, before: int, after: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = Pad(after - before, stride) if shortcut == "pad" else _projection(before, after, stride)
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        residual = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        out: Tensor = self.relu2(residual + self.shortcut(x))
        return out


class Pad(nn.Module):
    """A shortcut without parameters: every `stride`-th pixel, `extra` channels of zeros, half in front, half behind."""

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.front, self.behind, self.stride = extra // 2, extra - extra // 2, stride

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.front, self.behind))


def _projection(before: int, after: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))


def resnet18(channels: int = 3, classes: int = 10, *, width: int = 64, dropout: float = 0.0) -> ResNet:
    """ResNet-18 whose first convolution keeps the resolution, as usual for 32 x 32 images.

    >>> resnet18(width=8).linear
    Linear(in_features=64, out_features=10, bias=True)
    """
    widths = [width, 2 * width, 4 * width, 8 * width]
    return ResNet(widths, 2, channels=channels, classes=classes, dropout=dropout)


def cifar_resnet(
    channels: int = 3,
    classes: int = 10,
    *,
    depth: int = 20,
    width: int = 16,
    shortcut: Shortcut = "conv",
    dropout: float = 0.0,
) -> ResNet:
    """The thin ResNet of depth 6n + 2 (8, 20, 32, 44, 56, ...) with 16, 32 and 64 channels.

    >>> sum(isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3) for layer in cifar_resnet(depth=20).modules())
    19
    """
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise OptionError(f"depth is {depth}; a CIFAR ResNet has depth 6n + 2, such as 8, 20, 32, 44 or 56.")
    widths = [width, 2 * width, 4 * width]
    return ResNet(widths, blocks, channels=channels, classes=classes, shortcut=shortcut, dropout=dropout)
