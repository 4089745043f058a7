"""What `explain` returns: scores, maps and predictions, with the settings that made them."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dubium.checks import count_text
from dubium.errors import DataNotFoundError, FileFormatError, OptionError, UnknownNameError, unknown_name_text
from dubium.path_checks import refuse_other_suffix
from dubium.shares import class_shares
from dubium.tensor_files import read_tensor_file, write_tensors
from dubium.types import KINDS, Images, Kind, Logits, Maps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dubium.regions import Region

FORMAT, KEY = 1, "dubium"
EXTRAS = "extras/"  # in a file, before the names of extras that are called like a part of an explanation
OWN_PARTS = ("scores", "maps", "all_scores", "probs", "members", "images", "extras")


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """How unsure a posterior is about each image, and which pixels make it so; `scores` and `maps` go by kind.

    >>> zeros = {"total": torch.zeros(2, 4, 4)}
    >>> Explanation({"total": torch.zeros(2)}, zeros, torch.rand(2, 3), torch.rand(5, 2, 3), "grad", {})
    Explanation(grad: 2 images, 5 networks, 3 classes, maps of total)
    """

    scores: dict[str, Tensor]  # (B,) nats
    maps: dict[str, Tensor]  # (B, H, W)
    probs: Tensor  # (B, K) mean prediction
    members: Tensor  # (S, B, K) each network's prediction
    method: str
    options: dict[str, Any]
    extras: dict[str, dict[str, Tensor]] = field(default_factory=dict)  # e.g. "counterfactual", by kind
    input_shape: tuple[int, ...] = ()
    all_scores: dict[str, Tensor] = field(default_factory=dict)  # of every kind, also those without maps
    images: Tensor | None = None  # (B, C, H, W), if they were to be kept
    class_names: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        from dubium.figures import pair_words

        samples, images, classes = self.members.shape
        maps = f"maps of {', '.join(self.maps)}" if self.maps else "no maps"
        known = pair_words(self) or f"{classes} classes"
        counts = f"{count_text(images, 'image')}, {count_text(samples, 'network')}"
        return f"Explanation({self.method}: {counts}, {known}, {maps})"

    def save(self, path: Path | str) -> None:
        """Write everything to one safetensors file, whole or not at all; a name of another kind of file is refused."""
        from dubium import __version__

        refuse_other_suffix(path, ".safetensors", "an explanation is a safetensors file, which dubium.load reads")
        tensors = {"probs": self.probs, "members": self.members}
        tensors |= {} if self.images is None else {"images": self.images}
        own = {"scores": self.scores, "maps": self.maps, "all_scores": self.all_scores}
        extras = {
            EXTRAS + name if name in OWN_PARTS or "/" in name else name: self.extras[name] for name in self.extras
        }
        for part, by_kind in (own | extras).items():
            tensors |= {f"{part}/{kind}": tensor for kind, tensor in by_kind.items()}
        tensors = {name: torch.as_tensor(tensor) for name, tensor in tensors.items()}
        about = {"format": FORMAT, "dubium": __version__, "method": self.method, "options": json_value(self.options)}
        about["input_shape"] = list(self.input_shape)
        about["class_names"] = self.class_names
        write_tensors(path, tensors, key=KEY, header=about)

    def numpy(self) -> "Explanation":
        """The same with NumPy arrays."""

        def arrays(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: arrays(item) for name, item in value.items()}
            return None if value is None else value.numpy(force=True)

        twin = copy(self)
        for name in ("scores", "maps", "probs", "members", "extras", "all_scores", "images"):
            object.__setattr__(twin, name, arrays(getattr(self, name)))  # around the types, which promise tensors
        return twin

    def regions(
        self, kind: str | None = None, *, level: float | int | None = None, smooth: float | int | None = None
    ) -> "list[list[Region]]":
        """For each image its bright regions, the largest share of the score first, and the remainder at the end.

        A region's `box` is (top, left, bottom, right) with bottom and right excluded; its text names the last row and
        column.

        Args:
            kind: of the map; if it is not given, epistemic where there is such a map, else the first.
            level: the part of the smoothed map's highest value from which a pixel is bright; 0.5 if it is not given.
            smooth: standard deviation of the blur in pixels; a map's longer side over 18 if it is not given.

        >>> dot = torch.tensor([[[0.0, 2.0, 0.0], [0.0, 0.0, 1.0]]])
        >>> result = Explanation({}, {"epistemic": dot}, torch.rand(1, 3), torch.rand(5, 1, 3), "grad", {})
        >>> for region in result.regions(level=0.9, smooth=0)[0]:
        ...     print(region)
        Region(epistemic: 67 % in 1 pixel, row 0, column 1)
        Region(epistemic: 33 % in 5 pixels, the remainder)
        """
        from dubium.regions import LEVEL, map_regions

        kind = kind or ("epistemic" if "epistemic" in self.maps else next(iter(self.maps), "epistemic"))
        if kind not in self.maps:
            there = f"it has {', '.join(self.maps)}" if self.maps else "it has none: dubium.explain makes maps"
            raise OptionError(f"kind={kind!r}, but this explanation has no such maps; {there}.")
        level = LEVEL if level is None else level
        return [map_regions(torch.as_tensor(m), kind, level=level, smooth=smooth) for m in self.maps[kind]]

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from dubium.notebook import explanation_html

        return explanation_html(self)

    def plot(self, x: Images | None = None, **options: Any) -> "Figure":
        """Draw image, maps, scores and prediction, a row per image; see `dubium.figures.explanation_figure`.

        `x` is not needed where the explanation keeps its images (`explain(..., keep_images=True)`).
        """
        from dubium.figures import explanation_figure

        known = [name for name in signature(explanation_figure).parameters if name != "explanation"]
        for name in options.keys() - known:
            hint = " Which kinds there are, explain(..., kinds=) says." if name == "kinds" else ""
            raise UnknownNameError(unknown_name_text("argument of plot", name, known) + hint)
        return explanation_figure(self, x, **options)


def make_explanation(
    logits: Logits,
    x: Images,
    kinds: Sequence[Kind],
    *,
    maps: Maps | None,
    extras: Mapping[str, Tensor],
    options: Mapping[str, Any],
    **about: Any,
) -> Explanation:
    """The explanation of what a method found: results by kind, in the images' type; options as JSON can hold them."""
    scores = dict(zip(KINDS, class_shares(logits).sum(-1).to(x.dtype), strict=True))
    members = logits.double().softmax(-1)
    return Explanation(
        scores={kind: scores[kind] for kind in kinds},
        maps={} if maps is None else {kind: maps[:, t] for t, kind in enumerate(kinds)},
        probs=members.mean(0).to(x.dtype),
        members=members.to(x.dtype),
        extras={name: {kind: tensor[:, t] for t, kind in enumerate(kinds)} for name, tensor in extras.items()},
        input_shape=tuple(x.shape),
        all_scores=scores,
        options=json_value(options),
        **about,
    )


