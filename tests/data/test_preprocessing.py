import json
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from dubium.data.fit import Preprocessing, place_map
from dubium.errors import DubiumError, DubiumWarning, FileFormatError, OptionError
from dubium.models import Normalized
from dubium.run.data_config import prepared_config
from dubium.run.networks import normalize_inputs

PIL_MODES = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
CONFIG = {
    "input_size": (3, 24, 24), "crop_pct": 0.9, "interpolation": "bicubic", "crop_mode": "center",
    "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4),
}  # fmt: skip


class Carrier(nn.Module):
    """A network with timm's attribute."""

    def __init__(self, **changes):
        super().__init__()
        self.pretrained_cfg = {**CONFIG, **changes}
        self.layer = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 2))

    def forward(self, x):
        return self.layer(x)


@pytest.mark.parametrize("interpolation", PIL_MODES)
@pytest.mark.parametrize("size", [(37, 61), (61, 37), (40, 40), (19, 23)])
def test_resize_and_crop_are_those_of_pillow_and_torchvision(interpolation, size):
    rng = np.random.default_rng(0)
    channel = rng.random(size, np.float32) * 0.5 + 0.25  # so that bicubic stays within [0, 1] but for a little
    resize, crop = 30, 24
    short = min(size)
    scaled = [resize if side == short else int(resize * side / short) for side in size]
    whole = np.asarray(Image.fromarray(channel).resize(scaled[::-1], PIL_MODES[interpolation]))
    top, left = (int(round((side - crop) / 2.0)) for side in scaled)  # noqa: RUF046  as torchvision's CenterCrop
    expected = whole[top : top + crop, left : left + crop].clip(0, 1)
    prepared = Preprocessing((1, crop, crop), "crop", resize, interpolation)
    found = prepared.network_input(torch.from_numpy(channel)[None])
    np.testing.assert_allclose(found[0].numpy(), expected, atol=2e-6)


@pytest.mark.parametrize("fit", ["stretch", "crop"])
@given(height=st.integers(5, 40), width=st.integers(5, 40), resize=st.sampled_from([None, 12, 15]))
def test_a_map_on_the_image_keeps_its_sum_and_lies_where_the_network_looked(fit, height, width, resize):
    prepared = Preprocessing((1, 12, 9), fit, resize)
    top, left, bottom, right = box = prepared.seen_box((height, width))
    assert 0 <= top < bottom <= height
    assert 0 <= left < right <= width
    values = torch.rand(12, 9, generator=torch.Generator().manual_seed(height * 100 + width))
    placed = place_map(values, (height, width), box)
    assert float(placed.double().sum()) == pytest.approx(float(values.double().sum()), rel=1e-6)
    outside = placed.clone()
    outside[top:bottom, left:right] = 0
    assert not outside.any()


def test_the_part_that_is_seen_is_the_part_that_changes_the_input():
    prepared = Preprocessing((1, 8, 8), "crop", 10)
    image = torch.zeros(1, 20, 40, requires_grad=True)
    prepared.network_input(image + 0.5).sum().backward()
    rows, columns = (torch.nonzero(image.grad[0].sum(axis))[:, 0] for axis in (1, 0))
    top, left, bottom, right = prepared.seen_box((20, 40))
    assert (top, left, bottom, right) == (2, 12, 18, 28)
    assert rows[0] <= top < bottom <= rows[-1] + 1
    assert columns[0] <= left < right <= columns[-1] + 1
    assert max(top - rows[0], rows[-1] + 1 - bottom, left - columns[0], columns[-1] + 1 - right) <= 2  # antialiasing


def test_a_resize_below_the_networks_size_is_refused():
    with pytest.raises(OptionError, match="resize is 20, and the networks take 24 x 24"):
        Preprocessing((3, 24, 24), "crop", 20)
    with pytest.raises(OptionError, match="--input-shape"):
        Preprocessing((3, None, None), "crop", 20)


def test_a_network_says_its_own_preprocessing_however_deep_it_is():
    expected = {"input_shape": [3, 24, 24], "fit": "crop", "resize": 26, "interpolation": "bicubic"}
    expected |= {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4]}
    named = {"factory": "a:b", "data_config": "model"}
    assert prepared_config(named, [nn.Sequential(Carrier())]) == expected
    assert prepared_config({**named, "data_config": expected}, []) == expected  # as results have it
    squashed = prepared_config(named, [Carrier(crop_mode="squash", crop_pct=1.0)])
    assert (squashed["fit"], squashed["resize"]) == ("stretch", None)
    with pytest.warns(
        DubiumWarning, match=r"are taken: mean .*std \(0\.229, .*, interpolation bicubic, crop_pct 0\.875"
    ):
        bare = prepared_config(named, [Carrier(crop_pct=None, interpolation="", mean=None, std=None)])
    assert (bare["resize"], bare["interpolation"], bare["mean"][0]) == (27, "bicubic", 0.485)  # timm's defaults


def test_the_size_before_the_crop_follows_the_size_that_is_given_or_that_a_vit_was_built_for(tmp_path):
    named, vit = {"data_config": "model"}, Carrier(crop_pct=0.5)
    given = prepared_config(named, [vit], (3, 12, 12))
    assert (given["input_shape"], given["resize"]) == ([3, 12, 12], 24)
    vit.patch_embed = nn.Identity()
    vit.patch_embed.img_size = (8, 16)
    built = prepared_config(named, [vit])
    assert (built["input_shape"], built["resize"]) == ([3, 8, 16], 32)
    assert prepared_config(named, [vit], (3, 12, 12)) == given
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**CONFIG, "crop_pct": 0.5}))
    assert prepared_config({"data_config": str(file)}, [], (3, 12, 12)) == given


