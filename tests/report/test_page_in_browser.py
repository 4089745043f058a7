"""The page in a real browser: opens on an image, shows a map beside its image, fades it, fits a phone."""

import io

import numpy as np
import pytest
from PIL import Image

from dubium.report import write_page
from dubium.report.cards import MANY
from dubium.report.overview import write_overview_page
from dubium.run import Settings, explain_dataset, open_results, open_work
from tests import piles
from tests.browser import chromium

SMALLEST = 130  # pixels a side that a map had; more is asked for


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    run = {"run": piles.posterior(folder / "posterior")}
    for name in ("a", "grad", "auto"):
        settings = Settings(run, {"dataset": piles.arrays(folder / "images.npz")}, top=5)
        settings = settings if name == "a" else Settings(run, settings.images, top=5, method=name)
        explain_dataset(open_work(settings), folder / name)
    strip = np.random.default_rng(0).integers(0, 256, (10, 500, 3), np.uint8)
    (folder / "strips").mkdir()
    Image.fromarray(strip).save(folder / "strips" / "strip.png")
    explain_dataset(open_work(Settings(run, {"files": [str(folder / "strips")]})), folder / "strip-out")
    return folder


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def open_page(browser):
    opened = []

    def open_at(address, width=1280):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.asked = []
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(address)
        opened.append(page)
        return page

    yield open_at
    for page in opened:
        assert [url for url in page.asked if not url.startswith(("data:", "file:"))] == []
        assert len([url for url in page.asked if url.startswith("file:")]) == 1
        page.close()


def widths(page, selector):
    return page.eval_on_selector_all(selector, "all => all.map(e => e.getBoundingClientRect().width)")


def test_an_address_with_a_fragment_opens_on_that_image(out, open_page):
    address = write_page(out / "a").as_uri()
    first = open_page(address)
    cards = first.eval_on_selector_all(".card", "all => all.map(card => card.id)")
    links = first.eval_on_selector_all(".card header a", "all => all.map(link => link.getAttribute('href'))")
    assert links == [f"#{card}" for card in cards]
    page = open_page(f"{address}#{cards[-2]}")
    top, bottom = page.eval_on_selector(f"#{cards[-2]}", "e => [e.getBoundingClientRect().top, innerHeight]")
    assert 0 <= top < bottom
    assert page.evaluate("document.querySelector('.card:target').id") == cards[-2]


def test_a_click_shows_a_map_large_beside_its_image_and_names_the_card_in_the_address(out, open_page):
    page = open_page(write_page(out / "a").as_uri())
    card = page.locator(".card").nth(1)
    small = card.locator(".epistemic .stage").bounding_box()["width"]
    card.locator(".epistemic .stage").click()
    shown = page.locator("#larger figure")
    assert [figure.get_attribute("class") for figure in shown.all()] == ["plain", "epistemic"]
    left, right = (figure.locator(".stage").bounding_box() for figure in shown.all())
    assert left["x"] + left["width"] <= right["x"]
    assert right["width"] > 2 * small
    assert page.url.endswith(f"#{card.get_attribute('id')}")
    page.keyboard.press("Escape")
    assert not page.locator("#larger").is_visible()
    card.locator(".contrast .stage").focus()
    page.keyboard.press("Enter")
    assert page.locator("#larger .contrast").is_visible()


def test_the_map_fades_and_the_image_comes_back(out, open_page):
    page = open_page(write_page(out / "a").as_uri())
    read = "e => [getComputedStyle(e.querySelector('img')).opacity, getComputedStyle(e, '::before').filter]"
    assert page.eval_on_selector(".epistemic .stage", read) == ["0.9", "grayscale(1) brightness(0.505)"]
    page.locator("#opacity").fill("0")
    assert page.eval_on_selector(".epistemic .stage", read) == ["0", "grayscale(1) brightness(1)"]


def test_total_and_outlines_are_shown_as_asked(out, open_page):
    page = open_page(write_page(out / "a").as_uri())
    assert page.locator(".card figure.total:visible").count() == 0
    page.locator("#total").check()
    assert page.locator(".card figure.total:visible").count() == 5
    assert page.locator(".outlines:visible").count() > 0
    page.locator("#outlines").uncheck()
    assert page.locator(".outlines:visible").count() == 0


def test_maps_are_large_and_nothing_sticks_out_at_both_widths(out, open_page):
    address = write_page(out / "a", beside=out / "grad").as_uri()
    for width in (1280, 390):
        page = open_page(address, width)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert min(widths(page, ".card figure:not(.total) .stage")) > SMALLEST
        assert len({round(found) for found in widths(page, ".card")}) == 1  # one column: no holes between cards


