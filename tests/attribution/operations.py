"""Operations that networks are made of, as functions of images (B, 3, 4, 4) in float64."""

import torch
from torch import nn
from torch.nn import functional as F


def weights(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def layer(module):
    torch.manual_seed(0)
    return module.double().eval().requires_grad_(False)


def gram(x):
    rows = x.flatten(2)
    return rows @ rows.transpose(1, 2) + 3 * torch.eye(3, dtype=x.dtype)


def padded(x):
    return torch.cat([x, x[:, :1]], 1)


def low_rank(x):
    u, s, v = torch.linalg.svd(x)
    return (u[..., :2] * s[..., None, :2]) @ v[..., :2, :]


def in_place(x):
    y = x * 1
    y[:, :, 1:3] = x[:, :, 1:3] ** 2
    return y.mul_(x.sigmoid()).clamp_(max=0.8)


def images_apart(function):
    return lambda x: torch.stack([function(image) for image in x])


def with_index(function):
    index = torch.tensor([[0, 3, 3]])
    return lambda x: function(torch.ones(len(x), 9, dtype=x.dtype), index.expand(len(x), -1), x.flatten(1)[:, :3])


class Scaled(torch.autograd.Function):
    """Arguments that are no tensors before, between and after those that are; one that needs no gradient."""

    @staticmethod
    def forward(ctx, power, x, constant, name, y, factor):
        ctx.save_for_backward(x, constant, y)
        ctx.power, ctx.factor = power, factor
        return factor * constant * x**power * y

    @staticmethod
    def backward(ctx, gradient):
        x, constant, y = ctx.saved_tensors
        scaled = ctx.factor * constant * gradient
        return None, scaled * ctx.power * x ** (ctx.power - 1) * y, None, None, scaled * x**ctx.power, None


LSTM, GRU = layer(nn.LSTM(16, 5, batch_first=True)), layer(nn.GRU(16, 5, batch_first=True, bidirectional=True))
ATTENTION = layer(nn.MultiheadAttention(16, 2, batch_first=True))
ENCODER = layer(nn.TransformerEncoderLayer(16, 2, 8, batch_first=True))

OPERATIONS = {
    "cdist": lambda x: torch.cdist(x.flatten(2), weights(5, 16).expand(len(x), -1, -1)),
    "cdist p=1": lambda x: torch.cdist(x.flatten(2), weights(5, 16).expand(len(x), -1, -1), p=1.0),
    "cdist p=3": lambda x: torch.cdist(x.flatten(2), x.flatten(2) * 2 + 1, p=3.0),
    "cdist of many": lambda x: torch.cdist(x.reshape(len(x), -1, 2), weights(30, 2).expand(len(x), -1, -1)),
    "pdist": images_apart(lambda image: F.pdist(image.flatten(1))),
    "pairwise_distance": lambda x: F.pairwise_distance(x.flatten(2), weights(3, 16)),
    "cosine_similarity": lambda x: F.cosine_similarity(x.flatten(2), weights(3, 16), dim=-1),
    "norm": lambda x: x.norm(p=3, dim=1),
    "vector_norm inf": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=(2, 3)),
    "matrix_norm nuc": lambda x: torch.linalg.matrix_norm(x, "nuc"),
    "renorm": lambda x: torch.renorm(x.flatten(1), 2, 0, 1.0),
    "normalize": lambda x: F.normalize(x, dim=1),
    "logsumexp": lambda x: x.logsumexp((2, 3)),
    "logcumsumexp": lambda x: x.flatten(1).logcumsumexp(1),
    "cumsum": lambda x: x.cumsum(2),
    "cumprod": lambda x: x.cumprod(2),
    "cummax": lambda x: x.cummax(2)[0],
    "prod": lambda x: x.prod(2),
    "std": lambda x: x.std((2, 3)),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(2),
    "sort": lambda x: x.flatten(1).sort(1)[0],
    "topk": lambda x: x.flatten(1).topk(5, 1)[0],
    "median": lambda x: x.flatten(1).median(1, keepdim=True)[0],
    "quantile": lambda x: x.flatten(1).quantile(0.3, dim=1, keepdim=True),
    "amax": lambda x: x.amax((2, 3)),
    "gather": lambda x: x.flatten(1).gather(1, torch.tensor([[0, 3, 3]]).expand(len(x), -1)),
    "scatter": with_index(lambda base, index, x: base.scatter(1, index[:, :2], x[:, :2])),
    "scatter_add": with_index(lambda base, index, x: base.scatter_add(1, index, x)),
    "scatter_reduce": with_index(lambda base, index, x: base.scatter_reduce(1, index, x, "amax")),
    "index_add": with_index(lambda base, index, x: base.index_add(1, index[0], x)),
    "index_put": lambda x: torch.zeros(len(x), 9, dtype=x.dtype).index_put((torch.arange(len(x)),) * 2, x[:, 0, 0, 0]),
    "masked_select": images_apart(lambda image: image.flatten().masked_select(torch.arange(48) % 2 == 0)),
    "take": images_apart(lambda image: image.take(torch.tensor([1, 5, 5]))),
    "F.unfold": lambda x: F.unfold(x, 2),
    "F.fold": lambda x: F.fold(F.unfold(x, 2) * weights(12, 9), (4, 4), 2),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "pixel_shuffle": lambda x: F.pixel_shuffle(padded(x), 2),
    "channel_shuffle": lambda x: F.channel_shuffle(padded(x), 2),
    "grid_sample": lambda x: F.grid_sample(
        x, weights(1, 3, 3, 2).tanh().expand(len(x), -1, -1, -1), align_corners=False
    ),
    "grid_sample's grid": lambda x: F.grid_sample(
        weights(1, 2, 5, 5).expand(len(x), -1, -1, -1), x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False
    ),
    "affine_grid": lambda x: F.affine_grid(
        x.flatten(1)[:, :6].reshape(-1, 2, 3), [len(x), 1, 3, 3], align_corners=False
    ),
    "bilinear upsampling": lambda x: F.interpolate(x, size=(7, 5), mode="bilinear"),
    "bicubic upsampling": lambda x: F.interpolate(x, size=(7, 5), mode="bicubic"),
    "antialiased downsampling": lambda x: F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
    "nearest upsampling": lambda x: F.interpolate(x, scale_factor=2),
    "adaptive average pooling": lambda x: F.adaptive_avg_pool2d(x, 3),
    "adaptive max pooling": lambda x: F.adaptive_max_pool2d(x, 3),
    "overlapping max pooling": lambda x: F.max_pool2d(x, 3, 1, 1),
    "max unpooling": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "lp pooling": lambda x: F.lp_pool2d(x.abs() + 0.1, 2, 2),
    "3-d pooling": lambda x: F.max_pool3d(x[:, None], 2),
    "conv1d": lambda x: F.conv1d(x.flatten(2), weights(2, 3, 3)),
    "conv3d": lambda x: F.conv3d(x[:, None], weights(2, 1, 2, 2, 2)),
    "transposed convolution": lambda x: F.conv_transpose2d(x, weights(3, 2, 3, 3), stride=2),
    "same convolution": lambda x: F.conv2d(x, weights(2, 3, 3, 3), padding="same"),
    "valid convolution": lambda x: F.conv2d(x, weights(2, 3, 3, 3), padding="valid"),
    "convolution by itself": images_apart(lambda image: F.conv2d(image[None], image[None, :, :2, :2])[0]),
    "reflection": lambda x: F.pad(x, (1, 1, 1, 1), "reflect"),
    "replication": lambda x: F.pad(x, (1, 2, 1, 1), "replicate"),
    "circular padding": lambda x: F.pad(x, (1, 1, 1, 1), "circular"),
    "layer_norm": lambda x: F.layer_norm(x, (4, 4), weights(4, 4), weights(4, 4)),
    "group_norm": lambda x: F.group_norm(x, 3, weights(3), weights(3)),
    "group_norm, channels last": lambda x: F.group_norm(x.contiguous(memory_format=torch.channels_last), 3, weights(3)),
    "instance_norm": F.instance_norm,
    "local_response_norm": lambda x: F.local_response_norm(x, 3),
    "rms_norm": lambda x: F.rms_norm(x, (4,)),
    **{
        name: getattr(F, name)
        for name in (
            *("gelu", "silu", "mish", "hardswish", "hardsigmoid", "relu6", "elu", "celu", "selu", "softplus"),
            *("softsign", "softshrink", "tanhshrink", "logsigmoid", "leaky_relu", "rrelu"),
        )
    },
    "glu": lambda x: F.glu(x, 2),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.2, 0.3, 0.4], dtype=x.dtype)),
    "attention": lambda x: F.scaled_dot_product_attention(x, 2 * x, x),
    "causal attention": lambda x: F.scaled_dot_product_attention(x, 2 * x, x, is_causal=True),
    "masked attention": lambda x: F.scaled_dot_product_attention(x, 2 * x, x, attn_mask=weights(4, 4)),
    "MultiheadAttention": lambda x: ATTENTION(*[x.flatten(2)] * 3)[0],
    "TransformerEncoderLayer": lambda x: ENCODER(x.flatten(2)),
    "LSTM": lambda x: LSTM(x.flatten(2))[0],
    "GRU": lambda x: GRU(x.flatten(2))[0],
    "einsum": lambda x: torch.einsum("bchw,bdhw->bcd", x, x),
    "baddbmm": lambda x: torch.baddbmm(weights(3, 3), x.flatten(2), x.flatten(2).transpose(1, 2)),
    "bilinear": lambda x: F.bilinear(x.flatten(1), 2 * x.flatten(1), weights(3, 48, 48)),
    "fft2": lambda x: torch.fft.fft2(x).abs(),
    "irfft2": lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * weights(4, 3)),
    "complex": lambda x: torch.view_as_real(torch.polar(x.abs() + 0.1, x)),
    "svdvals": torch.linalg.svdvals,
    "svd": low_rank,
    "eigvalsh": lambda x: torch.linalg.eigvalsh(gram(x)),
    "inverse": lambda x: torch.linalg.inv(gram(x)),
    "pinv": torch.linalg.pinv,
    "cholesky": lambda x: torch.linalg.cholesky(gram(x)),
    "solve": lambda x: torch.linalg.solve(gram(x), x.flatten(2)),
    "slogdet": lambda x: torch.linalg.slogdet(gram(x))[1][:, None],
    "matrix_exp": lambda x: torch.matrix_exp(gram(x) / 20),
    "qr": lambda x: torch.linalg.qr(x)[1],
    "roll": lambda x: x.roll(1, 2),
    "diagonal": lambda x: x.diagonal(0, 2, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "where": lambda x: torch.where(x > 0, x * x, 3 * x),
    "clamp": lambda x: x.clamp(min=-x.abs() / 2),
    "maximum": lambda x: torch.maximum(x, x.flip(2)),
    "pow": lambda x: (x.abs() + 0.1) ** x,
    "atan2": lambda x: torch.atan2(x, x.flip(2)),
    "erfinv": lambda x: torch.erfinv(0.9 * x.tanh()),
    "lgamma": lambda x: torch.lgamma(x.abs() + 0.5),
    "lerp": lambda x: torch.lerp(x, x * x, x.sigmoid()),
    "addcdiv": lambda x: torch.addcdiv(x, x, x.abs() + 1, value=2),
    "in place": in_place,
    "a Function of many arguments": lambda x: Scaled.apply(3, x, weights(3, 4, 4), "name", x.flip(2) + 2, 0.5),
    "ctc_loss": lambda x: F.ctc_loss(
        *(x.reshape(len(x), 12, 4).log_softmax(-1).transpose(0, 1), torch.tensor([[1, 2]]).expand(len(x), -1)),
        *([12] * len(x), [2] * len(x)),
        reduction="none",
    )[:, None],
    "segment_reduce": images_apart(
        lambda image: torch.segment_reduce(image.flatten(), "max", lengths=torch.tensor([16, 32]))
    ),
}
