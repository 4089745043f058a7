"""One set of maps for several evaluations of the same posterior: each is computed once, and found by its images."""

import hashlib
from collections.abc import Sequence

from torch import Tensor

from dubium.evaluation.methods import LabelledMethod, explain_maps
from dubium.evaluation.protocols.evaluation import Evaluation
from dubium.evaluation.shards import ShardStore, shared_map_shard
from dubium.types import Images, Kind


def shared_maps(evaluation: Evaluation, method: LabelledMethod, x: Images, kinds: Sequence[Kind]) -> dict[str, Tensor]:
    """Maps (B, H, W) by kind, read from the evaluation's `map_folder` or computed and kept there."""
    assert evaluation.map_folder is not None
    settings = {
        **evaluation.posterior_digests(),
        "seed": evaluation.seed,
        "run": evaluation.posterior_name,
        "methods": evaluation.method_fingerprints(),
    }
    store, digest = ShardStore.open(evaluation.map_folder, settings), images_digest(x)
    names = {kind: shared_map_shard(method.label, digest, kind) for kind in kinds}
    missing = [kind for kind, name in names.items() if not store.has_tensors(name)]
    if missing:
        found = explain_maps(evaluation.posterior, x, method, missing, seed=evaluation.seed)
        for kind in missing:
            maps_of_kind: dict[str, Tensor] = {kind: found[kind]}
            store.compute_tensors(names[kind], maps_of_kind.copy)
    return {kind: store.read_tensors(name)[kind] for kind, name in names.items()}


def images_digest(x: Images) -> str:
    """A name for the images: the first 16 hexadecimal digits of their SHA-256."""
    return hashlib.sha256(x.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:16]
