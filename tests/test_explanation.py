import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from scipy.ndimage import gaussian_filter

import dubium
from dubium import errors
from dubium.figures import brightest_value, brightness, data_url, map_colours, smooth_map
from tests.networks import ensemble, images, small_cnn


@pytest.fixture
def result(cheap):
    return dubium.explain(ensemble(small_cnn), images(2), method="clue", **cheap("clue"))


def test_what_is_saved_is_what_is_loaded(result, tmp_path):
    result.save(tmp_path / "out.safetensors")
    loaded = dubium.load(tmp_path / "out.safetensors")
    for part in ("scores", "maps", "all_scores"):
        assert list(getattr(loaded, part)) == list(getattr(result, part))
        for kind, tensor in getattr(result, part).items():
            assert torch.equal(getattr(loaded, part)[kind], tensor)
    assert torch.equal(loaded.probs, result.probs)
    assert torch.equal(loaded.members, result.members)
    assert torch.equal(loaded.extras["counterfactual"]["epistemic"], result.extras["counterfactual"]["epistemic"])
    assert (loaded.method, loaded.options, loaded.input_shape) == (result.method, result.options, result.input_shape)


def test_scores_of_kinds_without_maps_are_saved_and_older_files_have_none(tmp_path):
    found = dubium.explain(ensemble(small_cnn), images(2), kinds="epistemic", method="grad")
    found.save(tmp_path / "a.safetensors")
    loaded = dubium.load(tmp_path / "a.safetensors")
    assert list(loaded.all_scores) == ["total", "aleatoric", "epistemic"]
    assert torch.equal(loaded.all_scores["total"], found.all_scores["total"])
    assert list(loaded.scores) == ["epistemic"]
    assert loaded.extras == {}
    replace(found, all_scores={}).save(tmp_path / "old.safetensors")
    assert dubium.load(tmp_path / "old.safetensors").all_scores == {}


@pytest.mark.parametrize(
    "name", ["maps", "scores", "all_scores", "probs", "members", "images", "extras", "a/b", "signed"]
)
def test_extras_of_any_name_are_kept_apart(name, result, tmp_path):
    extra = {"total": torch.rand(2, 7), "epistemic": torch.rand(2, 7)}
    replace(result, extras={name: extra, "other": {}}, images=images(2)).save(tmp_path / "a.safetensors")
    loaded = dubium.load(tmp_path / "a.safetensors")
    assert list(loaded.extras) == [name]
    assert list(loaded.extras[name]) == ["total", "epistemic"]
    torch.testing.assert_close(loaded.extras[name], extra)
    torch.testing.assert_close(loaded.maps, result.maps)
    torch.testing.assert_close(loaded.scores, result.scores)
    torch.testing.assert_close(loaded.probs, result.probs)
    assert torch.equal(loaded.images, images(2))


def test_extras_that_share_their_memory_are_saved(tmp_path):
    found = dubium.explain(ensemble(small_cnn), images(2), classes="auto")
    found.save(tmp_path / "a.safetensors")
    loaded = dubium.load(tmp_path / "a.safetensors")
    for kind, counts in found.extras["classes"].items():
        torch.testing.assert_close(loaded.extras["classes"][kind], counts)


def test_the_file_says_how_it_was_made(result, tmp_path):
    result.save(tmp_path / "out.safetensors")
    with safe_open(tmp_path / "out.safetensors", framework="pt") as file:
        about = json.loads(file.metadata()["dubium"])
    assert about["dubium"] == dubium.__version__
    assert about["method"] == "clue"
    assert about["options"]["steps"] == 3
    assert about["input_shape"] == [2, 1, 12, 12]


@pytest.mark.parametrize(
    "content",
    [b"", b"not a file of ours", b'{"a": 1}' * 100],
)
def test_a_foreign_file_is_refused_by_name(content, tmp_path):
    (tmp_path / "bad.safetensors").write_bytes(content)
    with pytest.raises(errors.FileFormatError, match=r"bad\.safetensors"):
        dubium.load(tmp_path / "bad.safetensors")


