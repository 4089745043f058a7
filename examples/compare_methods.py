# %% [markdown]
# # Compare methods
# Does a map say anything? Blur the pixels that it blames, and see how much of the doubt is left: less is
# better. A method that does not beat `random` and `edges`, which never ask a network, has not shown anything.
# Add a method of your own in a line.

# %%
import torch

import dubium

posterior, x = dubium.load_posterior("demo"), dubium.data.load("demo").batch(slice(8))

# %% [markdown]
# A method is a function of a network, images and targets: all targets at once, (B, T, H, W) out.


# %%
def squared_gradient(network, x, target):
    x = x.detach().requires_grad_()
    targets = target(network(x))  # (B, T)
    gradients = [torch.autograd.grad(targets[:, t].sum(), x, retain_graph=True)[0] for t in range(targets.shape[1])]
    return torch.stack(gradients, 1).square().sum(2)


dubium.register_method("squared-gradient", squared_gradient)

# %% [markdown]
# Eight images and few steps, so that it takes seconds: for a verdict take hundreds and `scale="cpu"`.
# `out="folder"` keeps tables, intervals, corrected comparisons, figures and a page.

# %%
summary = dubium.evaluate(
    posterior, x, ["auto", "ua-backprop", "squared-gradient", "random"], protocol="blurring", scale="smoke", images=8,
    step=5.0,
)  # fmt: skip
for method, metrics in sorted(summary["results"].items(), key=lambda found: found[1]["murr@2%"]["value"], reverse=True):
    murr = metrics["murr@2%"]
    print(f"{method:17} removes {murr['value']:.0%} of the doubt at best [{murr['low']:.0%}, {murr['high']:.0%}]")

# %% [markdown]
# How alike are a method's kinds? 1 is the same picture.

# %%
for method in ("auto", "ua-backprop"):
    maps = dubium.explain(posterior, x, method=method).maps
    kinds = torch.stack(
        [maps[kind].flatten(1) / maps[kind].sum((1, 2))[:, None] for kind in ("aleatoric", "epistemic")]
    )
    print(f"{method}: {kinds.amin(0).sum(1).mean():.0%} of the aleatoric and the epistemic map is shared")
