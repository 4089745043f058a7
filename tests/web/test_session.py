import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Lock

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from dubium.errors import FileFormatError, OptionError, UnknownNameError
from dubium.posteriors.files.load import load_with_record
from dubium.report import write_page
from dubium.run import Settings, explain_dataset, open_results, open_work
from dubium.run.shard import open_shard
from dubium.web import images
from dubium.web import session as s
from dubium.web.answer import Answer, answer_controls
from dubium.web.first_answer import FirstAnswer, first_controls
from dubium.web.views import alert, blur_view, kinds_row, map_at_image_size, map_view, methods_view, scores_view
from tests import piles


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("session")
    named = {"run": piles.posterior(folder / "posterior")}, {"dataset": piles.arrays(folder / "images.npz")}
    explain_dataset(open_work(Settings(*named, top=4)), folder / "out")
    write_page(folder / "out")
    return folder


def test_a_sessions_images_are_the_most_uncertain_of_the_run(out):
    session = s.open_results_session(out / "out", None)
    assert len(session.pictures) == 4
    assert session.name(2) == "<cat>"
    live = s.explain_item(session, session.pictures[0], s.Choice())
    kept = s.stored_explanation(session, session.pictures[0])
    torch.testing.assert_close(live.maps["epistemic"], kept.maps["epistemic"], rtol=1e-3, atol=1e-7)


def test_the_map_depends_on_method_and_temperature(out):
    session = s.open_posterior_session({"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")})
    maps = [
        s.explain_item(session, session.pictures[0], choice).maps["total"]
        for choice in (s.Choice(), s.Choice(tau2=0.05), s.Choice(relevance="grad"), s.Choice(method="grad"))
    ]
    assert all(not torch.allclose(maps[0], other) for other in maps[1:])


def test_blurring_nothing_changes_nothing(out):
    session = s.open_posterior_session({"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")})
    item = session.pictures[0]
    before = s.explain_item(session, item, s.Choice())
    after = s.blur_top_pixels(session, item, before, "total", 0.0, 2.0)
    assert after.scores["total"] == pytest.approx(float(before.scores["total"][0]), rel=1e-4)
    assert len(after.curve) == len(s.CURVE) + 1
    assert "0 % blurred" in blur_view(before, after, "total", 0.0)


def test_a_method_with_signed_maps_shows_what_lowers_the_doubt_too(out):
    session = s.open_posterior_session({"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")})
    item = session.pictures[0]
    both, plain = (s.explain_item(session, item, s.Choice(method=name)) for name in ("auto", "grad"))
    text = methods_view(item, {"blur-path": both, "grad": plain}, session.preprocessing, 0.0)
    assert [text.count(f'<p class="method">{name}') for name in ("blur-path", "grad")] == [2, 1]
    title = "blur-path: what lowers the doubt"
    lowering = {kind: both.extras["signed"][kind].neg().clamp_min(0) for kind in both.maps}
    assert kinds_row(item, title, lowering, session.preprocessing, 0.0) in text


def test_the_views_say_scores_sum_and_votes(out):
    session = s.open_posterior_session({"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")})
    item = session.pictures[2]
    explanation = s.explain_item(session, item, s.Choice())
    text = scores_view(explanation, item, "epistemic", session.name)
    assert "the map is complete" in text
    assert "Votes of 3 networks" in text
    assert "<cat>" not in text
    array = map_at_image_size(explanation, item, "epistemic", session.preprocessing)
    assert array.shape == (12, 12)
    assert map_view(item, {"grad": array}, "epistemic", 0.5) != map_view(item, {"grad": array}, "epistemic", 0.9)
    row, column = divmod(int(array.argmax()), 12)
    assert f"(row {row}, column {column})</span></figcaption>" in map_view(item, {"grad": array}, "epistemic", 0.5)


def test_a_map_without_a_value_above_zero_is_said_to_be_so(out):
    session = s.open_posterior_session({"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")})
    item, flat = session.pictures[0], np.full((12, 12), -1.0, np.float32)
    assert "<b>grad</b>, epistemic: no pixel raises it" in map_view(item, {"grad": flat}, "epistemic", 0.5)
    maps = {"total": torch.ones(1, 12, 12), "epistemic": -torch.ones(1, 12, 12)}
    row = kinds_row(item, "mine", maps, session.preprocessing, 0.0)
    assert "<figcaption>total</figcaption>" in row
    assert "<figcaption>epistemic: no pixel raises it</figcaption>" in row