def test_a_truncated_file_is_refused(result, tmp_path):
    result.save(tmp_path / "out.safetensors")
    whole = (tmp_path / "out.safetensors").read_bytes()
    (tmp_path / "out.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(errors.FileFormatError, match=r"out\.safetensors"):
        dubium.load(tmp_path / "out.safetensors")


def test_another_safetensors_file_and_a_newer_format_are_refused(tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "weights.safetensors")
    with pytest.raises(errors.FileFormatError, match="load_posterior"):
        dubium.load(tmp_path / "weights.safetensors")
    about = {"format": 99, "dubium": "9.0"}
    save_file({"probs": torch.zeros(2)}, tmp_path / "new.safetensors", metadata={"dubium": json.dumps(about)})
    with pytest.raises(errors.FileFormatError, match="Upgrade"):
        dubium.load(tmp_path / "new.safetensors")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        dubium.load(tmp_path / "nowhere.safetensors")


def test_numpy_gives_the_same_numbers(result):
    arrays = result.numpy()
    assert isinstance(arrays.maps["total"], np.ndarray)
    assert isinstance(arrays.probs, np.ndarray)
    assert isinstance(arrays.all_scores["total"], np.ndarray)
    np.testing.assert_array_equal(arrays.maps["total"], result.maps["total"].numpy())
    np.testing.assert_array_equal(
        arrays.extras["counterfactual"]["total"], result.extras["counterfactual"]["total"].numpy()
    )


def test_an_explanation_is_frozen(result):
    with pytest.raises(AttributeError):
        result.method = "other"


def test_plot_has_a_row_per_image_and_says_prediction_and_scores(result):
    figure = result.plot(images(2))
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert len(titles) == 2 * 4
    label = int(result.probs[0].argmax())
    assert titles[0] == f"{label}, p = {result.probs[0].max():.2f}"
    assert any(title.startswith("epistemic") for title in titles)
    named = result.plot(images(2), classes=["zero", "one", "two", "three"])
    assert named.axes[0].get_title().startswith(["zero", "one", "two", "three"][label])


def test_plot_shows_scores_by_three_digits_and_colour_bars_by_short_numbers():
    maps = {"total": torch.tensor([[[0.004, 0.001], [0.0, 0.0]]])}
    scores, members = {"total": torch.tensor([0.3])}, torch.full((2, 1, 3), 1 / 3)
    result = dubium.Explanation(scores, maps, members[0], members, "grad", {}, input_shape=(1, 1, 2, 2))
    figure = result.plot(torch.rand(1, 1, 2, 2))
    assert "total 0.300" in [axis.get_title() for axis in figure.axes]
    bar = figure.axes[-1]
    assert bar.get_title() == "1e-3"
    labels = [label.get_text() for label in bar.get_yticklabels()]
    assert "0" in labels
    assert "2" in labels
    assert not any("." in label and label.endswith("0") for label in labels)


def test_smoothed_maps_are_scipys_keep_their_sum_and_are_for_the_eye_alone(result):
    raw = result.maps["total"][0]
    smoothed = smooth_map(raw, 1.5)
    np.testing.assert_allclose(smoothed, gaussian_filter(raw.numpy(), 1.5, truncate=4), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(smoothed.sum(), raw.sum())
    assert smooth_map(raw, 0.0) is raw
    before = raw.clone()
    figure = result.plot(images(2), smooth=1.5)
    assert figure.get_suptitle() == "Maps are smoothed by 1.5 pixels for the eye."
    assert torch.equal(result.maps["total"][0], before)
    assert result.plot(images(2)).get_suptitle() == ""
    with pytest.raises(errors.OptionError, match=r"smooth=-1\.0"):
        result.plot(images(2), smooth=-1.0)
    with pytest.raises(errors.UnknownNameError, match=r"of plot called 'kinds'.*Available: x, classes, most, opacity,"):
        result.plot(images(2), kinds=["total"])


def test_plot_refuses_other_images(result):
    with pytest.raises(errors.ImagesError, match="images that were explained"):
        result.plot(images(3))


def test_plot_draws_colour_and_normalised_images():
    x = 4 * images(1, 3) - 2
    figure = dubium.explain(ensemble(lambda: small_cnn(3)), x).plot(x)
    picture = figure.axes[0].images[0].get_array()
    assert picture.min() == 0
    assert picture.max() == 1


def test_numpy_results_are_saved_and_drawn_too(result, tmp_path):
    arrays = result.numpy()
    arrays.save(tmp_path / "arrays.safetensors")
    assert torch.equal(dubium.load(tmp_path / "arrays.safetensors").maps["total"], result.maps["total"])
    assert arrays.plot(images(2)).axes[0].get_title() == result.plot(images(2)).axes[0].get_title()


def test_an_explanation_prints_what_it_is(result):
    assert repr(result) == "Explanation(clue: 2 images, 3 networks, 4 classes, maps of total, aleatoric, epistemic)"


@pytest.fixture
def kept():
    names = ["<ant>", "bee", "猫", "$d"]
    return dubium.explain(ensemble(small_cnn), images(10), method="grad", keep_images=True, class_names=names)


def test_kept_images_and_names_are_saved_and_come_back(kept, tmp_path):
    assert torch.equal(kept.images, images(10))
    kept.save(tmp_path / "kept.safetensors")
    loaded = dubium.load(tmp_path / "kept.safetensors")
    assert torch.equal(loaded.images, kept.images)
    assert loaded.class_names == kept.class_names == ("<ant>", "bee", "猫", "$d")
    assert isinstance(kept.numpy().images, np.ndarray)


def test_nothing_is_kept_unless_asked_for(result, tmp_path):
    assert result.images is None
    assert result.class_names is None
    result.save(tmp_path / "out.safetensors")
    assert dubium.load(tmp_path / "out.safetensors").images is None


def test_images_that_are_kept_are_not_changed_with_the_callers():
    x = images(2)
    result = dubium.explain(ensemble(small_cnn), x, method="grad", keep_images=True)
    before = x.clone()
    x.zero_()
    assert torch.equal(result.images, before)


def test_plot_draws_what_was_kept_and_says_what_it_leaves_out(kept, result, recwarn, tmp_path):
    figure = kept.plot()
    assert figure.get_suptitle() == "The first 8 of 10 images; most=10 draws all."
    assert kept.plot(most=10).get_suptitle() == ""
    assert kept.plot(most=3, smooth=1.0).get_suptitle() == (
        "The first 3 of 10 images; most=10 draws all. Maps are smoothed by 1 pixel for the eye."
    )
    with pytest.raises(errors.ImagesError, match="keep_images=True"):
        result.plot()
    figure.savefig(tmp_path / "figure.png", dpi=30)
    assert not recwarn.list


@pytest.mark.parametrize(("name", "title"), [("$d, $", "$d, $"), ("猫", "1"), ("cat", "cat")])
def test_plot_takes_names_that_are_no_formulas_and_letters_that_the_font_lacks(name, title, result, recwarn, tmp_path):
    probs = torch.eye(4)[[1, 1]]
    object.__setattr__(result, "probs", probs)
    figure = result.plot(images(2), classes=["a", name, "b", "c"])
    figure.savefig(tmp_path / "figure.png", dpi=30)
    assert figure.axes[0].get_title() == f"{title}, p = 1.00"
    assert not recwarn.list


def test_the_notebook_view_shows_each_image_beside_its_maps_by_names(kept, result):
    html = kept._repr_html_()
    assert html.count("<img") == 8 * (1 + 3)
    assert "… and 2 more images" in html
    assert "<ant>" not in html
    for index in range(8):
        likely = kept.probs[index].topk(2)
        name = kept.class_names[int(likely.indices[0])].replace("<", "&lt;").replace(">", "&gt;")
        assert f"<b>{name} ({likely.values[0]:.0%})".replace("%", " %") in html
        assert f'alt="image {index}"' in html
    assert result._repr_html_().count("<img") == 2 * 3
    assert dubium.uncertainty(ensemble(small_cnn), images(2))._repr_html_().count("<img") == 0


@pytest.mark.parametrize("names", [None, ("ant", "bee", "猫", "dog")])
def test_views_of_a_pair_name_its_classes_and_say_that_they_are_alone(names, tmp_path):
    made = dubium.explain(
        ensemble(small_cnn), images(2), method="grad", pair=(3, 2), keep_images=True, class_names=names
    )
    made.save(tmp_path / "pair.safetensors")
    words = ("dog", "猫") if names else ("3", "2")
    for result in (made, dubium.load(tmp_path / "pair.safetensors")):
        assert f", classes {words[0]} and {words[1]} alone, maps of" in repr(result)
        html, figure = result._repr_html_(), result.plot()
        assert f"3 networks, classes {words[0]} and {words[1]} alone; scores in nats" in html
        first, second = ("dog", "2") if names else ("3", "2")  # the font lacks 猫
        assert figure.get_suptitle() == f"Classes {first} and {second} alone."
        for index, probs in enumerate(result.probs):
            best = int(probs.argmax())
            assert f"<b>{words[best]} ({probs[best]:.0%})".replace("%", " %") in html
            assert figure.axes[4 * index].get_title() == f"{(first, second)[best]}, p = {probs[best]:.2f}"


def test_the_notebooks_maps_are_smoothed_for_the_eye_and_say_so(kept):
    html = kept._repr_html_()
    assert "Maps are smoothed by 0.7 pixels for the eye." in html
    assert data_url(map_colours(smooth_map(kept.maps["total"][0], 0.7))) in html
    assert data_url(map_colours(kept.maps["total"][0])) not in html
    assert "smoothed" not in dubium.uncertainty(ensemble(small_cnn), images(2))._repr_html_()


def test_kinds_keep_their_order_in_a_file(tmp_path):
    kinds = ("total", "aleatoric", "epistemic")
    scores, maps = ({kind: torch.rand(2, *size) for kind in kinds} for size in ((), (4, 4)))
    result = dubium.Explanation(
        scores, maps, torch.rand(2, 3), torch.rand(5, 2, 3), "grad", {}, {"signed": maps}, (2, 1, 4, 4)
    )
    result.save(tmp_path / "doubt.safetensors")
    found = dubium.load(tmp_path / "doubt.safetensors")
    assert tuple(found.scores) == tuple(found.maps) == tuple(found.extras["signed"]) == kinds


def test_a_map_that_is_negative_nearly_everywhere_is_drawn_by_its_highest_value():
    values = torch.full((20, 20), -1.0)
    values[3, 4] = 3.0
    assert brightest_value(values) == 3.0
    assert (brightness(values) == (values > 0).numpy()).all()


@pytest.mark.parametrize("classes", [["a", "b"], {"a", "b", "c", "d"}, np.array(["a", "b", "c", "d"]), []])
def test_plot_refuses_names_that_do_not_fit(classes, result, unchecked):
    with pytest.raises(errors.OptionError, match="one for each of 4 classes"):
        result.plot(images(2), classes=classes)


@pytest.mark.parametrize("most", [0, -1, 1.5])
def test_plot_draws_a_whole_number_of_images(most, result, unchecked):
    with pytest.raises(errors.OptionError, match=f"most={most}"):
        result.plot(images(2), most=most)


@pytest.mark.parametrize("seed", ["a", 1.5, None, True, 2**64, -(2**63) - 1])
def test_a_seed_that_is_none_is_refused(seed, unchecked):
    with pytest.raises(errors.OptionError, match="seed="):
        dubium.explain(ensemble(small_cnn), images(1), method="smoothgrad", samples=2, seed=seed)


def test_seeds_may_be_numpys(unchecked):
    networks, x = ensemble(small_cnn), images(1)
    one, two = (dubium.explain(networks, x, method="random", seed=seed).maps["total"] for seed in (7, np.int64(7)))
    assert torch.equal(one, two)


@pytest.mark.parametrize("name", ["doubt.npz", "doubt.PT", "runs.d/doubt.json"])
def test_a_name_of_another_kind_of_file_is_refused(name, result, tmp_path):
    with pytest.raises(
        errors.OptionError, match=r"but an explanation is a safetensors file.*Name it .*doubt\.safetensors"
    ):
        result.save(tmp_path / name)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("name", ["doubt", "doubt.safetensors", "doubt.1", "doubt.dubium"])
def test_any_other_name_is_what_load_takes(name, result, tmp_path):
    result.save(tmp_path / name)
    assert torch.equal(dubium.load(tmp_path / name).probs, result.probs)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("ua-backprop", {"tau1": np.float32(0.5), "classes": np.int64(2)}),
        ("ig", {"steps": np.int64(3)}),
        ("smoothgrad", {"samples": np.uint8(2), "sigma": np.float64(0.25)}),
    ],
)
def test_options_may_be_numpys(method, options, unchecked, tmp_path):
    posterior, x = ensemble(small_cnn), images(2)
    plain = {name: value.item() for name, value in options.items()}
    ours, right = (dubium.explain(posterior, x, method=method, **given) for given in (options, plain))
    assert torch.equal(ours.maps["total"], right.maps["total"])
    assert ours.options == right.options
    ours.save(tmp_path / "doubt.safetensors")
    assert dubium.load(tmp_path / "doubt.safetensors").options == dict(right.options)
    with pytest.raises(errors.OptionError, match="greater than 0 is needed"):
        dubium.explain(posterior, x, method=method, **{name: -value.astype(int) for name, value in options.items()})


def test_pictures_take_numpys_numbers(result, unchecked):
    figure = result.plot(torch.rand(result.input_shape), most=np.int64(1), smooth=np.float32(1))
    assert "smoothed by 1 pixel for the eye" in figure.get_suptitle()
