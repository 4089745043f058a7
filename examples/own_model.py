# %% [markdown]
# # Bring your own model
# Three networks of your own, trained from different seeds, are a posterior: a list. dubium says how unsure they
# are of an image, which kind of doubt it is, and which pixels it comes from. The networks come back as they
# were.

# %%
import torch
from torch import nn

import dubium

digits = dubium.data.load("demo")  # 64 digits that come with dubium; yours here
x, labels = digits.batch(slice(None)), torch.as_tensor(digits.labels)

# %% [markdown]
# Any module that turns images (B, C, H, W) into logits (B, K) will do.


# %%
def small_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(400, 10),
    )  # fmt: skip


networks = []
for seed in range(3):
    torch.manual_seed(seed)
    network = small_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[:48]), labels[:48]).backward()
        optimizer.step()
    networks.append(network.eval())

# %% [markdown]
# Explain images that they have not seen. `auto` is the method that measured best; its kinds are different
# pictures.

# %%
unseen = x[48:]
result = dubium.explain(networks, unseen, method="auto", keep_images=True)
for i in result.scores["epistemic"].topk(3).indices.tolist():
    first, second = result.probs[i].topk(2).indices.tolist()
    total, epistemic = result.scores["total"][i], result.scores["epistemic"][i]
    region = result.regions()[i][0]
    print(f"image {i}: {first} or {second}? {total:.2f} nats, {epistemic:.2f} of them disagreement; ", end="")
    top, left, bottom, right = region.box  # the part x[:, top:bottom, left:right] of the image
    print(f"{region.share:.0%} of that within rows {top} to {bottom - 1}, columns {left} to {right - 1}")

# %% [markdown]
# In a notebook, `result` alone shows each image beside its maps. As a file:

# %%
result.plot(most=4).savefig("own-model.png")
