"""What `progress=` is told: it grows, and comes to the end once, however the work is split."""

import pytest
import torch

import dubium
import dubium.run
from dubium.errors import OptionError
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


def explain_settings(_networks, _x, out, progress):
    work = dubium.run.open_work(dubium.run.Settings({"run": "demo"}, {"dataset": "demo"}, top=0))
    dubium.run.explain_dataset(work, out, progress=progress)


CALLS = {
    "explain": (lambda networks, x, _out, progress: dubium.explain(networks, x, progress=progress), 2),
    "explain_dataset": (lambda *given: dubium.explain_dataset(*given[:3], progress=given[3]), 3),
    "run.explain_dataset": (explain_settings, 3),
    "evaluate": (lambda networks, x, _out, progress: dubium.evaluate(networks, x, progress=progress), 1),
}
NEEDED = {1: "what is being done", 2: "steps done, steps in all", 3: "stage, images done, images in all"}
FUNCTIONS = {0: lambda: None, 1: lambda _a: None, 2: lambda _a, _b: None, 3: lambda _a, _b, _c: None}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("count", FUNCTIONS)
def test_a_progress_of_other_arguments_is_refused_at_the_start_with_those_that_it_is_called_with(call, count, tmp_path):
    run, wanted = CALLS[call]
    if count == wanted:
        return
    with pytest.raises(
        OptionError, match=rf"progress is a function of .*; a function of \({NEEDED[wanted]}\) is needed"
    ):
        run(ensemble(small_cnn, 2), images(2), tmp_path / "out", FUNCTIONS[count])
    assert not (tmp_path / "out").exists()


def test_progress_may_be_of_any_arguments_or_of_a_kind_that_does_not_show_them():
    for progress in (lambda *_all: None, {}.get, print):
        dubium.explain(ensemble(small_cnn, 2), images(2), progress=progress)
