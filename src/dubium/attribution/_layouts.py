"""Where the numbers of a feature lie in the image, followed from layer to layer during a forward pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from dubium.attribution._autograd.nodes import is_axis_move, read_axis_move
from dubium.attribution._orientations import UPRIGHT, Orientation, interpret_axis_move

PERMUTING = frozenset(["permute", "transpose", "movedim", "moveaxis", "swapaxes", "swapdims"])
RESHAPING = frozenset(
    ["view", "reshape", "unflatten", "flatten", "expand", "unsqueeze", "squeeze", "__getitem__", "chunk", "split"]
)
PRODUCTS = frozenset(["matmul", "bmm", "einsum"])
SIZE_NOT_NOTED = RESHAPING | PRODUCTS | {"scaled_dot_product_attention", "softmax", "dropout"}
DENSE_LAYER, CHANNEL_LAYER, OTHER_LAYER = "linear", "layer of channels", "layer"
CHANNELS_FIRST_ALWAYS = frozenset([CHANNEL_LAYER, "conv2d", "batch_norm", "group_norm", "instance_norm"])
SHORTCUT_OPERATIONS = frozenset(["relu", "relu_", "add", "add_"])
PREFIX_TOKENS = 5  # at most: a class token and four registers, or a class and a distillation token

Size = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Where the numbers of a feature (B, ...) lie in the image.

    `axes` index positions: two axes (h, w), or one axis of prefix + h * w tokens. All other axes are channels.
    """

    axes: tuple[int, ...]  # counted after the batch
    grid: Size | None = None
    prefix: int = 0
    merged_images: int = 0  # images whose channels are side by side in a batch of one, (1, B * C, h, w)
    orientation: Orientation = UPRIGHT


CHANNELS_FIRST, CHANNELS_LAST = Layout((1, 2)), Layout((0, 1))


class TensorSet(dict[int, Tensor]):
    """Tensors by identity. They are kept alive, since another tensor could have the identity of one that is gone."""

    def add(self, tensor: Tensor) -> None:
        self[id(tensor)] = tensor

    def __contains__(self, tensor: object) -> bool:
        return super().__contains__(id(tensor))


