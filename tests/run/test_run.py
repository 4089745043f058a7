import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import dubium
from dubium.cli import app
from dubium.data.fit import place_map, to_size
from dubium.data.image_files import read_image
from dubium.errors import OptionError, UnknownNameError
from dubium.executor import in_turn
from dubium.posteriors import load_posterior
from dubium.report import write_page
from dubium.run import Settings, explain_dataset, open_results, open_work
from tests import piles


@pytest.fixture(scope="module")
def pile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pile")
    named = {"run": piles.posterior(folder / "posterior")}, {"dataset": piles.arrays(folder / "images.npz")}
    return Settings(*named, top=6, batch=4, threads=1)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "results").iterdir())}


def test_every_image_is_scored_and_the_most_uncertain_are_explained(pile, tmp_path):
    results = explain_dataset(open_work(pile), tmp_path)
    assert (len(results), results.explained_count(), results.skipped()) == (20, 6, [])
    x = torch.from_numpy(np.load(pile.images["dataset"])["images"])[:, None] / 255
    whole = dubium.explain(load_posterior(pile.posterior["run"]), x)
    ranked = whole.scores["epistemic"].argsort(descending=True, stable=True)
    rows = list(open_results(tmp_path).rows())
    assert [row.id for row in rows[:6]] == ranked[:6].tolist()
    assert sorted(row.id for row in rows) == list(range(20))
    for row in rows:
        assert row.label == row.id % 3
        assert row.epistemic == pytest.approx(float(whole.scores["epistemic"][row.id]), rel=1e-4)
        np.testing.assert_allclose(row.members, whole.members[:, row.id], rtol=1e-4)
        for kind, array in row.maps().items():
            np.testing.assert_allclose(array, whole.maps[kind][row.id], rtol=1e-3, atol=1e-7)
        assert bool(row.maps()) == (row.thumbnail is not None) == (row.id in ranked[:6])


def test_without_top_all_are_explained(pile, tmp_path):
    results = explain_dataset(open_work(replace(pile, top=None)), tmp_path)
    assert (len(results), results.explained_count()) == (20, 20)
    assert not (tmp_path / "scores").exists()


@pytest.mark.parametrize("after", [1, 2])
def test_a_run_that_was_stopped_goes_on_and_ends_with_the_same_bytes(pile, tmp_path, after):
    work = open_work(replace(pile, shard=1))
    explain_dataset(work, tmp_path / "whole")

    def stopped(*args, **needs):
        for done, result in enumerate(in_turn(*args, **needs)):
            if done == after:
                raise KeyboardInterrupt
            yield result

    with pytest.raises(KeyboardInterrupt):
        explain_dataset(work, tmp_path / "parts", engine=stopped)
    with pytest.raises(KeyboardInterrupt):
        explain_dataset(work, tmp_path / "parts", engine=stopped)
    seen = []
    explain_dataset(work, tmp_path / "parts", progress=lambda stage, done, total: seen.append((stage, done, total)))
    assert seen[0][1] > 0  # it did not start again
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_what_is_made_of_a_stopped_run_says_that_it_is_not_finished(pile, tmp_path):
    work = open_work(replace(pile, shard=1))

    def stopped(function, opened, jobs, listener, **needs):
        for done, result in enumerate(in_turn(function, opened, jobs, listener, **needs)):
            if done == 2 and jobs[0].action == "explain":
                raise KeyboardInterrupt
            yield result

    with pytest.raises(KeyboardInterrupt):
        explain_dataset(work, tmp_path, engine=stopped)
    results = open_results(tmp_path)
    assert repr(results).endswith("3 images, 3 explained, not finished)")
    note = "This run is not finished: there are results of 3 of its 20 images"
    assert note in write_page(tmp_path).read_text()
    for command in (["report"], ["export", "--to", "csv"]):
        said = CliRunner().invoke(app, [command[0], str(tmp_path), *command[1:]])
        assert (said.exit_code, note in " ".join(said.stderr.split())) == (0, True)
    explain_dataset(work, tmp_path)
    assert open_results(tmp_path).unfinished_note() == ""
    assert "not finished" not in write_page(tmp_path).read_text()


def test_a_finished_run_is_not_done_again(pile, tmp_path):
    explain_dataset(open_work(pile), tmp_path)
    before = contents(tmp_path)

    def none(*_args, **_needs):
        raise AssertionError("nothing is left to do")

    explain_dataset(open_work(pile), tmp_path, engine=none)
    assert contents(tmp_path) == before


def test_results_of_other_settings_are_not_mixed(pile, tmp_path):
    explain_dataset(open_work(pile), tmp_path)
    with pytest.raises(OptionError, match=r"settings\.method is 'ua-backprop' there, 'grad' here.*--fresh"):
        explain_dataset(open_work(replace(pile, method="grad")), tmp_path)
    explain_dataset(open_work(replace(pile, method="grad")), tmp_path, fresh=True)
    assert open_results(tmp_path).about["settings"]["method"] == "grad"


