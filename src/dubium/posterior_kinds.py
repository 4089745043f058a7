"""The kinds of posterior: one row says how a kind is stored and trained.

No torch here: the command line lists the kinds without importing it. The functions that train a kind are in
`dubium.training.trainers.TRAINERS`, one row per kind again; a test compares the two tables.
"""

from dataclasses import dataclass
from typing import Literal

Storage = Literal["networks", "gaussian", "dropout"]
"""What the weight files hold: "networks", one file per network; "gaussian", mean, standard deviations and low-rank
factors in one file; "dropout", one network, whose dropout masks are drawn again when it is loaded."""


@dataclass(frozen=True)
class PosteriorKind:
    """How posteriors of one kind are stored and trained.

    Args:
        storage: of a posterior that `dubium.training.train` makes. SWAG of a network with BatchNorm is stored as
            networks, since each has BatchNorm statistics of its own.
        trains_each_member: whether every network is trained by itself; otherwise one is trained, and the networks of
            the posterior are drawn from it.
        library: the module that training needs, which the extra of the same name installs.
    """

    storage: Storage = "networks"
    trains_each_member: bool = False
    library: str | None = None


POSTERIOR_KINDS: dict[str, PosteriorKind] = {
    "ensemble": PosteriorKind(trains_each_member=True),
    "snapshot": PosteriorKind(),
    "hyper-ensemble": PosteriorKind(trains_each_member=True),
    "mc-dropout": PosteriorKind(storage="dropout"),
    "swag": PosteriorKind(storage="gaussian"),
    "laplace": PosteriorKind(library="laplace"),
    "sghmc": PosteriorKind(library="posteriors"),
    "vi": PosteriorKind(storage="gaussian", library="posteriors"),
}

DEFAULT_KIND: dict[Storage, str] = {"networks": "ensemble", "gaussian": "vi", "dropout": "mc-dropout"}
"""The kind that `save_posterior` records when the caller names none."""
