"""A real cluster of two worker processes: the same bytes as here, also when a worker is killed in the middle."""

import json
import os
import signal
import socket
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock, Thread

import pytest
import torch
from typer.testing import CliRunner

from dubium.cli import app
from dubium.cli._engine import device_for
from dubium.data import load
from dubium.errors import ClusterError, MissingExtraError, OptionError
from dubium.evaluation.methods import parse_methods
from dubium.evaluation.protocols import Evaluation
from dubium.evaluation.protocols.mitigation import evaluate_mitigation, mitigation_options
from dubium.executor import in_turn, thread_count
from dubium.posteriors import load_posterior
from dubium.run import Settings, engine_on, explain_dataset, open_work, ray_cluster
from dubium.run.ray import join_cluster
from dubium.run.sources import DatasetImages, Item
from dubium.training import train
from tests.data.official import write_idx

ray = pytest.importorskip("ray", reason="a cluster needs the extra 'ray'")


@pytest.fixture(scope="module")
def cluster():
    """Two workers or more, and a GPU that is not there but can be asked for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "init", partial(ray.init, num_gpus=1))
        with ray_cluster(threads=2) as spread:
            yield spread
    assert not ray.is_initialized()


@pytest.fixture(autouse=True)
def one_thread():
    with thread_count(1):
        yield


def contents(folder: Path, pattern: str = "**/*") -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.glob(pattern)) if p.is_file()}


@dataclass(frozen=True)
class Trap:
    """A source that holds a worker in the middle of a shard, once, until it is killed."""

    images: DatasetImages
    at: int
    note: Path

    def __len__(self) -> int:
        return len(self.images)

    def name(self, index: int) -> str:
        return self.images.name(index)

    def size(self, index: int) -> tuple[int, int]:
        return self.images.size(index)

    def digest(self) -> str:
        return self.images.digest()

    def read(self, index: int) -> Item:
        if index == self.at and not self.note.exists():
            self.note.write_text(str(os.getpid()))
            time.sleep(600)
            raise AssertionError("nobody killed this worker")
        return self.images.read(index)


def kill(note: Path, killed: list[int]) -> None:
    while not note.exists() or not note.read_text():
        time.sleep(0.02)
    killed.append(int(note.read_text()))
    os.kill(killed[0], signal.SIGKILL)


def test_a_worker_killed_in_the_middle_of_a_shard_leaves_no_trace(cluster, tmp_path):
    settings = Settings({"run": "demo"}, {"dataset": "demo"}, batch=2, shard=4, threads=1)
    digits = DatasetImages(load("demo").subset(slice(0, 12)))
    explain_dataset(open_work(settings, source=digits), tmp_path / "here")
    killed, seen = [], []
    trap = Trap(digits, 6, tmp_path / "pid")  # in the second batch of the second shard
    killer = Thread(target=kill, args=(trap.note, killed), daemon=True)
    killer.start()
    work = open_work(settings, source=trap)
    results = explain_dataset(
        work, tmp_path / "there", engine=engine_on(cluster), progress=lambda *told: seen.append(told)
    )
    killer.join(10)
    assert len(killed) == 1
    assert killed[0] not in (os.getpid(), *busy())
    assert (len(results), results.explained_count(), results.skipped()) == (12, 12, [])
    assert contents(tmp_path / "there", "results/[!.]*") == contents(tmp_path / "here", "results/[!.]*")
    assert seen[-1] == ("explain", 12, 12)
    assert max(done for _, done, _ in seen) < 12 + 1e-6  # images that were begun twice count once


@pytest.fixture
def digits(tmp_path, monkeypatch):
    """A small MNIST in official files, found by its name."""
    write_idx(tmp_path / "data" / "mnist", "train", count=96, seed=1)
    write_idx(tmp_path / "data" / "mnist", "t10k", count=40, seed=2)
    monkeypatch.setenv("DUBIUM_DATA", str(tmp_path / "data"))


COMMANDS = {
    "explain": ["explain", "demo", "--top", "3", "--method", "grad"],
    "evaluate": ["evaluate", "anomaly", "demo", "--scale", "smoke", "--images", "11", "--methods", "grad"],
    "train": ["train", "--dataset", "mnist", "--scale", "smoke", "--members", "2", "--epochs", "2"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_leaves_the_same_bytes_and_either_engine_goes_on_with_what_the_other_began(
    name, cluster, digits, tmp_path
):
    def run_on(folder, *engine):
        found = CliRunner().invoke(app, [*COMMANDS[name], "--threads", "1", "--out", str(tmp_path / folder), *engine])
        assert found.exit_code == 0, found.output

    cpu = [] if name == "evaluate" else ["--device", "cpu"]
    run_on("here")
    run_on("there", "--engine", "ray", *cpu)
    timed = ("metrics.jsonl", "tensorboard", "index.html")  # these have the time or the folder in them
    here, there = (
        {file: content for file, content in contents(tmp_path / name).items() if not file.startswith(timed)}
        for name in ("here", "there")
    )
    assert len(here) > 2
    assert there == here
    run_on("there")


@pytest.mark.parametrize(("entry", "count"), [("random", 13), ("kinds", 6), ("strategies", 14)])
def test_reproduce_measures_the_same_there(entry, count, cluster, digits, tmp_path, monkeypatch):
    sent = []

    @contextmanager
    def watched(address, threads):
        def run(do, shared, jobs, report, **options):
            sent.extend(jobs := list(jobs))
            return cluster(do, shared, jobs, report, **options)

        yield run

    def run_on(folder, *engine):
        options = ["--scale", "smoke", "--dataset", "mnist", "--threads", "1", "--out", str(tmp_path / folder)]
        found = CliRunner().invoke(app, ["reproduce", entry, *options, *engine])
        assert found.exit_code == 0, found.output
        results = {path.name: json.loads(path.read_text()) for path in (tmp_path / folder).glob("smoke/results/*.json")}
        return {name: {**content, "seconds": None, "commit": None} for name, content in results.items()}

    monkeypatch.setattr("dubium.run.ray.ray_cluster", watched)
    here = run_on("here")
    assert run_on("there", "--engine", "ray") == here
    assert len(sent) == count
    shards = "smoke/evaluations/*/shards/**/*"
    assert contents(tmp_path / "there", shards) == contents(tmp_path / "here", shards)
    run_on("there")


def busy() -> list[int]:
    """The workers of this process's cluster that are at work."""
    parents, found = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            found += [int(folder.name)] * (folder / "cmdline").read_bytes().startswith(b"ray::run_in_worker")
        except OSError:
            continue
    return [pid for pid in found if os.getpid() in (parents.get(pid), parents.get(parents.get(pid, 0)))]


