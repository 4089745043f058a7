import base64
import json
import re

import pytest
from matplotlib.font_manager import findfont
from matplotlib.ft2font import FT2Font
from PIL import Image

from dubium.errors import FileFormatError
from dubium.evaluation.metrics.blurring import HIGHER_IS_BETTER as blurring
from dubium.evaluation.metrics.calibration import HIGHER_IS_BETTER as calibration
from dubium.evaluation.metrics.sanity import HIGHER_IS_BETTER as sanity
from dubium.evaluation.metrics.truth import HIGHER_IS_BETTER as truth
from dubium.report.evaluation import write_evaluation_page
from dubium.report.evaluation_words import metric_sentence
from dubium.report.interval_chart import interval_chart
from dubium.report.panels import short_name, text_width


@pytest.fixture
def folder(tmp_path):
    estimate = {"value": 0.5534, "low": 0.5, "high": 0.6}
    compared = {"metric": "iou", "a": "grad", "b": "random", "difference": 0.25, "low": 0.1, "high": 0.4}
    summary = {
        "protocol": "anomaly",
        "results": {"grad": {"iou": estimate, "ada": estimate}, "<random>": {"iou": estimate}},
        "comparisons": [compared | {"p_holm": 0.002, "effect": 0.9}],
        "notes": ["2 images were left out", "`iou` & more"],
        "settings": {"images": 3},
        "versions": {"dubium": "0"},
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    Image.new("RGB", (4, 4), "red").save(tmp_path / "boxes.png")
    return tmp_path


def test_the_page_has_the_numbers_the_differences_and_the_figures_inside(folder):
    text = write_evaluation_page(folder).read_text()
    assert "0.553 [0.500, 0.600]" in text
    assert "grad − random" in text
    assert "0.250 [0.100, 0.400]" in text
    assert "<li>2 images were left out</li><li><code>iou</code> &amp; more</li>" in text
    assert "&lt;random&gt;" in text
    assert base64.b64encode((folder / "boxes.png").read_bytes()).decode() in text
    assert "http" not in text.replace("http-equiv", "")


def test_a_damaged_summary_is_named(folder):
    (folder / "summary.json").write_text('{"protocol": "anomaly"')
    with pytest.raises(FileFormatError, match=r"summary\.json"):
        write_evaluation_page(folder)


def test_every_metric_has_a_chart_with_its_meaning_and_which_way_is_better(folder):
    summary = json.loads((folder / "summary.json").read_text())
    summary["better"] = {"iou": "higher"}
    summary["results"]["local-contrast"] = {"iou": {"value": 0.0123456, "low": 0.0, "high": 0.02}}
    summary["settings"] |= {"dataset": "given", "members": 3}
    (folder / "summary.json").write_text(json.dumps(summary))
    Image.new("RGB", (4, 4), "blue").save(folder / "anomaly-grad.png")
    text = write_evaluation_page(folder).read_text()
    assert text.count('<section class="panel"><h3>') == 4  # two charts, two figures
    assert "Is a patch found that was pasted into the image? 3 images. 3 networks." in text
    assert "Overlap of the guess and the place, over their union. Higher is better." in text
    assert "iou: grad 0.553; &lt;random&gt; 0.553; local-contrast 0.0123." in text
    assert "1 of 1 are significant" in text
    overall, each = text.split('<div class="plots figures">')
    assert 'alt="Where the patch was pasted, and where each method guesses it"' in overall
    assert '<h3>grad</h3><img class="figure"' in each


def test_a_figure_of_a_users_method_has_its_name_as_it_was_typed(folder):
    summary = json.loads((folder / "summary.json").read_text())
    summary["results"]["mine:occlude:patch=7"] = summary["results"]["grad"]
    (folder / "summary.json").write_text(json.dumps(summary))
    Image.new("RGB", (4, 4), "blue").save(folder / "anomaly-mine_occlude_patch=7.png")
    assert "<h3>mine:occlude:patch=7</h3>" in write_evaluation_page(folder).read_text()


def test_values_that_are_all_the_same_have_one_label_in_the_middle():
    chart = interval_chart([(name, {"value": 1.0, "low": 1.0, "high": 1.0}, False) for name in "ab"], "accuracy")
    assert chart.count(">1.00</text>") == 3  # of each row, and of the axis
    assert 'text-anchor="middle">1.00</text>' in chart


@pytest.mark.parametrize(
    "name",
    ["auto", "local-contrast", "mine:powered:power=2:patch=3", "captum.attr:Occlusion:sliding_window_shapes=[1,4,4]"],
)
def test_names_have_room_beside_their_bars(name):
    """As wide as the letters of the widest font."""
    font = FT2Font(findfont("DejaVu Sans"))
    font.set_size(11, 72)
    font.set_text(short_name(name))
    width = font.get_width_height()[0] / 64
    assert width + 8 <= text_width([short_name(name)]) <= 1.25 * width + 14


def test_pictures_of_methods_come_in_the_order_of_the_results(folder):
    for name in ("edges", "grad", "auto"):
        Image.new("RGB", (4, 4)).save(folder / f"anomaly-{name}.png")
    summary = json.loads((folder / "summary.json").read_text())
    results = summary["results"]
    summary["results"] = {"grad": results["grad"], "auto": results["grad"], "edges": results["grad"]}
    (folder / "summary.json").write_text(json.dumps(summary))
    text = write_evaluation_page(folder).read_text()
    assert re.findall(r"<h3>([^<]+)</h3><img", text.split('<div class="plots figures">')[1]) == [
        "grad",
        "auto",
        "edges",
    ]


def test_the_page_of_mitigation_speaks_of_training_and_draws_plain_training_grey(folder):
    (folder / "boxes.png").unlink()
    summary = json.loads((folder / "summary.json").read_text())
    summary["results"] = {name: {"accuracy": {"value": 0.5, "low": 0.5, "high": 0.5}} for name in ("none", "grad")}
    (folder / "summary.json").write_text(json.dumps(summary | {"protocol": "mitigation"}))
    text = write_evaluation_page(folder).read_text()
    assert "<h1>Mitigation: does training with maps help?</h1>" in text
    assert "Share of test images that the trained networks get right." in text
    assert "blamed" not in text
    assert re.findall(r'r="4" style="fill:var\(--(\w+)\)', text) == ["soft", "epistemic"]
    assert 'id="figures"' not in text
    assert "<td>0.500</td>" in text  # one seed: no interval


def test_every_metric_of_every_protocol_has_a_sentence():
    own = {"mark", "patch", "own-other", "srg", "iou", "ada", "recovery", "mask-iou", "pointing", "mass"}
    for metric in own | set(calibration) | set(blurring) | set(sanity) | set(truth):
        assert metric_sentence("any", metric).endswith("."), metric
    assert metric_sentence("causes", "patch@none/aleatoric").endswith("so all were taken: this says nothing.")


def test_the_number_of_images_is_that_of_those_measured(folder):
    summary = json.loads((folder / "summary.json").read_text()) | {"protocol": "masks", "settings": {}}
    (folder / "summary.json").write_text(json.dumps(summary | {"images": {"index": [0, 2, 5]}}))
    assert "Do the maps agree with the masks that were given? 3 images." in write_evaluation_page(folder).read_text()


def test_a_long_value_has_its_room_in_the_chart():
    chart = interval_chart([("a", {"value": -1.234e-7, "low": -2e-7, "high": 0.0}, False)], "srg")
    place, words = re.findall(r'<text x="([\d.]+)" [^>]*text-anchor="start">([^<]*)</text>', chart)[-1]
    assert float(place) + text_width([words]) - 10 <= 360
