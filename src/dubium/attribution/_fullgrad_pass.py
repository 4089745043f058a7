"""A forward pass that FullGrad can ask about any target, again and again."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from torch import Tensor, nn

from dubium.attribution._biases import Bias, record_biases
from dubium.attribution._budget import measure_cost
from dubium.attribution._gradients import apply_target, forward_with_graph, reduced_gradients
from dubium.types import Images, Target


class FullGradPass:
    """Images that have gone through a network: a leaf, the output, and where each bias acts in the graph between."""

    def __init__(self, network: nn.Module, x: Images, *, spatial: bool = True) -> None:
        with record_biases(network, len(x), spatial=spatial) as recorded:
            self.leaf, self.output = forward_with_graph(network, x)
        terms = recorded.with_input(self.leaf, self.output)
        self.edges, self.biases = [edge for edge, _ in terms], [bias for _, bias in terms]


def bias_terms(
    passes: Sequence[FullGradPass], target: Target, reduction: Callable[[Bias, Tensor], Tensor], memory: int
) -> Iterator[Sequence[Tensor]]:
    """What the reduction makes of the gradients (t, S, B, ...) at every bias, for some targets at a time.

    The passes are of networks of one architecture, whose graphs are walked together.
    """
    scores = [apply_target(target, one.output, one.leaf) for one in passes]
    by_place = zip(*(one.biases for one in passes), strict=True)
    reductions = [partial(reduction, Bias.of_networks(biases)) for biases in by_place]
    return reduced_gradients(scores, [one.edges for one in passes], reductions, memory)


def images_per_pass(network: nn.Module, x: Images, target: Target, memory: int) -> int:
    """Images whose pass, with all targets' gradients, keeps to the memory."""
    return measure_cost(network, x, target).chunks(len(x), memory)[0] if len(x) > 1 else 1
