import pytest
import torch

import dubium
from dubium.evaluation.properties import (
    PROPERTIES,
    blurring_reduction,
    explainer,
    fidelity,
    random_images,
    random_network,
)

SHIFTED = "same maps when logits are shifted"
EXPECTED = {  # what follows from the definitions
    "ua-backprop": {"completeness": True, "positivity": True, "saturation": True, "sensitivity": False, SHIFTED: False},
    "ua-backprop:of=log-probs": {"completeness": True, "positivity": True, SHIFTED: True},
    "blur-path": {"completeness": True, "positivity": True, SHIFTED: True},
    "grad": {
        "completeness": False,
        "positivity": True,
        "saturation": False,
        "implementation invariance": True,
        SHIFTED: True,
    },
    "ig": {"completeness": False, "positivity": False, "linearity": True, "implementation invariance": True},
    "fullgrad": {"completeness": False, "positivity": True, "implementation invariance": False},
}
CASES = [(method, name, holds) for method, names in EXPECTED.items() for name, holds in names.items()]


@pytest.mark.parametrize(("method", "name", "holds"), CASES)
def test_a_property_is_found_where_it_must_be(method, name, holds):
    method, _, output = method.partition(":of=")
    options = {"steps": 50} if method == "ig" else {"of": output} if output else {}
    finding = PROPERTIES[name](explainer(method, "aleatoric", **options))
    assert finding.holds == holds, finding


def test_ig_is_complete_once_its_start_has_no_uncertainty():
    posterior, x = [random_network(seed) for seed in range(3)], random_images()
    sure = x[0].clone()
    result = dubium.explain(posterior, x, method="ig", start=sure, steps=200, kinds="aleatoric")
    gap = result.maps["aleatoric"].sum((1, 2)) - (result.scores["aleatoric"] - result.scores["aleatoric"][0])
    assert gap.abs().max() < 1e-4


def test_fidelity_is_found_for_a_map_that_knows_and_not_for_a_random_one():
    generator = torch.Generator().manual_seed(0)
    posterior, x = (
        [random_network(s) for s in range(3)],
        torch.rand(24, 1, 10, 10, dtype=torch.float64, generator=generator),
    )
    pixels = torch.eye(100, dtype=torch.float64).view(100, 10, 10)
    alone = torch.stack([blurring_reduction(posterior, x, pixel.expand(len(x), -1, -1)) for pixel in pixels], 1)

    def knows(_posterior, _x):
        return alone.view(-1, 10, 10)

    assert fidelity(knows, posterior, x).holds
    assert not fidelity(explainer("random", "epistemic", seed=5), posterior, x).holds