def test_a_strip_is_no_line(out, open_page):
    address = write_page(out / "strip-out").as_uri()
    for width in (1280, 390):
        stages = open_page(address, width).locator(".card figure:not(.total) .stage").all()
        boxes = [stage.bounding_box() for stage in stages]
        assert min(box["height"] for box in boxes) >= 40
        assert min(box["width"] for box in boxes) > 300


def test_what_lowers_the_doubt_unfolds_and_grows_beside_its_image(out, open_page):
    page = open_page(write_page(out / "auto").as_uri())
    card = page.locator(".card").first
    stage = card.locator(".lowering .epistemic .stage")
    assert not stage.is_visible()
    card.locator(".lowering summary").click()
    assert stage.is_visible()
    stage.click()
    shown = page.locator("dialog figcaption").all_text_contents()
    assert shown == ["12 × 12 pixels", "lowers epistemic"]
    phone = open_page(write_page(out / "auto").as_uri(), 390)
    phone.locator(".lowering summary").first.click()
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390


def test_fingers_find_what_can_be_touched(out, browser):
    page = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.goto(write_page(out / "a").as_uri())
    touched = page.locator(".controls label:visible, select:visible, summary:visible, .card small a:visible").all()
    assert len(touched) > 8
    assert all(found.bounding_box()["height"] >= 40 for found in touched)
    page.close()


def test_a_long_file_name_does_not_squeeze_the_prediction(out, open_page, tmp_path):
    name = "a very long name of a picture that somebody took in the mountains (copy 3).png"
    Image.new("RGB", (28, 28)).save(tmp_path / name)
    run = {"run": str(out / "posterior")}
    explain_dataset(open_work(Settings(run, {"files": [str(tmp_path)]})), tmp_path / "out")
    page = open_page(write_page(tmp_path / "out").as_uri(), 390)
    heading, origin = (page.locator(f".card header {tag}").bounding_box() for tag in ("h3", "small"))
    assert heading["height"] < 30  # one line
    assert origin["y"] >= heading["y"] + heading["height"] - 1
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert "1 image was shown to" in page.locator(".lead").first.inner_text()


def test_of_many_cards_an_address_still_opens_on_its_image(out, open_page):
    settings = Settings({"run": str(out / "posterior")}, {"dataset": piles.arrays(out / "many.npz", 60)}, method="grad")
    explain_dataset(open_work(settings), out / "many")
    address = write_page(out / "many").as_uri()
    page = open_page(f"{address}#image-59")
    page.wait_for_timeout(300)
    assert page.locator(".gallery.many .card").count() == 60
    top, bottom = page.eval_on_selector("#image-59", "e => [e.getBoundingClientRect().top, innerHeight]")
    assert 0 <= top < bottom
    assert page.locator("#image-59 .epistemic .stage img").is_visible()
    for width in (360, 390):  # the place of cards that are not drawn yet is no wider than a phone
        assert open_page(address, width).evaluate("document.documentElement.scrollWidth") == width


def test_a_wide_table_has_a_shadow_where_it_goes_on(open_page, tmp_path):
    methods = [f"method-{n}" for n in range(6)]
    cells = [
        {"protocol": "removal", "metric": "srg", "method": name, "value": 0.1, "rank": 1, "level": True}
        for name in methods
    ]
    overview = {"cells": cells, "mean ranks": dict.fromkeys(methods, 1.0), "notes": {}}
    address = write_overview_page(tmp_path, overview, []).as_uri()

    def shadows(page):
        """Whether the table's left and right edge are darker than the paper, in a line without letters."""
        png = page.locator(".scroll").screenshot()
        line = np.asarray(Image.open(io.BytesIO(png)).convert("L"), float)[2]
        return bool(line[1] < 245), bool(line[-2] < 245)

    assert shadows(open_page(address, 1280)) == (False, False)
    page = open_page(address, 390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    found = [shadows(page)]
    for left in (60, 9999):
        page.locator(".scroll").evaluate(f"table => table.scrollLeft = {left}")
        found.append(shadows(page))
    assert found == [(False, True), (True, True), (True, False)]


def test_a_phone_that_is_turned_has_a_page_of_its_width(open_page, tmp_path):
    images = {"dataset": piles.arrays(tmp_path / "images.npz", count=MANY + 2)}
    run = {"run": piles.posterior(tmp_path / "posterior")}
    explain_dataset(open_work(Settings(run, images, method="grad")), tmp_path / "many")
    page = open_page(write_page(open_results(tmp_path / "many")).as_uri(), width=844)
    page.evaluate("scrollTo(0, 3000)")
    page.wait_for_timeout(300)
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert len(set(widths(page, ".card"))) == 1
