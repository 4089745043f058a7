"""The layouts of all features of a forward pass, followed from the image through autograd's graph, node by node.

A rule says what a kind of operation does to axes. An operation without one keeps them: of the axes of its largest
input, those of the same size stay, rows and columns may become longer or shorter, and what any other axis runs along is
not known.
"""

from collections.abc import Iterable

from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dubium.attribution._autograd.graph import nodes_after
from dubium.attribution._autograd.nodes import Node
from dubium.attribution._axis_moves import (
    Given,
    Rule,
    Step,
    flip_axes,
    join_axes,
    permute_axes,
    reduce_axes,
    remove_axis,
    repeat_axes,
    reshape_axes,
    restride_axes,
    roll_axes,
    slice_axis,
    split_axis,
    stack_axes,
    swap_axes,
    take_indices,
    transpose_matrix,
    turn_axes,
    unfold_axis,
)
from dubium.attribution._layouts import (
    COLUMNS,
    IMAGES,
    ROWS,
    Layout,
    axis_size,
    channels,
    image_layout,
    is_nameless,
    mix_axis,
    resize_axis,
)

LayoutsByEdge = dict[tuple[Node, int], Layout]
"""The layout of each output of each node, where it is known."""


def follow_layouts(leaf: Tensor, edges: Iterable[GradientEdge]) -> LayoutsByEdge:
    """The layouts of the features between the images, a leaf of the graph, and some edges of it."""
    layouts: LayoutsByEdge = {(get_gradient_edge(leaf).node, 0): image_layout(leaf.shape)}
    for node in nodes_after(leaf, edges):
        given = [
            Given(edge.input, layout, shape)
            for edge, shape in zip(node.edges, node.input_shapes, strict=True)
            if (layout := layouts.get((edge.node, edge.output))) is not None
        ]
        if not given or node.saved is None:
            continue
        for output_nr, shape in enumerate(node.shapes):
            layout = RULES.get(node.name, keep_axes)(Step(node, node.saved, output_nr, shape, given))
            if layout is not None:
                layouts[node.node, output_nr] = layout
    return layouts


def keep_axes(step: Step) -> Layout | None:
    """Elementwise functions, norms, pooling, padding, interpolation, and whatever has no rule of its own.

    Inputs are broadcast. Where they disagree, the first counts that lies upright.
    """
    if len(step.given) == 1 and step.given[0].shape == step.shape:
        return step.first
    usable = [each for each in step.given if is_broadcastable(each.shape, step.shape)]
    if not usable:
        return None
    main = min(usable, key=lambda each: (each.shape != step.shape, not each.layout.is_upright()))
    if main.shape == step.shape:
        return main.layout
    more = len(step.shape) - len(main.shape)
    axes = [channels(size) for size in step.shape[:more]]
    axes += [resize_axis(axis, size) for axis, size in zip(main.layout.axes, step.shape[more:], strict=True)]
    for each in usable:  # (B, C, h, 1) times (B, C, 1, w)
        for number, axis in enumerate(each.layout.axes, start=len(step.shape) - len(each.shape)):
            if is_nameless(axes[number]) and axis_size(axis) == step.shape[number]:
                axes[number] = axis
    is_resized = any(size not in (1, new) for size, new in zip(main.shape, step.shape[more:], strict=True))
    return None if is_resized and main.layout.is_rolled() else main.layout._replace(axes=tuple(axes))


def is_broadcastable(shape: tuple[int, ...], out: tuple[int, ...]) -> bool:
    """Whether a tensor has as many axes as another, or can be broadcast to it."""
    if len(shape) == len(out):
        return True
    return len(shape) < len(out) and all(size in (1, new) for size, new in zip(shape[::-1], out[::-1], strict=False))


