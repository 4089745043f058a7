"""Makes what `dubium demo` shows: five small CNNs, a small VAE and 64 digits, all from MNIST.

    DUBIUM_DATA=FOLDER python -m benchmarks.make_demo WORK

WORK keeps the training runs, so that an interrupted one goes on; the result is written to src/dubium/demo. About
15 minutes on one core.
"""

import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

import dubium
from dubium.data import load
from dubium.files import write_atomically, written_atomically
from dubium.posteriors import load_posterior
from dubium.training import train, train_vae

DEMO = Path(__file__).parents[1] / "src" / "dubium" / "demo"
SEED = 0
HALF = 32  # images of each sort
NETWORK = {"filters": 12, "units": 48, "dropout": 0.2}
LICENCE = """# The digits of the demo

`digits.safetensors` holds 64 images of the MNIST test set, with their labels and their places in it: the 32 on which
the ensemble of this folder disagrees most, and 32 others drawn at random. `posterior` and `vae` were trained on the
MNIST training set by `python -m benchmarks.make_demo`.

MNIST: Yann LeCun, Corinna Cortes and Christopher J.C. Burges, *The MNIST database of handwritten digits*,
<http://yann.lecun.com/exdb/mnist/>, under the licence Creative Commons Attribution-Share Alike 3.0
(<https://creativecommons.org/licenses/by-sa/3.0/>). The images are unchanged; `digits.safetensors` is under the same
licence.
"""


def main(work: Path) -> None:
    changes = {"options": NETWORK, "epochs": 4, "batch_size": 64, "lr": 0.05}
    record = train("mnist", work / "posterior", members=5, scale="cpu", seed=SEED, threads=1, changes=changes)
    print("test accuracy:", record["test"])
    vae_changes = {"options": {"hidden": [128, 64], "latent": 12}, "epochs": 40}
    print("vae:", train_vae("mnist", work / "vae", seed=SEED, threads=1, changes=vae_changes)["test_loss"])
    for name, files in (("posterior", "posterior.json member-*.safetensors"), ("vae", "vae.json vae.safetensors")):
        for pattern in files.split():
            for file in (work / name).glob(pattern):
                (DEMO / name).mkdir(parents=True, exist_ok=True)
                shutil.copy(file, DEMO / name / file.name)
    save_digits(work / "posterior")
    write_atomically(DEMO / "LICENSE-MNIST.md", LICENCE)
    print("bytes:", sum(file.stat().st_size for file in DEMO.rglob("*") if file.is_file()))


def save_digits(posterior: Path) -> None:
    """The test images with the highest epistemic uncertainty, and as many others."""
    test = load("mnist", "test")
    assert test.labels is not None
    networks = load_posterior(posterior)
    rows = range(0, len(test), 500)
    scores = torch.cat([dubium.uncertainty(networks, test.batch(slice(i, i + 500))).scores["epistemic"] for i in rows])
    order = scores.argsort(descending=True, stable=True)
    rest = order[HALF:]
    others = rest[torch.randperm(len(rest), generator=torch.Generator().manual_seed(SEED))[:HALF]]
    chosen = torch.cat([order[:HALF], others])
    digits = {"images": test.images[chosen], "labels": test.labels[chosen], "indices": chosen}
    with written_atomically(DEMO / "digits.safetensors") as beside:
        save_file({name: tensor.contiguous() for name, tensor in digits.items()}, beside)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
