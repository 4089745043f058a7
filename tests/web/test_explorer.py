"""The explorer in a real browser: nothing leaves this machine, maps change, mistakes are said."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image

from dubium.report import page as report_page
from tests import piles
from tests.browser import chromium

pytest.importorskip("gradio", reason="the explorer needs the extra 'web'")
playwright = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright")
PATIENCE = 600_000  # milliseconds


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """`dubium serve` on a small posterior."""
    folder, port = tmp_path_factory.mktemp("explorer"), free_port()
    piles.posterior(folder / "posterior")
    piles.arrays(folder / "images.npz", count=4)
    command = [Path(sys.executable).with_name("dubium"), "serve", "posterior", "--dataset", "images.npz"]
    options = {"cwd": folder, "env": {**os.environ, "OMP_NUM_THREADS": "1"}, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--no-browser", "--port", str(port)], **options) as server:
        try:
            said = server.stdout.readline()
            assert f"http://127.0.0.1:{port}" in said, said
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def page(address):
    """The open page, and every address that it asked for."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 1400})
        page.asked = []
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(address)
        wait_until_ready(page)
        yield page


def wait_until_ready(page):
    """Until the answer that the page asks for by itself is there, too; it makes the downloads ready."""
    page.wait_for_selector("#completeness", timeout=PATIENCE)
    playwright.expect(page.locator("#png")).to_be_enabled(timeout=PATIENCE)


def shown(page):
    return page.locator("#view img").nth(1).get_attribute("src")


def changes(page, act):
    """Whether the map becomes another after `act`."""
    before = shown(page)
    act()
    page.wait_for_function(
        "before => { const all = document.querySelectorAll('#view img'); return all[1] && all[1].src !== before }",
        arg=before, timeout=PATIENCE,
    )  # fmt: skip
    return shown(page) != before


def test_map_sum_and_votes_are_there(page):
    assert "the map is complete" in page.locator("#completeness").inner_text()
    assert "Votes of 3 networks" in page.locator("#facts").inner_text()
    assert page.locator("#blurred svg").count() == 1


def test_the_kinds_of_two_methods_and_their_contrast_are_shown(page):
    assert page.locator("#view p.method").all_inner_texts() == ["ua-backprop", "auto", "auto: what lowers the doubt"]
    kinds = page.locator("#view .maps").nth(2).locator("figure").all()
    assert [figure.get_attribute("class") for figure in kinds] == ["total", "aleatoric", "epistemic", "contrast"]


def test_the_page_comes_with_a_result_of_both_methods(address):
    """What the server sends at first, before any script has asked for anything."""
    with urlopen(f"{address}/config") as answered:
        config = json.load(answered)
    begin = {part["props"].get("elem_id"): part["props"].get("value") for part in config["components"]}
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", begin["view"].split("All kinds")[0])
    assert [re.sub("<.*?>", "", caption).partition(":")[0] for caption in captions] == [
        "image, 12 × 12 pixels", "ua-backprop, epistemic", "auto, epistemic",
    ]  # fmt: skip
    assert "the map is complete" in begin["facts"]
    assert "<svg" in begin["blurred"]


def test_the_first_view_has_both_methods_side_by_side(page):
    for width, height, columns in ((1280, 900, 3), (390, 844, 2)):
        page.set_viewport_size({"width": width, "height": height})
        boxes = [figure.bounding_box() for figure in page.locator("#view .look figure").all()]
        assert len(boxes) == 3
        assert all(box["y"] + box["height"] < height for box in boxes)  # without scrolling
        assert boxes[1]["y"] == boxes[2]["y"]
        assert len({round(box["y"]) for box in boxes}) == 4 - columns
    page.set_viewport_size({"width": 1280, "height": 1400})


@pytest.mark.parametrize("width", [390, 660, 760])
def test_where_columns_are_below_each_other_the_result_is_above_the_images_to_pick(page, width):
    page.set_viewport_size({"width": width, "height": 844})
    result, pick = (page.locator(name).bounding_box() for name in ("#results", "#pick"))
    assert result["y"] < pick["y"] or result["x"] >= pick["x"] + pick["width"]
    page.set_viewport_size({"width": 1280, "height": 1400})


def test_it_looks_like_the_report_light_and_dark(page):
    colours = Path(report_page.__file__).with_name("colours.css").read_text()
    papers, cards = (re.findall(rf"--{name}: (#\w+)", colours) for name in ("paper", "card"))
    for scheme, paper, card in zip(("light", "dark"), papers, cards, strict=True):
        page.emulate_media(color_scheme=scheme)
        page.reload()
        wait_until_ready(page)
        read = "e => getComputedStyle(e).backgroundColor"
        assert page.eval_on_selector("body", read) == as_rgb(paper)
        assert page.eval_on_selector("#view .du", read) == as_rgb(card)
    page.emulate_media(color_scheme="light")


