# %% [markdown]
# # Laplace on a trained network
# You have one network and its training data. A Laplace approximation of its last layer (laplace-torch, `pip
# install 'dubium[laplace]'`) makes it a posterior after the fact: the prediction hardly changes, and now there
# is epistemic doubt.

# %%
import torch

import dubium
from dubium.posteriors import fit_laplace

digits = dubium.data.load("demo")
x, labels = digits.batch(slice(None)), torch.as_tensor(digits.labels)
network = next(iter(dubium.load_posterior("demo")))  # a trained network; yours here

alone = dubium.uncertainty([network], x)
print(f"one network: total {alone.scores['total'].mean():.3f}, epistemic {alone.scores['epistemic'].abs().mean():.3f}")

# %% [markdown]
# Batches of the training data; a DataLoader does as well. `prior_precision` says how far networks are drawn
# from the trained one.

# %%
batches = [(x[i : i + 16], labels[i : i + 16]) for i in range(0, 48, 16)]
posterior = fit_laplace(network, batches, samples=10, prior_precision=1.0)
unseen = x[48:]
result = dubium.explain(posterior, unseen, method="auto")
same = (result.probs.argmax(1) == alone.probs[48:].argmax(1)).float().mean()
print(f"{len(posterior)} networks: the same prediction for {same:.0%} of the images, ", end="")
print(f"total {result.scores['total'].mean():.3f}, epistemic {result.scores['epistemic'].mean():.3f}")

# %% [markdown]
# The maps are of this posterior: where would other plausible last layers change their mind?

# %%
result.plot(unseen, most=4).savefig("laplace.png")