@pytest.mark.parametrize(
    "changes",
    [
        *({"mean": value} for value in (5, "abc", [10**400], [float("nan")], [None], ["1"], {"a": 1}, [True])),
        *({"std": value} for value in ([0.0, 1, 1], [1e-300] * 3, [-1.0] * 3, 0.5)),
        *({"crop_pct": value} for value in (1e-308, 1e-6, float("nan"), True, "1", [1], 10**400)),
        *({"input_size": value} for value in ([3, 10**9, 10**9], [1, 30_000, 30_000], [3, 0, 4], [True, 2, 2], "abc")),
        *({"crop_mode": value} for value in ([1], {"a": 1}, 7)),
        *({"interpolation": value} for value in ([1], {"a": 1}, 7)),
    ],
)
def test_a_config_of_nonsense_is_refused_by_its_files_name(changes, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**CONFIG, **changes}))
    with pytest.raises(DubiumError, match=r"config\.json"):
        prepared_config({"data_config": str(file)}, [])


@pytest.mark.parametrize("size", [(1, 90_000), (90_000, 1)])
def test_a_thin_image_is_refused_before_it_is_enlarged(size):
    prepared = Preprocessing((1, 224, 224), "crop", 256)
    with pytest.raises(FileFormatError, match=f"An image of {size[0]} x {size[1]} pixels.* would be resized to"):
        prepared.network_input(torch.zeros(1, *size))
    assert Preprocessing((1, 224, 224), "crop").network_input(torch.zeros(1, *size)).shape == (1, 224, 224)


def test_a_file_says_it_too_and_mistakes_are_said(tmp_path):
    file = tmp_path / "config.json"
    for content in (CONFIG, {"architecture": "x", "pretrained_cfg": CONFIG}):
        file.write_text(json.dumps(content))
        assert prepared_config({"data_config": str(file)}, [])["resize"] == 26
    for content, words in (
        ({}, "input_size is None"),
        ({**CONFIG, "crop_mode": "border"}, "crop_mode"),
        ({**CONFIG, "interpolation": "lanczos"}, "interpolation"),
        ({**CONFIG, "crop_pct": 2}, "crop_pct is 2"),
    ):
        file.write_text(json.dumps(content))
        with pytest.raises((OptionError, ValueError), match=words):
            prepared_config({"data_config": str(file)}, [])
    with pytest.raises(OptionError, match=r"carry no data config.*--input-shape"):
        prepared_config({"data_config": "model"}, [nn.Linear(2, 2)])


def test_what_a_config_leaves_out_is_said_unless_an_option_says_it(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"input_size": [3, 24, 24], "crop_pct": 0.9, "mean": [0.5] * 3}))
    words = r"config\.json: the data config leaves .*: std \(0\.229, 0\.224, 0\.225\), interpolation bicubic\."
    with pytest.warns(DubiumWarning, match=words):
        prepared_config({"data_config": str(file)}, [])
    with pytest.warns(DubiumWarning, match=r"are taken: interpolation bicubic\."):
        prepared_config({"data_config": str(file), "mean": [0.5], "std": [0.5]}, [])


@pytest.mark.parametrize(("wrong", "right"), [("crop_pc", "crop_pct"), ("interpolaton", "interpolation"), ("st", "")])
def test_a_misspelt_name_of_a_config_is_said_and_others_that_timm_has_are_not(wrong, right, tmp_path):
    timms = dict.fromkeys(
        ("fixed_input_size", "pool_size", "first_conv", "classifier", "test_crop_pct", "test_input_size")
    )
    file = tmp_path / "config.json"
    content = {name: value for name, value in CONFIG.items() if name != right}
    file.write_text(json.dumps({**content, **timms, wrong: 0.9}))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        prepared_config({"data_config": str(file)}, [])
    expected = f"{file}: the data config has names that are not read: {wrong!r} (is {right} meant?)."
    assert (expected in [str(one.message) for one in said]) == bool(right)


def test_mean_and_std_are_applied_once_and_options_win():
    named, x = {"data_config": "model"}, torch.rand(1, 3, 24, 24)
    network = Carrier().eval()
    (found,) = normalize_inputs([network], named)
    torch.testing.assert_close(found(x), Normalized(network, CONFIG["mean"], CONFIG["std"])(x))
    own = Normalized(network, 0.5, 0.5).eval()
    assert normalize_inputs([own], named) == [own]
    (other,) = normalize_inputs([network], {**named, "mean": [0.1], "std": [0.2]})
    torch.testing.assert_close(other(x), Normalized(network, 0.1, 0.2)(x))


def test_networks_that_carry_different_data_configs_are_refused():
    named, other = {"data_config": "model"}, Carrier(mean=(0.5, 0.5, 0.5))
    assert prepared_config(named, [Carrier(), Carrier()]) == prepared_config(named, [Carrier()])
    match = (
        r"Networks 0 and 2 carry different data configs: mean \[0\.5, 0\.4, 0\.3\] and \[0\.5, 0\.5, 0\.5\]\. One way"
    )
    with pytest.raises(OptionError, match=match):
        prepared_config(named, [Carrier(), Carrier(), other])
    sizes = [Carrier(), Carrier(input_size=(3, 32, 32))]
    assert prepared_config(named, sizes, (3, 12, 12)) == prepared_config(named, [Carrier()], (3, 12, 12))


def test_the_file_of_a_hugging_face_processor_is_recognised(tmp_path):
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": {"height": 32, "width": 32}}))
    with pytest.raises(
        OptionError, match="the file of a Hugging Face processor, which is not read: leave --data-config"
    ):
        prepared_config({"data_config": str(file)}, [])
