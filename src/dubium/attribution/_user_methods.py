"""Methods of a user's own: functions, Captum's classes and objects, registered by a name or named by where they are."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch
from torch import Tensor, nn

from dubium.attribution._captum import captum_attributor, captum_name, is_captum, refuse_attribute
from dubium.attribution._target import target_for_images
from dubium.checks import describe_tensor, list_some, warn_user
from dubium.errors import DubiumError, OptionError, OutputError, UnknownNameError
from dubium.posteriors.stack import stacked_networks
from dubium.registry import REGISTERED, load_function, method_names
from dubium.types import Attribution, Attributor, Images, Target


def register_method(name: str, function: Any, *, replace: bool = False) -> None:
    """Give a method of your own a name, which `explain`, `evaluate` and `methods()` then know, in this process.

    A function that is defined again, as in a notebook's cell that is run again, replaces its earlier self. On the
    command line, name it `package.module:function` instead.

    Args:
        name: letters, digits and `-_.`, and not that of another method.
        function: `(network, x, target, *, options...) -> maps`, a Captum class or object.
        replace: whether another function that was registered by that name is replaced; dubium's own never are.

    >>> def brightness(network, x, target):
    ...     return x.sum(1)[:, None].expand(-1, target(network(x)).shape[1], -1, -1)
    >>> register_method("brightness", brightness)
    >>> import dubium, dubium.data
    >>> dubium.explain(dubium.load_posterior("demo"), dubium.data.load("demo").batch([0]), method="brightness").method
    'brightness'
    """
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name):
        raise OptionError(f"The method's name is {name!r}; letters, digits, '-', '_' and '.' are needed.")
    earlier = REGISTERED.get(name)
    if name in method_names() and not (name in REGISTERED and (replace or defined_at(earlier) == defined_at(function))):
        way = f", or say replace=True, which replaces {defined_at(earlier)}" if name in REGISTERED else ""
        raise OptionError(f"There is a method called {name!r} already. Choose another name{way}.")
    if isinstance(function, str) or not callable(getattr(function, "attribute", function)):
        raise OptionError(
            f"The method {name!r} is a {type(function).__name__}; a function or a Captum class is needed."
        )
    find_user_method(function)  # raises what is wrong with its signature
    REGISTERED[name] = function


def defined_at(function: Any) -> str:
    """Module and name of a function or class; of an object those of its class."""
    function = getattr(function, "func", function)  # of a partial
    function = function if hasattr(function, "__qualname__") else type(function)
    return f"{function.__module__}.{function.__qualname__}"


def find_user_method(what: object) -> tuple[str, Attributor] | None:
    """The name and function of a method that is registered, importable, of Captum's, or a function; None of others."""
    argument = what
    if isinstance(what, str):
        what = REGISTERED[what] if what in REGISTERED else import_method(what) if ":" in what else what
    refuse_attribute(what)
    if not isinstance(what, str) and is_captum(what):
        name, function = captum_name(what), captum_attributor(what)
    elif isinstance(what, type):
        named = argument if isinstance(argument, str) else what.__name__
        raise OptionError(
            f"The method {named} is a class, and none of Captum's. Give a function (network, x, target) -> maps "
            "(B, T, H, W), or an object that is called so."
        )
    elif callable(what):
        name = getattr(getattr(what, "func", what), "__name__", type(what).__name__)
        check_signature(what, name)
        function = what
    else:
        return None
    called = argument if isinstance(argument, str) else name
    function = guard_user_method(function, called, may_hook_one=is_captum(what))
    function = function if is_captum(what) else with_map_check(function, called)
    return (called if called in REGISTERED else name), function


def warn_of_partial_hooks(network: nn.Module, name: str) -> Callable[..., None]:
    """A hook before a forward pass of several networks: it warns if a user's method looks into some of them alone."""
    networks = stacked_networks(network)
    before = [count_hooks(each) for each in networks]

    def warn(*_given: Any) -> None:
        hooked = [s for s, each in enumerate(networks) if count_hooks(each) > before[s]]
        if 0 < len(hooked) < len(networks):
            warn_user(
                f"The method {name} hooks layers of network {list_some(hooked)} alone, and there are {len(networks)}: "
                "what it finds there is not that of all. A method is given all networks as one module, "
                "network.networks: hook each, or take the method as relevance=, which is given one "
                "network after the other."
            )

    return warn


def count_hooks(network: nn.Module) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, kind)) for module in network.modules() for kind in kinds)


