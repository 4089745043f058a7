import numpy as np
import pytest
import torch

from dubium.models import cnn
from dubium.posteriors import save_posterior


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """These images are so small that threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def own(tmp_path_factory):
    """A posterior and images of the user's own: four tiny networks, and squares on noise, 12 x 12."""
    folder = tmp_path_factory.mktemp("own")
    options = {"filters": 2, "units": 8, "size": 12, "classes": 3}
    networks = []
    for seed in range(4):
        torch.manual_seed(seed)
        network = cnn(**options).eval()
        with torch.no_grad():
            network.dense2.weight *= 20  # fresh networks hardly disagree
        networks.append(network)
    save_posterior(networks, folder / "posterior", architecture={"name": "cnn", "options": options})
    draws = np.random.default_rng(0)
    sets = {}
    for split, count in (("train", 24), ("test", 26)):
        images = draws.random((count, 12, 12), dtype=np.float32) * 0.3
        labels = np.arange(count) % 3
        for image, label in zip(images, labels, strict=True):
            image[2 + 3 * label : 5 + 3 * label, 4:8] = 1
        sets |= {f"{split}_images": images, f"{split}_labels": labels}
    np.savez(folder / "images.npz", **sets)
    return folder
