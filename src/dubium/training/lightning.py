"""A Lightning callback: the most doubtful validation images of every epoch, explained on the loggers' boards."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from dubium._explain import explain, uncertainty
from dubium.checks import check_kinds, warn_user
from dubium.class_names import check_class_names
from dubium.errors import ImagesTypeError
from dubium.posteriors.optional_imports import import_extra
from dubium.training.doubtful import DoubtfulImages, log_explanation
from dubium.types import Kind


def doubt_callback(
    posterior: Callable[[Any], Any] | None = None,
    *,
    kind: Kind = "total",
    most: int = 8,
    images: Callable[[Any], Tensor] | None = None,
    class_names: Sequence[str] | None = None,
    **options: Any,
) -> Any:
    """A `lightning.pytorch.Callback` that scores validation batches and explains the most doubtful images.

    Args:
        posterior: from the LightningModule to its networks; the module alone if it is not given, and then nothing
            disagrees. For MC dropout: `lambda module: MCDropout(module.network)`.
        kind: what ranks the images, and whose maps are drawn.
        most: images an epoch.
        images: from a batch to its images; the first of its parts if it is not given.
        class_names: for the titles.
        options: of `dubium.explain`: a method and its options.

    Returns:
        The callback. It writes to loggers whose `experiment` has `add_figure`, as TensorBoard's has.
    """
    check_kinds(kind)
    names = None if class_names is None else check_class_names(class_names)
    lightning = import_extra("lightning.pytorch", "lightning")
    networks, take = posterior or (lambda module: [module]), images or first_part

    class DoubtCallback(lightning.Callback):  # type: ignore[misc, name-defined]  # Lightning is optional: mypy does not know it
        def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            self.doubtful = DoubtfulImages(most)

        def on_validation_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *_: Any) -> None:
            x = take(batch)
            self.doubtful.add(x, uncertainty(networks(pl_module), x, kinds=kind).scores[kind])

        def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.sanity_checking or self.doubtful.images is None:
                return
            found = explain(
                networks(pl_module),
                self.doubtful.images,
                kinds=kind,
                keep_images=True,
                class_names=names,
                **options,
            )
            boards = [logger.experiment for logger in trainer.loggers if hasattr(logger.experiment, "add_figure")]
            for board in boards:
                log_explanation(board, found, trainer.current_epoch, most=most)
            if not boards:
                warn_user(
                    "The trainer has no logger that takes figures: explanations are shown nowhere. Give it one: "
                    "Trainer(logger=lightning.pytorch.loggers.TensorBoardLogger('logs'))."
                )

    return DoubtCallback()


def first_part(batch: Any) -> Tensor:
    """The images of a batch: itself, or the first of its parts."""
    part = next(iter(batch.values())) if isinstance(batch, dict) else batch if isinstance(batch, Tensor) else batch[0]
    if not isinstance(part, Tensor):
        raise ImagesTypeError(
            f"A batch's first part is a {type(part).__name__}, not images. Say where it has them: "
            "doubt_callback(images=lambda batch: batch['image'])."
        )
    return part
