"""Every protocol through the command line, on data of the user's own and on the embedded demo."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from dubium.cli import app
from dubium.cli._evaluation_tables import print_summary
from dubium.registry import CONTROL_NAMES

PROTOCOLS = {
    "blurring": ["murr@2%", "auc-urr@2%", "murr@5%", "auc-urr@5%", "murr-mean@2%", "auc-urr-median@5%", "accuracy@2%"],
    "anomaly": ["iou", "ada"],
    "removal": ["srg/blur", "srg/mean", "srg/linear", "accuracy@5%/mean", "true-probability@20%/linear"],
    "mitigation": ["accuracy", "nll", "ece"],
    "sanity": [
        "cascade@100%",
        "top5@100%",
        "emprt",
        "bottom-top5@75%",
        "kinds",
        "kinds-top5",
        "halves",
        "repeatability",
        "effective-pixels",
        "deletion",
        "insertion",
    ],
}


def evaluate(protocol, run, out, *arguments, code=0):
    threads = ["--threads", str(torch.get_num_threads())]
    found = CliRunner().invoke(app, ["evaluate", protocol, str(run), "--out", str(out), *threads, *arguments])
    assert found.exit_code == code, found.output
    return json.loads((out / "summary.json").read_text()) if code == 0 else found.output


def on_own(protocol, own, out, *arguments, **options):
    data = ["--dataset", str(own / "images.npz"), "--scale", "smoke"]
    return evaluate(protocol, own / "posterior", out, *data, *arguments, **options)


def check(summary, out, protocol, methods):
    expected = ["none", *methods] if protocol == "mitigation" else methods
    assert list(summary["results"]) == expected
    for method, metrics in summary["results"].items():
        assert set(PROTOCOLS[protocol]) <= set(metrics), method
        for name, found in metrics.items():
            assert found["low"] <= found["value"] <= found["high"], (method, name)
            assert len(summary["images"]["values"][method][name]) > 1
    pairs = len(expected) * (len(expected) - 1) // 2
    for row in summary["comparisons"]:
        assert row["low"] <= row["difference"] <= row["high"]
        assert row["p"] <= row["p_holm"] <= 1
    assert sum(row["metric"] == PROTOCOLS[protocol][0] for row in summary["comparisons"]) == pairs
    assert {"dubium", "torch"} <= set(summary["versions"])
    assert summary["protocol"] == protocol
    with (out / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == set(expected)
    pictures = list(out.glob("*.png"))
    assert pictures
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
    title = "does training with maps help?" if protocol == "mitigation" else "which method finds the doubt?"
    assert title in (out / "index.html").read_text()  # as `dubium.evaluate` leaves it


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_on_the_users_own_networks_and_images(protocol, own, tmp_path):
    summary = on_own(protocol, own, tmp_path, "--methods", "ua-backprop:rescale=none,grad")
    check(summary, tmp_path, protocol, ["ua-backprop:rescale=none", "grad", *CONTROL_NAMES])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_on_the_demo(protocol, tmp_path):
    check(
        evaluate(protocol, "demo", tmp_path, "--scale", "smoke"),
        tmp_path,
        protocol,
        ["ua-backprop", "grad", *CONTROL_NAMES],
    )


def test_kinds_other_than_epistemic_carry_their_name(own, tmp_path):
    found = on_own("blurring", own, tmp_path, "--methods", "grad", "--kinds", "epistemic,total")["results"]["grad"]
    assert {"murr@2%", "murr@2%/total", "auc-urr@5%/total"} <= set(found)


def test_the_same_command_gives_the_same_bytes(own, tmp_path):
    for out in ("a", "b"):
        on_own("blurring", own, tmp_path / out, "--methods", "smoothgrad:samples=3")
    for name in ("summary.json", "results.csv", "comparisons.csv", "images.csv", "urr.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_methods_can_be_added_and_what_is_finished_stays(own, tmp_path):
    on_own("anomaly", own, tmp_path, "--methods", "grad")
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "shards").rglob("*.*")}
    found = on_own("anomaly", own, tmp_path, "--methods", "grad,input-grad")
    assert list(found["results"]) == ["grad", "input-grad", *CONTROL_NAMES]
    assert all(file.stat().st_mtime_ns == time for file, time in before.items())


def test_methods_that_are_measured_and_not_named_again_are_said_with_the_words_that_bring_them_back(own, tmp_path):
    threads = ["--threads", str(torch.get_num_threads()), "--dataset", str(own / "images.npz"), "--scale", "smoke"]
    for methods, said in {"grad,random": "", "input-grad": "--methods grad,input-grad", "grad,input-grad": ""}.items():
        words = ["evaluate", "anomaly", str(own / "posterior"), "--out", str(tmp_path), *threads, "--methods", methods]
        output = " ".join(CliRunner().invoke(app, words).output.split())
        assert ("the methods that are named now" in output) == bool(said)
        assert said in output


def test_a_folder_of_another_evaluation_is_refused(own, tmp_path):
    on_own("anomaly", own, tmp_path, "--methods", "grad")
    said = on_own("anomaly", own, tmp_path, "--methods", "grad", "--box", "4", code=2)
    assert "box is 10 there, 4 here" in " ".join(said.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--methods", "grid"], "Did you mean 'grad'"),
        (["--methods", "grad:steps=3"], "No option of 'grad' called 'steps'"),
        (["--methods", "grad:steps"], "expected name:option=value"),
        (["--kinds", "both"], "No kind of uncertainty called 'both'"),
        (["--scale", "huge"], "No scale called 'huge'"),
        (["--search", "all"], "No search called 'all'"),
        (["--fractions", "2"], "A fraction is 2.0"),
    ],
)
def test_mistakes_are_told_in_a_sentence(arguments, said, own, tmp_path):
    output = " ".join(on_own("blurring", own, tmp_path, *arguments, code=2).split())
    assert said in output


def test_a_missing_dataset_is_told(own, tmp_path):
    assert "No images were named. Give --dataset NAME[:split] or a folder." in evaluate(
        "sanity", own / "posterior", tmp_path, code=2
    )


def test_masks_of_the_users_own(own, tmp_path):
    masks = np.zeros((26, 12, 12), bool)
    masks[:20, 2:5, 4:8] = True
    np.save(tmp_path / "masks.npy", masks)
    summary = on_own("anomaly", own, tmp_path / "out", "--methods", "grad", "--masks", str(tmp_path / "masks.npy"))
    assert {"mask-iou", "pointing", "mass"} == set(summary["results"]["random"])
    assert summary["results"]["random"]["mass"]["value"] == pytest.approx(12 / 144, rel=0.3)
    assert summary["notes"] == ["6 images with an empty mask are left out: index 20, 21, 22, 23, 24, ..."]
    assert len(summary["images"]["index"]) == 20


@pytest.mark.filterwarnings("ignore:All networks give the same")
def test_a_posterior_that_never_disagrees_is_told(own, tmp_path):
    content = json.loads((own / "posterior" / "posterior.json").read_text())
    weights = (own / "posterior" / content["members"][0]).read_bytes()
    content |= {"members": ["a.safetensors", "b.safetensors"], "sha256": {}}
    for name in content["members"]:
        (tmp_path / name).write_bytes(weights)
    (tmp_path / "posterior.json").write_text(json.dumps(content))
    data = ["--dataset", str(own / "images.npz"), "--scale", "smoke", "--methods", "grad"]
    said = evaluate("blurring", tmp_path, tmp_path / "out", *data, code=2)
    assert "no image to average over" in " ".join(said.split())
    assert "All 2 networks agree everywhere" in " ".join(said.split())


def test_killed_it_continues_and_ends_with_the_same_bytes(own, tmp_path):
    arguments = ["--dataset", str(own / "images.npz"), "--methods", "grad,input-grad", "--scale", "smoke"]
    arguments += ["--images", "26", "--candidates", "26", "--step", "1", "--threads", "1"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    start = [sys.executable, "-c", "from dubium.cli import app; app()"]
    command = [*start, "evaluate", "blurring", str(own / "posterior"), *arguments, "--out"]
    process = subprocess.Popen([*command, str(killed)], start_new_session=True)
    try:
        wait_for(lambda: finished(killed), process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (killed / "summary.json").exists()
    before = {file: file.stat().st_mtime_ns for file in finished(killed)}
    for out in (killed, whole):
        subprocess.run([*command, str(out)], check=True, capture_output=True)
    assert all(file.stat().st_mtime_ns == time for file, time in before.items())
    assert (killed / "summary.json").read_bytes() == (whole / "summary.json").read_bytes()
    assert not list(killed.rglob("*.part"))


def finished(out: Path):
    return list((out / "shards" / "grad").glob("*.json"))


def wait_for(condition, process, seconds=600):  # a busy machine may take long; a process that ends is seen at once
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)


def test_in_a_narrow_terminal_every_metric_is_printed_without_its_interval(monkeypatch, capsys, tmp_path):
    found = {"value": 0.123456, "low": 0.1, "high": 0.2}
    metrics = [f"true-probability@{part}%" for part in range(10, 18)]
    results = {name: dict.fromkeys(metrics, found) for name in ("grad", "smooth-random")}
    for columns, interval in ((80, False), (400, True)):
        monkeypatch.setenv("COLUMNS", str(columns))
        print_summary({"results": results, "notes": []}, tmp_path)
        printed = capsys.readouterr().out
        assert all(metric in printed for metric in metrics)
        assert printed.count("0.123") == 2 * len(metrics)
        assert ("0.123 [0.100, 0.200]" in printed) == interval
