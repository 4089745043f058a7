"""Stochastic gradient Hamiltonian Monte Carlo (Chen et al., 2014, arXiv:1402.4102) through `posteriors`."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from dubium.checks import check_number, warn_user
from dubium.errors import DivergedError
from dubium.posteriors.batches import Batches, TrainingBatches, check_classes, training_batches
from dubium.posteriors.gaussian import check_samples
from dubium.posteriors.log_posterior import (
    OnSamplerEpoch,
    Resume,
    classification_log_posterior,
    run_epoch,
    state_of_tensors,
    tensors_of_state,
)
from dubium.posteriors.optional_imports import import_extra
from dubium.posteriors.weights import WeightSamples, snapshot
from dubium.seeds import numbered_seed

CHECKED = 1000  # images, or a batch, that are shown to the networks in the end
MOST_LOST = 0.15  # of the images, that samples may be wrong on where the trained network was right


def sghmc(
    network: nn.Module,
    batches: Batches,
    *,
    samples: int = 20,
    burn_in: int = 10,
    thinning: int = 1,
    lr: float = 0.001,
    alpha: float = 1.0,
    prior_std: float = 1.0,
    seed: int = 0,
    on_epoch: OnSamplerEpoch | None = None,
    resume: Resume | None = None,
) -> WeightSamples:
    """Walk through weight space from `network`, with noise, and keep where the walk is every `thinning` epochs.

    It is SGD with learning rate `lr ** 2` and momentum `1 - lr * alpha`, plus the noise that makes it a sampler. The
    network runs in eval mode: BatchNorm keeps the statistics it has, so start from a trained network if it has any.

    Args:
        network: where the walk starts; it is not changed.
        batches: of the training data, (images, labels); they are read several times.
        samples: the number of networks.
        burn_in: epochs before the first sample.
        thinning: epochs from one sample to the next.
        lr: how far a step goes. Above what the network bears, the walk loses it, which brings a warning; below, samples
            hardly differ.
        alpha: friction.
        prior_std: of the independent normal prior on each weight.
        on_epoch: called after each epoch with its number and the tensors to resume from.
        resume: what `on_epoch` was last called with; the result is then that of an uninterrupted run.

    Returns:
        Weights of `samples` networks.
    """
    check_samples(samples)
    check_number("burn_in", burn_in, above=-1, whole=True)
    check_number("thinning", thinning, whole=True)
    for name, value in {"lr": lr, "alpha": alpha, "prior_std": prior_std}.items():
        check_number(name, value)
    start = snapshot(network)
    data = training_batches(batches, network)
    check_classes(start, next(iter(data))[0], data.label_range)
    log_posterior = classification_log_posterior(start, len(data.dataset), prior_std)
    library = import_extra("posteriors", "posteriors").sgmcmc.sghmc
    # The library's momenta start with variance 1, far above the 1 / N they settle at: a trained network would be lost.
    transform = library.build(log_posterior, lr=lr, alpha=alpha, temperature=1 / len(data.dataset), momenta=0.0)
    state = transform.init({name: weight.clone() for name, weight in start.named_parameters()})
    done, tensors = resume or (0, {})
    state = state_of_tensors(state, tensors) if tensors else state
    kept = kept_samples(tensors)
    for epoch in range(done, burn_in + samples * thinning):
        state = run_epoch(transform, state, data, numbered_seed(seed, epoch))
        if not state.log_posterior.isfinite():
            raise DivergedError(
                f"SGHMC diverged in epoch {epoch + 1}: the log posterior is {state.log_posterior.item()}. Use a "
                f"smaller lr than {lr}, or a trained network to start from."
            )
        if epoch >= burn_in and (epoch + 1 - burn_in) % thinning == 0:
            kept.append(dict(state.params))
        if on_epoch is not None:
            on_epoch(epoch + 1, tensors_of_state(state) | flat_samples(kept))
    posterior = WeightSamples(start, kept)
    warn_if_lost(start, posterior, data, lr)
    return posterior


@torch.no_grad()
def warn_if_lost(start: nn.Module, posterior: WeightSamples, data: TrainingBatches, lr: float) -> None:
    """Warn where the networks sampled fit the data far worse than the one that the walk started from."""
    networks, images = [start, *posterior], 0
    right = torch.zeros(len(networks))
    for x, labels in data:
        right += torch.tensor([(network(x).argmax(1) == labels).sum().item() for network in networks])
        images += len(labels)
        if images >= CHECKED:
            break
    before, after = float(right[0]) / images, float(right[1:].mean()) / images
    if before - after > MOST_LOST:
        warn_user(
            f"SGHMC lost the network that it started from: that one is right on {100 * before:.0f} % of the training "
            f"images, those sampled on {100 * after:.0f} % on average. Steps of lr={lr:g} are too long for it; try "
            f"dubium.posteriors.sghmc(network, batches, lr={lr / 10:g})."
        )


def flat_samples(kept: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The weights of all samples in one dict, for a checkpoint."""
    return {f"sample/{index}/{name}": weight for index, s in enumerate(kept) for name, weight in s.items()}


def kept_samples(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """The samples that `flat_samples` wrote."""
    kept: dict[int, dict[str, Tensor]] = {}
    for key, weight in tensors.items():
        if key.startswith("sample/"):
            _, index, name = key.split("/", 2)
            kept.setdefault(int(index), {})[name] = weight
    return [kept[index] for index in sorted(kept)]
