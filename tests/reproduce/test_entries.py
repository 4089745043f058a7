"""Every number of the paper has a job that measures it."""

import pytest

from dubium.choices import SCALES
from dubium.reproduce.entries import ENTRIES
from dubium.reproduce.figures import DRAWERS, FIGURES
from dubium.reproduce.job import Job
from dubium.reproduce.measures import MEASURES
from dubium.reproduce.paper import read_paper
from dubium.reproduce.schemes import SCHEMES


def test_every_table_and_figure_has_one_entry():
    tables = [table for entry in ENTRIES.values() for table in entry.tables]
    assert sorted(tables) == sorted(read_paper()["tables"])
    assert sorted([*FIGURES, *SCHEMES]) == sorted(read_paper()["figures"])
    assert set(DRAWERS) == set(FIGURES)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.tables])
def test_every_cell_has_a_job_with_its_label(name, scale):
    entry = ENTRIES[name]
    jobs = {job.name: job for job in entry.jobs(scale)}
    for table in entry.tables:
        content = read_paper()["tables"][table]
        assert set(entry.rows(scale)) == set(content["rows"]), "no row is missing"
        for row in entry.rows(scale).values():
            for column in content["columns"]:
                job, label, _metric = entry.source(row, column)
                assert label in (*jobs[job].methods, *(arm.label for arm in jobs[job].arms)), (row, column)


@pytest.mark.parametrize("scale", SCALES)
def test_jobs_have_names_of_their_own_and_a_measure(scale):
    jobs = [job for entry in [*ENTRIES.values(), *FIGURES.values()] for job in entry.jobs(scale)]
    assert len({job.name for job in jobs}) == len(jobs)
    assert all(job.measure in MEASURES for job in jobs)


@pytest.mark.parametrize("name", ["blurring", "anomaly", "temperatures", "paths", "random", "no-normalisation"])
def test_tables_of_maps_have_rows_for_auto_and_the_controls(name):
    own = [row.label for row in ENTRIES[name].added_rows("cpu").values()]
    assert own == ["blur-path", "random", "smooth-random", "edges", "local-contrast"]


def test_scale_paper_has_the_papers_settings():
    job = next(job for job in ENTRIES["blurring"].jobs("paper") if job.dataset == "mnist")
    assert job.methods[:8] == ("ua-backprop", "grad", "smoothgrad", "fullgrad", "ig", "blur-ig", "clue", "delta-clue")
    assert job.options == {"kinds": ["epistemic"]}
    counts = {job.dataset: job.options for job in ENTRIES["vary-n"].jobs("paper") if job.dataset == "cifar-10"}
    assert counts["cifar-10"] == {"images": 5000}


def test_fingerprint_changes_with_what_decides_a_result_and_with_nothing_else():
    job = Job("a", "blurring", "mnist", options={"images": 5})
    same = Job("b", "blurring", "mnist", options={"images": 5})
    assert job.fingerprint("cpu", {}) == same.fingerprint("cpu", {})
    others = [
        Job("a", "blurring", "mnist", options={"images": 6}).fingerprint("cpu", {}),
        Job("a", "blurring", "mnist", methods=("grad",), options={"images": 5}).fingerprint("cpu", {}),
        job.fingerprint("paper", {}),
        job.fingerprint("cpu", {"seed": 1}),
    ]
    assert len({job.fingerprint("cpu", {}), *others}) == 5


def test_jobs_that_differ_in_methods_and_seeds_share_a_folder():
    few = Job("a", "mitigation", "mnist", options={"images": 5, "seeds": 5})
    many = Job("b", "mitigation", "mnist", methods=("grad",), options={"images": 5, "seeds": 10})
    assert few.shared_digest("cpu", {}) == many.shared_digest("cpu", {})
    assert few.shared_digest("cpu", {}) != few.shared_digest("paper", {})
