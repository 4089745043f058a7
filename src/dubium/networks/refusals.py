"""What is said about networks whose logits cannot be explained."""

import re
from typing import NoReturn

from torch import Tensor

from dubium.checks import count_text
from dubium.errors import NetworkError, NetworkStateError, OutputError, PosteriorError

ONE_OUTPUT = (
    "One output an image is two classes: if it is the logit z of a sigmoid, output='sigmoid' takes it as the logits "
    "(0, z); if it has been through the sigmoid, output='probabilities' takes it as (1 - p, p) (--network-output on "
    "the command line)."
)
CLASS_MAPS = (
    "Of maps of classes (B, K, h, w), the mean over the image is logits: output=lambda z: z.mean((2, 3)); or, for "
    "folders of results and the command line too, nn.Sequential(network, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()."
)

OTHER_SIZE = ("shapes cannot be multiplied", "input size", "The size of tensor", "doesn't match model")
"""What torch and timm say of images of a size that a network does not take."""
OTHER_SIZE_ADVICE = (
    ". If they have another size than the networks take, resize x; for files, input_shape=(C, H, W) of explain_dataset "
    "and evaluate does so (--input-shape on the command line)."
)


def refuse_images(index: int, error: Exception, x: Tensor, taken: object) -> NoReturn:
    """Say that network `index` raised an error.

    Args:
        x: the images to explain.
        taken: what the network was called with, after its first pass; None in that pass, or where it is not known.
    """
    raised = f"{type(error).__name__}: {error}"
    if isinstance(taken, Tensor) and differ_from_x(taken, x):
        raise NetworkError(
            f"Network {index} cannot take images that the method made of x, noisy, blurred or mixed ones: {raised}. "
            "Let it take such pixels, let them differ less from x (a smaller sigma of smoothgrad), or choose a method "
            "that stays at x: 'ua-backprop' and 'grad' do."
        ) from error
    shape = tuple(x.shape)
    is_exported = isinstance(error, AssertionError) and "Guard failed" in str(error)
    hint = ". torch.export fixes the batch size unless dynamic_shapes say {0: torch.export.Dim.AUTO}."
    last = ". Are their axes (B, H, W, C)? Then: x.movedim(-1, 1)." * (shape[1] > 4 >= shape[3])
    size = OTHER_SIZE_ADVICE if any(words in str(error) for words in OTHER_SIZE) else ""
    advice = hint if is_exported else last or channels_advice(str(error), shape[1]) or size
    raise NetworkError(f"Network {index} cannot take images of shape {shape}: {raised}{advice}") from error


def channels_advice(raised: str, channels: int) -> str:
    """What to do where the first convolution, whose input has the channels of x, takes another number; "" elsewhere."""
    found = re.search(r"expected input\[.*\] to have (\d+) channels, but got (\d+) channels", raised)
    if not found or int(found[2]) != channels:
        return ""
    ways = {
        (1, 3): "repeat the grey channel, x.expand(-1, 3, -1, -1) (--input-shape 3,H,W on the command line)",
        (3, 1): "make x grey, x.mean(1, keepdim=True) (--input-shape 1,H,W on the command line)",
    }
    way = ways.get((channels, int(found[1])), "give x the channels that the networks were trained with")
    return (
        f". x has {count_text(channels, 'channel')}, and the first convolution takes {found[1]}: {way}, or take "
        f"networks that were trained on images with {count_text(channels, 'channel')}."
    )


def differ_from_x(images: Tensor, x: Tensor) -> bool:
    """Whether some of the images are none of x; unknown, and so False, where the network has overwritten them."""
    is_known = images._version == 0 and images.shape[1:] == x.shape[1:] and len(x) > 0
    return is_known and not all((x == image).flatten(1).all(1).any() for image in images)


def refuse_output(logits: object, index: int, image_count: int) -> NoReturn:
    """Say why the output of network `index` is not logits (B, K)."""
    if not isinstance(logits, Tensor):
        raise OutputError(
            f"Network {index} returned a {type(logits).__name__}; a tensor of logits (B, K) is needed. "
            "Say what to take with output= (--network-output on the command line)."
        )
    if logits.ndim != 2 or len(logits) != image_count:
        hint = f" {ONE_OUTPUT}" if logits.shape == (image_count,) else ""
        hint = f" {CLASS_MAPS}" if logits.ndim == 4 and len(logits) == image_count and logits.shape[1] > 1 else hint
        raise OutputError(
            f"Network {index} returned shape {tuple(logits.shape)} for {count_text(image_count, 'image')}; "
            f"(B, K) = ({image_count}, K) is needed.{hint} Segmentation and regression are not supported yet."
        )
    if not logits.is_floating_point():
        raise OutputError(f"Network {index} returned {logits.dtype}; floating-point logits are needed.")
    raise OutputError(
        f"Network {index} has K = {logits.shape[1]} outputs; at least two classes are needed. {ONE_OUTPUT} "
        "Regression is not supported yet."
    )


def refuse_probabilities(index: int) -> NoReturn:
    raise OutputError(
        f"The outputs of network {index} look like probabilities: none is negative and each row sums to 1. Logits are "
        "needed: leave out the last softmax, or say output='probabilities' (--network-output probabilities on the "
        "command line), which takes their logarithm. If they are logits after all: output='logits' (--network-output "
        "logits on the command line)."
    )


def refuse_multi_label(index: int) -> NoReturn:
    raise OutputError(
        f"Network {index} ends in a sigmoid for each class: its outputs are probabilities of classes that do not "
        "exclude each other, and such multi-label networks are not supported yet. If the classes do exclude each "
        "other, give logits: leave out the sigmoid, or in Python say output=torch.logit."
    )


def refuse_features(index: int, count: int) -> NoReturn:
    raise OutputError(
        f"The {count} outputs of network {index} are features: its num_classes is 0, so that it has no head. Build it "
        "with as many classes as it was trained with, timm.create_model(name, num_classes=10), or give its features a "
        "head: nn.Sequential(network, head).eval(). To take features as logits: output='logits' (--network-output "
        "logits on the command line)."
    )


def refuse_cut_off(index: int) -> NoReturn:
    raise NetworkStateError(
        f"The logits of network {index} have no gradient at the image: its forward pass cuts it off (torch.no_grad, "
        "detach, .data or .numpy), so that maps would be flat. Let it compute everything with gradients; its "
        "parameters may stay frozen (requires_grad=False)."
    )


def refuse_mixed_images(index: int) -> NoReturn:
    raise NetworkStateError(
        f"Network {index} mixes the images of a batch: the logits of an image change with its neighbours, and so "
        "would its maps. Does it reshape or repeat across the batch? (timm's GCViT does.) Explain one image at a "
        "time, or mend its forward pass."
    )


def refuse_other_draw(index: int) -> NoReturn:
    raise PosteriorError(
        f"The posterior gives other networks on every pass: network {index} had other logits for the first image a "
        "moment ago. Scores would be of one draw and maps of another. Draw the networks once and keep them, "
        "list(posterior), or give each draw a seed of its own: dubium.posteriors.Drawn(sample, samples=20) does."
    )


def refuse_random(index: int) -> NoReturn:
    raise NetworkStateError(
        f"Network {index} is random: two passes of the same images differ, though it is in eval mode. Does it "
        "call F.dropout without training=self.training, or use FractionalMaxPool2d? Make it a fixed function; for "
        "MC dropout, give dubium.posteriors.MCDropout(network), which fixes the masks."
    )
