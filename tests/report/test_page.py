import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from dubium.errors import OptionError
from dubium.evaluation import calibration_error
from dubium.evaluation.ranks import rank_correlation
from dubium.posteriors.files.load import load_with_record
from dubium.ranking import most_uncertain
from dubium.report import write_page, write_pngs
from dubium.report.cards import places_text
from dubium.report.compare import comparison_card, write_comparison
from dubium.report.summary import summarise_results
from dubium.run import Settings, explain_dataset, open_results, open_work
from dubium.run.row import region_rows
from tests import piles

EMPTY = {"img", "meta", "link", "br", "input"}


class Parsed(HTMLParser):
    """Every element, with a check that they are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def named(self, tag):
        return [attrs for name, attrs in self.found if name == tag]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    named = {"run": piles.posterior(folder / "posterior")}, {"dataset": piles.arrays(folder / "images.npz")}
    explain_dataset(open_work(Settings(*named, top=5)), folder / "a")
    explain_dataset(open_work(Settings(*named, top=5, method="grad")), folder / "b")
    photos = {"files": [piles.folder(folder / "photos")]}
    explain_dataset(open_work(Settings(named[0], photos)), folder / "photos-out")
    return folder


def test_a_page_with_ua_backprop_alone_points_to_the_method_that_tells_kinds_apart(out):
    pages = [
        write_page(out / name, **given).read_text()
        for name, given in (("a", {}), ("b", {}), ("a", {"beside": out / "b"}))
    ]
    assert ["--method auto" in page for page in pages] == [True, False, False]


def test_another_runs_maps_are_shown_beside_in_the_same_card(out):
    alone, both = (Parsed(write_page(out / "a", **given).read_text()) for given in ({}, {"beside": out / "b"}))
    for page, rows in (alone, 1), (both, 2):
        maps = [attrs["alt"] for attrs in page.named("img") if attrs["alt"].startswith("Epistemic uncertainty over")]
        assert len(maps) == 5 * rows
    text = write_page(out / "a", beside=out / "b").read_text()
    names = re.findall(r'<p class="method">([^<]*)</p>', text)
    assert names == ["ua-backprop", "grad"] * 5
    assert "explained with ua-backprop and grad" in text
    sources = [attrs["src"] for attrs in both.named("img") if attrs["alt"].startswith("Epistemic uncertainty over")]
    assert sources[0] != sources[1]


@pytest.mark.parametrize(
    ("one", "other", "labels"),
    [
        ({"method": "ig:steps=2"}, {"method": "ig:steps=3:start=black"}, ["ig:steps=2", "ig:steps=3:start=black"]),
        ({"method": "ua-backprop"}, {"options": {"relevance": "grad"}}, ["ua-backprop", "ua-backprop:relevance=grad"]),
        ({"method": "grad"}, {"method": "grad", "seed": 1}, ["grad (one)", "grad (other)"]),
    ],
)
def test_runs_by_one_method_are_drawn_beside_each_other_under_names_that_differ(out, tmp_path, one, other, labels):
    named = {"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")}
    for name, given in ("one", one), ("other", other):
        explain_dataset(open_work(Settings(*named, top=2, **given)), tmp_path / name)
    text = write_page(tmp_path / "one", beside=tmp_path / "other").read_text()
    assert re.findall(r'<p class="method">([^<]*)</p>', text) == labels * 2
    assert f"explained with {' and '.join(labels)}:" in text
    alts = [attrs["alt"] for attrs in Parsed(text).named("img")]
    assert sum(alt.startswith("Epistemic uncertainty over") for alt in alts) == 2 * 2
    if one != {"method": "grad"}:
        page, _ = write_comparison(tmp_path / "one", tmp_path / "other", tmp_path / "both")
        assert f"Maps by {labels[0]} (A) and {labels[1]} (B)." in page.read_text()


def test_a_run_without_an_image_in_common_is_not_drawn_beside(out, tmp_path):
    with pytest.raises(OptionError, match="have no image in common"):
        write_page(out / "a", beside=out / "photos-out")
    few = {"dataset": piles.arrays(tmp_path / "few.npz", 3)}
    explain_dataset(open_work(Settings({"run": str(out / "posterior")}, few, top=1)), tmp_path / "few")
    with pytest.raises(OptionError, match="have no image in common"):  # the indices are those of other images
        write_page(out / "a", beside=tmp_path / "few")
    with pytest.raises(OptionError, match="cannot be drawn beside itself"):
        write_page(out / "a", beside=out / "a")
    named = {"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")}
    others = [row.id for row in open_results(out / "a").rows() if row.id not in open_results(out / "a").explained_ids()]
    explain_dataset(open_work(Settings(*named, only=tuple(others[:2]))), tmp_path / "others")
    with pytest.raises(OptionError, match="have explained no image in common"):
        write_page(out / "a", beside=tmp_path / "others")


def test_the_page_loads_nothing_from_elsewhere(out):
    text = write_page(out / "a").read_text()
    page = Parsed(text)
    addresses = [attrs[name] for _, attrs in page.found for name in ("src", "href") if name in attrs]
    assert addresses
    places = {f"#{attrs['id']}" for _, attrs in page.found if "id" in attrs}
    assert all(address.startswith("data:") or address in places for address in addresses)
    assert not re.search(r"url\((?!data:)|@import|https?://", text)
    assert "default-src 'none'" in text


def test_every_picture_has_an_alt_text_and_every_plot_a_label(out):
    page = Parsed(write_page(out / "a").read_text())
    assert len(page.named("img")) == 5 * 5 + 3  # image, three maps and their contrast each, and the mean maps
    assert all(attrs["alt"].strip() for attrs in page.named("img"))
    assert all(attrs["aria-label"] and attrs["role"] == "img" for attrs in page.named("svg"))


def test_the_demos_page_says_that_its_digits_were_chosen(out, tmp_path):
    explain_dataset(open_work(Settings({"run": "demo"}, {"dataset": "demo"}, top=1)), tmp_path)
    right = load_with_record("demo")[1].training["test"]
    text = write_page(tmp_path).read_text()
    assert f"of all {right['images']:,} they get {100 * right['accuracy']:.2f} % right" in text
    assert "10,000" not in write_page(out / "a").read_text()


def test_the_page_says_where_the_list_is_made(out):
    assert "<code>dubium export a --to csv</code>, in the folder that holds a." in write_page(out / "a").read_text()


def test_all_there_is_to_know_is_on_the_page_without_a_script(out):
    text = write_page(out / "a").read_text()
    for words in ("Reliability", "Most confused classes", "Mean maps", "Settings and versions", "ua-backprop", "torch"):
        assert words in text
    cards = Parsed(text).named("article")
    order = [float(card["data-epistemic"]) for card in cards]
    assert order == sorted(order, reverse=True)
    assert len(order) == 5
    assert "prefers-color-scheme: dark" in text


def test_links_in_the_header_lead_to_the_sections(out):
    page = Parsed(write_page(out / "a").read_text())
    links = [attrs["href"] for attrs in page.named("a") if not attrs["href"].startswith("#image-")]
    sections = [f"#{attrs['id']}" for attrs in page.named("h2")]
    assert links == sections
    assert {"#summary", "#what-to-do", "#gallery", "#made"} <= set(links)


def test_results_print_how_many_they_are(out):
    assert repr(open_results(out / "a")) == f"Results('{out / 'a'}': 20 images, 5 explained)"


def test_class_names_are_text_not_markup(out):
    text = write_page(out / "a").read_text()
    assert "&lt;cat&gt;" in text
    assert "<cat>" not in text


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ({(0, 0): 0.75, (11, 11): 0.25}, "75 % at the top left, 25 % at the bottom right"),
        ({(0, 0): 0.62, (0, 2): 0.38}, "100 % at the top left"),  # two dots at one place
        ({(0, 0): 0.996, (11, 11): 0.004}, "100 % at the top left, 0.4 % elsewhere"),
    ],
)
def test_places_add_up_and_what_is_tiny_is_elsewhere(blocks, words, out):
    values = np.zeros((12, 12), np.float32)
    for place, value in blocks.items():
        values[place] = value
    row = place_row(out, values)
    assert places_text(row, "epistemic") == words


def test_a_map_that_is_spread_over_the_image_is_said_to_be_so(out):
    values = np.full((40, 40), 1.0, np.float32)
    values[0, 0] = 2.5
    assert places_text(place_row(out, values), "epistemic") == (
        "spread over the image; its brightest place has 0.2 % at the top left"
    )


def place_row(out, values):
    """A row with one epistemic map, whose regions are its dots."""
    row, (height, width) = next(open_results(out / "a").rows()), values.shape
    level = 0.003 if values.min() == 0 else 0.9
    found = region_rows(
        torch.from_numpy(values), "epistemic", (height, width), (0, 0, height, width), level=level, smooth=0
    )
    sizes = {"height": height, "width": width, "image_height": height, "image_width": width}
    return replace(row, map_epistemic=values, regions=tuple(found), seen=(0, 0, height, width), **sizes)


def test_skipped_files_are_listed(out):
    text = write_page(out / "photos-out").read_text()
    assert "1 file was skipped" in text
    assert "broken.png" in text


def test_smoothed_maps_are_said_to_be_so_and_the_store_keeps_the_raw_ones(out):
    stored = {file: file.read_bytes() for file in (out / "a" / "results").rglob("*.parquet")}
    plain, smoothed = write_page(out / "a").read_text(), write_page(out / "a", smooth=2.0).read_text()
    assert "Maps are smoothed by 2 pixels for the eye." in smoothed
    assert "smoothed" not in plain
    assert plain.count("<img") == smoothed.count("<img")
    assert plain != write_page(out / "a", smooth=1.0).read_text()
    assert stored
    assert all(file.read_bytes() == content for file, content in stored.items())
    write_page(out / "a")


def test_the_gallery_is_limited_and_says_so(out):
    text = write_page(out / "a", gallery=2).read_text()
    assert len(Parsed(text).named("article")) == 2
    assert "The first 2 of 5 are on this page" in text
    write_page(out / "a")


def test_scores_alone_make_a_page_too(out, tmp_path):
    settings = Settings({"run": str(out / "posterior")}, {"dataset": str(out / "images.npz")}, top=0)
    explain_dataset(open_work(settings), tmp_path)
    page = Parsed(write_page(tmp_path).read_text())
    assert page.named("article") == []
    assert page.named("svg")


def test_pictures_are_written_for_every_explained_image(out):
    paths = list(write_pngs(out / "photos-out"))
    assert len(paths) == 4
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_two_methods_are_shown_side_by_side(out, tmp_path):
    path, agreement = write_comparison(out / "a", out / "b", tmp_path, names=("ua-backprop", "grad"))
    page = Parsed(path.read_text())
    assert len(page.named("article")) == agreement.explained == 5
    assert agreement.images == 20
    assert agreement.same_prediction == 1
    assert agreement.scores["epistemic"] == pytest.approx(1)
    assert -1 <= agreement.maps["epistemic"] < 1


def test_votes_that_differ_by_rounding_alone_are_shown_once(out):
    row = next(iter(open_results(out / "a").rows(open_results(out / "a").explained)))
    rounded = replace(row, members=row.members + np.float32(1e-6))
    other = replace(row, members=1 - row.members)
    cards = [comparison_card(row, one, ("a", "b"), str, 1.0, {}) for one in (rounded, other)]
    assert [card.count('<div class="votes"') for card in cards] == [1, 2]


def test_long_names_of_two_sides_become_letters_that_the_page_explains(out, tmp_path):
    names = ("mine:network@a.pt,b.pt with grad", "mine:wide@d.pt,e.pt")
    text = write_comparison(out / "a", out / "b", tmp_path, names=names)[0].read_text()
    assert "<h1>A and B, side by side</h1>" in text
    assert "A is mine:network@a.pt,b.pt with grad. B is mine:wide@d.pt,e.pt." in text
    assert "<b>B: mine:wide@d.pt,e.pt</b>" in text


def test_rank_correlation_is_spearmans():
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 45]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2], [5, 5, 9]) == pytest.approx(1)
    assert rank_correlation([1, 1, 1], [5, 6, 9]) == 0


def test_the_calibration_error_is_that_of_evaluate_and_its_bins_are_named(out):
    rows = list(open_results(out / "a").rows())
    probs, labels = torch.from_numpy(np.stack([row.probs for row in rows])), torch.tensor([row.label for row in rows])
    error = calibration_error(probs.double(), labels)
    assert summarise_results(open_results(out / "a")).calibration_error == pytest.approx(error, abs=1e-12)
    text = write_page(out / "a").read_text()
    assert f"<b>{error:.3f}</b><span>calibration error, 15 bins</span>" in text
    assert f"expected calibration error {error:.3f} over 15 bins" in text


def test_files_are_compared_by_their_path_wherever_they_stand_in_the_listing(out, tmp_path):
    photos = sorted(str(path) for path in (out / "photos").rglob("*.png") if path.name != "broken.png")
    named = {"run": str(out / "posterior")}
    for folder, files in (("a", photos), ("b", photos[1:])):
        explain_dataset(open_work(Settings(named, {"files": files})), tmp_path / folder)
    path, agreement = write_comparison(tmp_path / "a", tmp_path / "b", tmp_path / "page")
    assert agreement.explained == len(photos) - 1
    names = re.findall(r"<small[^>]*><a[^>]*>([^<]*)</a></small>", path.read_text())
    ranked = [row.path for row in open_results(tmp_path / "a").most_uncertain("epistemic", 9)]
    assert names == [Path(name).name for name in ranked if name != photos[0]]


def test_the_store_and_tensors_have_one_rule_for_the_most_uncertain(out):
    results = open_results(out / "a")
    rows = sorted(results.rows(results.explained, pictures=False), key=lambda row: row.id)
    scores = torch.tensor([row.epistemic for row in rows])
    expected = [rows[index].id for index in most_uncertain(scores, 3)]
    assert [row.id for row in results.most_uncertain("epistemic", 3)] == expected
