"""Stochastic gradient Hamiltonian Monte Carlo (Chen et al., 2014, arXiv:1402.4102) through `posteriors`."""

from collections.abc import Mapping

from torch import Tensor, nn

from dubium.checks import check_number
from dubium.errors import DivergedError
from dubium.posteriors.batches import Batches, training_batches
from dubium.posteriors.extras import import_extra
from dubium.posteriors.gaussian import check_samples
from dubium.posteriors.log_posterior import (
    OnSamplerEpoch,
    Resume,
    classification_log_posterior,
    run_epoch,
    state_of_tensors,
    tensors_of_state,
)
from dubium.posteriors.weights import WeightSamples, snapshot
from dubium.seeds import numbered_seed


def sghmc(
    network: nn.Module,
    batches: Batches,
    *,
    samples: int = 20,
    burn_in: int = 10,
    thinning: int = 1,
    lr: float = 0.1,
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
    return WeightSamples(start, kept)


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
