"""What `progress=` is told: it grows, and comes to the end once, however the work is split."""

import pytest
import torch

import dubium
from tests.networks import ensemble, images, small_cnn

STARTS = [{"start": "blur"}, {"start": [torch.zeros(1, 12, 12), torch.ones(1, 12, 12)]}]
CASES = [(name, {}) for name in dubium.methods()] + [(name, start) for name in ("ig", "guided-ig") for start in STARTS]


@pytest.mark.parametrize(("name", "start"), CASES)
def test_progress_grows_and_comes_to_the_end_once(name, start, cheap):
    steps, options = [], {**cheap(name), **start}
    dubium.explain(
        ensemble(small_cnn, 2),
        images(2),
        method=name,
        memory=2**18,
        progress=lambda *step: steps.append(step),
        **options,
    )
    assert len({total for _, total in steps}) <= 1
    done = [done for done, _ in steps]
    assert done == sorted(done)
    assert done[-1:] == [total for _, total in steps[-1:]]
    assert len(done) < 2 or done[-2] < done[-1]
