"""Independent answers: plain loops over samples, classes and pixels in float64, straight from the paper's equations."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F


def entropy_shares(logits):
    """Equation 4 by loops: (3, B, K) of total, aleatoric, epistemic."""
    probs = logits.double().softmax(-1)
    samples, images, classes = probs.shape
    out = torch.zeros(3, images, classes, dtype=torch.float64)
    for b in range(images):
        for i in range(classes):
            mean = sum(float(probs[s, b, i]) for s in range(samples)) / samples
            total = -mean * math.log(mean) if mean > 0 else 0.0
            parts = [float(probs[s, b, i]) for s in range(samples)]
            aleatoric = sum(-p * math.log(p) if p > 0 else 0.0 for p in parts) / samples
            out[:, b, i] = torch.tensor([total, aleatoric, total - aleatoric], dtype=torch.float64)
    return out


def coefficients(g, tau1):
    """Equations 7 and 8 as printed for one probability vector: c[j, i], from the softmax's Jacobian."""
    classes = len(g)
    c = torch.zeros(classes, classes, dtype=torch.float64)
    for j in range(classes):
        slopes = [float(g[j] * (1 - g[j])) if i == j else float(-g[i] * g[j]) for i in range(classes)]
        powers = torch.tensor([slope / (float(g[j]) * tau1) for slope in slopes], dtype=torch.float64)
        c[j] = (powers - powers.max()).exp() / (powers - powers.max()).exp().sum()
    return c


def logit_shares(on_probs, logits, tau1):
    """Equation 5 by loops: (S, kinds, B, K)."""
    probs = logits.double().softmax(-1)
    samples, images, classes = probs.shape
    out = torch.zeros(samples, len(on_probs), images, classes, dtype=torch.float64)
    for s in range(samples):
        for b in range(images):
            c = coefficients(probs[s, b], tau1)
            for t in range(len(on_probs)):
                for i in range(classes):
                    out[s, t, b, i] = sum(c[j, i] * on_probs[t, b, j] for j in range(classes))
    return out


def fullgrad_map(network, image, pick, rescale, biased):
    """FullGrad of one image and one number by plain autograd: `biased` are its convolutions and BatchNorms.

    `pick` turns the network's output (1, ...) into that number.
    """
    network = copy.deepcopy(network).double()
    outputs = []
    for name in biased:
        network.get_submodule(name).register_forward_hook(lambda m, _a, out: outputs.append((m, out)) or out.clone())
    x = image[None].double().requires_grad_()
    gradients = torch.autograd.grad(pick(network(x)), [x, *[out for _, out in outputs]])
    terms = [(gradients[0] * x)[0].detach()]
    for (layer, _), gradient in zip(outputs, gradients[1:], strict=True):
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            weight = 1.0 if layer.weight is None else layer.weight
            bias = (0.0 if layer.bias is None else layer.bias) - layer.running_mean * weight / (
                layer.running_var + layer.eps
            ).sqrt()
        else:
            bias = layer.bias
        terms.append((gradient[0] * bias.detach()[:, None, None]).detach())
    total = 0
    for term in terms:
        term = term.abs()
        if rescale == "reference":
            term = term - term.min()
            term = term / (term.max() + 1e-6)
        big = F.interpolate(term[None], size=image.shape[1:], mode="bilinear", align_corners=True)[0]
        total = total + (big.sum(0) if rescale == "reference" else big.mean(0))
    if rescale == "reference":
        total = (total - total.min()) / (total.max() - total.min() + 1e-6)
    return total


def uncertainties(logits):
    """Total, aleatoric and epistemic of (S, K) logits, differentiable."""
    probs = logits.softmax(-1)
    total = -(probs.mean(0) * probs.mean(0).log()).sum()
    aleatoric = -(probs * probs.log()).sum(-1).mean()
    return torch.stack([total, aleatoric, total - aleatoric])


def ua_backprop_maps(networks, x, relevance, tau1, tau2, normalize=True):
    """Algorithm 1 for each image: (3, B, H, W). `relevance(network, image, class) -> (H, W)`."""
    logits = torch.stack([copy.deepcopy(network).double()(x.double()) for network in networks]).detach()
    shares = logit_shares(entropy_shares(logits), logits, tau1)
    maps = torch.zeros(3, len(x), *x.shape[2:], dtype=torch.float64)
    for b, image in enumerate(x):
        for s, network in enumerate(networks):
            for i in range(logits.shape[-1]):
                where = relevance(network, image, i)
                if normalize:
                    where = (where / tau2).flatten().softmax(0).view_as(where)
                for t in range(3):
                    maps[t, b] += shares[s, t, b, i] * where / len(networks)
    return maps


def relative_l1(maps, exact):
    """Per map: sum of absolute differences over the sum of absolute values."""
    maps, exact = maps.double().flatten(-2), exact.double().flatten(-2)
    return (maps - exact).abs().sum(-1) / exact.abs().sum(-1).clamp(min=1e-30)
