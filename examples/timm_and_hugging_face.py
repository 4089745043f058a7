# %% [markdown]
# # timm and Hugging Face
# Their models go in as they are: logits are taken from a Hugging Face output by themselves, and images are
# prepared as the model's own configuration says. Models are small and untrained here, so that nothing is
# downloaded; in real life, `pretrained=True`, `from_pretrained(...)`. (`pip install 'dubium[zoo]'`)

# %%
import timm
import torch
from transformers import ViTConfig, ViTForImageClassification

import dubium

torch.manual_seed(0)
photos = torch.rand(2, 3, 64, 64)  # in [0, 1]

# %% [markdown]
# **timm.** One network is no posterior: fine-tune several seeds, or leave dropout on when predicting.

# %%
networks = [timm.create_model("resnet10t", num_classes=5).eval() for _ in range(3)]
config = timm.data.resolve_model_data_config(networks[0])
mean, std = (torch.tensor(config[name])[:, None, None] for name in ("mean", "std"))
result = dubium.explain(networks, (photos - mean) / std, method="auto")
print(f"timm: {config['input_size']} in training, epistemic {result.scores['epistemic'].tolist()}")

# %% [markdown]
# **Hugging Face**, with the dropout that the model has, functional or not, as the posterior.

# %%
vit = ViTForImageClassification(
    ViTConfig(
        image_size=64, patch_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        num_labels=5, hidden_dropout_prob=0.2,
    )
)  # fmt: skip
posterior = dubium.posteriors.MCDropout(vit.eval(), samples=8, seed=0)
result = dubium.explain(posterior, photos * 2 - 1, method="auto")
print(f"ViT with MC dropout: epistemic {result.scores['epistemic'].tolist()}")

# %% [markdown]
# `auto` asks for gradients alone. UA-Backprop with FullGrad looks inside; how much of the logits it accounts
# for:

# %%
print(f"FullGrad misses {dubium.fullgrad_completeness(vit.eval(), photos).max():.1e} of the logits")
