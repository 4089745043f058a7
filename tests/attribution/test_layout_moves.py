"""Random rows of views, cuts and joins: by its layout each number of a feature lies where it came from.

The oracle: the images are numbers that say which image, row and column they are of; so are all features made of them
by moving, and their maps must be these numbers in order.
"""

import math
import random
from collections import Counter

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional as F

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


@pytest.mark.parametrize("seed", range(8))
def test_each_number_lies_where_it_came_from(seed: int) -> None:
    numbers = torch.arange(1.0, 1 + BATCH * HEIGHT * WIDTH).view(BATCH, 1, HEIGHT, WIDTH)
    expected = numbers.view(BATCH, HEIGHT, WIDTH)
    placed, moved = 0, Counter[str]()
    for trial in range(150):
        rng = random.Random(1000 * seed + trial)
        leaf = numbers.expand(-1, CHANNELS, -1, -1).clone().requires_grad_()
        feature, names = leaf * 1, list[str]()
        for _ in range(rng.randint(1, 5)):
            move = rng.choice(MOVES)
            feature = move(feature, rng)
            names.append(move.__name__)
        edge = get_gradient_edge(feature)
        layout = follow_layouts(leaf, [edge]).get((edge.node, edge.output_nr)) if feature is not leaf else None
        if layout is None:
            continue
        assert tuple([math.prod([each.size for each in axis]) for axis in layout.axes]) == feature.shape, names
        place = find_place(layout, BATCH)
        if place is None:
            continue
        maps = place.to_maps(feature.detach()[None, None])[0, :, :, :, 0]
        if maps.shape[1:3] != (HEIGHT, WIDTH):  # smaller: drawn over the whole image
            continue
        where = expected[..., None].expand_as(maps)
        is_right = (maps == where) | (maps == NOWHERE) | (maps == 0)
        assert is_right.all(), names
        placed += 1
        moved.update(names)
    assert placed > 30
