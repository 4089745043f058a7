"""The installed command in a temporary folder, and the same commands in this process where a new one adds nothing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from dubium.cli import app
from dubium.cli._options import repeat_option_names
from dubium.posteriors.files.load import EMBEDDED
from dubium.run import open_results, store
from tests import piles

COMMAND = Path(sys.executable).with_name("dubium")


def call(*args, cwd, code=0):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "120"}
    done = subprocess.run([COMMAND, *map(str, args)], cwd=cwd, capture_output=True, text=True, env=environment)
    assert done.returncode == code, done.stderr
    return done


def invoke(*args, code=0):
    done = CliRunner().invoke(app, [*map(str, args)])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    piles.posterior(folder / "posterior")
    piles.arrays(folder / "images.npz")
    piles.folder(folder / "photos")
    return folder


@pytest.fixture(scope="module")
def out(place):
    """What `dubium explain` leaves behind."""
    args = ["posterior", "--dataset", "images.npz", "--top", "4", "--batch", "8", "--out", "out"]
    done = call("explain", *args, cwd=place)
    assert "20 images scored, 4 explained" in done.stdout
    lines = done.stderr.splitlines()  # no progress bar where there is no terminal, and lines on a busy machine alone
    assert [line for line in lines if not re.fullmatch(r"(score|explain): \d+ of \d+, .+ left", line)] == []
    return place / "out"


def test_explain_writes_shards_and_a_page_from_which_the_page_can_be_made_again(out):
    assert len(open_results(out)) == 20
    page = (out / "index.html").read_text()
    assert "dubium export out --to csv" in page
    (out / "index.html").unlink()
    assert json.loads(invoke("report", out, "--json", "--png").stdout)["images"] == 20
    assert (out / "index.html").read_text() == page
    assert len(list((out / "png").glob("*.png"))) == 4


def test_a_command_checks_the_results_that_it_made_once(place, tmp_path, monkeypatch):
    checked, check = [], store.check_shard
    monkeypatch.setattr(store, "check_shard", lambda file: (checked.append(file), check(file)))
    run = (place / "posterior", "--dataset", place / "images.npz", "--top", 2, "--png", "--out", tmp_path / "out")
    invoke("explain", *run)
    assert sorted(checked) == sorted((tmp_path / "out" / "results").glob("*.parquet"))


def test_a_broken_file_is_named_and_counted_and_the_exit_code_is_1(place):
    args = ["posterior", "--images", "photos", "--kinds", "total", "epistemic", "--json", "--out", "some"]
    done = call("explain", *args, cwd=place, code=1)
    said = json.loads(done.stdout)
    assert (said["images"], said["explained"]) == (4, 4)
    assert [item["path"] for item in said["skipped"]] == ["photos/broken.png"]
    assert {row["label"] for row in said["top"]} == {0, 1}
    assert all(list(row.maps()) == ["total", "epistemic"] for row in open_results(place / "some").rows())


def test_where_no_image_can_be_read_there_is_no_run_and_the_folder_stays_free(place, tmp_path):
    run, out = (place / "posterior", "--out", tmp_path / "out"), tmp_path / "out"
    for words in ((), ("--top", 2)):
        said = invoke("explain", *run, "--images", place / "photos" / "broken.png", *words, code=2).output
        assert "broken.png is damaged" in " ".join(said.split())
        assert "Open" not in said
        assert not out.exists()
    (tmp_path / "other.png").write_bytes(b"text")
    broken = (place / "photos" / "broken.png", tmp_path / "other.png")
    assert "None of 2 images" in " ".join(invoke("uncertainty", *run, "--images", *broken, code=2).output.split())
    invoke("explain", *run, "--images", place / "photos" / "ant")
    assert len(open_results(out)) > 0


def test_a_factory_and_weights_of_the_users_own(place):
    for index, network in enumerate(piles.networks(2)):
        save_file(network.state_dict(), place / f"{index}.safetensors")
    (place / "mine.py").write_text(
        "from dubium.models import cnn\n\ndef network():\n    return cnn(filters=3, units=6, size=12, classes=3)\n"
    )
    args = ["--weights", "0.safetensors", "1.safetensors", "--mean", "0.5", "--std", ".25", "--input-shape", "1,12,12"]
    images = ["--images", "photos/ant/0.png", "photos/bee/1.png", "--names", "ant,bee,cat"]
    call("explain", "--posterior", "mine:network", *args, *images, "--out", "mine", cwd=place)
    about = open_results(place / "mine").about
    assert about["posterior"]["members"] == 2
    assert about["settings"]["posterior"]["factory"] == "mine:network"
    assert about["settings"]["posterior"]["mean"] == [0.5]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["explain", "nowhere", "--dataset", "demo"], "no folder 'nowhere'"),
        (["explain", "--dataset", "demo"], "No posterior was named"),
        (["explain", "{posterior}"], "No images were named"),
        (["explain", "{posterior}", "--images", "nowhere"], "no file or folder 'nowhere'"),
        (["explain", "{posterior}", "--dataset", "{images}", "--method", "gard"], "Did you mean 'grad'"),
        (["explain", "{posterior}", "--dataset", "{images}", "--kinds", "epistemc"], "Did you mean 'epistemic'"),
        (["explain", "{posterior}", "--dataset", "{images}", "--tau1", "-1"], "tau1=-1"),
        (["explain", "--posterior", "mine", "--images", "x"], "expected package.module:factory"),
        (["explain", "{posterior}", "--weights", "a.pt", "--images", "x"], "--weights was given without --posterior"),
        (["explain", "demo", "--posterior", "mine:networks"], "brings its own networks"),
        (["report", "nowhere"], "no results in nowhere"),
        (["explain", "--no-such-flag"], "No such option"),
    ],
)
def test_mistakes_have_exit_code_2_and_a_sentence(place, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DUBIUM_MODELS", raising=False)
    given = [arg.format(posterior=place / "posterior", images=place / "images.npz") for arg in args]
    assert message in " ".join(invoke(*given, code=2).output.split())


def test_uncertainty_lists_scores_and_keeps_nothing_unless_asked(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = ["uncertainty", place / "posterior", "--dataset", place / "images.npz", "--threads", "1"]
    assert "20 images scored" in invoke(*args, "--top", "3").output
    assert list(tmp_path.iterdir()) == []
    lines = [json.loads(line) for line in invoke(*args, "--json").output.splitlines()]
    assert [line["id"] for line in lines] == list(range(20))
    assert all(line["total"] == pytest.approx(line["aleatoric"] + line["epistemic"], abs=1e-6) for line in lines)
    invoke(*args, "--out", "scores")
    assert (tmp_path / "scores" / "index.html").exists()


def test_compare_runs_two_posteriors_and_takes_results_as_they_are(place, out, tmp_path):
    piles.posterior(tmp_path / "two", count=2)
    args = [
        "compare",
        out,
        tmp_path / "two",
        "--dataset",
        place / "images.npz",
        "--threads",
        "1",
        "--out",
        tmp_path / "c",
    ]
    said = json.loads(invoke(*args, "--json").output)
    assert (said["images"], said["explained"]) == (20, 4)
    assert said["same_prediction"] <= 1
    assert (tmp_path / "c" / "index.html").exists()


def test_compare_names_files_that_it_skips(place, tmp_path):
    sides = [place / "posterior", place / "posterior", "--methods", "grad,random"]
    done = invoke("compare", *sides, "--images", place / "photos", "--out", tmp_path / "c", code=1)
    assert "broken.png is damaged" in done.output
    assert "1 file skipped" in done.output


def test_an_error_of_our_own_ends_with_3(out, monkeypatch):
    monkeypatch.setattr("dubium.report.page.summarise_results", lambda results: 1 / 0)
    invoke("report", out, code=3)


def test_help_reads_like_a_manual():
    text = invoke("--help").output
    for words in ("Examples", "Exit codes", "Environment", "Completion", "explain", "uncertainty", "serve"):
        assert words in text
    assert invoke("--version").output.startswith("dubium ")


@pytest.mark.parametrize("command", ["demo", "explain", "uncertainty", "compare", "report", "serve"])
def test_every_command_explains_itself(command):
    assert "Usage" in invoke(command, "--help").output


def test_words_after_an_option_of_many_values_belong_to_it():
    args = ["run", "--images", "a", "b", "--top", "3", "--mean", "-.5", "1"]
    assert repeat_option_names(args) == [
        "run",
        "--images",
        "a",
        "--images",
        "b",
        "--top",
        "3",
        "--mean",
        "-.5",
        "--mean",
        "1",
    ]


def test_the_demo_writes_its_page_and_pictures(tmp_path):
    done = call("demo", cwd=tmp_path)
    assert "16 digits explained" in done.stdout
    folder = tmp_path / "dubium-demo"
    assert (folder / "index.html").stat().st_size > 50_000
    assert len(list((folder / "png").glob("*.png"))) == 16


def test_a_number_without_a_leading_zero_is_a_number(tmp_path):
    args = ["explain", "demo", "--top", "1", "--threads", "1", "--out", tmp_path]
    invoke(*args, "--tau1", ".08", "--option", "tau2=.3")
    assert open_results(tmp_path).about["settings"]["options"] == {"tau1": 0.08, "tau2": 0.3}


def test_clue_finds_the_vae_in_the_posteriors_folder(tmp_path):
    invoke("explain", "demo", "--top", "1", "--method", "clue", "--option", "steps=2", "--out", tmp_path)
    assert [row.id for row in open_results(tmp_path).most_uncertain("epistemic", 1) if row.maps()]


def test_a_vae_for_other_images_is_refused_with_its_own_shape_before_images_are_scored(place, tmp_path):
    method = f"clue:vae={EMBEDDED / 'vae'}"
    words = ("explain", place / "posterior", "--dataset", place / "images.npz", "--top", "1", "--method", method)
    said = " ".join(invoke(*words, "--out", tmp_path / "out", code=2).output.split())
    assert "vae cannot encode images of shape (1, 12, 12): it is for images of shape (1, 28, 28). Train one on" in said
    assert not (tmp_path / "out" / "scores").exists()


def test_the_embedded_digits_are_listed_with_the_datasets():
    assert "demo" in invoke("data", "list").output


WRAPPED = """
from torch import nn
import dubium
from tests import piles