def as_rgb(colour):
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


def test_methods_that_lack_something_are_not_offered(page):
    page.locator("#method input").click()
    page.get_by_role("option").first.wait_for(timeout=PATIENCE)
    offered = page.get_by_role("option").all_inner_texts()
    page.keyboard.press("Escape")
    assert any("blur-path" in name for name in offered)
    assert not [name for name in offered if "clue" in name]  # there is no VAE here


def test_on_a_phone_the_result_comes_first_and_nothing_sticks_out(page):
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.locator("#view").bounding_box()["y"] < page.locator("#kind").bounding_box()["y"]
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.set_viewport_size({"width": 1280, "height": 1400})


def test_fingers_find_what_can_be_touched(page):
    browser = page.context.browser
    phone = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    phone.goto(page.url)
    wait_until_ready(phone)
    for kind in ("button", "input[type=range]", "input[type=number]"):
        visible = phone.locator(f"{kind}:visible")
        visible.nth(3).wait_for(timeout=PATIENCE)  # the controls are drawn after the result
        found = [touched.bounding_box() for touched in visible.all()]
        assert len(found) > 3
        assert all(box["height"] >= 40 for box in found), kind
    phone.close()


def test_on_a_phone_a_link_leads_to_the_images(page):
    page.set_viewport_size({"width": 390, "height": 844})
    page.locator("#header a").click()
    page.wait_for_function("document.querySelector('#pick').getBoundingClientRect().top < innerHeight")
    page.evaluate("window.scrollTo(0, 0)")
    page.set_viewport_size({"width": 1280, "height": 900})


def test_another_kind_has_another_map(page):
    assert changes(page, lambda: page.get_by_label("aleatoric", exact=True).check())


def test_another_method_has_another_map(page):
    page.locator("#method input").click()
    assert changes(page, lambda: page.get_by_role("option", name="grad", exact=True).click())
    assert page.locator("#tau1").count() == 0 or not page.locator("#tau1").is_visible()
    page.locator("#method input").click()
    assert changes(page, lambda: page.get_by_role("option", name="ua-backprop", exact=True).click())


def test_a_slider_changes_the_map(page):
    page.locator("#tau2").wait_for(state="visible", timeout=PATIENCE)
    assert changes(page, lambda: page.locator("#tau2 input[type=number]").fill("0.05"))
    assert changes(page, lambda: page.locator("#opacity input[type=number]").fill("0.3"))
    assert changes(page, lambda: page.locator("#smooth input[type=number]").fill("1.5"))
    assert "Maps are smoothed by 1.5 pixels for the eye." in page.locator("#view").inner_text()


def test_blurring_is_live(page):
    before = page.locator("#blurred").inner_text()
    page.locator("#share input[type=number]").fill("0.5")
    playwright.expect(page.locator("#blurred")).to_contain_text("top 50 % blurred", timeout=PATIENCE)
    assert page.locator("#blurred").inner_text() != before


def test_an_upload_of_another_size_is_explained_at_its_own(page, tmp_path):
    pixels = np.random.default_rng(1).integers(0, 256, (30, 40, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.jpg")
    assert changes(page, lambda: page.locator("#upload input[type=file]").set_input_files(tmp_path / "photo.jpg"))
    assert "40 × 30 pixels" in page.locator("#view").inner_text()
    with page.expect_download(timeout=PATIENCE) as download:
        page.locator("#npy").click()
    assert np.load(download.value.path()).shape == (30, 40)


def test_rubbish_is_refused_in_the_page(page, tmp_path):
    page.reload()
    wait_until_ready(page)
    (tmp_path / "rubbish.png").write_bytes(b"no image at all")
    page.locator("#upload input[type=file]").set_input_files(tmp_path / "rubbish.png")
    alert = page.get_by_role("alert")
    playwright.expect(alert).to_contain_text("rubbish.png is damaged or not an image", timeout=PATIENCE)
    playwright.expect(page.locator("#view img")).to_have_count(0, timeout=PATIENCE)  # of no other image under an error
    assert "completeness" not in page.locator("#facts").inner_html()


def test_nothing_was_asked_for_elsewhere(page, address):
    outside = [url for url in page.asked if not re.match(rf"{re.escape(address)}/|data:|blob:", url)]
    assert outside == []
    assert len(page.asked) > 5
