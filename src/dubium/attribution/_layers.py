"""Record the biases of a network's layers while it runs: which modules count as one function each, and their biases."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd
from torch.utils.hooks import RemovableHandle

from dubium.attribution._biases import CHANNELS, DENSE, RecordedBiases, Standardised
from dubium.attribution._implicit import Call, NoForwardModeError, flatten_tensors, implicit_biases, replace_tensors
from dubium.attribution._operations import OperationRecorder
from dubium.models.normalized import Normalise
from dubium.posteriors.mc_dropout import FixedDropout

LINEAR = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)
HOMOGENEOUS = (
    *(nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.Identity, nn.Flatten, nn.Unflatten, nn.Upsample, nn.PixelShuffle),
    *(_DropoutNd, _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd),
)


@contextmanager
def record_biases(network: nn.Module, images: int, *, spatial: bool) -> Iterator[RecordedBiases]:
    """Within the block, a forward pass of the network records each bias with the place of its gradient.

    Layers whose function is known, and innermost modules of any kind, have one bias each. What happens outside of them
    is recorded operation by operation.
    """
    recorded, pending = RecordedBiases(images, spatial), dict[nn.Module, list[Tensor | None] | list[Tensor]]()
    closed, has_operations = closed_layers(network)
    operations = OperationRecorder(recorded.is_wanted, recorded.add, recorded.follow) if has_operations else None

    def after_known(layer: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        dense, has_channels = isinstance(layer, nn.Linear), isinstance(layer, (*LINEAR, _BatchNorm))
        if isinstance(layer, Normalise):
            if out.requires_grad and len(out) == images:
                recorded.standardised.append(Standardised(layer, args[0], out))
        else:
            recorded.follow(DENSE if dense else CHANNELS if has_channels else "layer", args, out)
        if has_channels:
            value = batch_norm_shift(layer) if isinstance(layer, _BatchNorm) else layer.bias
            if isinstance(value, Tensor):
                recorded.add(out, value.detach(), last=dense)

    def before_other(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        dependent = [value for value in flatten_tensors((args, kwargs)) if value.requires_grad]
        call = Call(layer.forward, args, kwargs, dependent, returns_nothing=False)  # not layer(): it has hooks
        try:  # now: a layer that works in place overwrites its input
            values = [value.detach() for value in dependent]
            pending[layer] = implicit_biases(call, values) if dependent else []
        except NoForwardModeError:
            views = [value.view_as(value) for value in dependent]
            pending[layer] = views
            return replace_tensors((args, kwargs), call.places, views)
        return None

    def after_other(layer: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        recorded.follow("layer", args, out)
        found, outputs = pending.pop(layer), flatten_tensors(out)
        if any(value is not None and value.requires_grad for value in found):  # views of the inputs: no forward mode
            terms = [(value, value.detach()) for value in outputs] + [(v, -v.detach()) for v in found if v is not None]
        else:
            terms = [(value, bias) for value, bias in zip(outputs, found, strict=False) if bias is not None]
        # a plain LayerNorm over one axis works on (B, H, W, C); its subclasses for images move the axes themselves
        norms_last = type(layer) is nn.LayerNorm and len(layer.normalized_shape) == 1
        for value, bias in terms:
            recorded.add(value, bias, last=norms_last or id(value) in recorded.channels_last)

    handles: list[RemovableHandle] = []
    for layer, has_known_bias in closed.items():
        if operations is not None:
            handles.append(layer.register_forward_pre_hook(operations.pause))
        if has_known_bias:
            handles.append(layer.register_forward_hook(after_known))
        else:
            handles.append(layer.register_forward_pre_hook(before_other, with_kwargs=True))
            handles.append(layer.register_forward_hook(after_other))
        if operations is not None:
            handles.append(layer.register_forward_hook(operations.resume))
    try:
        if operations is not None:
            operations.start()
        yield recorded
    finally:
        if operations is not None:
            operations.stop()
        for handle in handles:
            handle.remove()


def closed_layers(network: nn.Module) -> tuple[dict[nn.Module, bool], bool]:
    """The modules that count as one function each, and whether a forward pass may do anything outside of them.

    Of each module, whether its bias is known: a parameter, or what follows from some, or none.

    They are layers of torch's, and innermost modules, in order. The network itself is not among them, or nothing would
    be seen of one that is written with functions alone. What is inside a convolution (a weight's parametrization) is
    no layer. Nothing happens between the layers of a Sequential.
    """
    closed: dict[nn.Module, bool] = {}
    network = next(network.modules())  # a wrapper of ours that computes nothing shows the network itself
    has_operations, waiting, seen = False, [network], {network}
    while waiting:
        module = waiting.pop()
        base = torch_class(type(module))  # type: ignore[arg-type]
        is_linear = base is not None and issubclass(base, (*LINEAR, _BatchNorm))
        children = [] if is_linear else list(module.children())
        if not children and (module is not network or base is not None):
            is_homogeneous = base is not None and issubclass(base, HOMOGENEOUS)
            is_ours = type(module) in (Normalise, FixedDropout)  # once more, the latter would have another mask
            closed[module] = is_linear or is_homogeneous or is_ours
        else:
            has_operations = has_operations or base is not nn.Sequential
        fresh = [child for child in children if child not in seen]
        seen.update(fresh)
        waiting += reversed(fresh)
    return closed, has_operations


@cache
def torch_class(layer: type[nn.Module]) -> type[nn.Module] | None:
    """The class of torch.nn whose function layers of a class compute: their own, or one whose forward they inherit."""
    for base in layer.__mro__:
        if issubclass(base, nn.Module) and base.__module__.startswith("torch.nn.modules"):
            return base if layer.forward is base.forward else None
    return None


def batch_norm_shift(layer: nn.Module) -> Tensor:
    """The bias of a BatchNorm layer in eval mode, one number a channel."""
    assert isinstance(layer, _BatchNorm)
    assert layer.running_mean is not None
    assert layer.running_var is not None
    bias = -layer.running_mean * (layer.running_var + layer.eps).rsqrt()
    bias = bias if layer.weight is None else bias * layer.weight.detach()
    return bias if layer.bias is None else bias + layer.bias.detach()
