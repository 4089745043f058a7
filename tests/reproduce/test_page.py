"""The page, from results that are made by hand."""

import json

import pytest

from dubium.errors import FileFormatError
from dubium.registry import METHOD_VERSIONS
from dubium.reproduce.cells import Cell, entry_groups
from dubium.reproduce.entries import ENTRIES
from dubium.reproduce.page import write_results_page
from dubium.reproduce.paper import read_paper
from dubium.reproduce.readme import fill_readme


def result(job, results, **more):
    return {
        "job": job,
        "entry": job.partition("-")[0],
        "command": f"dubium reproduce {job}",
        "scale": "cpu",
        "settings": {"images": 50},
        "results": results,
        "comparisons": [],
        "pictures": [],
        "machine": {"processor": "a processor", "cores": 2, "threads": 1},
        "seconds": 90,
        **more,
    }


def interval(value):
    return {"value": value, "low": value - 0.1, "high": value + 0.1}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("random", "blur-path"):
        monkeypatch.setitem(METHOD_VERSIONS, name, 1)  # that of results which record none
    folder = tmp_path / "results"
    folder.mkdir()
    found = {"murr@2%": interval(0.5), "auc-urr@2%": interval(0.7)}
    rows = {"ua-backprop": found, "random": found, "blur-path": found}
    (folder / "random-mnist.json").write_text(json.dumps(result("random-mnist", rows)))
    return folder


def page_of(folder, scale="cpu", **options):
    page = folder.parent / "results.md"
    write_results_page(page, folder, scale, **options)
    return page.read_text()


def test_a_cell_has_our_number_its_interval_the_papers_and_the_difference(folder):
    text = page_of(folder)
    assert "| Ours | **.500** [.400, .600] / .648 (−.148) | **.700** [.600, .800] / .667 (+.033) |" in text
    assert "| Random | **.500** [.400, .600] / .023 (+.477) |" in text
    assert "| *blur-path* | **.500** [.400, .600] |" in text


def test_links_lead_to_pages_that_are_there_and_tables_have_rows(folder):
    text = page_of(folder)
    assert "](which-method.md)" not in text
    assert "docs/which-method.md of dubium" in text
    assert text.count("Nothing of it was measured yet.") == 1  # of ranks: one comparison was
    assert "| rank of UA-Backprop (paper) |" not in text
    (folder.parent / "which-method.md").touch()
    assert "[which-method.md](which-method.md)" in page_of(folder)


def test_the_head_counts_numbers_and_whole_rows(folder):
    assert "**4 of the paper's 632 numbers are measured** (all numbers of 2 of its 249 rows" in page_of(folder)
    half = {"murr@2%": interval(0.5)}
    path = folder / "random-mnist.json"
    path.write_text(json.dumps(result("random-mnist", {"ua-backprop": half, "random": half})))
    assert "**2 of the paper's 632 numbers are measured** (all numbers of 0 of its 249 rows" in page_of(folder)


def test_fewer_steps_batches_and_members_are_said_below_the_table(folder):
    recipe = {"epochs": 5, "batch_size": 16, "lr": 0.05, "options": {"filters": 8, "units": 64}}
    found = {"accuracy": interval(0.5), "nll": interval(1.0)}
    settings = {"recipe": recipe, "explainer members": 3, "arms": [{"method": "ig:steps=3"}, {"method": "none"}]}
    content = result("mitigation-mnist", {"IG": found, "No attention": found}, settings=settings)
    (folder / "mitigation-mnist.json").write_text(json.dumps(content))
    text = page_of(folder)
    words = "a small network: 8 filters and 64 units instead of 32 and 128"
    assert f"5 epochs in batches of 16, learning rate 0.05; {words}; maps of 3 networks; `ig:steps=3`;" in text


def test_no_row_of_the_paper_is_missing_and_what_is_not_measured_has_its_command(folder):
    text = page_of(folder)
    for name, table in read_paper()["tables"].items():
        assert f"## {table['where']}: " in text, name
        for row in table["rows"]:
            assert f"\n| {row} | " in text, (name, row)
    for figure in read_paper()["figures"].values():
        assert f"## {figure['where']}: " in text
    assert "| Ours | – / .625 | – / .526 |" in text
    assert "`dubium reproduce random --scale cpu --dataset svhn`" in text
    assert "`dubium reproduce vary-n --scale cpu --dataset cifar-10`" in text
    assert "**4 of the paper's 632 numbers are measured**" in text


