"""One measurement as plain data, and its fingerprint: a job is measured again when its fingerprint changes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dubium.training.attention import Normalisation, Space
from dubium.types import Kind

NONE, CONTROL = "none", ": control"
SEEDS = ("seeds", "first seed")  # options that say which trainings, not how they go
VERSION = 2  # of the folders that jobs share


@dataclass(frozen=True)
class AttentionArm:
    """One way to train in the mitigation experiment: whose maps, and how they act; `method` "none": no attention."""

    label: str
    method: str = NONE
    kind: Kind = "epistemic"
    alpha: float = 0.2
    normalisation: Normalisation = "softmax"
    space: Space = "latent"


@dataclass(frozen=True)
class Job:
    """A measure on one dataset with one posterior.

    Args:
        name: of its result file, without the ending.
        measure: a key of `measures.MEASURES`.
        dataset: a name of the catalogue.
        networks: "ensemble", or a name of `networks.KINDS` or `networks.PUBLIC`.
        methods: texts such as `ig:steps=30`.
        arms: of the mitigation experiment.
        options: of the measure.
    """

    name: str
    measure: str
    dataset: str
    networks: str = "ensemble"
    methods: tuple[str, ...] = ()
    arms: tuple[AttentionArm, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def fingerprint(self, scale: str, networks: Mapping[str, Any]) -> str:
        """A digest of all that decides the result.

        Args:
            networks: what `networks.describe_networks` says of the posterior.

        >>> job = Job("a", "blurring", "mnist")
        >>> job.fingerprint("cpu", {}) == Job("b", "blurring", "mnist").fingerprint("cpu", {})
        True
        """
        values = {**asdict(self), "name": "", "scale": scale, "posterior": networks}
        return text_digest(values)

    def shared_digest(self, scale: str, networks: Mapping[str, Any]) -> str:
        """A digest of what jobs must have in common to share a folder: not methods, arms and the number of seeds."""
        options = {name: value for name, value in self.options.items() if name not in SEEDS}
        values = {"options": options, "scale": scale, "dataset": self.dataset, "posterior": networks}
        return text_digest({**values, "version": VERSION})


def text_digest(values: object) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of a value as JSON."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=list).encode()).hexdigest()[:12]


def job_name(entry: str, group: str, networks: str = "ensemble") -> str:
    """Such as `single-mnist-laplace`; the ensemble is not named."""
    return "-".join(part for part in (entry, group, "" if networks == "ensemble" else networks) if part)
