"""Images of a user's own: a tensor, images with labels, a torch dataset or its loader."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, Subset

from dubium.data.dataset import GIVEN, Dataset, as_float
from dubium.data.image_files import byte_pixels, convert_colours
from dubium.data.load import load
from dubium.data.loaders import samples_of
from dubium.errors import DubiumError, FileFormatError, ImagesError, ImagesTypeError
from dubium.image_checks import check_finite_images

IMAGE_KEYS, LABEL_KEYS = ("image", "pixel_values", "img", "x"), ("label", "labels", "y", "target", "targets")
NO_SAMPLES = "The dataset has no samples."
NAMES_ADVICE = "Names become numbers by their place among the classes' names: "


def as_dataset(data: Any) -> Dataset:
    """Images in memory, whatever a user has them in.

    Args:
        data: a name or path (see `load`), a `Dataset`, images (N, C, H, W), (images, labels), both tensors or
            arrays, or a torch dataset or loader whose samples have one size.
    """
    if isinstance(data, Dataset):
        if not len(data):
            raise ImagesError(NO_SAMPLES)
        check_finite_images(data.images, "The images have")
        return data
    if isinstance(data, str | Path):
        return load(data)
    refuse_mapping(data)
    data = tensors_of_arrays(data)
    if isinstance(data, Tensor):
        return Dataset(check_image_batch(data), None, (), GIVEN, "all")
    if isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[0], Tensor):
        are_two_images = data[0].ndim == 3 == getattr(data[1], "ndim", 0)
        if not are_two_images:
            return labelled_images(data[0], data[1])
    samples = list(read_samples(data))
    images, labels = zip(*samples, strict=True)
    sizes = {tuple(image.shape) for image in images}
    if len(sizes) > 1:
        raise ImagesError(
            f"The dataset's images have different shapes: {', '.join(map(str, sorted(sizes)[:3]))}. Resize them in its "
            "transform."
        )
    if None in labels:
        note = unused_label_note(data.dataset if isinstance(data, DataLoader) else data, labels.index(None))
        return Dataset(check_image_batch(torch.stack(images)), None, (), GIVEN, "all", label_note=note)
    found = labelled_images(torch.stack(images), torch.tensor(labels))
    folders = folder_classes(data)
    return replace(found, classes=folders, name=type(base_dataset(data)).__name__, by_folder=True) if folders else found


def tensors_of_arrays(data: Any) -> Any:
    """A NumPy array of images, alone or with labels, as a tensor; anything else as it is."""
    if isinstance(data, np.ndarray):
        return torch.as_tensor(data)
    if isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[0], np.ndarray) and data[0].ndim == 4:
        return torch.as_tensor(data[0]), data[1]
    return data


def base_dataset(data: Any) -> Any:
    """The dataset of a loader, a subset, or a subset of a subset."""
    while isinstance(data, DataLoader | Subset):
        data = data.dataset
    return data


def folder_classes(data: Any) -> tuple[str, ...]:
    """The folders that labels count, where the dataset is one of torchvision's `ImageFolder`; else nothing.

    Their order is that of their names, which need not be the order of a network's classes.
    """
    dataset = base_dataset(data)
    numbers = getattr(dataset, "class_to_idx", None)
    if not isinstance(numbers, Mapping) or not isinstance(getattr(dataset, "samples", None), list):
        return ()
    is_renumbered = getattr(dataset, "target_transform", None) is not None
    return () if is_renumbered else tuple(sorted(numbers, key=numbers.__getitem__))


def labelled_images(images: Tensor, labels: Any) -> Dataset:
    """Images (N, C, H, W) and a class for each."""
    try:
        numbers = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:  # of names, dicts, None
        first = next(iter(labels), None) if isinstance(labels, Iterable) else labels
        advice = f" {NAMES_ADVICE}[names.index(label) for label in labels]." * isinstance(first, str)
        raise ImagesError(
            f"The labels are a {type(labels).__name__}, of {str(first)!r:.60} and others; {len(images)} whole numbers "
            f"from 0 on are needed, one for each image.{advice}"
        ) from error
    is_number_each = numbers.shape == images.shape[:1] and not numbers.is_floating_point()
    if is_number_each and len(numbers) and int(numbers.min()) < 0:
        raise ImagesError(
            f"A label is {int(numbers.min())}; whole numbers from 0 on are needed. Leave out images without a label, "
            "or give the images alone."
        )
    if not is_number_each:
        raise ImagesError(
            f"The labels have shape {tuple(numbers.shape)} and type {numbers.dtype}; {len(images)} whole numbers from "
            f"0 on are needed, one for each image.{' One-hot labels: labels.argmax(1).' * (numbers.ndim == 2)}"
        )
    classes = tuple(map(str, range(int(numbers.max()) + 1 if len(numbers) else 0)))
    return Dataset(check_image_batch(images), numbers.long().cpu(), classes, GIVEN, "all")


def refuse_mapping(data: object) -> None:
    """Say what to give of a dict, as of a Hugging Face processor's output or of a dataset's splits."""
    if isinstance(data, Mapping):
        raise ImagesTypeError(
            f"The data is a {type(data).__name__} of {', '.join(map(str, data))}. Give one of its parts: the images of "
            "a processor's output are data['pixel_values'], a split of a dataset is data['test']."
        )


def check_image_batch(images: Tensor) -> Tensor:
    """Images (N, C, H, W) on the CPU, as bytes or float32; NaN and infinity are refused."""
    if images.ndim != 4 or not len(images):
        raise ImagesError(f"The images have shape {tuple(images.shape)}; (N, C, H, W) is needed, with N of 1 at least.")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise ImagesTypeError(
            f"The images are {images.dtype}; bytes from 0 to 255 (uint8) or floats are needed. "
            "For pixels from 0 to 255: x / 255."
        )
    images = images.detach().cpu()
    check_finite_images(images, "The images have")
    return images if images.dtype == torch.uint8 else images.float()


def read_samples(data: Any) -> Iterator[tuple[Float[Tensor, "C H W"], int | None]]:
    """Images and labels of a torch dataset, one by one and in its own order; of a loader, those that it selects."""
    dataset = numbered_samples(samples_of(data))
    for index in range(len(dataset)):
        yield sample_at(dataset, index)


def numbered_samples(dataset: Any) -> Any:
    """The torch dataset itself, if it has a length and numbered samples; what else it may be is refused."""
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        advice = " What gives its samples one by one becomes a list: list(dataset)." * isinstance(dataset, Iterable)
        raise ImagesTypeError(
            f"The data is a {type(dataset).__name__}; a tensor (N, C, H, W), (images, labels), a dubium Dataset, a "
            f"name, or a torch dataset with a length and numbered samples is needed.{advice}"
        )
    if not len(dataset):
        raise ImagesError(NO_SAMPLES)
    return dataset


def sample_at(dataset: Any, index: int) -> tuple[Float[Tensor, "C H W"], int | None]:
    """Image and label of a numbered sample; what the dataset raises is said to be that sample's."""
    try:
        sample = dataset[index]
    except (DubiumError, MemoryError):
        raise
    except OSError as error:  # of a file, as a folder's would be
        raise FileFormatError(f"Sample {index} of the dataset cannot be read: {error}") from error
    except Exception as error:
        raise ImagesError(f"Sample {index} of the dataset raised {type(error).__name__}: {error}") from error
    return read_sample(sample)