def unfold_patches(step: Step) -> Layout | None:
    """(B, C, H, W) to (B, C * k * k, h * w)."""
    *axes, rows, columns = step.first.axes
    saved, sizes = step.saved, list[int]()
    for n, axis in enumerate((rows, columns)):
        window = saved["dilation"][n] * (saved["kernel_size"][n] - 1) + 1
        sizes.append((axis_size(axis) + 2 * saved["padding"][n] - window) // saved["stride"][n] + 1)
    tokens = (*resize_axis(rows, sizes[0]), *resize_axis(columns, sizes[1]))
    return step.first._replace(axes=(*axes[:-1], channels(step.shape[-2]), tokens))


def fold_patches(step: Step) -> Layout | None:
    """(B, C * k * k, h * w) to (B, C, H, W)."""
    *axes, tokens = step.first.axes
    if [part.along for part in tokens] != [ROWS, COLUMNS]:
        return None
    rows, columns = (resize_axis((part,), size) for part, size in zip(tokens, step.shape[-2:], strict=True))
    return step.first._replace(axes=(*axes[:-1], channels(step.shape[-3]), rows, columns))


def convolve(step: Step) -> Layout | None:
    if step.given[0].number != 0 or step.first.is_rolled():
        return None  # weights that depend on the image; borders that lie in the middle of it
    images, mixed, *positions = step.first.axes
    out = mix_axis(mixed, step.shape[1])
    if any(part.along == IMAGES for part in mixed):
        own_groups = mixed[0].along == IMAGES and mixed[0].step == 1 and step.saved["groups"] % mixed[0].size == 0
        out = (mixed[0], *channels(step.shape[1] // mixed[0].size)) if own_groups else channels(step.shape[1])
    moved = [resize_axis(axis, size) for axis, size in zip(positions, step.shape[2:], strict=True)]
    return Layout((images, out, *moved))


def multiply_matrices(step: Step) -> Layout | None:
    """(..., n, d) times (..., d, m): rows of the first, columns of the second; bias terms come before both."""
    bias_count = 0 if step.node.name in ("Mm", "Bmm") else 1
    factors = {each.number - bias_count: each.layout for each in step.given}
    first, second = factors.get(0), factors.get(1)
    if first is not None and second is not None:
        layout = second if second.is_rolled() else first
        return layout._replace(axes=(*first.axes[:-1], second.axes[-1]))
    if first is not None:
        return first.replace_axis(-1, mix_axis(first.axes[-1], step.shape[-1]))
    return None if second is None else second.replace_axis(-2, mix_axis(second.axes[-2], step.shape[-2]))


def mix_last_axis(step: Step) -> Layout | None:
    return step.first.replace_axis(-1, mix_axis(step.first.axes[-1], step.shape[-1]))


def attend(step: Step) -> Layout | None:
    """Fused attention: for each query, a mean of values."""
    if step.given[0].number != 0 or step.output_nr:
        return None
    return step.first.replace_axis(-1, channels(step.shape[-1]))


RULES: dict[str, Rule] = {
    name: rule
    for rule, names in {
        restride_axes: "AsStrided",
        reshape_axes: "View UnsafeView ReshapeAlias Squeeze Unsqueeze",
        permute_axes: "Permute",
        swap_axes: "Transpose",
        transpose_matrix: "T",
        flip_axes: "Flip",
        turn_axes: "Rot90",
        roll_axes: "Roll",
        slice_axis: "Slice",
        split_axis: "Split SplitWithSizes",
        remove_axis: "Select Unbind",
        reduce_axes: (
            "Mean Sum Nansum Amax Amin Aminmax Max Min Median Kthvalue Prod Logsumexp Var VarMean Std StdMean "
            "LinalgVectorNorm Norm"
        ),
        repeat_axes: "Repeat",
        join_axes: "Cat",
        stack_axes: "Stack",
        take_indices: "Index IndexSelect Gather Sort Topk",
        unfold_axis: "Unfold",
        unfold_patches: "Im2Col",
        fold_patches: "Col2Im",
        convolve: "Convolution ConvolutionOverrideable MkldnnConvolution",
        multiply_matrices: "Mm Addmm Bmm Baddbmm",
        mix_last_axis: "Linear MkldnnLinear",
        attend: (
            "ScaledDotProductFlashAttentionForCpu ScaledDotProductFlashAttention ScaledDotProductEfficientAttention "
            "ScaledDotProductCudnnAttention ScaledDotProductFusedAttentionOverrideable"
        ),
    }.items()
    for name in names.split()
}
"""What each kind of operation does to axes, by torch's name."""
