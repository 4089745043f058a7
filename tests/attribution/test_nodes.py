"""What we know of torch's graph: a rename in torch must fail here, not make dubium silently slow."""

from collections import Counter

import pytest
import torch

import dubium
from dubium.attribution import _gradients
from dubium.attribution._autograd import nodes, rules
from dubium.models import cifar_resnet, cnn
from tests.networks import ensemble, images, randomised, small_cnn
from tests.oracles import relative_l1

NETWORKS = {"the paper's CNN": (cnn, (1, 28, 28)), "a ResNet": (lambda: cifar_resnet(depth=8), (3, 32, 32))}


@pytest.fixture
def left_to_autograd(monkeypatch):
    """Names of the nodes that had no rule, and how often each rule fired."""
    plain, fired = Counter(), Counter()
    node_gradients = _gradients.node_gradients

    def count_plain(name, *args):
        plain[name] += 1
        return node_gradients(name, *args)

    def counting(name, make):
        def made(steps):
            rule = make(steps)
            fired[name] += rule is not None
            return rule

        return made

    monkeypatch.setattr(_gradients, "node_gradients", count_plain)
    monkeypatch.setattr(
        _gradients, "GRADIENT_RULES", {name: counting(name, make) for name, make in rules.GRADIENT_RULES.items()}
    )
    return plain, fired


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("batch", [1, 24])  # networks together, networks one by one
def test_rules_fire_on_every_node(name, batch, left_to_autograd):
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    dubium.explain([make().eval() for _ in range(2)], torch.rand(batch, *shape))
    plain, fired = left_to_autograd
    assert not plain
    expected = {"ConvolutionBackward0", "ReluBackward0", "AddmmBackward0"}
    expected |= {"MaxPool2DWithIndicesBackward0"} if make is cnn else {"NativeBatchNormBackward0", "AddBackward0"}
    assert expected <= {name for name, count in fired.items() if count}


@pytest.mark.parametrize(
    "hidden", ["_saved_weight", "_saved_stride", "_saved_mat2", "next_functions", "_input_metadata"]
)
@pytest.mark.parametrize("rescale", ["reference", "none"])
def test_maps_are_the_same_where_torch_does_not_show_an_attribute(hidden, rescale, monkeypatch):
    networks, x = ensemble(small_cnn), images(2)
    expected = dubium.explain(networks, x, rescale=rescale).maps["total"]
    read = nodes.read_attribute

    def without(node, name):
        return read(node, "not there" if name == hidden else name)

    monkeypatch.setattr(nodes, "read_attribute", without)
    assert relative_l1(dubium.explain(networks, x, rescale=rescale).maps["total"], expected).max() < 1e-5