def test_kinds_choose_maps_and_rank_but_all_scores_are_kept(pile, tmp_path):
    explain_dataset(open_work(replace(pile, kinds=("aleatoric",), top=3)), tmp_path)
    results = open_results(tmp_path)
    top = list(results.rows(results.explained))
    assert all(list(row.maps()) == ["aleatoric"] for row in top)
    assert min(row.aleatoric for row in top) >= max(row.aleatoric for row in results.rows(results.scored))
    assert all(row.total == pytest.approx(row.aleatoric + row.epistemic, abs=1e-6) for row in results.rows())


def test_files_of_other_sizes_are_resized_and_broken_ones_skipped(pile, tmp_path):
    folder = piles.folder(tmp_path / "photos")
    results = explain_dataset(open_work(replace(pile, images={"files": [folder]}, top=None)), tmp_path / "out")
    assert (len(results), results.explained_count()) == (4, 4)
    assert [item["path"] for item in results.skipped()] == [f"{folder}/broken.png"]
    networks = load_posterior(pile.posterior["run"])
    for row in open_results(tmp_path / "out").rows():
        assert (row.height, row.width) == (9, 15)
        assert piles.NAMES[row.label] == row.path.split("/")[-2]
        x = to_size(read_image(row.path), (12, 12))[None]
        expected = place_map(dubium.explain(networks, x).maps["epistemic"][0], (9, 15), (0, 0, 9, 15))
        np.testing.assert_allclose(row.map_epistemic, expected, rtol=1e-3, atol=1e-7)
        assert row.map_epistemic.sum() == pytest.approx(row.epistemic, rel=1e-4)


def test_images_of_several_sizes_are_explained_at_the_size_that_is_named(tmp_path):
    piles.folder(tmp_path / "photos", count=2, broken=False)
    piles.folder(tmp_path / "photos" / "more", count=2, size=(11, 13), broken=False)
    settings = Settings({"factory": "tests.run.test_run:any_size"}, {"files": [str(tmp_path / "photos")]})
    with pytest.raises(OptionError, match=r"differ in size .* --input-shape"):
        open_work(settings)  # the networks take any size, and answer differently at each
    explain_dataset(open_work(replace(settings, input_shape=(1, 12, 12))), tmp_path / "out")
    rows = list(open_results(tmp_path / "out").rows())
    assert {(row.height, row.width) for row in rows} == {(9, 15), (13, 11)}
    assert {row.label for row in rows} == {None}  # which class a folder is cannot be known


def any_size():
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(1, 3, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    return [torch.nn.Sequential(*layers).eval()]


def test_thumbnails_of_large_images_are_small():
    from dubium.run.job import thumbnail_png

    assert read_image(thumbnail_png(torch.rand(3, 600, 300))).shape == (3, 256, 128)
    small = (torch.rand(1, 9, 7) * 255).round() / 255
    torch.testing.assert_close(read_image(thumbnail_png(small)), small)


def test_settings_survive_json(pile):
    assert Settings.from_json(json.loads(json.dumps(asdict(pile)))) == pile


@pytest.mark.parametrize(
    ("posterior", "images", "error", "words"),
    [
        ({"run": "demo"}, {"datset": "demo"}, UnknownNameError, "No key of images= called 'datset'. .* 'dataset'"),
        ({"rnu": "demo"}, {"dataset": "demo"}, UnknownNameError, "No key of posterior= called 'rnu'. .* 'run'"),
        ({"run": "demo", "men": [0.5]}, {"dataset": "demo"}, UnknownNameError, "'men'.* Did you mean 'mean'"),
        ({"run": "demo"}, {}, OptionError, r"names no images; \{'files'"),
        ({"run": "demo"}, {"files": "photos"}, OptionError, r"names no images; \{'files'"),
        ({}, {"dataset": "demo"}, OptionError, r"No networks are named.*Settings\(posterior=\{'run': folder\}\)"),
    ],
)
def test_settings_name_networks_and_images_by_keys_that_exist(posterior, images, error, words):
    with pytest.raises(error, match=words):
        open_work(Settings(posterior=posterior, images=images))


def test_one_network_without_weights_is_a_mistake(pile):
    with pytest.raises(OptionError, match=r"gave a Conv2d.*--weights"):
        open_work(replace(pile, posterior={"factory": "tests.run.test_run:one"}))


def one():
    return torch.nn.Conv2d(1, 3, 3)


def test_names_must_be_as_many_as_the_classes(pile, tmp_path):
    np.save(tmp_path / "unlabelled.npy", np.load(pile.images["dataset"])["images"])
    settings = replace(pile, images={"dataset": str(tmp_path / "unlabelled.npy")}, classes=("a", "b"))
    with pytest.raises(OptionError, match="2 names of classes for 3 classes"):
        explain_dataset(open_work(settings), tmp_path / "out")


def test_results_need_a_folder(pile, tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OptionError, match="is a file"):
        explain_dataset(open_work(pile), tmp_path / "taken")
