"""Mean-field variational inference (Blundell et al., 2015, arXiv:1505.05424) through `posteriors`."""

from math import log

from torch import nn

from dubium.checks import check_number
from dubium.errors import DivergedError
from dubium.posteriors.batches import Batches, check_classes, training_batches
from dubium.posteriors.gaussian import Gaussian, check_samples
from dubium.posteriors.log_posterior import (
    OnSamplerEpoch,
    Resume,
    classification_log_posterior,
    run_epoch,
    state_of_tensors,
    tensors_of_state,
)
from dubium.posteriors.optional_imports import import_extra
from dubium.posteriors.weights import snapshot, with_weights
from dubium.seeds import numbered_seed


def mean_field_vi(
    network: nn.Module,
    batches: Batches,
    *,
    epochs: int = 20,
    lr: float = 1e-3,
    start_std: float = 0.01,
    prior_std: float = 1.0,
    samples: int = 20,
    seed: int = 0,
    on_epoch: OnSamplerEpoch | None = None,
    resume: Resume | None = None,
) -> Gaussian:
    """The independent normal distribution of each weight nearest to the posterior, found by Adam from `network`.

    The network runs in eval mode: BatchNorm keeps the statistics it has, so start from a trained network if it has any.

    Args:
        network: its weights are the first means; it is not changed.
        batches: of the training data, (images, labels); they are read several times.
        start_std: of every weight, before the first epoch.
        prior_std: of the independent normal prior on each weight.
        samples: the number of networks that the Gaussian draws.
        on_epoch: called after each epoch with its number and the tensors to resume from.
        resume: what `on_epoch` was last called with; the result is then that of an uninterrupted run.

    Returns:
        The mean and standard deviation of every weight.
    """
    check_samples(samples)
    check_number("epochs", epochs, above=-1, whole=True)
    for name, value in {"lr": lr, "start_std": start_std, "prior_std": prior_std}.items():
        check_number(name, value)
    start = snapshot(network)
    data = training_batches(batches, network)
    check_classes(start, next(iter(data))[0], data.label_range)
    log_posterior = classification_log_posterior(start, len(data.dataset), prior_std)
    adam = import_extra("torchopt", "posteriors").adam(lr=lr)
    library = import_extra("posteriors", "posteriors").vi.diag
    temperature = 1 / len(data.dataset)
    transform = library.build(log_posterior, adam, temperature=temperature, init_log_sds=log(start_std))
    state = transform.init({name: weight.clone() for name, weight in start.named_parameters()})
    done, tensors = resume or (0, {})
    state = state_of_tensors(state, tensors) if tensors else state
    for epoch in range(done, epochs):
        state = run_epoch(transform, state, data, numbered_seed(seed, epoch))
        if not state.nelbo.isfinite().all():
            raise DivergedError(
                f"Variational inference diverged in epoch {epoch + 1}: the loss is {state.nelbo.item()}. Use a smaller "
                f"lr than {lr}."
            )
        if on_epoch is not None:
            on_epoch(epoch + 1, tensors_of_state(state))
    std = {name: log_std.exp().detach() for name, log_std in state.log_sd_diag.items()}
    return Gaussian(with_weights(start, state.params), std, samples=samples, seed=seed)