class Says(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        logits = self.network(x)
        return {"a": logits, "b": 2 * logits, "p": logits.softmax(-1)}


def networks():
    return [Says(network).eval() for network in piles.networks(2)]


def flat(network, x, target, *, height=1.0):
    return height + 0 * dubium.attribution.grad(network, x, target)
"""


def test_what_of_the_output_to_take_and_methods_by_their_path(place, monkeypatch):
    monkeypatch.chdir(place)
    (place / "wrapped.py").write_text(WRAPPED)
    base = ["--posterior", "wrapped:networks", "--dataset", "images.npz"]
    assert "'b' (" in invoke("uncertainty", *base, code=2).output.replace("\n", " ")
    by_part = {}
    for part in ("a", "b", "0", "1"):
        lines = invoke("uncertainty", *base, "--network-output", part, "--json").stdout.splitlines()
        by_part[part] = [json.loads(line)["total"] for line in lines]
    assert by_part["a"] == by_part["0"] != by_part["b"] == by_part["1"]
    explain = ["explain", *base, "--network-output", "a", "--top", "2", "--json", "--kinds", "total"]
    invoke(*explain, "--out", "flat", "--method", "wrapped:flat:height=2.5")
    for row in open_results(place / "flat").most_uncertain("total", 2):
        assert (row.maps()["total"] == 2.5).all()
    method = "captum.attr:Occlusion:sliding_window_shapes=[1,4,4]:strides=[1,4,4]"
    invoke(*explain, "--out", "occluded", "--method", method)
    assert open_results(place / "occluded").about["settings"]["method"] == "captum.attr:Occlusion"
    assert open_results(place / "occluded").about["settings"]["posterior"]["output"] == "a"
    assert "cannot be imported" in invoke(*explain, "--method", "wrapped:nothing", code=2).output
