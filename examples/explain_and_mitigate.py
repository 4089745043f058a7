# %% [markdown]
# # Explain and mitigate
# Train with attention on the places that made an ensemble unsure, as the paper proposes, and compare honestly:
# with the same training without attention, and with random maps. On 64 digits this shows the way, not an
# effect; `dubium evaluate mitigation` does it over seeds and with intervals.

# %%
import torch

import dubium
from dubium.models import cnn
from dubium.training import Recipe

digits = dubium.data.load("demo")
x, labels = digits.batch(slice(None)), torch.as_tensor(digits.labels)
train, test = slice(0, 48), slice(48, None)

# %% [markdown]
# 1. Where does the doubt come from?

# %%
maps = dubium.explain(dubium.load_posterior("demo"), x[train], method="auto").maps["epistemic"]
random = torch.rand(maps.shape, generator=torch.Generator().manual_seed(0))

# %% [markdown]
# 2. Train three copies of one network, alike but for the maps.

# %%
torch.manual_seed(0)
network, recipe = cnn(classes=10, filters=4, units=16), Recipe(epochs=3, batch_size=16)
arms = {"no attention": None, "random maps": random, "maps of doubt": maps}
for name, attention in arms.items():
    copy = dubium.mitigate(network, attention, x[train], labels[train], normalisation="unit", alpha=1.0, recipe=recipe)
    loss = torch.nn.functional.cross_entropy(copy.eval()(x[test]), labels[test]).item()
    print(f"{name:13} loss on images that took no part: {loss:.3f}")
