"""The layouts of all features of a forward pass, followed from the image through autograd's graph, node by node.

A rule says what a kind of operation does to axes. An operation without one keeps the axes of the
input that has its output's shape, or most nearly; what an axis of another size runs along is not known then.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from dubium.attribution._autograd.graph import Graph, Operation, OutputIndex
from dubium.attribution._autograd.nodes import AXES_ASKED_OF_BACKWARD, AXIS_ARGUMENTS, Node
from dubium.attribution._axis_joins import (
    assign_part,
    choose_indices,
    concatenate_axes,
    stack_axes,
    write_indices,
)
from dubium.attribution._axis_moves import (
    KnownInput,
    LayoutRule,
    NodeOutput,
    append_axis,
    flip_axes,
    forget_axes,
    keep_or_forget,
    pad_axes,
    permute_axes,
    reduce_axes,
    remove_axis,
    repeat_axes,
    reshape_axes,
    restride_axes,
    roll_axes,
    rotate_axes,
    slice_axis,
    split_axis,
    transform_axes,
    transpose_axes,
    transpose_matrix,
    unfold_axis,
)
from dubium.attribution._layouts import (
    COLUMNS,
    IMAGES,
    ROWS,
    Layout,
    axis_size,
    image_layout,
    is_unplaced,
    unplaced_axis,
)

LayoutsByOutput = Mapping[OutputIndex, Layout]
"""The layout of each output of a graph's nodes, where it is known."""

RESIZING = ("Pool", "Unpool", "Upsample", "PixelShuffle", "PixelUnshuffle")
"""Words in the names of operations that make rows and columns more or fewer."""

REMEMBERED = 32
"""Of how many graphs layouts are remembered."""


def follow_layouts(graph: Graph, leaf: Tensor) -> LayoutsByOutput:
    """The layouts of the features in a graph, and of the images, a leaf of it."""
    operations, images = graph.operations, graph.find_output(get_gradient_edge(leaf))
    if images is None:  # nothing depends on them
        return {}
    nodes_to_ask = {
        index: graph.nodes[index].autograd_node
        for index, operation in enumerate(operations)
        if operation.name in AXES_ASKED_OF_BACKWARD
    }
    return apply_rules(operations, images, nodes_to_ask) if nodes_to_ask else remembered_layouts(operations, images)


def apply_rules(
    operations: Sequence[Operation], images: OutputIndex, nodes_to_ask: Mapping[int, Node] | None = None
) -> LayoutsByOutput:
    """The layout of each output of each node.

    Args:
        images: which of them the images are.
        nodes_to_ask: autograd's nodes of operations in `AXES_ASKED_OF_BACKWARD`, by their indices.
    """
    layouts = {images: image_layout(operations[images.node].output_shapes[images.output])}
    for index, operation in enumerate(operations):
        known_inputs = [
            KnownInput(input_nr, layout, operations[producer].output_shapes[output_nr])
            for input_nr, producer, output_nr in operation.inputs
            if (layout := layouts.get(OutputIndex(producer, output_nr))) is not None
        ]
        if not known_inputs or operation.axis_arguments is None:
            continue
        arguments = dict(zip(AXIS_ARGUMENTS.get(operation.name, ()), operation.axis_arguments, strict=True))
        rule = keep_same_shape if operation.is_python else LAYOUT_RULES.get(operation.name, follow_sizes)
        node_to_ask = (nodes_to_ask or {}).get(index)
        for output_nr, shape in enumerate(operation.output_shapes):
            layout = rule(NodeOutput(operation, arguments, output_nr, shape, known_inputs, node_to_ask))
            if layout is not None and layout.axes:
                layouts[OutputIndex(index, output_nr)] = layout
    return layouts


remembered_layouts = lru_cache(maxsize=REMEMBERED)(apply_rules)
"""For networks of one architecture, and images of one size, layouts are found once."""