class Unbatchable(torch.autograd.Function):
    """A user's own, with a backward pass that `torch.func.vmap` cannot batch."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        if float(gradient.sum()) == float("inf"):  # data-dependent control flow
            return gradient
        return 3 * x**2 * gradient


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cdist(x.flatten(1), torch.linspace(0, 1, 4 * x[0].numel()).view(4, -1).to(x)),
        lambda x: Unbatchable.apply(x).mean((1, 2)),
    ],
)
def test_what_cannot_be_batched_is_done_target_by_target(function):
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.training = randomised(torch.nn.Conv2d(1, 3, 3)).double(), False

        def forward(self, x):
            return function(self.first(x))

    network, x = Odd(), images(2, dtype=torch.float64)
    slopes = dubium.attribution.grad(network, x, lambda z: z)
    for image, found in zip(x, slopes, strict=True):
        at = image[None].clone().requires_grad_()
        for score, slope in zip(network(at)[0], found, strict=True):
            (expected,) = torch.autograd.grad(score, at, retain_graph=True)
            torch.testing.assert_close(slope, expected[0].abs().mean(0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_batched_call_is_that_of_vmap_whether_torch_shows_what_it_is_made_of_or_not(is_shown, monkeypatch):
    x = torch.rand(2, 3, dtype=torch.float64, requires_grad=True)
    node, given = (x.sigmoid() * x).grad_fn, {0: torch.rand(4, 2, 3, dtype=torch.float64)}

    def pull(gradients):
        return [*node(gradients[0]), torch.ones(2, dtype=torch.float64)]  # the last is the same for all targets

    expected = torch.func.vmap(pull)(given)
    assert nodes.find_batching() is not None, "torch has renamed it: `call_batched` takes the slow way"
    if not is_shown:
        monkeypatch.setattr(nodes, "find_batching", lambda: None)
    for found, other in zip(nodes.call_batched(pull, given), expected, strict=True):
        assert found.equal(other)


def test_a_batched_call_that_fails_leaves_no_batch_behind():
    def fail(gradients):
        return [gradients[0].sum().item()]  # vmap knows no numbers

    with pytest.raises(RuntimeError):
        nodes.call_batched(fail, {0: torch.rand(4, 2)})
    assert torch._C._functorch.maybe_current_level() is None


AXIS_OPERATIONS = {
    "AsStrided": lambda h: h.as_strided((2, 4), (4, 1)),
    "Permute": lambda h: h.permute(0, 2, 3, 1),
    "Transpose": lambda h: h.transpose(1, 2),
    "Flip": lambda h: h.flip(2),
    "Rot90": lambda h: h.rot90(1, (2, 3)),
    "Roll": lambda h: h.roll(1, 2),
    "Slice": lambda h: h[:, 1:],
    "Unfold": lambda h: h.unfold(2, 2, 2),
    "ConstantPadNd": lambda h: torch.constant_pad_nd(h, (1, 0)),
    "Im2Col": lambda h: torch.nn.functional.unfold(h, 2),
    "Convolution": lambda h: torch.conv2d(h, torch.ones(4, 4, 1, 1)),
    "MkldnnConvolution": lambda h: torch.ops.aten.mkldnn_convolution(
        h, torch.ones(4, 4, 1, 1), None, [0, 0], [1, 1], [1, 1], 1
    ),
    "Index": lambda h: h[:, [0, 2]],
    "Split": lambda h: h.split(2, 1)[0],
    "SplitWithSizes": lambda h: h.split([1, 3], 1)[0],
    "Select": lambda h: h[:, 0],
    "Unbind": lambda h: h.unbind(1)[0],
    "Cat": lambda h: torch.cat([h, h], 1),
    "Stack": lambda h: torch.stack([h, h], 1),
    "IndexSelect": lambda h: h.index_select(1, torch.tensor([0, 2])),
    "Gather": lambda h: h.gather(1, torch.zeros_like(h, dtype=torch.long)),
    "Sort": lambda h: h.sort(1)[0],
    "Topk": lambda h: h.topk(2, 1)[0],
    "Mean": lambda h: h.mean((2, 3)),
    "Sum": lambda h: h.sum((2, 3)),
    "Nansum": lambda h: h.nansum((2, 3)),
    "Prod": lambda h: h.prod(2),
    "Logsumexp": lambda h: h.logsumexp(2),
    "LinalgVectorNorm": lambda h: torch.linalg.vector_norm(h, dim=2),
    "Norm": lambda h: torch.ops.aten.norm.ScalarOpt_dim(h, 2, [2]),
    "Amax": lambda h: h.amax(2),
    "Amin": lambda h: h.amin(2),
    "Aminmax": lambda h: h.aminmax(dim=2)[0],
    "Max": lambda h: h.max(2)[0],
    "Min": lambda h: h.min(2)[0],
    "Median": lambda h: h.median(2)[0],
    "Kthvalue": lambda h: h.kthvalue(1, 2)[0],
    "Var": lambda h: h.var(2),
    "VarMean": lambda h: torch.var_mean(h, 2)[0],
    "Std": lambda h: h.std(2),
    "StdMean": lambda h: torch.std_mean(h, 2)[0],
    "FftR2C": lambda h: torch.fft.rfft(h),
    "FftC2C": lambda h: torch.fft.fft(h + 0j),
    "FftC2R": lambda h: torch.fft.irfft(h + 0j),
    "ReflectionPad1D": lambda h: torch.nn.functional.pad(h[0], (1, 1), "reflect"),
    "ReflectionPad2D": lambda h: torch.nn.functional.pad(h, (1, 1, 1, 1), "reflect"),
    "ReflectionPad3D": lambda h: torch.nn.functional.pad(h[None], (1, 1) * 3, "reflect"),
    "ReplicationPad1D": lambda h: torch.nn.functional.pad(h[0], (1, 1), "replicate"),
    "ReplicationPad2D": lambda h: torch.nn.functional.pad(h, (1, 1, 1, 1), "replicate"),
    "ReplicationPad3D": lambda h: torch.nn.functional.pad(h[None], (1, 1) * 3, "replicate"),
}


def test_torch_shows_what_operations_do_to_axes():
    of_other_devices = {"ConvolutionOverrideable"}
    assert AXIS_OPERATIONS.keys() == nodes.AXIS_ARGUMENTS.keys() - of_other_devices
    for name, operation in AXIS_OPERATIONS.items():
        node = operation(torch.rand(2, 4, 4, 4, requires_grad=True)).grad_fn
        assert nodes.operation_name(node.name()) == name
        assert nodes.read_axis_arguments(node, name), f"{name}: torch has renamed what it saves"
