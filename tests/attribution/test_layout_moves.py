"""Random rows of views, cuts and joins: by its layout each number of a feature lies where it came from.

The oracle: the images are numbers that say which image, row and column they are of; so are all features made of them
by moving, and their maps must be these numbers in order.
"""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional as F

from dubium.attribution._autograd.graph import Graph
from dubium.attribution._layout_rules import follow_layouts
from dubium.attribution._places import find_place

BATCH, CHANNELS, HEIGHT, WIDTH = 2, 4, 4, 6
NOWHERE = -1.0


def permute(h: Tensor, rng: random.Random) -> Tensor:
    return h.permute(rng.sample(range(h.ndim), h.ndim))


def transpose(h: Tensor, rng: random.Random) -> Tensor:
    return h.transpose(rng.randrange(h.ndim), rng.randrange(-h.ndim, 0))


def matrix_transpose(h: Tensor, _rng: random.Random) -> Tensor:
    return h.mT if h.ndim > 1 else h


def flip(h: Tensor, rng: random.Random) -> Tensor:
    return h.flip(rng.sample(range(h.ndim), rng.randint(1, h.ndim)))


def turn(h: Tensor, rng: random.Random) -> Tensor:
    return h.rot90(rng.randint(-1, 3), rng.sample(range(h.ndim), 2)) if h.ndim > 1 else h


def roll(h: Tensor, rng: random.Random) -> Tensor:
    axes = rng.sample(range(h.ndim), rng.randint(1, h.ndim))
    return h.roll([rng.randint(-3, 3) for _ in axes], axes)


def flatten(h: Tensor, rng: random.Random) -> Tensor:
    first, last = sorted(rng.choices(range(h.ndim), k=2))
    return h.flatten(first, last)


def unflatten(h: Tensor, rng: random.Random) -> Tensor:
    axis = rng.randrange(h.ndim)
    divisors = [n for n in range(1, h.shape[axis] + 1) if h.shape[axis] % n == 0]
    return h.unflatten(axis, (rng.choice(divisors), -1)) if h.ndim < 7 else h


def reshape(h: Tensor, rng: random.Random) -> Tensor:
    rest, shape = h.numel(), list[int]()
    for _ in range(rng.randint(0, 4)):
        shape.append(rng.choice([n for n in range(1, rest + 1) if rest % n == 0]))
        rest //= shape[-1]
    return h.reshape(*shape, rest)


def one_more(h: Tensor, rng: random.Random) -> Tensor:
    return h.unsqueeze(rng.randint(0, h.ndim)) if h.ndim < 7 else h


def one_less(h: Tensor, _rng: random.Random) -> Tensor:
    return h.squeeze()


