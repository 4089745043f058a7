"""What has no bias of its own in FullGrad, or one that is a parameter: layers, functions and torch's operations.

They are listed because the bias of a homogeneous function, computed in floating point, would be rounding, which
rescaling amplifies; and because what needs no implicit bias needs less memory.
"""

from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd

LINEAR_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)
"""Layers whose bias is a parameter."""

HOMOGENEOUS_LAYERS = (
    *(nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.Identity, nn.Flatten, nn.Unflatten, nn.Upsample, nn.PixelShuffle),
    *(_DropoutNd, _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd),
)
"""Layers without a bias."""

UNHOOKED_LAYERS = frozenset([nn.ReLU, nn.LeakyReLU, nn.Identity, nn.Dropout, nn.Dropout2d])
"""Those of them that call one function without a bias: recording need not pause for it, and they have no hook."""

HOMOGENEOUS_FUNCTIONS = frozenset(
    (
        "abs adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d alias amax amin avg_pool1d avg_pool2d "
        "broadcast_to chunk clone contiguous detach diagonal dropout dropout2d expand expand_as "
        "flatten flip float fold gather index_select interpolate leaky_relu leaky_relu_ "
        "max_pool1d max_pool2d mean movedim moveaxis mT narrow neg negative pad permute pixel_shuffle "
        "pixel_unshuffle prelu ravel relu relu_ repeat repeat_interleave reshape reshape_as roll rot90 select "
        "split split_with_sizes squeeze squeeze_ sum swapaxes swapdims t take_along_dim tile to transpose tril "
        "triu type_as unbind unflatten unfold unsqueeze unsqueeze_ upsample view view_as __getitem__ __neg__ "
        "__get__ double half bfloat16 requires_grad_ __len__ _max_pool2d rearrange"
    ).split()
)
"""Functions without a bias, whatever their inputs. They are listed because rounding would give them a small bias, which
rescaling would amplify. `pad` is of zeros, unless it is given a value."""

ADDITIVE_FUNCTIONS = frozenset(
    "add add_ sub sub_ __add__ __iadd__ __sub__ __isub__ __radd__ __rsub__ rsub cat concat stack".split()
)
"""Functions without a bias if all of their inputs depend on the image."""

BILINEAR_FUNCTIONS = frozenset(
    (
        "mul mul_ multiply __mul__ __imul__ __rmul__ matmul __matmul__ __rmatmul__ bmm mm einsum linear conv1d "
        "conv2d conv3d conv_transpose2d"
    ).split()
)
"""Functions without a bias if one of their two factors depends on the image, and nothing is added."""

NO_IMPLICIT_BIAS = frozenset(
    (
        "convolution relu relu_ native_batch_norm max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d mean sum add "
        "add_ addmm mm clone copy_ _to_copy cat stack constant_pad_nd upsample_bilinear2d empty empty_like"
    ).split()
)
"""Operations of torch (`aten`) that have no implicit bias, or one that is a parameter."""