def test_a_member_whose_worker_is_killed_is_trained_to_the_same_weights(cluster, digits, tmp_path):
    tiny = {"options": {"filters": 2, "units": 8}, "epochs": 30, "batch_size": 16}
    options = {"members": 2, "scale": "smoke", "changes": tiny, "threads": 1, "device": "cpu"}
    train("mnist", tmp_path / "here", **options)
    killed = []

    def watch(event):
        if "record" in event and not killed:
            killed.extend(busy()[:1])
            os.kill(killed[0], signal.SIGKILL)
            assert not (tmp_path / "there" / "posterior.json").exists()

    train("mnist", tmp_path / "there", **options, report=watch, spread=cluster)
    assert len(killed) == 1
    assert contents(tmp_path / "there", "*.safetensors") == contents(tmp_path / "here", "*.safetensors")
    lines = [json.loads(line) for line in (tmp_path / "there" / "metrics.jsonl").read_text().splitlines()]
    assert [(n["member"], n["epoch"]) for n in lines[:-1]] == [(m, e) for m in range(2) for e in range(1, 31)]


def evaluation_on(spread, out: Path, told: list[str]) -> Evaluation:
    posterior, digits = load_posterior("demo"), load("demo")
    methods = parse_methods(["ua-backprop", "grad"], 1)
    return Evaluation(posterior, digits, methods, ("epistemic",), out, "demo", on_step=told.append, executor=spread)