def guard_user_method(function: Attributor, name: str, *, may_hook_one: bool) -> Attributor:
    """A user's function, called image by image where the target selects different classes for each image.

    The function then always gets a target that is one function of the logits, as its author expects. Gradients are
    switched on for it. Its exceptions are raised again as an `OptionError` with its name. It gets a copy of the images,
    and may call the networks in training mode: modes and buffers are put back.

    Args:
        may_hook_one: whether it treats one network after the other by itself, as Captum's classes are called.
    """

    def call(network: nn.Module, x: Images, target: Target, **options: Any) -> Any:  # the caller checks what it returns
        watch = None
        if not may_hook_one:
            watch = network.register_forward_pre_hook(warn_of_partial_hooks(network, name))
        try:
            with same_modes_and_buffers(network):
                return function(network, x.clone(), target, **options)
        except (DubiumError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            place = line_text(function, error)
            raise OptionError(f"The method {name} raised {type(error).__name__}{place}: {error}") from error
        finally:
            if watch is not None:
                watch.remove()

    @wraps(function)
    @torch.enable_grad()
    def attribute(network: nn.Module, x: Images, target: Target, **options: Any) -> Any:
        if not getattr(target, "differs_by_image", False):
            return detach_maps(call(network, x, target, **options), name)
        images = [slice(b, b + 1) for b in range(len(x))]
        parts = [call(network, x[image], target_for_images(target, image), **options) for image in images]
        maps = [part.maps if isinstance(part, Attribution) else part for part in parts]
        for each in maps:
            if not isinstance(each, Tensor) or each.shape[:1] != (1,) or each.shape != maps[0].shape:
                raise OutputError(
                    f"{name} returned {describe_tensor(each)} for one image; maps (1, T, H, W) are needed."
                )
        return torch.cat(maps).detach()

    return attribute


@contextmanager
def same_modes_and_buffers(network: nn.Module) -> Iterator[None]:
    """Put all modes and buffers back at the end: a pass in training mode moves the statistics of BatchNorm."""
    modules = list(network.modules())
    modes = [(module, module.training) for module in modules]
    buffers = [
        (module._buffers, name, buffer, buffer.detach().clone())
        for module in modules
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for owner, name, buffer, before in buffers:
            owner[name] = buffer
            if not torch.equal(buffer, before):
                buffer.detach().copy_(before)


def line_text(function: Callable[..., Any], error: Exception) -> str:
    """The last line of a user's file that an error came through, as " in file.py, line 3"; "" where it is not known."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == file]
    return f" in {Path(str(file)).name}, line {lines[-1]}" if lines else ""


def with_map_check(function: Attributor, name: str) -> Attributor:
    """A user's function, with a check: are there T maps because there are T targets, or T channels, or by chance?

    After its first call, it is called for the first image with one target, and must then return (1, 1, H, W).
    """
    is_checked = False

    @wraps(function)
    def attribute(network: nn.Module, x: Images, target: Target, **options: Any) -> Any:
        nonlocal is_checked
        returned = function(network, x, target, **options)
        count = map_count(returned, len(x))
        if is_checked or count in (None, 1) or len(x) == 0:
            return returned
        is_checked, image = True, slice(0, 1)
        image_target = target_for_images(target, image)
        with torch.random.fork_rng(devices=[]):
            of_one_target = function(network, x[image], lambda output: image_target(output)[:, :1], **options)
        if map_count(of_one_target, 1) == count:
            found = "(B, C, H, W), a map for each channel," if count == x.shape[1] else f"{count} maps an image"
            raise OutputError(
                f"The method {name} returned {found} also for one target. Maps (B, T, H, W) are needed, one for each "
                "target: take the mean over channels, and a map for each column of target(network(x))."
            )
        return returned

    return attribute


def map_count(returned: object, image_count: int) -> int | None:
    """How many maps a method returned for each of so many images; None where it returned something else."""
    maps = returned.maps if isinstance(returned, Attribution) else returned
    return maps.shape[1] if isinstance(maps, Tensor) and maps.ndim == 4 and len(maps) == image_count else None


def detach_maps(returned: Any, name: str) -> Any:
    """What the method of that name returned, without the graph that it was computed by."""

    def plain(value: Any) -> Any:
        return value.detach() if isinstance(value, Tensor) else value

    if not isinstance(returned, Attribution):
        return plain(returned)
    if not isinstance(returned.extras, Mapping):
        raise OutputError(
            f"{name} returned an Attribution whose extras are a {type(returned.extras).__name__}; a dict of tensors by "
            "name is needed, {} for none."
        )
    return Attribution(plain(returned.maps), {name: plain(extra) for name, extra in returned.extras.items()})


def check_signature(function: Callable[..., Any], name: str) -> None:
    """Raise an error unless a user's function can be called as a method is."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:  # a function of C's
        raise OptionError(
            f"It cannot be seen how {name} is called: {error}. Call it in a function of your own, (network, x, "
            "target) -> maps (B, T, H, W)."
        ) from error
    required = [p for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    try:
        signature.bind(*[None] * 3, **{p.name: None for p in required})
    except TypeError as error:
        raise OptionError(
            f"{name}{signature} cannot be called as a method: {error}. A method is called with (network, x, target), "
            "and its options by name: `network` is a torch.nn.Module, `x` the images (B, C, H, W), `target` a function "
            "from the network's output to T scores an image, (B, T). It returns maps (B, T, H, W)."
        ) from error


def import_method(path: str) -> Any:
    """What a user names as "package.module:name": a function, or a class of Captum's."""
    try:
        return load_function(path)
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # TypeError: of a relative import
        module, _, name = path.partition(":")
        near = get_close_matches(name, dir(sys.modules[module]), n=1) if module in sys.modules else []
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UnknownNameError(
            f"The method {path!r} cannot be imported: {error}.{hint} Expected package.module:name."
        ) from error
