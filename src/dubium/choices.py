"""Names that options take. No torch here: the command line lists them without importing what computes."""

DATASETS = (
    "mnist",
    "fashion-mnist",
    "svhn",
    "cifar-10",
    "cifar-100",
)
"""The published datasets, the keys of `dubium.data.SOURCES`."""

SPLITS = ("train", "test")
"""The parts of a dataset, which follow its name after a colon."""

DEMO = "demo"
"""The posterior and the images that are part of the package."""

SMOOTH = 0.7
"""Pixels by which maps are blurred where a person meets them first, in the demo and in notebooks: regions are easier to
name than dots."""

FITS = STRETCH, CROP = ("stretch", "crop")
"""How an image of another size is brought to the networks' size."""

INTERPOLATIONS = BILINEAR, BICUBIC, NEAREST = ("bilinear", "bicubic", "nearest")
"""How pixels are computed when an image is resized."""

SCALES = ("paper", "cpu", "smoke")
"""How much work a recipe or a protocol does."""

ENGINES = ("local", "ray")
"""Where the jobs of a command run."""

RANKING = ("epistemic", "total", "aleatoric")
"""The kinds of uncertainty in the order of `explain` on the command line: the first one ranks the images."""

EXPORTS = {"coco": "coco.json", "csv": "review.csv", "png": "masks", "fiftyone": "fiftyone"}
"""Formats of other tools that results can be written in, each with the file or folder that it becomes."""