def read_sample(sample: Any) -> tuple[Float[Tensor, "C H W"], int | None]:
    """The image and the label, if there is one, of a torch dataset's sample: an image, a tuple, or a dict."""
    image, label = split_sample(sample)
    if isinstance(image, Image.Image):
        image = byte_pixels(convert_colours(image))
    if not isinstance(image, Tensor) or image.ndim != 3:
        given = f"a tensor of shape {tuple(image.shape)}" if isinstance(image, Tensor) else type(image).__name__
        raise ImagesTypeError(
            f"A sample of the dataset has {given} for its image; a tensor (C, H, W) or a PIL image is needed. Samples "
            f"are an image, (image, label), or a dict with {' or '.join(map(repr, IMAGE_KEYS[:2]))}."
        )
    return as_float(image.detach().cpu()[None])[0], class_number(label)


def split_sample(sample: Any) -> tuple[Any, Any]:
    """The parts of a sample that are its image and its label; None where there is none."""
    if isinstance(sample, Mapping):
        image, label = (next((sample[key] for key in keys if key in sample), None) for keys in (IMAGE_KEYS, LABEL_KEYS))
        return image, label
    if isinstance(sample, tuple | list):
        return sample[0], sample[1] if len(sample) > 1 else None
    return sample, None


def class_number(label: Any) -> int | None:
    """The class that a sample's label is the number of; None where there is no label, or one of several numbers.

    >>> class_number(torch.tensor([3])), class_number(2.0), class_number(torch.eye(4)[1])
    (3, 2, None)
    """
    if label is None or has_several_numbers(label):
        return None
    value = label.item() if isinstance(label, Tensor | np.ndarray | np.generic) else label
    if isinstance(value, int | float) and value >= 0 and value == value // 1:
        return int(value)
    pairs = "[(image, names.index(label)) for image, label in dataset]."
    advice = NAMES_ADVICE + pairs if isinstance(value, str) else "Or leave labels out: a dataset of images alone."
    raise ImagesError(
        f"A sample of the dataset has {value!r:.60} for its label; the number of its class is needed, a whole one from "
        f"0 on. {advice}"
    )


def has_several_numbers(label: Any) -> bool:
    """Whether a label is of several numbers, as a one-hot vector or a mask is."""
    return isinstance(label, list | tuple) or (isinstance(label, Tensor | np.ndarray) and prod(label.shape) != 1)


def unused_label_note(dataset: Any, index: int = 0) -> str:
    """Why the label of a sample cannot be used; "" where the sample can be, or has none."""
    try:
        image, label = split_sample(dataset[index])
        if isinstance(image, Image.Image):
            image.load()  # which closes its file
    except Exception:  # of the user's own code; it is named when the sample is read
        return ""
    if not has_several_numbers(label):
        return ""
    shape = tuple(label.shape) if isinstance(label, Tensor | np.ndarray) else (len(label),)
    return (
        f"Labels are not used: sample {index} of the dataset has a {type(label).__name__} of shape {shape} for its "
        "label; the number of its class is needed. Of a one-hot label it is label.argmax()."
    )