def load(path: Path | str) -> Explanation:
    """Read what `Explanation.save` wrote.

    Args:
        path: the file.

    Returns:
        The explanation, its tensors on the CPU.

    >>> from tempfile import TemporaryDirectory
    >>> result = Explanation({"total": torch.ones(1)}, {}, torch.rand(1, 3), torch.rand(5, 1, 3), "uncertainty", {})
    >>> with TemporaryDirectory() as folder:
    ...     result.save(f"{folder}/doubt.safetensors")
    ...     load(f"{folder}/doubt.safetensors").scores
    {'total': tensor([1.])}
    """
    path = Path(path)
    if path.is_dir():
        raise FileFormatError(
            f"{path} is a folder; an explanation is a file that result.save wrote. A folder of results is read by "
            "dubium.run.open_results, one of a posterior by dubium.load_posterior."
        )
    if not path.is_file():
        raise DataNotFoundError(f"There is no file {path}.")
    try:
        tensors, about = read_tensor_file(path, key=KEY, advice="")
        if about is None:
            raise FileFormatError(f"{path} has no metadata of dubium's.")
        if about.get("format") != FORMAT:
            raise FileFormatError(
                f"{path} has format {about.get('format')!r:.50}, written by dubium {about.get('dubium')!s:.50}; this "
                f"dubium reads format {FORMAT}. Upgrade dubium to read it."
            )
        check_parts(tensors, about, path)
    except FileFormatError as error:
        raise FileFormatError(
            f"{error} A file of Explanation.save was expected; make it again. For a posterior's folder, use "
            "dubium.load_posterior."
        ) from error
    parts: dict[str, dict[str, Tensor]] = {"scores": {}, "maps": {}}
    for name in [name for name in tensors if "/" in name]:
        part, _, kind = name.rpartition("/")
        parts.setdefault(part, {})[kind] = tensors[name]
    for part, by_kind in parts.items():  # a file has an order of its own
        known = [kind for kind in KINDS if kind in by_kind]
        parts[part] = {kind: by_kind[kind] for kind in dict.fromkeys([*known, *by_kind])}
    return Explanation(
        scores=parts.pop("scores"),
        maps=parts.pop("maps"),
        probs=tensors["probs"],
        members=tensors["members"],
        method=about["method"],
        options=about["options"],
        all_scores=parts.pop("all_scores", {}),  # older files have none
        extras={part.removeprefix(EXTRAS): by_kind for part, by_kind in parts.items()},
        input_shape=tuple(about["input_shape"]),
        images=tensors.get("images"),
        class_names=tuple(about["class_names"]) if about.get("class_names") else None,
    )


def check_parts(tensors: Mapping[str, Tensor], about: Mapping[str, Any], path: Path) -> None:
    """Raise an error unless a file has what an explanation has, in shapes that fit each other."""
    probs, members, shape = tensors.get("probs"), tensors.get("members"), about.get("input_shape")
    problems = [] if isinstance(about.get("method"), str) and about["method"] else ["it names no method"]
    problems += [] if isinstance(about.get("options"), dict) else ["it has no options"]
    names = about.get("class_names")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        problems.append("its names of classes are no list of texts")
    if not isinstance(shape, list) or not all(type(side) is int and side >= 0 for side in shape):
        problems.append("it does not say the shape of the images")
    if probs is None or members is None or probs.ndim != 2 or members.shape[1:] != probs.shape:
        problems.append("it has no probabilities (B, K) of members (S, B, K)")
    else:
        axes = {"probs": 2, "members": 3, "scores": 1, "all_scores": 1, "maps": 3, "images": 4}
        for name, tensor in tensors.items():
            part = name.partition("/")[0]
            images = tensor.shape[1] if part == "members" else len(tensor) if tensor.ndim else None
            if part in axes and (tensor.ndim != axes[part] or images != len(probs) or not tensor.is_floating_point()):
                problems.append(f"{name} is {tensor.dtype} {tuple(tensor.shape)} for {len(probs)} images")
    if problems:
        raise FileFormatError(f"{path} is not a whole explanation: {'; '.join(problems[:4])}.")


def json_value(value: Any) -> Any:
    """A value as JSON can hold it: tensors and functions by what they are."""
    if isinstance(value, Mapping):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Tensor):
        return f"tensor {tuple(value.shape)}"
    return getattr(value, "__name__", None) or f"{type(value).__name__} {torch.typename(value)}"
