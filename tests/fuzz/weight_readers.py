"""Readers of files with weights: posteriors, PyTorch checkpoints, VAEs, checkpoints of training, explanations."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import nn

import dubium
from dubium.explanation import Explanation
from dubium.models import build, load_vae, save_vae, vae_conv, vae_dense
from dubium.posteriors import Gaussian, MCDropout, load_posterior, load_weights, posterior_record, save_posterior
from dubium.training.checkpoint import TrainingState, restore_state, save_state
from tests.fuzz.mutations import mutate_bytes, mutate_json, mutate_safetensors
from tests.fuzz.reader import Files, FuzzReader, maybe_reseal, one_file, seal_covers

OPTIONS = {"filters": 2, "units": 3, "size": 8}
CNN = {"name": "cnn", "options": OPTIONS}


def small_cnn() -> nn.Module:
    torch.manual_seed(0)
    return build("cnn", **OPTIONS).eval()


def write_posterior(kind: str) -> Callable[[Path], Any]:
    def write(folder: Path) -> None:
        network = small_cnn()
        std = {name: torch.full_like(tensor, 0.1) for name, tensor in network.named_parameters()}
        made: Any = {
            "ensemble": [network, small_cnn()],
            "dropout": MCDropout(network, 3),
            "gaussian": Gaussian(network, std, {"conv1.bias": torch.ones(2, 2)}, samples=3),
        }[kind]
        save_posterior(made, folder, architecture=CNN, classes=[str(i) for i in range(10)], input_shape=(1, 8, 8))

    return write


POSTERIORS = tuple(map(write_posterior, ("ensemble", "dropout", "gaussian")))


def read_posterior(folder: Path) -> Any:
    posterior = load_posterior(folder)
    record = posterior_record(folder)
    states = [dict(network.state_dict()) for network in islice(posterior, 3)]
    return states, len(posterior), record.classes, record.input_shape, record.normalisation


def without_checksums(files: Files, random: Random) -> Files:
    """Damage to weights; every second time the record knows no checksums."""
    if random.random() < 0.5:
        record = {**json.loads(files["posterior.json"]), "sha256": {}}
        files = {**files, "posterior.json": json.dumps(record).encode()}
    return one_file(mutate_safetensors, ".safetensors")(files, random)


def has_checksums(before: Files, after: Files) -> bool:
    return before["posterior.json"] == after["posterior.json"]


def write_pt(folder: Path) -> None:
    torch.save(small_cnn().state_dict(), folder / "a.pt")


def write_old_pt(folder: Path) -> None:
    torch.save(small_cnn().state_dict(), folder / "a.pt", _use_new_zipfile_serialization=False)


def read_pt(folder: Path) -> Any:
    return [network.state_dict() for network in load_weights(lambda: build("cnn", **OPTIONS), folder / "a.pt")]


def write_dense_vae(folder: Path) -> None:
    torch.manual_seed(0)
    save_vae(vae_dense(size=4, hidden=(3,)), folder, architecture="vae-dense", options={"size": 4, "hidden": [3]})


def write_conv_vae(folder: Path) -> None:
    torch.manual_seed(0)
    options = {"size": 8, "kernels": 4, "latent": 2}
    save_vae(vae_conv(**options), folder, architecture="vae-conv", options=options, training={"epochs": 1})


def damage_vae(files: Files, random: Random) -> Files:
    if random.random() < 0.5:
        return one_file(mutate_json, ".json")(files, random)
    return maybe_reseal(one_file(mutate_safetensors, ".safetensors"))(files, random)


def vae_seal_covers(before: Files, after: Files) -> bool:
    return before["vae.json"] == after["vae.json"] and seal_covers(before, after)


def write_checkpoint_file(folder: Path) -> None:
    network = small_cnn()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    network(torch.ones(1, 1, 8, 8)).sum().backward()
    optimizer.step()
    state = TrainingState(2, [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}], {"mean": torch.ones(3)})
    save_state(folder / "c.safetensors", network, optimizer, state)


def read_checkpoint_file(folder: Path) -> Any:
    network = small_cnn()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    state = restore_state(folder / "c.safetensors", network, optimizer)
    moments = [dict(found) for found in optimizer.state_dict()["state"].values()]
    return network.state_dict(), moments, state.epochs, state.history, state.kept


def write_explanation(folder: Path) -> None:
    rng = torch.Generator().manual_seed(0)
    maps = {kind: torch.rand(2, 4, 4, generator=rng) for kind in ("total", "epistemic")}
    scores = {kind: maps[kind].sum((1, 2)) for kind in maps}
    probs, members = torch.rand(2, 3, generator=rng), torch.rand(3, 2, 3, generator=rng)
    found = Explanation(
        *(scores, maps, probs, members, "clue", {"steps": 3}),
        extras={"counterfactual": {"total": torch.rand(2, 1, 4, 4, generator=rng)}},
        input_shape=(2, 1, 4, 4),
    )
    found.save(folder / "e.safetensors")


def read_explanation(folder: Path) -> Any:
    found = dubium.load(folder / "e.safetensors")
    repr(found)
    parts = found.scores, found.maps, found.probs, found.members, found.extras
    return *parts, found.method, found.options, found.input_shape


def read_vae(folder: Path) -> Any:
    return dict(load_vae(folder).state_dict())


SEALED = maybe_reseal(one_file(mutate_safetensors))
WEIGHT_READERS: dict[str, FuzzReader] = {
    "posterior.json": FuzzReader(POSTERIORS, one_file(mutate_json, "posterior.json"), read_posterior),
    "posterior safetensors": FuzzReader(POSTERIORS, without_checksums, read_posterior, has_checksums),
    "weights .pt": FuzzReader((write_pt, write_old_pt), one_file(mutate_bytes), read_pt),
    "VAE folder": FuzzReader((write_dense_vae, write_conv_vae), damage_vae, read_vae, vae_seal_covers),
    "checkpoint": FuzzReader((write_checkpoint_file,), SEALED, read_checkpoint_file, seal_covers),
    "explanation": FuzzReader((write_explanation,), SEALED, read_explanation, seal_covers),
}
