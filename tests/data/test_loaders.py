"""A torch loader's choice of samples is followed where it is the same on every pass, and refused where it is not."""

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

import dubium
from dubium.data.samples import as_dataset
from dubium.errors import ImagesError
from tests.own_networks import own_images, own_networks

COUNT = 12


@pytest.fixture
def samples():
    x = own_images()
    return TensorDataset(torch.cat([x + 0.01 * i for i in range(3)])[:COUNT].contiguous(), torch.arange(COUNT) % 3)


def standardise(batch):
    x, labels = default_collate(batch)
    return (x - 0.5) / 0.2, labels


@pytest.mark.parametrize(
    "choice",
    [
        {"sampler": SubsetRandomSampler([8, 7, 8])},
        {"sampler": [8, 7]},
        {"batch_sampler": BatchSampler(SubsetRandomSampler([7, 8]), 2, drop_last=True)},
        {"sampler": SubsetRandomSampler([7, 8]), "batch_size": None},
    ],
)
def test_images_that_a_sampler_selects_are_read_once_and_in_order(samples, choice, tmp_path):
    loader, wanted = DataLoader(samples, **choice), samples.tensors[0][[7, 8]]
    assert as_dataset(loader).images.equal(wanted)
    results = dubium.explain_dataset(own_networks(), loader, tmp_path, top=0)
    assert [row.label for row in results.rows()] == [1, 2]


@pytest.mark.parametrize(
    "choice",
    [
        {"shuffle": True, "batch_size": 5},
        {"sampler": RandomSampler(range(COUNT))},
        {"sampler": SequentialSampler(range(COUNT))},
        {"shuffle": True, "batch_size": 4, "drop_last": True},  # which leaves out nothing
        {"batch_size": None},
    ],
)
def test_a_loader_of_all_images_is_its_dataset(samples, choice):
    assert as_dataset(DataLoader(samples, **choice)).images.equal(samples.tensors[0])
    part = as_dataset(DataLoader(Subset(samples, [3, 1]), shuffle=True))
    assert part.images.equal(samples.tensors[0][[3, 1]])


class OwnBatches:
    def __iter__(self):
        return iter([[0, 1], [5]])

    def __len__(self):
        return 2


REFUSED = {
    "collate": ({"collate_fn": standardise}, r"collate_fn is standardise; .* __getitem__ that does so"),
    "last": ({"batch_size": 5, "drop_last": True}, r"leaves out 2 of 12 images\. Give it drop_last=False"),
    "weighted": (
        {"sampler": WeightedRandomSampler([1.0] * COUNT, 4)},
        r"WeightedRandomSampler, .*Subset\(dataset, ind",
    ),
    "some": ({"sampler": RandomSampler(range(COUNT), num_samples=4)}, r"is RandomSampler, .* loader\.dataset"),
    "batches": ({"batch_sampler": OwnBatches()}, r"batch_sampler is OwnBatches, .*Subset\(dataset, indices\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_loader_does_besides_is_refused_with_advice(samples, name, tmp_path):
    options, said = REFUSED[name]
    loader = DataLoader(samples, **options)
    with pytest.raises(ImagesError, match=said):
        dubium.explain_dataset(own_networks(), loader, tmp_path / "out", method="grad")
    with pytest.raises(ImagesError, match=said):
        dubium.evaluate(own_networks(), loader, ["grad"], scale="smoke", images=2)