def test_mitigation_trains_its_arms_there(cluster, tmp_path):
    train_set, test_set = (load("demo").subset(slice(start, None, 2)) for start in range(2))
    options = mitigation_options("smoke", train_set, seeds=1)
    told = []
    for name, spread in (("here", in_turn), ("there", cluster)):
        evaluation = evaluation_on(spread, tmp_path / name, told)
        evaluate_mitigation(replace(evaluation, data=train_set, other_data=test_set), options)
    assert told[-1] == "training arms: 7 of 7"
    assert contents(tmp_path / "there", "shards/**/*") == contents(tmp_path / "here", "shards/**/*")


def facts(shared, job, report):
    report(job)
    time.sleep(0.1 if job else 1.5)  # the first is done last
    return job, torch.get_num_threads(), os.getcwd(), len(ray.get_gpu_ids()), os.getpid(), id(shared)


def test_jobs_come_back_in_order_from_workers_that_unpack_what_they_share_once(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = []
    found = list(cluster(facts, {"any": "thing"}, range(6), told.append, threads=1))
    assert [job for job, *_ in found] == list(range(6))
    assert {(threads, place, gpus) for _, threads, place, gpus, _, _ in found} == {(1, str(tmp_path), 0)}
    by_worker = {}
    for *_, worker, shared in found:
        by_worker.setdefault(worker, set()).add(shared)
    assert os.getpid() not in by_worker
    assert all(len(shared) == 1 for shared in by_worker.values())
    assert sorted(told) == list(range(6))


def test_threads_and_a_gpu_are_asked_for(cluster):
    (found,) = cluster(facts, None, [0], print, threads=2, device="cuda")
    assert found[1] == 2
    assert found[3] == 1
    assert device_for("ray", None) == "cuda"
    assert device_for("ray", "cpu") == "cpu"
    assert device_for("local", None) is None


def fail(_shared, _job, _report):
    raise OptionError("a sentence for the user")


def fall(_shared, _job, _report):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_jobs_own_error_is_raised_here_and_not_tried_again(cluster):
    with pytest.raises(OptionError, match=r"^a sentence for the user$"):
        list(cluster(fail, None, range(3), print, threads=1))


def test_a_job_that_kills_every_worker_ends(cluster, monkeypatch):
    monkeypatch.setattr("dubium.run.ray.RETRIES", 1)
    with pytest.raises(ClusterError, match="worker died 2 times"):
        list(cluster(fall, None, [0], print, threads=1))


def test_what_cannot_be_sent_is_said(cluster):
    with pytest.raises(ClusterError, match="cannot be sent"):
        list(cluster(facts, Lock(), [0], print, threads=1))


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dubium\[ray\]'"), ray_cluster():
        pass


def test_an_address_where_nobody_is_is_said_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and not listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"could be joined at {address}.*ray start"):
            join_cluster(ray, address, 1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["explain", "demo", "--engine", "rya"], "No engine called 'rya'. Did you mean 'ray'?"),
        (["explain", "demo", "--address", "auto"], "--engine ray only"),
        (["explain", "demo", "--device", "tpu"], "device is 'tpu'; expected cpu or cuda"),
        (["train", "--dataset", "mnist", "--engine", "ray", "--jobs", "2"], "--jobs 2 is for --engine local"),
    ],
)
def test_mistakes_are_said_in_a_sentence(options, sentence, tmp_path):
    found = CliRunner().invoke(app, [*options, "--out", str(tmp_path)])
    assert found.exit_code == 2
    assert sentence in found.output