@dataclass
class LayoutTracker:
    """The layouts of a forward pass: what layers and operations have done to the axes of its features so far."""

    image_count: int
    sizes: dict[Size, None] = field(default_factory=dict)  # of feature maps, the latest first
    feature_map: Tensor | None = None  # (B, C, h, w), the latest of a convolution or of what follows one
    channels_last: TensorSet = field(default_factory=TensorSet)  # (B, h, w, C)
    tokens_last: TensorSet = field(default_factory=TensorSet)  # (B, D, N), which may look like (B, N, D)
    tokens_first: TensorSet = field(default_factory=TensorSet)  # (B, N, D) made of those of `tokens_last`
    attention: TensorSet = field(default_factory=TensorSet)  # matrices of queries and keys, (B, heads, N, N)
    batch_moved: TensorSet = field(default_factory=TensorSet)  # with a first axis that is not the batch: (N, B, D)
    orientations: dict[int, tuple[Tensor, Orientation | None]] = field(default_factory=dict)
    # of tensors by identity, those that are upright left out; None: tokens in an order that has no place
    merged: TensorSet = field(default_factory=TensorSet)  # images whose channels are side by side, (1, B * C, h, w)

    def find(self, out: Tensor) -> Layout | None:
        """The layout of a feature (B, ...), given the sizes of the feature maps that the network has made so far.

        (B, C, h, w) and (B, h, w, C) are feature maps. (B, N, D), (B, heads, N, D) and (B, N, heads, D) are tokens if
        some feature map has N pixels, or up to five fewer: those in front are class tokens and registers. A matrix of
        attention, (B, N, N) or (B, heads, N, N), is placed by its key axis: keys index the values that it weights.
        """
        if out.is_nested:
            return None
        layout = self._find_upright(out)
        return self.orient(layout, out) if self.orientations else layout

    def orient(self, layout: Layout | None, out: Tensor) -> Layout | None:
        """An upright layout, with the orientation of a feature."""
        orientation = self._orientation(out)
        if orientation is UPRIGHT or layout is None:
            return layout
        return None if orientation is None else replace(layout, orientation=orientation)

    def _orientation(self, value: Tensor) -> Orientation | None:
        return self.orientations[id(value)][1] if id(value) in self.orientations else UPRIGHT

    def _find_upright(self, out: Tensor) -> Layout | None:
        """The layout of a feature, flips and transpositions aside."""
        if out in self.merged:
            return Layout((1, 2), merged_images=self.image_count)  # a convolution by weights of each image's own
        if out.is_complex() or out.ndim < 3:
            return None  # frequencies have no place, nor have numbers of an image or of all
        if out.shape[0] != self.image_count or out in self.batch_moved:
            return None
        if out in self.tokens_last:
            return None  # layers that mix tokens have a bias for each token, not for each channel
        shape, channels_last = out.shape, out in self.channels_last
        as_map = CHANNELS_LAST if channels_last else CHANNELS_FIRST
        height, width = shape[1:3] if channels_last else shape[-2:]
        if out.ndim == 4 and ((height, width) in self.sizes or (channels_last and height == width)):
            return as_map
        key_axis = (out.ndim - 1,) if out in self.attention else ()
        for axis in {3: (*key_axis, 1), 4: (*key_axis, 2, 1)}.get(out.ndim, ()):
            for prefix in range(PREFIX_TOKENS + 1):
                for size in self.sizes:
                    if size[0] * size[1] > 1 and shape[axis] == size[0] * size[1] + prefix:
                        return Layout((axis - 1,), size, prefix)
        if out.ndim == 4 and tuple(shape[1:3]) in self.sizes:
            return CHANNELS_LAST
        return as_map if out.ndim == 4 and self._may_be_map(height, width) else None

    def _may_be_map(self, height: int, width: int) -> bool:
        """Whether an unknown size is of about the known ones' shape: a query's (B, heads, 1, D) is no row of pixels."""
        known = next(iter(self.sizes), (height, width))
        return known[0] * width <= 2 * known[1] * height and known[1] * height <= 2 * known[0] * width

    def is_split_off(self, out: Tensor) -> bool:
        """Whether a feature is of one image that the network has taken out of its batch."""
        if self.image_count == 1 or out.is_nested or out.is_complex() or out.ndim not in (3, 4) or out.shape[0] != 1:
            return False
        is_state = out.ndim == 3 and out.shape[1] == self.image_count  # (1, B, D), of a recurrent layer
        return not is_state and out not in self.merged and out not in self.batch_moved

    def note_last_axis(self, inputs: Sequence[Any], out: Tensor) -> None:
        """To be called before `follow`, for a layer that acts along the last axis.

        Its output has channels last, unless its input is a map with channels first: then it acts along each row.
        """
        given = inputs[0] if inputs else out
        is_map = tuple(given.shape[2:]) in self.sizes and given not in self.channels_last
        is_along_rows = is_map and (given is self.feature_map or tuple(given.shape[1:3]) not in self.sizes)
        if out.ndim == 4 and not is_along_rows:
            self.channels_last.add(out)

    def follow(self, name: str, inputs: Sequence[Any], out: Any) -> None:
        """Note what an operation or layer does to the axes of its first input."""
        if self._is_next_feature_map(name, inputs, out):
            self.feature_map = out
            return
        if self.image_count > 1 and (self.batch_moved or name in PERMUTING or name == OTHER_LAYER):
            self._follow_batch(name, inputs, out)
        for value in out if isinstance(out, tuple | list) else (out,):
            if isinstance(value, Tensor) and value.requires_grad and value.ndim > 2:
                self.follow_orientation(inputs, value)
        if not isinstance(out, Tensor) or not out.requires_grad:
            return
        if out.ndim in (3, 4) and (self.attention or name in PRODUCTS) and out.shape[-1] == out.shape[-2]:
            self._follow_attention(name, inputs, out)
        if out.ndim == 3:
            self._follow_tokens(name, inputs, out)
        given = next((value for value in inputs if isinstance(value, Tensor) and value.ndim == 4), None)
        if out.ndim == 4 and given is not None:
            self._follow_merged(name, given, out)
            if out.shape[0] == self.image_count and name not in SIZE_NOT_NOTED:
                self._follow_feature_map(name, given, out)

    def _is_next_feature_map(self, name: str, inputs: Sequence[Any], out: Any) -> bool:
        """Whether this is a feature map of the latest size, in a network that did nothing unusual so far: most are."""
        is_usual = name == CHANNEL_LAYER or (
            name in SHORTCUT_OPERATIONS
            and (inputs and inputs[0] is self.feature_map)
            and not (self.channels_last or self.attention)
        )
        if not is_usual or self.merged or self.batch_moved or self.orientations:
            return False
        return bool(
            out.ndim == 4 and out.shape[0] == self.image_count and out.shape[2:] == next(iter(self.sizes), None)
        )

    def follow_orientation(self, inputs: Sequence[Any], out: Tensor) -> None:
        """Note that a feature is flipped, turned or transposed against the image, or made of one that is."""
        if not self.orientations and not is_axis_move(out):
            return  # nothing lies otherwise so far: in most networks
        nested = [value if isinstance(value, list | tuple) else (value,) for value in inputs]
        tensors = [v for each in nested for v in each if isinstance(v, Tensor) and v.ndim > 2 and not v.is_nested]
        has_place = [v.requires_grad and v.numel() > len(v) * max(v.shape[1:]) for v in tensors]  # gates have none
        given = [value for value, placed in zip(tensors, has_place, strict=True) if placed]
        orientations = {self._orientation(value) for value in given}
        if len(orientations) != 1:
            return  # inputs that disagree, or none: the output counts as upright
        orientation = orientations.pop()
        name, saved = read_axis_move(given[0], out)
        if name and orientation is not None:
            move = interpret_axis_move(name, saved, out.ndim)
            first, axis = given[0], 1 if given[0] in self.channels_last else 2
            if first.ndim == 4 and (not self.sizes or tuple(first.shape[axis : axis + 2]) in self.sizes):
                orientation = orientation.after(move, axis)
            elif first.ndim == 3 and (2 if first in self.tokens_last else 1) in move.flipped:
                orientation = None  # tokens backwards, with class tokens last
        if orientation != UPRIGHT:
            self.orientations[id(out)] = out, orientation

    def _follow_feature_map(self, name: str, given: Tensor, out: Tensor) -> None:
        """Note the size of a feature map, or that its channels come last."""
        permutes = is_permutation(name, given, out)
        if permutes:
            moves_last = given.shape[1] == out.shape[3] and given.shape[2:] == out.shape[1:3]
            is_channels_last = moves_last and given.shape[2:] in self.sizes and given not in self.channels_last
        else:
            is_channels_last = given in self.channels_last and name not in CHANNELS_FIRST_ALWAYS
            if name in CHANNELS_FIRST_ALWAYS or given is self.feature_map:
                self.feature_map = out
        if is_channels_last:
            self.channels_last.add(out)
        elif not permutes and name != DENSE_LAYER:
            size = (out.shape[2], out.shape[3])
            is_known = size in self.sizes or name in CHANNELS_FIRST_ALWAYS
            if out.shape == given.shape and self.sizes and not is_known:
                return  # probably queries (B, heads, N, D), normed or multiplied by a number: no feature map
            if next(iter(self.sizes), None) != size:
                self.sizes.pop(size, None)
                self.sizes = {size: None, **self.sizes}

    def _follow_merged(self, name: str, given: Tensor, out: Tensor) -> None:
        """Note a batch that was reshaped to one image of all images' channels, and what is made of it."""
        if out.shape[0] == 1 < self.image_count and out.shape[1] % self.image_count == 0:
            merges = name in RESHAPING and len(given) == self.image_count and out.numel() == given.numel()
            if merges or given in self.merged:
                self.merged.add(out)

    def _follow_tokens(self, name: str, inputs: Sequence[Any], out: Tensor) -> None:
        """Note on which axis of (B, N, D) or (B, D, N) the tokens lie, where a feature map tells."""
        given = next((value for value in inputs if isinstance(value, Tensor) and value.ndim in (3, 4)), None)
        if given is None or given.shape[1] not in out.shape[1:]:
            return
        is_last, is_first = given in self.tokens_last, given in self.tokens_first
        if given.ndim == 4:
            is_last = given is self.feature_map and out.shape[1] == given.shape[1]
        elif is_permutation(name, given, out):
            is_swap = given.stride(0) == out.stride(0)  # of the other two axes, the batch stays
            is_last, is_first = is_swap and is_first, is_swap and is_last
        if is_last or is_first:
            (self.tokens_last if is_last else self.tokens_first).add(out)

    def _follow_attention(self, name: str, inputs: Sequence[Any], out: Tensor) -> None:
        """Note matrices of attention: products of two tensors that are not such, and elementwise functions of one."""
        given = [value for value in inputs if isinstance(value, Tensor)]
        weighs = any(value in self.attention for value in given)
        made_of_tokens = len([value for value in given if value.requires_grad]) > 1 or name == "einsum"
        if (not weighs and made_of_tokens) if name in PRODUCTS else (weighs and name not in PERMUTING):
            self.attention.add(out)

    def _follow_batch(self, name: str, inputs: Sequence[Any], outputs: Any) -> None:
        """Note tensors whose first axis is not that of the batch, but may be as long: (N, B, D) of N = B tokens."""
        given = [value for value in inputs if isinstance(value, Tensor) and value.ndim > 2 and value.requires_grad]
        for out in outputs if isinstance(outputs, tuple | list) else [outputs]:
            if not given or not isinstance(out, Tensor) or out.ndim < 3:
                continue
            before = given[0]
            is_moved = any(value in self.batch_moved for value in given)
            if is_permutation(name, before, out):
                if before.stride(0) != out.stride(0):  # the batch has moved: away from the first axis, or back to it
                    is_moved = len(before) == self.image_count and not is_moved
            elif out.ndim < before.ndim or (out is not outputs and out.shape != before.shape):
                is_moved = False  # one element of the first axis, or an attention's second output, its weights
            if is_moved:
                self.batch_moved.add(out)


def is_permutation(name: str, given: Tensor, out: Tensor) -> bool:
    """Whether an operation or layer permutes the axes of its input; for a layer: equal storage, reordered strides."""
    try:
        is_same = given.data_ptr() == out.data_ptr()
    except RuntimeError:  # inside of torch.func's transformations, tensors have no storage
        is_same = False
    if name in PERMUTING or not is_same:
        return name in PERMUTING
    axes, moved = ([*zip(value.stride(), value.shape, strict=True)] for value in (given, out))
    return axes != moved and sorted(axes) == sorted(moved)
