"""The layers of a network: which modules count as one function each, and which of them have a bias that is known."""

from functools import cache

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd

from dubium.models.normalized import Normalise
from dubium.posteriors.mc_dropout import FixedDropout

LINEAR = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)
HOMOGENEOUS = (
    *(nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.Identity, nn.Flatten, nn.Unflatten, nn.Upsample, nn.PixelShuffle),
    *(_DropoutNd, _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd),
)


@cache
def torch_class(layer: type[nn.Module]) -> type[nn.Module] | None:
    """The class of torch.nn whose function layers of a class compute: their own, or one whose forward they inherit."""
    for base in layer.__mro__:
        if issubclass(base, nn.Module) and base.__module__.startswith("torch.nn.modules"):
            return base if layer.forward is base.forward else None
    return None


@cache
def has_known_bias(layer: type[nn.Module]) -> bool:
    """Whether the bias of a layer of this class is a parameter, follows from some, or is none."""
    if layer in (Normalise, FixedDropout):  # executed once more, to find its bias, the latter would have another mask
        return True
    base = torch_class(layer)  # type: ignore[arg-type]
    return base is not None and issubclass(base, (*LINEAR, _BatchNorm, *HOMOGENEOUS))


def closed_layers(network: nn.Module) -> tuple[list[nn.Module], bool]:
    """The modules that count as one function each, and whether a forward pass may do anything outside of them.

    They are layers of torch's, and innermost modules, in order; each comes once. The network itself is not among them,
    or nothing would be seen of one that is written with functions alone. What is inside a convolution (a weight's
    parametrization) is no layer. Nothing happens between the layers of a Sequential.
    """
    closed: list[nn.Module] = []
    network = next(network.modules())  # a wrapper of ours that computes nothing shows the network itself
    has_operations, waiting, seen = False, [network], {network}
    while waiting:
        module = waiting.pop()
        base = torch_class(type(module))  # type: ignore[arg-type]
        is_known = base is not None and issubclass(base, (*LINEAR, _BatchNorm))
        children = [] if is_known else list(module.children())
        if not children and (module is not network or base is not None):
            closed.append(module)
        else:
            has_operations = has_operations or base is not nn.Sequential
        fresh = [child for child in children if child not in seen]
        seen.update(fresh)
        waiting += reversed(fresh)
    return closed, has_operations


def batch_norm_shift(layer: nn.Module) -> Tensor:
    """The bias of a BatchNorm layer in eval mode, one number a channel."""
    assert isinstance(layer, _BatchNorm)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    bias = -layer.running_mean * (layer.running_var + layer.eps).rsqrt()
    bias = bias if layer.weight is None else bias * layer.weight.detach()
    return bias if layer.bias is None else bias + layer.bias.detach()


def normalises_last_axis(layer: nn.Module) -> bool:
    """A plain LayerNorm over one axis works on (B, H, W, C); its subclasses for images move the axes themselves."""
    return type(layer) is nn.LayerNorm and len(layer.normalized_shape) == 1