def keep_same_shape(output: NodeOutput) -> Layout | None:
    """A Function in Python: what keeps the shape is taken to move nothing."""
    return next((each.layout for each in output.known_inputs if each.shape == output.shape), None)


def follow_sizes(output: NodeOutput) -> Layout | None:
    """Elementwise functions, norms, pooling, interpolation, and whatever has no rule of its own.

    Inputs are broadcast. If their layouts differ, the one with the fewest axes without a place is taken, and among
    equals an upright one.
    """
    if len(output.known_inputs) == 1 and output.known_inputs[0].shape == output.shape:
        return output.input_layout
    usable = [each for each in output.known_inputs if is_broadcastable(each.shape, output.shape)]
    if not usable:
        return None
    main = min(usable, key=lambda each: (each.shape != output.shape, *unknown_and_not_upright(each.layout)))
    if main.shape == output.shape:
        return main.layout
    new_axes = len(output.shape) - len(main.shape)
    layout, resizes = main.layout, any(word in output.operation.name for word in RESIZING)
    for number, size in enumerate(output.shape[new_axes:]):
        may_resize = resizes or axis_size(layout.axes[number]) == 1
        layout = layout.resize_axis(number, size) if may_resize else keep_or_forget(layout, number, size)
    layout = layout._replace(axes=(*[unplaced_axis(size) for size in output.shape[:new_axes]], *layout.axes))
    for each in usable:  # (B, C, h, 1) times (B, C, 1, w)
        for number, axis in enumerate(each.layout.axes, start=len(output.shape) - len(each.shape)):
            if is_unplaced(layout.axes[number]) and axis_size(axis) == output.shape[number]:
                layout = layout.replace_axis(number, axis)
    return layout


def unknown_and_not_upright(layout: Layout) -> tuple[int, bool]:
    """How many axes of a feature have no place, and whether it lies otherwise than the image."""
    return sum(is_unplaced(axis) for axis in layout.axes), not layout.is_upright()


