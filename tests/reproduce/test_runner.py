"""Jobs are measured once; a changed setting measures again what depends on it."""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch

from dubium.errors import DataNotFoundError, MissingExtraError
from dubium.evaluation.protocols import PROTOCOLS
from dubium.models import cnn
from dubium.registry import METHOD_VERSIONS
from dubium.reproduce import clock, dependencies, mitigation, networks
from dubium.reproduce.job import AttentionArm, Job
from dubium.reproduce.measures import MEASURES
from dubium.reproduce.networks import draw_images, open_data
from dubium.reproduce.runner import check_data, job_status, measure_jobs
from dubium.reproduce.status import CHANGED, DONE, MISSING
from dubium.reproduce.study import Study
from dubium.training.recipes import RECIPES
from tests.data.official import write_idx

JOB = Job("a-mnist", "blurring", "mnist", methods=("grad",), options={"images": 2})


@pytest.fixture
def calls(monkeypatch):
    found = []

    def measure(study, job):
        found.append(job.name)
        return {"protocol": "blurring", "settings": {}, "versions": {}, "results": {"grad": {}}, "notes": []}

    monkeypatch.setitem(MEASURES, "blurring", measure)
    return found


def run(folder, *jobs):
    return measure_jobs(Study("smoke", folder), [("a", job) for job in jobs], folder, lambda status: None)


def test_a_job_is_measured_once(tmp_path, calls):
    assert [status.state for status in run(tmp_path, JOB)] == [DONE]
    assert [status.state for status in run(tmp_path, JOB)] == [DONE]
    assert calls == ["a-mnist"]


def test_a_changed_setting_measures_again_only_what_depends_on_it(tmp_path, calls):
    other = replace(JOB, name="b-mnist")
    run(tmp_path, JOB, other)
    changed = replace(JOB, options={"images": 3})
    assert job_status("a", changed, "smoke", tmp_path).state == CHANGED
    run(tmp_path, changed, other)
    assert calls == ["a-mnist", "b-mnist", "a-mnist"]


def test_status_of_a_job_without_result(tmp_path):
    assert job_status("a", JOB, "smoke", tmp_path).state == MISSING


def test_a_result_can_be_traced_and_names_no_path(tmp_path, calls):
    run(tmp_path, JOB)
    text = (tmp_path / "a-mnist.json").read_text()
    content = json.loads(text)
    assert content["command"] == "dubium reproduce a --scale smoke --dataset mnist"
    assert {"commit", "seed", "scale", "seconds", "fingerprint", "versions"} <= content.keys()
    assert {"processor", "cores", "threads"} <= content["machine"].keys()
    assert str(tmp_path) not in text


def test_the_seconds_of_a_job_that_was_killed_and_went_on_are_those_of_both_processes(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(clock, "perf_counter", lambda: now[0])

    def measure(study, job, *, is_killed):
        for _ in range(3):
            now[0] += 7.0
            study.on_step("training: 1 of 3")
        now[0] += 2.0  # after the last step: noted by nobody if it is killed
        if is_killed:
            raise KeyboardInterrupt
        return {"protocol": "blurring", "settings": {}, "versions": {}, "results": {"grad": {}}, "notes": []}

    monkeypatch.setitem(MEASURES, "blurring", partial(measure, is_killed=True))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, JOB)
    now[0] += 1000.0  # nothing runs
    monkeypatch.setitem(MEASURES, "blurring", partial(measure, is_killed=False))
    (status,) = run(tmp_path, JOB)
    assert status.seconds == 21.0 + 23.0
    assert json.loads((tmp_path / "a-mnist.json").read_text())["seconds"] == 44.0
    assert not list(tmp_path.glob("clocks/*"))


@pytest.mark.parametrize(
    "note",
    ["{", "[]", '{"fingerprint": "a"}', '{"fingerprint": "b", "seconds": 5}', '{"fingerprint": "a", "seconds": -1}'],
)
def test_seconds_of_other_work_and_damaged_notes_do_not_count(tmp_path, note):
    file = tmp_path / "clock.json"
    file.write_text('{"fingerprint": "a", "seconds": 5}')
    assert clock.read_seconds(file, "a") == 5.0
    file.write_text(note)
    assert clock.read_seconds(file, "a") == 0.0


def test_a_job_without_its_library_is_left_out_and_the_others_run(tmp_path, calls, monkeypatch):
    def fail(study, job):
        raise MissingExtraError("no such library")

    monkeypatch.setitem(MEASURES, "runtime", fail)
    first, second = run(tmp_path, Job("c", "runtime", "mnist"), JOB)
    assert first.state == "left out: no such library"
    assert second.state == DONE
    assert not (tmp_path / "c.json").exists()