def cut(h: Tensor, rng: random.Random) -> Tensor:
    axis = rng.randrange(h.ndim)
    start = rng.randint(0, h.shape[axis] // 2)
    return h.narrow(axis, start, rng.randint(min(1, h.shape[axis]), h.shape[axis] - start))


def part(h: Tensor, rng: random.Random) -> Tensor:
    return rng.choice(h.chunk(2, rng.randrange(h.ndim)))


def select(h: Tensor, rng: random.Random) -> Tensor:
    axis = rng.randrange(h.ndim)
    return h.select(axis, rng.randrange(h.shape[axis])) if h.ndim > 1 else h


def more_tokens(h: Tensor, rng: random.Random) -> Tensor:
    axis = rng.randrange(h.ndim)
    shape = [*h.shape]
    shape[axis] = rng.randint(1, 2)
    more = h.new_full(shape, NOWHERE)
    return torch.cat([more, h] if rng.random() < 0.5 else [h, more], axis)


def fewer_tokens(h: Tensor, rng: random.Random) -> Tensor:
    axis = rng.randrange(h.ndim)
    return h.narrow(axis, 1, h.shape[axis] - 1) if h.shape[axis] > 1 else h


def beside_itself(h: Tensor, rng: random.Random) -> Tensor:
    axis = rng.randrange(h.ndim)
    return torch.cat([h, h.flip(axis) if rng.random() < 0.5 else h], axis)


def repeat(h: Tensor, rng: random.Random) -> Tensor:
    return h.repeat([rng.randint(1, 2) for _ in h.shape])


def expand(h: Tensor, rng: random.Random) -> Tensor:
    return h.expand(rng.randint(1, 2), *h.shape) if h.ndim < 7 else h


def stack(h: Tensor, rng: random.Random) -> Tensor:
    return torch.stack([h, h], rng.randint(0, h.ndim)) if h.ndim < 7 else h


def windows(h: Tensor, rng: random.Random) -> Tensor:
    axis, size = rng.randrange(h.ndim), rng.choice([1, 2])
    return h.unfold(axis, size, size) if h.ndim < 7 and h.shape[axis] >= size else h


def shuffle(h: Tensor, rng: random.Random) -> Tensor:
    if h.ndim != 4 or any(size % 2 for size in h.shape[2:]):
        return h
    return F.pixel_shuffle(F.pixel_unshuffle(h, 2), 2)


def choose(h: Tensor, rng: random.Random) -> Tensor:
    axis = rng.randrange(h.ndim)
    return h.index_select(axis, torch.tensor(rng.choices(range(h.shape[axis]), k=h.shape[axis])))


def change_in_place(h: Tensor, rng: random.Random) -> Tensor:
    h = h.clone(memory_format=torch.contiguous_format)
    cut(h, rng).mul_(1)
    return h if rng.random() < 0.5 else cut(h, rng).mul_(1)


MOVES = [
    *(
        permute,
        transpose,
        matrix_transpose,
        flip,
        turn,
        roll,
        flatten,
        unflatten,
        unflatten,
        reshape,
        one_more,
        one_less,
    ),
    *(cut, part, select, more_tokens, fewer_tokens, beside_itself, repeat, expand, stack, windows, shuffle, choose),
    change_in_place,
]


def lines_of(leaf: Tensor, feature: Tensor) -> Tensor | None:
    """The numbers of a feature as maps, (B, h, w, C), with a 0 where lines were cut off; None if they have no place."""
    edge = get_gradient_edge(feature)
    graph = Graph([edge], {get_gradient_edge(leaf).node})
    layout = follow_layouts(graph, leaf).get(graph.find_output(edge))
    if layout is None:
        return None
    assert tuple([math.prod([each.size for each in axis]) for axis in layout.axes]) == feature.shape
    place = find_place(layout, len(leaf))
    return None if place is None else place.to_maps(feature.detach()[None, None])[0, :, :, :, 0]


def numbered_images() -> Tensor:
    return torch.arange(1.0, 1 + BATCH * HEIGHT * WIDTH).view(BATCH, 1, HEIGHT, WIDTH).expand(-1, CHANNELS, -1, -1)


@pytest.mark.parametrize("seed", range(8))
def test_each_number_lies_where_it_came_from(seed: int) -> None:
    expected = numbered_images()[:, 0]
    placed = 0
    for trial in range(150):
        rng = random.Random(1000 * seed + trial)
        leaf = numbered_images().clone().requires_grad_()
        feature, names = leaf * 1, list[str]()
        for _ in range(rng.randint(1, 5)):
            move = rng.choice(MOVES)
            feature = move(feature, rng)
            names.append(move.__name__)
        maps = lines_of(leaf, feature)
        if maps is None or maps.shape[1:3] != (HEIGHT, WIDTH):  # smaller: drawn over the whole image
            continue
        is_right = (maps == expected[..., None]) | (maps == NOWHERE) | (maps == 0)
        assert is_right.all(), names
        placed += 1
    assert placed > 30


def rolled_by_hand(h: Tensor) -> Tensor:
    out = torch.zeros_like(h)
    out[..., 2:], out[..., :2] = h[..., :-2], h[..., -2:]
    return out


class Scan(torch.autograd.Function):
    """Rows and columns one after another, as state-space networks read images: (B, C, H, W) to (B, 2, C, H * W)."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        ctx.shape = h.shape
        return torch.stack([h.flatten(2), h.mT.flatten(2)], 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        batch, channels, height, width = ctx.shape
        rows, columns = gradient.unbind(1)
        return rows.view(ctx.shape) + columns.view(batch, channels, width, height).mT


MIRROR = torch.tensor([[-1.0, 0, 0], [0, 1, 0]])
BACKWARDS = torch.arange(WIDTH - 1, -1, -1)
WITHOUT_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "index_copy": lambda h: torch.zeros_like(h).index_copy(3, BACKWARDS, h),
    "index_add": lambda h: torch.zeros_like(h).index_add(3, BACKWARDS, h),
    "index_put": lambda h: torch.zeros_like(h).index_put((*[torch.arange(2)] * 2, torch.tensor([3, 1])), h[0, 0, :2]),
    "scatter": lambda h: torch.zeros_like(h).scatter(3, BACKWARDS.expand(h.shape), h),
    "scatter_add": lambda h: torch.zeros_like(h).scatter_add(3, BACKWARDS.expand(h.shape), h),
    "gather": lambda h: h.gather(3, BACKWARDS.expand(BATCH, CHANNELS, 2, WIDTH)),
    "grid_sample": lambda h: F.grid_sample(
        h, F.affine_grid(MIRROR.expand(BATCH, 2, 3), [*h.shape], align_corners=False), align_corners=False
    ),
    "rolled by hand": rolled_by_hand,
    "a Function that scans": Scan.apply,
    "a spectrum": lambda h: torch.fft.rfft2(h + 0.1).abs(),
    "one window": lambda h: h.unflatten(2, (2, 2)).unflatten(4, (2, 3))[:, :, 1, :, 0],
    "a mean of windows": lambda h: h.unflatten(2, (2, 2)).unflatten(4, (2, 3)).mean((2, 4)),
    "rolled, then every other": lambda h: h.roll((1, 2), (2, 3))[:, :, ::2, ::2],
    "pixels of a patch, mixed": lambda h: (
        h[:, 0].unflatten(1, (2, 2)).unflatten(3, (2, 3)).transpose(2, 3).flatten(3) @ torch.rand(6, 6)
    ),
    "an LSTM along rows": lambda h: torch.nn.LSTM(WIDTH, WIDTH, batch_first=True).requires_grad_(False)(h[:, 0])[0],
}


@pytest.mark.parametrize("name", WITHOUT_PLACE)
def test_what_was_moved_by_unknown_ways_is_not_drawn_as_if_it_had_not(name: str) -> None:
    leaf = numbered_images().clone().requires_grad_()
    maps = lines_of(leaf, WITHOUT_PLACE[name](leaf * 1))
    if maps is not None and maps.shape[1:3] != (2, 2):  # of the mixed patches, which patch is known
        assert ((maps == numbered_images()[:, 0, :, :, None]) | (maps == 0)).all()  # the half that is written first
        assert name == "rolled by hand"


def put_into_zeros(h: Tensor) -> Tensor:
    out = torch.full((BATCH, CHANNELS, HEIGHT + 1, WIDTH + 2), NOWHERE)
    out[:, :, 1:, :WIDTH] = h
    return out


def frequencies_beside_zeros(h: Tensor) -> Tensor:
    spectrum = torch.fft.fft2(h + 0j)
    spectrum = torch.cat([torch.zeros_like(spectrum[:, :1]), spectrum], 1)
    return torch.fft.ifft2(spectrum[:, 1:]).real.round()


def tokens_between_constants(h: Tensor) -> Tensor:
    tokens = h.flatten(2).mT
    return torch.cat([torch.full_like(tokens[:, :1], NOWHERE), tokens, torch.full_like(tokens[:, :2], NOWHERE)], 1)


PADDED: dict[str, Callable[[Tensor], Tensor]] = {
    "a crop": lambda h: h[:, :, 2:, :4],
    "a crop of tokens' rows": lambda h: h[:, :, 1:].permute(0, 2, 3, 1).flatten(1, 2),
    "a pad on one side": lambda h: F.pad(h, (0, 3, 2, 0), value=NOWHERE),
    "a pad by hand": lambda h: torch.cat([torch.full_like(h[:, :, :1], NOWHERE), h], 2),
    "rolled, padded, in windows, and back": lambda h: (
        F.pad(h.roll((1, 2), (2, 3)), (0, 2, 0, 0), value=NOWHERE)
        .unflatten(3, (2, 4))
        .permute(0, 3, 2, 4, 1)
        .permute(0, 4, 2, 1, 3)
        .flatten(3)[:, :, :, :WIDTH]
        .roll((-1, -2), (2, 3))
    ),
    "every other of a part": lambda h: F.interpolate(h[:, :, :2], scale_factor=(2, 1))[:, :, ::2],
    "the last of more than there are": lambda h: h[:, :, -100:, -100:],
    "no pad": lambda h: F.pad(h, []),
    "no flip": lambda h: h.flip([]).flip(2).flip([]),
    "a slice without ends": lambda h: torch.ops.aten.slice.Tensor(h, 2, None, 8),
    "circular padding": lambda h: F.pad(h, (1, 1, 1, 1), mode="circular")[:, :, 1:-1, 1:-1],
    "put into a larger constant": lambda h: put_into_zeros(h),
    "tokens between constants": lambda h: tokens_between_constants(h)[:, 1:-2],
    "grey images without an axis of channels": lambda h: h[:, :1].squeeze(1)[:, 1:].unsqueeze(1),
    "smaller and larger": lambda h: F.pixel_shuffle(F.pixel_unshuffle(h[:, :, 2:], 2), 2),
    "frequencies and back": lambda h: torch.fft.irfft2(torch.fft.rfft2(h), s=h.shape[-2:]).round(),
    "frequencies beside others, and back": lambda h: frequencies_beside_zeros(h),
    "windows": lambda h: h.unfold(2, 2, 2).unfold(3, 3, 3),
}


@pytest.mark.parametrize("name", PADDED)
def test_lines_that_were_cut_off_or_padded_do_not_move_the_others(name: str) -> None:
    leaf = numbered_images().clone().requires_grad_()
    feature = PADDED[name](leaf * 1)
    maps = lines_of(leaf, feature)
    assert maps is not None
    expected = numbered_images()[:, 0, :, :, None]
    assert ((maps == expected) | (maps == 0)).all()
    assert maps.shape[1:3] == (HEIGHT, WIDTH)
    assert (maps == expected).sum() == min((feature != NOWHERE).sum(), maps.numel())


SMALLER: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, int]]] = {
    "padded, then pooled": (lambda h: F.avg_pool2d(F.pad(h, (2, 2, 2, 2)), 2), (2, 3)),
    "padded for its kernel": (lambda h: F.conv2d(F.pad(h, (1, 1, 1, 1)), torch.ones(1, CHANNELS, 3, 3)), (4, 6)),
    "padded for more than its kernel": (
        lambda h: F.conv2d(F.pad(h, (8, 8, 8, 8)), torch.ones(1, CHANNELS, 3, 3)),
        (4, 6),
    ),
    "cropped, then pooled": (lambda h: F.avg_pool2d(h[:, :, 2:], 2), (2, 3)),
    "a part, then every other": (lambda h: h[:, :, :2:2], (2, 6)),
}


@pytest.mark.parametrize("name", SMALLER)
def test_a_padded_or_cropped_feature_that_is_made_smaller_covers_what_it_covered(name: str) -> None:
    operation, size = SMALLER[name]
    leaf = torch.zeros(1, CHANNELS, HEIGHT, WIDTH).index_put((*map(torch.tensor, (0, 0, 2, 2)),), torch.tensor(1.0))
    leaf = leaf.clone().requires_grad_()
    maps = lines_of(leaf, operation(leaf * 1))
    assert maps is not None
    assert maps.shape[1:3] == size
    lit = maps[0, :, :, 0].nonzero().double().mean(0)  # the middle of what the pixel reaches
    if maps.any():
        assert ((lit + 0.5) * torch.tensor([HEIGHT / size[0], WIDTH / size[1]]) - 2.5).abs().max() <= 1.0
    assert maps.any() == (name != "a part, then every other")


def test_tiles_that_are_nothing_but_padding_have_no_place() -> None:
    leaf = numbered_images().clone().requires_grad_()
    assert lines_of(leaf, F.pad(leaf * 1, (0, 12))[..., WIDTH + 2 : WIDTH + 6]) is None


def test_patches_of_an_image_without_a_batch_are_placed() -> None:
    leaf = numbered_images()[:1].clone().requires_grad_()
    maps = lines_of(leaf, F.unfold(leaf[0] * 1, 1))
    assert maps is not None
    assert (maps == numbered_images()[:1, 0, :, :, None]).all()


def test_a_reduction_to_one_number_is_followed() -> None:
    leaf = torch.rand(1, CHANNELS, HEIGHT, WIDTH, requires_grad=True)
    total = (leaf * 1).mean((0, 1, 2, 3)).sum(-1).amax(0) + (leaf * 1)[:, :0].clone().relu_().sum()
    assert follow_layouts(Graph([get_gradient_edge(total)], {get_gradient_edge(leaf).node}), leaf)


def test_a_view_of_tokens_that_is_changed_in_place_is_not_drawn_elsewhere() -> None:
    leaf = numbered_images().clone().requires_grad_()
    tokens = (leaf * 1).flatten(2).mT + 0  # not contiguous
    view = tokens.mT.reshape(BATCH, CHANNELS, HEIGHT, WIDTH)
    maps = lines_of(leaf, view.relu_())
    assert maps is None or (maps == numbered_images()[:, 0, :, :, None]).all()
