"""What is said beforehand: trainings that come first are counted once, where they are needed and not there."""

import pytest

from dubium.reproduce.costs import estimate_jobs, estimated_seconds, training_statuses
from dubium.reproduce.job import AttentionArm, Job
from dubium.reproduce.status import CHANGED, DONE, MISSING, JobStatus


@pytest.fixture(autouse=True)
def no_public_networks(monkeypatch):
    monkeypatch.setenv("DUBIUM_MODELS", "")


def status(job, state=MISSING):
    return JobStatus("an entry", job, state, 60.0)


def names(*statuses, networks, scale="cpu"):
    return [(each.job.name, each.state) for each in training_statuses(statuses, scale, networks)]


BLURRING = Job("a", "blurring", "mnist", methods=("grad",))
CLUE = Job("b", "anomaly", "mnist", methods=("grad", "clue:steps=3"))


def test_networks_and_vae_are_trained_once(tmp_path):
    both = [("networks of mnist", MISSING), ("VAE of mnist", MISSING)]
    assert names(status(BLURRING), status(CLUE, CHANGED), networks=tmp_path) == both
    assert names(status(BLURRING), status(CLUE), networks=tmp_path, scale="paper") == both
    assert names(status(BLURRING), networks=tmp_path) == both[:1]
    assert names(status(CLUE, DONE), networks=tmp_path) == []
    assert names(status(CLUE), networks=tmp_path, scale="smoke") == []


def test_what_is_there_is_not_trained_again(tmp_path):
    for file in ("mnist/posterior.json", "vae-mnist/vae.json"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).touch()
    assert names(status(CLUE), networks=tmp_path) == [("networks of mnist", DONE), ("VAE of mnist", DONE)]


def test_public_networks_and_arms_need_no_ensemble(tmp_path):
    public = Job("c", "blurring", "svhn", "svhn-cnn", methods=("grad",))
    arms = Job("d", "mitigation", "mnist", arms=(AttentionArm("Ours", "clue"),))
    drawn = Job("e", "figure", "mnist", methods=("grad",), options={"figure": "figure-attention"})
    assert names(status(public), status(arms), status(drawn), networks=tmp_path) == [("VAE of mnist", MISSING)]


def test_the_estimate_has_the_trainings_too(tmp_path):
    trainings = training_statuses([status(BLURRING)], "cpu", tmp_path)
    alone, both = estimate_jobs([status(BLURRING)]), estimate_jobs([*trainings, status(BLURRING)])
    assert alone.task == "1 of 1 jobs to do, 500 images"
    assert both.task == "2 of 2 jobs to do, 500 images"
    assert both.seconds - alone.seconds == trainings[0].seconds == 12 * 60
    assert estimate_jobs(training_statuses([status(BLURRING)], "paper", tmp_path)).seconds is None


def test_small_networks_take_less():
    full = Job("m", "mitigation", "mnist", arms=(AttentionArm("none"),), options={"seeds": 2})
    small = Job("m", "mitigation", "mnist", arms=(AttentionArm("none"),), options={"seeds": 2, "network": {}})
    assert estimated_seconds(small, "cpu") < estimated_seconds(full, "cpu") == pytest.approx(12)