def test_missing_data_is_said_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setenv("DUBIUM_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    statuses = [job_status("a", JOB, "smoke", tmp_path)]
    check_data(statuses, "smoke")
    with pytest.raises(DataNotFoundError, match=r"dubium data get mnist.*DUBIUM_DATA"):
        check_data(statuses, "cpu")


def test_drawn_images_have_the_datasets_shape_and_are_the_same_each_time(tmp_path, monkeypatch):
    monkeypatch.setenv("DUBIUM_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    data = open_data("cifar-100", "test", "smoke")
    assert data.shape == (3, 32, 32)
    assert len(data.classes) == 100
    assert torch.equal(data.images, draw_images("cifar-100", "test").images)
    assert not torch.equal(data.images, draw_images("cifar-100", "train").images[: len(data)])
    with pytest.raises(DataNotFoundError):
        open_data("cifar-100", "test", "cpu")


def test_arms_of_two_tables_are_trained_once(tmp_path, monkeypatch):
    monkeypatch.setenv("DUBIUM_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    trained = []

    def train_arm(data, maps, test, *, recipe, attention, seed):
        trained.append((None if maps is None else "maps", attention.alpha, seed))
        return {"accuracy": 0.5 + 0.1 * seed, "nll": 1.0, "ece": 0.0}

    monkeypatch.setattr(mitigation, "train_arm", train_arm)
    options = {"images": 6, "epochs": 1, "test_images": 6, "seeds": 2}
    none, weak, strong = (
        AttentionArm("No attention"),
        AttentionArm("Ours", "random"),
        AttentionArm("Strong", "random", alpha=2.0),
    )
    study = Study("smoke", tmp_path)
    first = MEASURES["mitigation"](study, Job("m", "mitigation", "mnist", arms=(none, weak), options=options))
    assert first["results"]["Ours"]["accuracy"]["value"] == pytest.approx(0.55)
    assert len(trained) == 4
    again = Job("n", "mitigation", "mnist", arms=(replace(none, label="0.0"), weak, strong), options=options)
    MEASURES["mitigation"](study, again)
    assert trained[4:] == [("maps", 2.0, 0), ("maps", 2.0, 1)]
    fresh = Job("o", "mitigation", "mnist", arms=(none,), options={**options, "first seed": 2})
    found = MEASURES["mitigation"](study, fresh)
    assert trained[6:] == [(None, 0.2, 2), (None, 0.2, 3)]
    assert found["results"]["No attention"]["accuracy"]["value"] == pytest.approx(0.75)


def test_a_job_may_change_the_sizes_of_the_network_and_the_input(tmp_path, monkeypatch):
    monkeypatch.setenv("DUBIUM_DATA", "")
    data = draw_images("mnist", "train")
    changes = {"network": {"filters": 3}, "mean": (0.25,), "std": (0.5,), "batch_size": 4}
    job = Job("m", "mitigation", "mnist", options={"images": 6, "epochs": 1, "seeds": 2, **changes})
    recipe = mitigation.training_options(Study("smoke", tmp_path), job, data).recipe
    assert (recipe.options["filters"], recipe.options["units"]) == (3, 16)
    assert (recipe.mean, recipe.std, recipe.batch_size) == ((0.25,), (0.5,), 4)


def test_laplace_gets_weights_that_can_be_trained_though_those_of_a_file_cannot(tmp_path, monkeypatch):
    monkeypatch.setenv("DUBIUM_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    given = []
    monkeypatch.setattr(networks, "fit_laplace", lambda network, batches, samples: given.append(network) or [network])
    frozen = cnn(filters=2, units=4).eval().requires_grad_(False)
    networks.approximate_laplace(frozen, "mnist", "smoke")
    assert all(weight.requires_grad for weight in given[0].parameters())
    assert not any(weight.requires_grad for weight in frozen.parameters())


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """A folder with an MNIST of a few images, at hand."""
    monkeypatch.setenv("DUBIUM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for prefix in ("train", "t10k"):
        write_idx(tmp_path / "data", prefix, compress=False)
    dependencies.data_digest.cache_clear()
    yield tmp_path / "data"
    dependencies.data_digest.cache_clear()


@pytest.mark.parametrize("file", ["t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "train-images-idx3-ubyte"])
def test_other_images_or_labels_under_the_same_name_are_measured_again(mnist, tmp_path, calls, file):
    run(tmp_path, JOB)
    content = bytearray((mnist / file).read_bytes())
    content[-1] ^= 1
    (mnist / file).write_bytes(content)
    dependencies.data_digest.cache_clear()  # as in another process
    assert job_status("a", JOB, "smoke", tmp_path).state == CHANGED
    run(tmp_path, JOB)
    run(tmp_path, JOB)
    assert calls == ["a-mnist", "a-mnist"]


def test_another_version_of_a_method_or_protocol_or_another_recipe_is_measured_again(tmp_path, calls, monkeypatch):
    run(tmp_path, JOB)
    for table, name, other in (
        (METHOD_VERSIONS, "grad", 2),
        (PROTOCOLS, "blurring", replace(PROTOCOLS["blurring"], version=2)),
        (RECIPES["mnist"], "smoke", RECIPES["mnist"]["smoke"].changed(lr=0.3)),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(table, name, other)
            assert job_status("a", JOB, "smoke", tmp_path).state == CHANGED
        assert job_status("a", JOB, "smoke", tmp_path).state == DONE


def test_uses_of_doubt_depend_on_the_method_whose_maps_they_use(monkeypatch):
    job = Job("s", "strategies", "", methods=("plain", "blur"))
    before = dependencies.job_dependencies(job, "smoke")
    monkeypatch.setitem(METHOD_VERSIONS, "blur-path", 7)
    assert dependencies.job_dependencies(job, "smoke")["methods"] == {"blur-path": {"blur-path": 7}}
    assert before["methods"]["blur-path"] != {"blur-path": 7}


def test_a_result_is_kept_where_its_images_are_not_at_hand(mnist, tmp_path, monkeypatch):
    here = dependencies.job_dependencies(JOB, "cpu")
    assert len(here["data"]["test"]) == 64
    monkeypatch.setenv("DUBIUM_DATA", "")
    assert dependencies.are_dependencies_same({"dependencies": here}, JOB, "cpu")
    assert not dependencies.are_dependencies_same({"dependencies": {**here, "methods": {}}}, JOB, "cpu")
    assert dependencies.are_dependencies_same({}, JOB, "cpu")  # of an earlier version