def test_every_number_is_traced_to_its_file(folder):
    text = page_of(folder)
    line = "[random-mnist](results/random-mnist.json): `dubium reproduce random-mnist`; images 50; a processor, 1 of 2"
    assert line in text


def test_the_four_averages_that_do_not_follow_are_listed(folder):
    assert "anomaly, CLUE, ada: printed 0.114, its columns give 0.144." in page_of(folder)


def test_a_method_whose_maps_are_others_now_is_said(folder, monkeypatch):
    words = "made with an earlier `blur-path`, some of whose maps are others now"
    assert "made with an earlier" not in page_of(folder)
    monkeypatch.setitem(METHOD_VERSIONS, "blur-path", 7)
    assert page_of(folder).count(words) == 1, "results that recorded no versions have the first"
    assert "**1 of 1 results were made with an earlier version of `blur-path`**" in page_of(folder)
    path = folder / "random-mnist.json"
    content = json.loads(path.read_text())
    recorded = {"methods": {"blur-path": {"blur-path": 7}, "ua-backprop": {"ua-backprop": 1, "fullgrad": 1}}}
    path.write_text(json.dumps({**content, "dependencies": recorded}))
    assert "made with an earlier" not in page_of(folder)
    monkeypatch.setitem(METHOD_VERSIONS, "fullgrad", 2)
    assert "made with an earlier `fullgrad`" in page_of(folder), "which UA-Backprop uses"


def test_ensembles_are_told_apart_by_origin_and_accuracy(folder):
    rows = {"ua-backprop": {"murr@2%": interval(0.5)}}
    for name, about in {
        "blurring-svhn": {"members": 3, "trained": "here", "test": {"accuracy": 0.477}},
        "blurring-svhn@svhn-cnn": {"members": 5, "public": "svhn-cnn", "test": {"accuracy": 0.926}},
    }.items():
        content = result(name, rows, settings={"posterior": about})
        (folder / f"{name}.json").write_text(json.dumps(content))
    text = page_of(folder)
    assert "3 networks trained here (those of the tables, 48% of the test images right)" in text
    assert "5 public networks (svhn-cnn, 93% of the test images right)" in text


def test_drawn_images_are_said(folder):
    path = folder / "random-mnist.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "images": "drawn: it is not at hand"}))
    assert "drawn images" in page_of(folder)


def test_per_cent_where_the_paper_prints_per_cent(folder):
    found = {"accuracy": {"value": 0.9, "low": 0.89, "high": 0.91}, "nll": interval(0.3)}
    (folder / "kinds-mnist.json").write_text(json.dumps(result("kinds-mnist", {"Epistemic": found})))
    assert "| Epistemic | **90.00** [89.00, 91.00] / 91.95 (−1.95) | **.300** [.200, .400] / .287" in page_of(folder)
    (folder / "space-mnist.json").write_text(json.dumps(result("space-mnist", {"Ours-latent": found})))
    assert "| Ours-latent | **.900** [.890, .910] / .920 (−.020) |" in page_of(folder)


def test_other_networks_get_a_table_of_their_own_with_the_same_methods_only(folder):
    rows = {"ua-backprop": {"murr@2%": interval(0.1)}, "ig:start=blur:steps=5": {"murr@2%": interval(0.9)}}
    rows["blur-ig:steps=20"] = {"murr@2%": interval(0.4)}
    (folder / "blurring-svhn@other.json").write_text(json.dumps(result("blurring-svhn@other", rows)))
    group = next(g for g in entry_groups(ENTRIES["blurring"], folder, "cpu") if g.tag)
    assert list(group.rows) == ["Ours", "Blur IG"]
    assert "### SVHN again: networks other" in page_of(folder)


def test_a_property_that_differs_from_the_papers_is_bold():
    assert Cell({"value": 0.25, "holds": False}, "Yes").text() == "**no (0.25) / yes**"
    assert Cell({"value": 0.25, "holds": True}, "Yes*").text() == "yes (0.25) / yes*"
    assert Cell({"value": 0.25, "holds": True}, None).text() == "yes (0.25)"