def test_code_is_not_run_because_results_say_so(out, tmp_path):
    named = {"factory": "tests.piles:networks"}, {"dataset": str(out / "images.npz")}
    explain_dataset(open_work(Settings(*named, top=2, input_shape=(1, 12, 12))), tmp_path)
    session = s.open_results_session(tmp_path, None)
    assert session.posterior is None
    assert "--posterior tests.piles:networks" in session.why_not
    stored = s.explain_item(session, session.pictures[0], s.Choice())
    assert stored.maps["total"].shape == (1, 12, 12)
    with pytest.raises(OptionError, match="code is never run"):
        s.explain_item(session, s.Item(-1, "new.png", None, torch.rand(1, 12, 12)), s.Choice())
    assert s.open_results_session(tmp_path, named[0]).posterior is not None


@pytest.mark.parametrize(
    "changes", [{"fit": True}, {"more": 1}, {"posterior": {"run": 7}}, {"posterior": {"run": "demo", "std": [0]}}]
)
def test_settings_that_no_run_has_are_refused_by_the_folders_name(changes, out, tmp_path):
    results = open_results(out / "out")
    about = {**results.about, "settings": {**results.about["settings"], **changes}}
    with open_shard(tmp_path / "results" / "explained-00000.parquet", about) as shard:
        for row in results.rows(results.explained):
            shard.add(row)
    with pytest.raises(FileFormatError, match=tmp_path.name):
        s.open_results_session(tmp_path, None)


def test_uploads_are_checked(tmp_path, monkeypatch):
    image = tmp_path / "a.png"
    Image.fromarray(np.zeros((30, 40, 3), np.uint8)).save(image)
    assert images.read_upload(image).image.shape == (3, 30, 40)
    monkeypatch.setattr(images, "PIXELS", 1000)
    with pytest.raises(FileFormatError, match=r"^a\.png has 40 x 30 pixels"):
        images.read_upload(image)
    monkeypatch.setattr(images, "MEGABYTES", 1e-5)
    with pytest.raises(FileFormatError, match=r"a\.png has 0\.0 MB"):
        images.read_upload(image)
    monkeypatch.undo()
    image.write_text("rubbish")
    with pytest.raises(FileFormatError, match=r"^a\.png is damaged or not an image"):
        images.read_upload(image)


def test_messages_are_text_not_markup():
    assert "&lt;b&gt;" in alert("<b>")
    assert alert("") == ""


def test_a_refused_upload_is_said_again_with_the_answer(out, tmp_path):
    """The answer about the first image may come between the refusal and this answer, and takes the message away."""
    session = s.open_posterior_session({"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")})
    refused = replace(first_controls(session), message=alert("rubbish.png is no image"))
    assert answer_controls(session, tmp_path, refused) == Answer(None, refused.message, "", "", "", "", "")


def test_visitors_at_the_same_time_get_what_they_would_get_alone(out):
    session = s.open_posterior_session({"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")})
    choices = [s.Choice(), s.Choice(relevance="grad-cam"), s.Choice(method="fullgrad")]
    wanted = [(item, choice) for item in session.pictures[:3] for choice in choices]
    alone = [s.explain_item(session, *one).maps for one in wanted]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda one: s.explain_item(session, *one).maps, wanted * 3))
    for index, maps in enumerate(together):
        assert all(torch.equal(maps[kind], alone[index % len(alone)][kind]) for kind in maps)


@pytest.mark.parametrize(
    "choice", [s.Choice(method="captum.attr:Saliency"), s.Choice(relevance="captum.attr:Saliency")]
)
def test_no_code_is_imported_because_a_visitor_names_it(out, choice):
    session = s.open_posterior_session({"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")})
    with pytest.raises(UnknownNameError, match="captum"):
        s.explain_item(session, session.pictures[0], choice)


def test_a_run_that_was_trained_on_a_known_dataset_shows_its_test_images(tmp_path, monkeypatch):
    folder = Path(piles.posterior(tmp_path / "posterior"))
    _, record = load_with_record(folder)
    asked = []
    monkeypatch.setattr(images, "load", lambda name: asked.append(name))
    for name, found in (("mnist", {"dataset": "mnist:test"}), (str(tmp_path), None), (["mnist"], None)):
        assert images.training_images(replace(record, training={"dataset": name})) == found
    assert asked == ["mnist"]  # a path in a record is not opened

    def is_missing(_name):
        raise FileFormatError("It is not here.")

    monkeypatch.setattr(images, "load", is_missing)
    assert images.training_images(replace(record, training={"dataset": "mnist"})) is None
    assert s.open_posterior_session({"run": str(folder)}, None).pictures == []


def test_the_first_answer_is_that_of_the_controls(out, tmp_path):
    session = s.open_posterior_session({"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")})
    turn = Lock()
    with turn:
        first = FirstAnswer(session, tmp_path, turn)
        assert first.wait(0.01) == Answer()  # another answer is being computed
    found, right = first.wait(), answer_controls(session, tmp_path, first_controls(session))
    assert (found.view, found.facts, found.blurred) == (right.view, right.facts, right.blurred)
    assert "ua-backprop</b>, epistemic" in found.view
    assert FirstAnswer(replace(session, pictures=[]), tmp_path, turn).wait() == Answer()


