"""The samples that a torch `DataLoader` selects: what it does besides making batches is followed, or refused."""

from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    default_collate,
    default_convert,
)

from dubium.errors import ImagesError

OWN_CODE = (
    "Give a dataset instead of the loader, with a __getitem__ that does so; if it only joins samples, loader.dataset."
)
OWN_CHOICE = "Give the images that it should choose, torch.utils.data.Subset(dataset, indices), or all: loader.dataset."


def samples_of(data: Any) -> Any:
    """A loader's dataset, or the subset that its sampler selects, each sample once and in order; others as they are."""
    if not isinstance(data, DataLoader):
        return data
    if isinstance(data.dataset, IterableDataset) or not hasattr(data.dataset, "__len__"):
        return data.dataset  # which the caller refuses
    if data.collate_fn not in (default_collate, default_convert):
        raise ImagesError(
            f"The loader's collate_fn is {describe(data.collate_fn)}; samples are read one by one, without it. "
            f"{OWN_CODE}"
        )
    sampler, batches = data.sampler, data.batch_sampler
    if batches is not None:
        if type(batches) is not BatchSampler:
            raise ImagesError(f"The loader's batch_sampler is {describe(batches)}, of one's own. {OWN_CHOICE}")
        sampler = batches.sampler
    indices = selected_indices(sampler)
    if batches is not None and batches.drop_last and (rest := len(indices) % batches.batch_size):
        raise ImagesError(
            f"The loader has drop_last=True, which leaves out {rest} of {len(indices)} images. Give it "
            "drop_last=False, or its dataset alone: loader.dataset."
        )
    return data.dataset if indices == [*range(len(data.dataset))] else Subset(data.dataset, indices)


def selected_indices(sampler: Any) -> list[int]:
    """The indices that a sampler gives on every pass, in order; one that draws others each time is refused."""
    if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(sampler.data_source):
        return [*range(sampler.num_samples)]
    if type(sampler) in (SequentialSampler, SubsetRandomSampler, list, tuple, range):
        return sorted({int(index) for index in sampler})
    raise ImagesError(
        f"The loader's sampler is {describe(sampler)}, which may choose other images on every pass. {OWN_CHOICE}"
    )


def describe(part: Any) -> str:
    """A function by its name, an object by its class."""
    return getattr(part, "__name__", None) or type(part).__name__