def test_ranks_are_among_the_methods_that_were_measured(folder):
    rows = {"ua-backprop": {"murr@2%": interval(0.3)}, "grad": {"murr@2%": interval(0.4)}}
    for metrics in rows.values():
        metrics |= {name: interval(0.5) for name in ("murr@5%", "auc-urr@2%", "auc-urr@5%")}
    (folder / "blurring-mnist.json").write_text(json.dumps(result("blurring-mnist", rows)))
    assert "| MNIST, MURR at 2 % | 2 of 2 (1) | **.300** [.200, .400] / .648 (−.348) | Grad .400 | – | – |" in page_of(
        folder
    )


def test_whether_attention_helps_is_said_with_its_interval(folder):
    row = {"metric": "accuracy", "a": "No attention", "b": "Ours", "difference": 0.01, "low": -0.02, "high": 0.04}
    content = result("mitigation-mnist", {}, comparisons=[row], settings={"seeds": 2})
    (folder / "mitigation-mnist.json").write_text(json.dumps(content))
    text = page_of(folder)
    assert "**The paper's attention raises accuracy beyond chance on 0 of 1 datasets.**" in text
    assert "MNIST −1.00 [−4.00, +2.00], 2 seeds (the paper +1.17)" in text
    content["comparisons"] = [{**row, "low": -0.02, "high": -0.01}]
    (folder / "mitigation-mnist.json").write_text(json.dumps(content))
    assert "**The paper's attention raises accuracy beyond chance on 1 of 1 datasets.**" in page_of(folder)


def test_the_first_screens_answer_before_the_long_tables(folder):
    text = page_of(folder)
    places = [text.index(words) for words in ("## What reproduces", "**What to pick.**", "## The paper's comparisons")]
    assert places == sorted(places)
    assert "### CIFAR-10, fresh seeds\n\nNot reached in the time: `dubium reproduce strategies --scale cpu" in text


def test_numbers_that_mean_nothing_get_no_verdict(folder):
    text = page_of(folder, "smoke")
    assert "tiny networks that were trained for a moment, on a handful of images. **They mean nothing**" in text
    assert "## What reproduces, and what does not\n\nThis cannot be told at this scale; `--scale cpu` can." in text
    for words in ("**reproduces**", "**the opposite**", "What to pick", "## Where UA-Backprop ranks", "comparisons"):
        assert words not in text
    assert "| Ours | **.500** [.400, .600] / .648 (−.148) |" in text


def test_networks_of_ones_own_are_called_so(folder):
    text = page_of(folder, "smoke", is_own=True)
    assert "at scale `smoke`: your networks on a handful of images. **They mean nothing**" in text


def test_temperatures_are_told_apart(folder):
    pairs = {"ua-backprop": 0.5, "ua-backprop:tau1=0.5:tau2=0.02": 0.25, "ua-backprop:tau1=0.55:tau2=0.03": 0.375}
    rows = {label: {"murr@2%": interval(value)} for label, value in pairs.items()}
    (folder / "temperatures-svhn.json").write_text(json.dumps(result("temperatures-svhn", rows)))
    text = page_of(folder)
    assert "**tau1 matters.** The most by which" in text
    assert "SVHN .250 and .125, where the interval is .200 wide" in text


def test_a_readme_gets_the_short_table_between_its_markers_and_nothing_else_changes(folder):
    readme = folder.parent / "README.md"
    readme.write_text("before\n<!-- reproduce -->\nan earlier table\n<!-- end -->\nafter\n<!-- end -->\n")
    fill_readme(readme, folder, "cpu")
    text = readme.read_text()
    assert text.startswith("before\n<!-- reproduce -->\n\nOf ")
    assert text.endswith("|\n\n<!-- end -->\nafter\n<!-- end -->\n")
    assert "an earlier table" not in text
    fill_readme(readme, folder, "cpu")
    assert readme.read_text() == text
    readme.write_text("no marker")
    with pytest.raises(FileFormatError, match="no place"):
        fill_readme(readme, folder, "cpu")