def test_the_command_that_the_explorer_advises_opens_the_networks(out, tmp_path, monkeypatch):
    """Code alone is named again; weights, mean and std are those of the run."""
    (tmp_path / "advised_code.py").write_text(
        "from torch import nn\ndef network(): return nn.Sequential(nn.Flatten(), nn.Linear(144, 3))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in "ab":
        torch.save(nn.Sequential(nn.Flatten(), nn.Linear(144, 3)).state_dict(), tmp_path / f"{name}.pt")
    files = [str(tmp_path / f"{name}.pt") for name in "ab"]
    named = {"factory": "advised_code:network", "weights": files, "mean": [0.5], "std": [0.25]}
    settings = Settings(named, {"dataset": str(out / "images.npz")}, top=2, input_shape=(1, 12, 12), method="auto")
    explain_dataset(open_work(settings), tmp_path / "run")
    assert "--posterior advised_code:network" in s.open_results_session(tmp_path / "run", None).why_not
    session = s.open_results_session(tmp_path / "run", {"factory": "advised_code:network", "weights": []})
    assert session.why_not == ""
    assert len(session.posterior) == 2
    item = session.pictures[0]
    stored = session.rows[item.id].map_epistemic
    ours = s.explain_item(session, item, s.Choice("auto")).maps["epistemic"][0]
    assert torch.allclose(ours, torch.from_numpy(stored.copy()), atol=1e-6)


def test_networks_that_are_named_again_get_the_runs_mean_std_and_output_and_others_are_refused(
    out, tmp_path, monkeypatch
):
    code = "from torch import nn\ndef network(): return nn.Sequential(nn.Flatten(), nn.Linear(144, 3))\n"
    (tmp_path / "named_again.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    for name in "abc":
        torch.save(nn.Sequential(nn.Flatten(), nn.Linear(144, 3)).state_dict(), tmp_path / f"{name}.pt")
    named = {"factory": "named_again:network", "weights": [str(tmp_path / f"{name}.pt") for name in "ab"]}
    prepared = {**named, "mean": [0.5], "std": [0.25], "output": "logits"}
    images = {"dataset": str(out / "images.npz")}
    explain_dataset(open_work(Settings(prepared, images, top=2, input_shape=(1, 12, 12))), tmp_path / "run")
    session = s.open_results_session(tmp_path / "run", named)
    item = session.pictures[0]
    found = s.explain_item(session, item, s.Choice()).scores
    stored = session.rows[item.id].scores()
    assert {kind: float(score) for kind, score in found.items()} == pytest.approx(stored, abs=1e-6)
    assert session.output == "logits"
    other = s.open_results_session(tmp_path / "run", {**named, "weights": [str(tmp_path / "c.pt")]})
    assert (other.posterior, "weights or layers differ. Name the run's" in other.why_not) == (None, True)
    other = s.open_results_session(tmp_path / "run", {**named, "mean": [0.1], "std": [0.25]})
    assert (other.posterior, "run's: mean, std or other attributes differ" in other.why_not) == (None, True)


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"method": "grad"}, "grad"),
        ({"method": "ig", "options": {"steps": 4}}, "ig:steps=4"),
        ({"method": "tests.piles:method"}, None),  # code is not run because results name it
    ],
)
def test_a_runs_own_method_is_shown_first(settings, first, out):
    named = {"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")}
    session = s.open_results_session(out / "out", None)
    session = replace(session, methods=s.stored_method(Settings(*named, **settings)))
    names = s.runnable_methods(session)
    assert names[0] == (first or "ua-backprop")
    assert len(names) == len(set(names))
    if first:
        assert s.explain_item(session, session.pictures[0], s.Choice(first)).method == settings["method"]


@pytest.mark.parametrize("smooth", [0.0, 1.5])
def test_what_kinds_share_is_one_number_in_the_report_and_in_the_explorer(smooth, tmp_path):
    posterior, data = piles.posterior(tmp_path / "posterior"), tmp_path / "images"
    data.mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (37, 23, 3), np.uint8)  # neither size of the networks'
        Image.fromarray(pixels).save(data / f"{number}.png")
    explain_dataset(open_work(Settings({"run": posterior}, {"files": [str(data)]})), tmp_path / "out")
    write_page(tmp_path / "out", smooth=smooth)
    caption = re.compile(r"<figcaption>(contrast <b>\d+.?% shared</b>)</figcaption>")
    page = (tmp_path / "out" / "index.html").read_text()
    session = s.open_posterior_session({"run": posterior}, {"files": [str(data)]})
    for item in session.pictures:
        row = kinds_row(item, "", s.explain_item(session, item, s.Choice()).maps, session.preprocessing, 0.5)
        (said,) = caption.findall(row)
        assert caption.findall(page.partition(f"over image {item.id}:")[2])[0] == said
