"""`dubium reproduce` itself."""

import pytest
from typer.testing import CliRunner

from dubium.cli import app
from dubium.reproduce.paper import read_paper


@pytest.fixture(autouse=True)
def nothing_at_hand(tmp_path, monkeypatch):
    monkeypatch.setenv("DUBIUM_DATA", "")
    monkeypatch.setenv("DUBIUM_MODELS", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def call(*args):
    return CliRunner().invoke(app, ["reproduce", *args])


def test_list_shows_what_is_missing_and_computes_nothing(tmp_path):
    found = call("random", "--scale", "cpu", "--list", "--out", str(tmp_path / "out"))
    assert found.exit_code == 0
    assert "random-mnist" in found.output
    assert "missing" in found.output
    assert "about" in found.output
    assert "networks of mnist" in found.output, "trained first"
    assert str(tmp_path / "out" / "cpu" / "results") in found.output.replace("\n", ""), "where results are looked for"
    assert not (tmp_path / "out").exists()


def test_names_of_jobs_are_shown_whole(tmp_path):
    found = call("figure-qualitative", "--scale", "cpu", "--list", "--out", str(tmp_path))
    assert "figure-qualitative-cifar-100" in found.output


def test_disk_and_time_are_printed_before_a_long_run_starts(tmp_path, monkeypatch):
    def measure_jobs(study, jobs, results, on_done):
        print("now it begins")
        return []

    monkeypatch.setattr("dubium.reproduce.runner.measure_jobs", measure_jobs)
    found = call("blurring", "--scale", "smoke", "--out", str(tmp_path / "out"))
    assert found.exit_code == 0, found.output
    first, second, third, *_ = found.output.splitlines()
    assert first == "4 of 4 jobs to do, 8 images: about 12 s and 1 MB on disk."
    assert second == "Killed, the same command goes on where it stopped."
    assert third == "now it begins"


def test_a_missing_dataset_is_exit_2_with_what_to_do(tmp_path):
    found = call("random", "--scale", "cpu", "--out", str(tmp_path / "out"))
    assert found.exit_code == 2
    assert "dubium data get mnist" in found.output
    assert "DUBIUM_DATA" in found.output


def test_an_unknown_table_is_exit_2_with_the_nearest(tmp_path):
    found = call("blurrin", "--out", str(tmp_path))
    assert found.exit_code == 2
    assert "Did you mean 'blurring'" in found.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("anomaly --dataset mnist", "anomaly is not measured on mnist; it is on cifar-10, cifar-100, svhn."),
        ("properties --dataset mnist", "properties needs no dataset: leave out --dataset mnist."),
        ("ensembles", "ensembles has nothing to measure at --scale smoke; it has at paper or cpu."),
        (
            "page",
            "so that there is nothing to write a page of. Measure them first: "
            "`dubium reproduce all --scale smoke --out",
        ),
    ],
)
def test_nothing_to_measure_is_exit_2_with_what_there_is(words, said, tmp_path):
    found = call(*words.split(), "--scale", "smoke", "--out", str(tmp_path / "out"))
    assert found.exit_code == 2
    assert said in " ".join(found.output.split())
    assert not (tmp_path / "out").exists()


def test_one_table_at_smoke_scale_and_again(tmp_path):
    out = tmp_path / "out"
    found = call("random", "--scale", "smoke", "--dataset", "mnist", "--out", str(out))
    assert found.exit_code == 0, found.output
    assert "random-mnist: " in found.output
    page = (out / "smoke" / "results.md").read_text()
    assert "They mean nothing" in page
    assert "drawn images" in page
    again = call("random", "--scale", "smoke", "--dataset", "mnist", "--out", str(out))
    assert "random-mnist: " not in again.output
    listed = call("random", "--scale", "smoke", "--dataset", "mnist", "--out", str(out), "--list")
    assert "done" in listed.output


def test_the_page_of_networks_of_ones_own_is_found_by_the_networks_and_by_the_folder_that_is_said(tmp_path):
    own, out = ("--run", "demo", "--dataset", "mnist"), ("--scale", "smoke", "--out", str(tmp_path))
    assert call("blurring", *own, *out).exit_code == 0
    (page,) = tmp_path.glob("smoke/own-*/results.md")
    written = page.read_bytes()
    page.unlink()
    assert call("page", *own, *out).exit_code == 0
    assert page.read_bytes() == written
    found = call("page", *out)
    assert found.exit_code == 2
    said = f"Those of networks of yours are in {page.parent / 'results'}: give that by --results."
    assert said.replace(" ", "") in "".join(found.output.split())


@pytest.mark.slow
def test_all_of_it_at_smoke_scale(tmp_path):
    """Within 5 minutes on two cores: every number of the paper but those of libraries that are not installed."""
    out = tmp_path / "out"
    found = call("all", "--scale", "smoke", "--out", str(out))
    assert found.exit_code == 0, found.output
    page = (out / "smoke" / "results.md").read_text()
    total = sum(len(t["rows"]) * len(t["columns"]) for t in read_paper()["tables"].values())
    assert f"of the paper's {total} numbers are measured" in page
    left_out = 4 * found.output.count("left out") // 2  # Laplace: two numbers for each of two datasets
    assert f"**{total - left_out} of" in page
    assert page.count("![") == 13
    assert "not reached in the time" not in page or left_out


def test_a_folder_is_told_where_images_of_ones_own_are_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    found = call("blurring", "--dataset", "photos")
    said = " ".join(found.output.split())
    assert found.exit_code == 2
    assert "No dataset called 'photos'. Available: mnist, fashion-mnist, svhn, cifar-10, cifar-100." in said
    assert "`dubium evaluate all RUN --dataset photos --out FOLDER`" in said
    assert "`dubium train --dataset photos --out RUN`" in said
