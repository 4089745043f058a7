# %% [markdown]
# # Find label errors and bad images in a dataset
# Networks that are sure of another class than the label say: check the label. Networks that are all unsure say:
# look at the image. Here three labels are made wrong and one image is made noise, and dubium is asked to find
# them.

# %%
import csv
import subprocess

import torch

import dubium

digits = dubium.data.load("demo")
x, labels = digits.batch(slice(None)).clone(), torch.as_tensor(digits.labels).clone()
sure = dubium.uncertainty(dubium.load_posterior("demo"), x).probs.max(1).values.argsort(descending=True)[:3].tolist()
labels[sure] = (labels[sure] + 1) % 10  # wrong now
x[5] = torch.rand(1, 28, 28, generator=torch.Generator().manual_seed(0))

# %% [markdown]
# All images are scored, the most doubtful are explained, and everything goes into a folder with a page.

# %%
dubium.explain_dataset("demo", (x, labels), "doubts", top=8, method="auto")
subprocess.run(["dubium", "export", "doubts", "--to", "csv"], check=True)

# %% [markdown]
# A list for a labelling team: labels to check first, the surest first.

# %%
with open("doubts/review.csv") as file:
    rows = list(csv.DictReader(file))
to_check = [int(row["id"]) for row in rows if row["advice"] == "check-label"]
to_look_at = [int(row["id"]) for row in rows if row["advice"] in ("look", "collect")]
print(f"wrong labels {sorted(sure)}, found among {sorted(to_check)}: {len({*sure} & {*to_check})} of 3")
print(f"the noise image is among the {len(to_look_at)} to look at: {5 in to_look_at}")
print("open doubts/index.html: each card has the advice, the place of the doubt and every network's vote")
