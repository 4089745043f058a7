# %% [markdown]
# # For those who know Captum
# Explain the doubt of an ensemble instead of the score of a class. (`pip install 'dubium[captum]'`)

# %%
import captum.attr

import dubium

posterior = dubium.load_posterior("demo")  # a list of networks of your own does as well
x = dubium.data.load("demo").batch(slice(4))

result = dubium.explain(posterior, x)
for i, (score, maps) in enumerate(zip(result.scores["epistemic"], result.maps["epistemic"], strict=True)):
    row, column = divmod(int(maps.argmax()), maps.shape[1])
    print(f"digit {i}: {score:.2f} nats of epistemic doubt, most of it at row {row}, column {column}")

# %% [markdown]
# Any Captum class stands where a method's name does, here as the relevance of UA-Backprop.

# %%
saliency = dubium.explain(posterior, x, relevance=captum.attr.Saliency)
agreement = (saliency.maps["epistemic"].flatten(1).argmax(1) == result.maps["epistemic"].flatten(1).argmax(1)).sum()
print(f"with Captum's Saliency as relevance, {int(agreement)} of {len(x)} maps peak at the same pixel")
