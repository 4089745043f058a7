"""What was asked of a dataset: plain data, stored beside the results and sent to other machines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dubium.attribution._context import DEFAULT_MEMORY
from dubium.checks import check_kinds, check_number, parse_memory, plain_number
from dubium.choices import BILINEAR, CROP, FITS, INTERPOLATIONS, RANKING, STRETCH
from dubium.data.dataset import GIVEN
from dubium.errors import OptionError, UnknownNameError, lookup, unknown_name_text
from dubium.image_checks import check_input_shape
from dubium.option_text import read_method

POSTERIOR_SETTINGS = ("run", "architecture", "factory", "weights", "mean", "std", "output", "data_config")
IMAGE_SETTINGS = ("files", "dataset", "factory")


@dataclass(frozen=True)
class Settings:
    """All that decides the bytes of the results.

    Args:
        posterior: {"run": folder, name or "demo"}, with {"architecture": "module:factory"} if its networks are the
            user's own; or {"factory": "module:factory"} of a function that gives the networks, or, with
            {"weights": [files]}, one network without its weights. Any may have {"mean": [...], "std": [...]} of the
            channels, {"output": what to take of a network's output} and {"data_config": "model" or a file}, which
            says what `input_shape`, `fit`, `resize`, `interpolation`, mean and std are where these are left out.
        images: {"files": [...]} of images, folders and patterns, {"dataset": "name:split"}, or
            {"factory": "module:function"} of a function that gives images, (images, labels) or a torch dataset.
        method: a name, or package.module:name; options may follow, as in `ig:steps=50`, and become `options`.
        kinds: the maps to draw; the first ranks the images.
        top: how many of the most uncertain images to explain; None for all, 0 for none.
        only: the images to explain instead, by their index in the source.
        fit: how an image of another size is brought to the networks'; else "stretch", or "crop" with `resize`.
        resize: pixels of an image's shorter side before its middle is taken.
        interpolation: how pixels are computed then; "bilinear" if nothing says otherwise.
        input_shape: (C, H, W) of the networks, where the posterior does not say.
        classes: their names, where the posterior does not say.
        batch: images at a time.
        shard: images with maps in a file.
        threads: of torch; float32 sums depend on it in the last digits.
        device: what the networks run on.
    """

    posterior: Mapping[str, Any]
    images: Mapping[str, Any]
    method: str = "ua-backprop"
    kinds: tuple[str, ...] = RANKING
    options: Mapping[str, Any] = field(default_factory=dict)
    top: int | None = None
    only: tuple[int, ...] | None = None
    fit: str | None = None
    resize: int | None = None
    interpolation: str | None = None
    input_shape: tuple[int, ...] | None = None
    classes: tuple[str, ...] | None = None
    memory: int | str = DEFAULT_MEMORY
    seed: int = 0
    batch: int = 32
    shard: int = 64
    threads: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        method, options = read_method(self.method, self.options)  # the same results have the same settings
        if "pair" in options:
            raise OptionError(
                "pair= is of dubium.explain alone: a folder of results has predictions and labels of all classes. "
                "Explain the images in question with dubium.explain(posterior, x, pair=(4, 9))."
            )
        plain = {name: plain_number(value) for name, value in vars(self).items()}
        plain |= {"method": method, "options": {name: plain_number(value) for name, value in options.items()}}
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        check_kinds(self.kinds)
        lookup("fit", dict.fromkeys(FITS), self.image_fit)
        lookup("interpolation", dict.fromkeys(INTERPOLATIONS), self.interpolation or BILINEAR)
        parse_memory(self.memory)
        check_number("batch", self.batch, whole=True)
        check_number("shard", self.shard, whole=True)
        if self.resize is not None:
            check_number("resize", self.resize, whole=True)
        if self.top is not None:
            check_number("top", self.top, above=-1, whole=True)
        if self.threads is not None:
            check_number("threads", self.threads, whole=True)
        if self.device.partition(":")[0] not in ("cpu", "cuda"):
            raise OptionError(f"device is {self.device!r}; expected cpu or cuda.")
        if self.input_shape is not None:
            check_input_shape(self.input_shape)

    def check_keys(self) -> None:
        """Raise an error where `posterior` or `images` has a key that nothing reads."""
        for name, given, known in (
            ("posterior", self.posterior, POSTERIOR_SETTINGS),
            ("images", self.images, IMAGE_SETTINGS),
        ):
            for key in given.keys() - {*known, GIVEN}:
                raise UnknownNameError(unknown_name_text(f"key of {name}=", key, known))

    @property
    def image_fit(self) -> str:
        """What `fit` means where nothing says it: a size to resize to is that of a middle to be taken."""
        return self.fit or (STRETCH if self.resize is None else CROP)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Settings":
        """Settings that were stored as JSON: `dataclasses.asdict`, with lists for tuples."""
        values: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in content.items()}
        return cls(**values)