def is_broadcastable(shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Whether a tensor has as many axes as another, or can be broadcast to it."""
    if len(shape) == len(out):
        return True
    return len(shape) < len(out) and all(size in (1, new) for size, new in zip(shape[::-1], out[::-1], strict=False))


def unfold_patches(output: NodeOutput) -> Layout | None:
    """(B, C, H, W) to (B, C * k * k, h * w)."""
    layout, saved = output.input_layout.forget_axis(-3, output.shape[-2]), output.arguments
    for n, axis in enumerate((-2, -1)):
        window = saved["dilation"][n] * (saved["kernel_size"][n] - 1) + 1
        lines = axis_size(layout.axes[axis]) + 2 * saved["padding"][n] - window
        layout = layout.resize_axis(axis, lines // saved["stride"][n] + 1)
    *axes, rows, columns = layout.axes
    return layout._replace(axes=(*axes, (*rows, *columns)))


def fold_patches(output: NodeOutput) -> Layout | None:
    """(B, C * k * k, h * w) to (B, C, H, W)."""
    *axes, tokens = output.input_layout.axes
    if [part.along for part in tokens] != [ROWS, COLUMNS]:
        return None
    layout = output.input_layout._replace(axes=(*axes[:-1], unplaced_axis(output.shape[-3]), tokens[:1], tokens[1:]))
    return layout.resize_axis(-2, output.shape[-2]).resize_axis(-1, output.shape[-1])


def convolve(output: NodeOutput) -> Layout | None:
    if output.known_inputs[0].input_nr != 0:
        return None  # weights that depend on the image
    mixed, size = output.input_layout.axes[1], output.shape[1]
    if mixed[0].along == IMAGES and mixed[0].lines_per_index == 1 and output.arguments["groups"] % mixed[0].size == 0:
        own_channels = unplaced_axis(size // mixed[0].size)  # images side by side, each in groups of its own
        layout = output.input_layout.replace_axis(1, (mixed[0], *own_channels))
    else:
        layout = output.input_layout.mix_axis(1, size)
    for number, length in enumerate(output.shape[2:], start=2):
        layout = layout.resize_axis(number, length)
    return layout


def multiply_matrices(output: NodeOutput) -> Layout | None:
    """(..., n, d) times (..., d, m): rows of the first, columns of the second; bias terms come before both."""
    bias_count = 0 if output.operation.name in ("Mm", "Bmm") else 1
    factors = {each.input_nr - bias_count: each.layout for each in output.known_inputs}
    first, second = factors.get(0), factors.get(1)
    if first is not None and second is not None:
        layout = second if second.row_roll or second.column_roll else first
        return layout._replace(axes=(*first.axes[:-1], second.axes[-1]))
    if first is not None:
        return first.mix_axis(-1, output.shape[-1])
    return None if second is None else second.mix_axis(-2, output.shape[-2])


def mix_last_axis(output: NodeOutput) -> Layout | None:
    return output.input_layout.mix_axis(-1, output.shape[-1])


def forget_last_axis(output: NodeOutput) -> Layout | None:
    """Of a sequence, (B, N, D) or (N, B, D), a recurrent layer makes others of the same length."""
    return None if output.output_nr else output.input_layout.forget_axis(-1, output.shape[-1])


def attend(output: NodeOutput) -> Layout | None:
    """Fused attention: for each query, a mean of values."""
    if output.known_inputs[0].input_nr != 0 or output.output_nr:
        return None
    return output.input_layout.forget_axis(-1, output.shape[-1])


LAYOUT_RULES: dict[str, LayoutRule] = {
    name: rule
    for rule, names in {
        reshape_axes: "View UnsafeView ReshapeAlias Squeeze Unsqueeze",
        permute_axes: "Permute",
        transpose_axes: "Transpose",
        transpose_matrix: "T",
        restride_axes: "AsStrided",
        flip_axes: "Flip",
        rotate_axes: "Rot90",
        roll_axes: "Roll",
        slice_axis: "Slice",
        split_axis: "Split SplitWithSizes",
        pad_axes: (
            "ConstantPadNd ReflectionPad1D ReflectionPad2D ReflectionPad3D ReplicationPad1D ReplicationPad2D "
            "ReplicationPad3D"
        ),
        remove_axis: "Select Unbind",
        reduce_axes: (
            "Mean Sum Nansum Amax Amin Aminmax Max Min Median Kthvalue Prod Logsumexp Var VarMean Std StdMean "
            "LinalgVectorNorm Norm"
        ),
        repeat_axes: "Repeat",
        concatenate_axes: "Cat",
        stack_axes: "Stack",
        choose_indices: "Index IndexSelect Gather Sort Topk",
        write_indices: (
            "IndexPut IndexPutImpl IndexCopy IndexAdd IndexFill IndexReduce Scatter ScatterAdd ScatterReduce "
            "MaskedScatter Put"
        ),
        assign_part: "torch::autograd::CopySlices",
        forget_axes: "GridSampler2D GridSampler2DCpuFallback GridSampler3D Take Embedding",
        unfold_axis: "Unfold",
        unfold_patches: "Im2Col",
        fold_patches: "Col2Im",
        append_axis: "ViewAsReal",
        transform_axes: "FftR2C FftC2C FftC2R",
        convolve: "Convolution ConvolutionOverrideable MkldnnConvolution",
        multiply_matrices: "Mm Addmm Bmm Baddbmm",
        mix_last_axis: "Linear MkldnnLinear",
        forget_last_axis: "MkldnnRnnLayer CudnnRnn MiopenRnn",
        attend: (
            "ScaledDotProductFlashAttentionForCpu ScaledDotProductFlashAttention ScaledDotProductEfficientAttention "
            "ScaledDotProductCudnnAttention ScaledDotProductFusedAttentionOverrideable"
        ),
    }.items()
    for name in names.split()
}
"""What each kind of operation does to axes, by torch's name."""
