"""Several threads explain the same networks: they get what they would get in turn, byte by byte."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import dubium
from dubium.posteriors import MCDropout
from tests.networks import ensemble, images, small_cnn

CALLS = [
    {},
    {"relevance": "grad-cam"},
    {"method": "fullgrad", "rescale": "none"},
    {"method": "smoothgrad", "samples": 2},
    {"relevance": "ig", "steps": 2},
]


def explain_in_turn(posterior, x, count):
    return [dubium.explain(posterior, x, **CALLS[index % len(CALLS)]).maps for index in range(count)]


@pytest.mark.parametrize(
    ("batch", "count"), [(1, 40), (2, 40), pytest.param(2, 200, marks=pytest.mark.slow, id="200 calls")]
)
def test_calls_from_four_threads_give_the_bytes_of_calls_in_turn(batch, count):
    networks, x = ensemble(small_cnn), images(batch)
    expected = explain_in_turn(networks, x, count)
    with ThreadPoolExecutor(4) as threads:
        found = list(
            threads.map(lambda index: dubium.explain(networks, x, **CALLS[index % len(CALLS)]).maps, range(count))
        )
    for index, maps in enumerate(found):
        assert all(torch.equal(maps[kind], expected[index][kind]) for kind in maps)
    assert all(parameter.requires_grad for network in networks for parameter in network.parameters())
    assert not any(layer._forward_hooks for network in networks for layer in network.modules())


def test_posteriors_that_draw_their_networks_can_be_shared_too():
    dropout = MCDropout(nn.Sequential(*small_cnn()[:-1], nn.Dropout(0.5), small_cnn()[-1]), 2)
    drawn = dubium.posteriors.Drawn(lambda _index: small_cnn().eval(), 2)
    x = images(1)
    for posterior in (dropout, drawn):
        expected = dubium.explain(posterior, x).maps
        with ThreadPoolExecutor(4) as threads:
            for result in threads.map(dubium.explain, [posterior] * 12, [x] * 12):
                assert all(torch.equal(result.maps[kind], expected[kind]) for kind in expected)
